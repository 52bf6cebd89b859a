"""What a configuration may say of an AMQP system, and what is wrong with what it may not."""

from __future__ import annotations

import re

import pytest

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.system.amqp.broker import parameters
from streambench.system.amqp.settings import Settings
from tests.conftest import CHECKOUT

URL = "amqp://user:pass%2Fword@host:1234/v"


def settings(**values: str) -> Settings:
    return Settings(
        "q", Config({"systems.q.url": URL, **{f"systems.q.{name}": value for name, value in values.items()}})
    )


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"url": ""}, r"systems\.q\.url: is missing"),
        ({"url": "http://host"}, r"write amqp://"),
        ({"url": "amqp://host:port"}, r"systems\.q\.url: amqp://host:port: its port is no number"),
        (
            {"url": "amqp://me:pass%2F/w@host"},
            r"systems\.q\.url: amqp://\*\*\*@host: in a password, write %2F",
        ),
        ({"url": "amqp://me:p?ass%2Fword@host"}, r"systems\.q\.url: amqp://\*\*\*: in a password, write"),
        ({"url": "me:pass%2Fword@host"}, r"systems\.q\.url: \*\*\*@host is no address of a broker"),
        (
            {"url": "amqp://me:pass%2Fword@[::1/"},
            r"systems\.q\.url: amqp://\*\*\*@\[::1/ is no address of a broker",
        ),
        ({"streams.s.queue": "q" * 256}, r"streams\.s\.queue: has 256 bytes, .* no more than 255"),
        ({"streams.s.exchange": "e", "streams.s.group": "g" * 254}, r"streams\.s\.queue: has 256 bytes"),
        ({"streams.s.routing.key": "r" * 256}, r"streams\.s\.routing\.key: has 256 bytes"),
        ({"prefech": "3"}, r"systems\.q\.prefech: .*did you mean prefetch"),
        ({"streams.s.exchnage": "3"}, r"systems\.q\.streams\.s\.exchnage: .*did you mean exchange"),
        ({"prefetch": "-1"}, r"systems\.q\.prefetch: -1 is too small"),
        ({"prefetch": "70000"}, r"systems\.q\.prefetch: 70000: give a number from 1, or 0 .*, to 65535"),
        ({"prefetch": "many"}, r"systems\.q\.prefetch: 'many' is not a whole number"),
        ({"queue.type": "mirrored"}, r"systems\.q\.queue\.type: 'mirrored' is not one of"),
        ({"streams.s.queue.type": "stream"}, r"streams\.s\.queue\.type: .*another system"),
        (
            {"queue.type": "stream", "streams.s.exchange": "e"},
            r"streams\.s\.exchange: is not for stream queues",
        ),
        ({"queue.type": "stream", "prefetch": "0"}, r"systems\.q\.prefetch"),
        (
            {"queue.type": "stream", "streams.s.dead.letter.queue": "d"},
            r"dead\.letter\.queue: is not for stream queues",
        ),
        ({"streams.s.delivery.limit": "3"}, r"delivery\.limit: .*set dead\.letter\.queue"),
        (
            {"streams.s.delivery.limit": "3", "streams.s.dead.letter.queue": "d", "queue.type": "classic"},
            r"only quorum queues count",
        ),
        (
            {"streams.s.exchange": "e", "streams.s.group": "g", "streams.s.mandatory": "maybe"},
            r"neither true nor false",
        ),
        (
            {"streams.s.exchange": "e", "streams.s.group": "g", "streams.s.exchange.type": "round"},
            r"'round' is not one of",
        ),
    ],
)
def test_a_wrong_setting_is_an_error_that_names_its_key(values: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        settings(**values).topology("s")
    assert "pass%2F" not in str(raised.value)


def test_a_stream_is_a_queue_of_its_name() -> None:
    topology = settings().topology("s")
    assert (topology.queues, topology.exchange, topology.arguments) == (
        ("s",),
        "",
        {"x-queue-type": "quorum"},
    )


def test_the_tasks_that_compete_for_a_queue_all_read_it() -> None:
    assert settings(**{"streams.s.partitions": "3"}).topology("s").queues == ("s", "s", "s")


def test_the_partitions_of_a_stream_queue_are_queues_of_their_own() -> None:
    assert settings(**{"queue.type": "stream"}).topology("s", 2).queues == ("s-0", "s-1")


def test_a_queue_is_made_with_its_dead_letters_and_arguments() -> None:
    values = {
        "streams.s.dead.letter.queue": "d",
        "streams.s.delivery.limit": "4",
        "streams.s.arguments.x-max-length": "10",
    }
    assert settings(**values).topology("s").arguments == {
        "x-queue-type": "quorum",
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": "d",
        "x-delivery-limit": 4,
        "x-max-length": 10,
    }


def test_the_group_is_the_job_if_nothing_else_is_said() -> None:
    exchange = {"systems.q.url": URL, "systems.q.streams.s.exchange": "e", "job.name": "j"}
    assert Settings("q", Config(exchange)).topology("s").queues == ("s.j",)
    assert Settings("q", Config({**exchange, "job.id": "2"})).topology("s").queues == ("s.j-2",)
    assert Settings("q", Config({**exchange, "systems.q.streams.s.group": "g"})).topology("s").queues == (
        "s.g",
    )


def test_streams_may_have_dots_in_their_names() -> None:
    assert settings(**{"streams.a.b.prefetch": "3"}).topology("a.b").prefetch == 3


def test_what_the_documentation_sets_can_be_set(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AMQP_PASSWORD", "secret")
    blocks = re.findall(r"```properties\n(.*?)```", (CHECKOUT / "docs" / "amqp.md").read_text(), re.DOTALL)
    assert len(blocks) >= 5
    for block in blocks:
        system = "s" if "systems.s." in block else "q"
        url = {} if f"systems.{system}.url" in block else {f"systems.{system}.url": URL}
        config = Config.from_text(block).with_values({**url, "job.name": "j"})
        config.validate()
        for stream in {"orders", *re.findall(r"streams\.(\w+)\.", block)}:
            assert Settings(system, config).topology(stream).stream == stream


@pytest.mark.parametrize(
    "options",
    [
        "ssl_options={'password':'hunter2'}",
        "ssl_options={'cafile':'/nothing','password':'hunter2'}",
        "heartbeat=x&token=hunter2",
    ],
)
def test_options_that_pika_does_not_take_are_shown_without_their_secrets(options: str) -> None:
    with pytest.raises(
        ConfigError, match=r"systems\.q\.url: amqp://\*\*\*@host/\?\*\*\*: pika does not take its options"
    ) as raised:
        parameters(settings(url=f"amqp://me:hunter2@host/?{options}"))
    assert "hunter2" not in str(raised.value)
    with pytest.raises(ConfigError, match=r"amqp://host/\?heartbeat=x: ValueError: Invalid heartbeat value"):
        parameters(settings(url="amqp://host/?heartbeat=x"))


def test_where_the_broker_is_can_be_told_without_the_password() -> None:
    assert settings().name == "host:1234"
    assert settings(url="amqps://host/v").name == "host:5671"
