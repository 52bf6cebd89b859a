"""Fan-out: what an exchange passes on to groups, and what becomes of what nobody takes."""

from __future__ import annotations

import uuid
from collections.abc import Callable

import pytest

from streambench.errors import ConfigError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope
from streambench.system.systems import Systems
from tests.system.amqp.broker import Amqp

Make = Callable[..., Amqp]


def of_groups(amqp: Make, **settings: str) -> Amqp:
    return amqp(**{"streams.STREAM.exchange": f"e{uuid.uuid4().hex[:8]}", **settings})


def group(system: Amqp, name: str, **more: str) -> dict[str, str]:
    prefix = f"systems.q.streams.{system.stream.stream}"
    return {
        f"{prefix}.group": name,
        **{f"{prefix}.{key.replace('_', '.')}": value for key, value in more.items()},
    }


def test_every_group_gets_everything_and_shares_it_among_its_members(amqp: Make) -> None:
    system = of_groups(amqp).create()
    alone = system.consumer(config=group(system, "alone"))
    members = [system.consumer(config=group(system, "both", prefetch="1")) for _ in range(2)]
    sent = [b"%d" % number for number in range(20)]
    system.send(*sent)
    assert [each.message for each in system.receive(alone, 20)] == sent
    shared: list[bytes] = []
    while len(shared) < 20:
        for member in members:
            for each in member.poll({system.ssp: 1}, 20):
                shared.append(each.message)
                member.acknowledge({system.ssp: each.offset})
    assert sorted(shared, key=int) == sent


def test_what_is_sent_while_nobody_of_a_group_is_there_waits_for_it(amqp: Make) -> None:
    system = of_groups(amqp).create()
    system.send(b"early")
    assert [each.message for each in system.receive(system.consumer(), 1)] == [b"early"]


def test_who_belongs_to_no_group_may_make_it_and_send_but_not_read(amqp: Make) -> None:
    system = of_groups(amqp)
    listener = {f"systems.q.streams.{system.stream.stream}.mandatory": "false"}
    nobody = Systems(system.config.with_values({"job.name": None, **listener}))
    assert nobody.create(system.stream)
    assert nobody.admin("q").streams() == [system.stream]
    assert list(nobody.metadata([system.stream])[system.stream]) == [0]
    reader = system.consumer()
    producer = nobody.producer("q", MetricsRegistry())
    producer.start()
    producer.send("test", OutgoingMessageEnvelope(system.stream, b"news"))
    producer.flush("test")
    producer.stop()
    assert [each.message for each in system.receive(reader, 1)] == [b"news"]
    with pytest.raises(ConfigError, match=r"group: is missing, and so is job\.name"):
        system.consumer(config={"job.name": None})


def test_a_group_of_a_topic_gets_what_its_keys_match(amqp: Make) -> None:
    system = of_groups(amqp, **{"streams.STREAM.exchange.type": "topic"}).create()
    errors = system.consumer(config=group(system, "errors", binding_keys="*.error,fatal"))
    system.send(b"1", key=b"db.error")
    system.send(b"2", key=b"db.info")
    system.send(b"3", headers={"amqp.routing.key": b"fatal"})
    received = system.receive(errors, 2)
    assert [(each.message, (each.headers or {})["amqp.routing.key"]) for each in received] == [
        (b"1", b"db.error"),
        (b"3", b"fatal"),
    ]
    assert [each.message for each in system.receive(system.consumer(), 3)] == [b"1", b"2", b"3"]


def test_a_message_that_no_queue_takes_is_an_error_that_names_the_stream(amqp: Make) -> None:
    system = of_groups(
        amqp, **{"streams.STREAM.exchange.type": "direct", "streams.STREAM.binding.keys": "a"}
    ).create()
    system.send(b"taken", key=b"a")
    with pytest.raises(UnknownStreamError, match=rf"{system.stream}: no queue is bound to .* 'b'"):
        system.send(b"nobody's", key=b"b")


def test_a_message_that_no_queue_takes_may_be_nobody_s_business(amqp: Make) -> None:
    settings = {
        "streams.STREAM.exchange.type": "direct",
        "streams.STREAM.binding.keys": "a",
        "streams.STREAM.mandatory": "false",
    }
    system = of_groups(amqp, **settings).create()
    system.send(b"nobody's", key=b"b")
    system.send(b"taken", key=b"a")
    assert [each.message for each in system.receive(system.consumer(), 1)] == [b"taken"]


def test_a_fixed_routing_key_goes_before_all_others(amqp: Make) -> None:
    settings = {
        "streams.STREAM.exchange.type": "direct",
        "streams.STREAM.binding.keys": "a",
        "streams.STREAM.routing.key": "a",
    }
    system = of_groups(amqp, **settings).create()
    system.send(b"1", key=b"b", headers={"amqp.routing.key": b"c"})
    assert [each.message for each in system.receive(system.consumer(), 1)] == [b"1"]


def test_an_exchange_that_is_not_there_is_an_unknown_stream(amqp: Make) -> None:
    system = of_groups(amqp)
    with pytest.raises(UnknownStreamError, match="has no exchange"):
        system.send(b"x")
    with pytest.raises(UnknownStreamError, match="has no exchange"):
        system.consumer()


def test_who_reads_an_exchange_must_be_said(amqp: Make) -> None:
    system = of_groups(amqp).create()
    with pytest.raises(ConfigError, match=r"streams\..*\.group"):
        system.consumer(config={"job.name": None})


def test_deleting_an_exchanges_stream_deletes_it_and_the_groups_queue(amqp: Make) -> None:
    system = of_groups(amqp).create()
    admin = system.systems.admin("q")
    admin.delete(system.stream)
    with pytest.raises(UnknownStreamError):
        admin.metadata([system.stream])
    with pytest.raises(UnknownStreamError):
        admin.delete(system.stream)
