"""Queues: who gets which message, and what becomes of those that nobody acknowledges."""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pika
import pytest

import streambench as sb
from streambench.errors import ConfigError, StreamExistsError, StreamSystemError, UnknownStreamError
from streambench.metrics.catalogue import METRICS
from streambench.metrics.registry import MetricsRegistry
from streambench.system import reader
from streambench.system.amqp.broker import without_limit
from streambench.system.amqp.messages import received
from tests.system.amqp.broker import Amqp, wait_for

Make = Callable[..., Amqp]


def messages(envelopes: list[sb.IncomingMessageEnvelope]) -> list[bytes]:
    return [each.message for each in envelopes]


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("kind", ["quorum", "classic"])
def test_what_was_not_acknowledged_comes_again_and_says_so(amqp: Make, kind: str) -> None:
    system = amqp(**{"queue.type": kind}).create()
    system.send(*numbers(10))
    first = system.consumer()
    received = system.receive(first, 10)
    assert not any("amqp.redelivered" in (each.headers or {}) for each in received)
    first.acknowledge({system.ssp: received[5].offset})
    first.stop()
    metrics = MetricsRegistry()
    again = system.receive(system.consumer(metrics=metrics), 4)
    assert messages(again) == numbers(10)[6:]
    assert [(each.headers or {})["amqp.redelivered"] for each in again] == [b"true"] * 4
    assert metrics.snapshot()["amqp.q-messages-redelivered"] == 4


def test_the_prefetch_is_all_that_a_consumer_has_without_acknowledging(amqp: Make) -> None:
    system = amqp(prefetch=7).create()
    system.send(*numbers(20))
    consumer = system.consumer()
    received = system.receive(consumer, 7)
    wait_for(lambda: consumer.poll({system.ssp: 100}, 10) or system.waiting() == 13)
    assert not consumer.at_head(system.ssp)
    consumer.acknowledge({system.ssp: received[-1].offset})
    assert messages(received + system.receive(consumer, 7)) == numbers(14)


def test_two_consumers_share_the_load(amqp: Make) -> None:
    system = amqp(prefetch=1).create()
    consumers = [system.consumer(), system.consumer()]
    system.send(*numbers(40))
    got: list[list[bytes]] = [[], []]
    while sum(map(len, got)) < 40:
        for own, consumer in zip(got, consumers, strict=True):
            for each in consumer.poll({system.ssp: 1}, 20):
                own.append(each.message)
                consumer.acknowledge({system.ssp: each.offset})
    assert sorted(got[0] + got[1], key=int) == numbers(40)
    assert min(map(len, got)) > 1


def test_a_consumer_that_holds_messages_gives_them_up_when_it_stops(amqp: Make) -> None:
    system = amqp().create()
    system.send(*numbers(5))
    holding = system.consumer()
    wait_for(lambda: system.waiting() == 0)
    holding.stop()
    assert messages(system.receive(system.consumer(), 5)) == numbers(5)


def test_several_partitions_are_tasks_that_compete_for_one_queue(amqp: Make) -> None:
    system = amqp(**{"streams.STREAM.partitions": 3, "acknowledge.ms": 20, "prefetch": 2}).create()
    done: list[tuple[str, bytes]] = []

    class Noting(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.name = context.task_name

        def process(
            self,
            envelope: sb.IncomingMessageEnvelope,
            collector: sb.MessageCollector,
            coordinator: sb.TaskCoordinator,
        ) -> None:
            done.append((self.name, envelope.message))

    system.send(*numbers(60))
    container = sb.Container.from_config(
        system.config.with_values({"task.inputs": str(system.stream)}), Noting
    )
    container.start()
    container.run("caught-up")
    container.stop()
    assert sorted((message for _, message in done), key=int) == numbers(60)
    assert {name for name, _ in done} == {"Partition 0", "Partition 1", "Partition 2"}
    assert system.waiting() == 0


def test_what_a_task_fails_at_again_and_again_goes_to_the_dead_letters(amqp: Make) -> None:
    letters = f"letters-{uuid.uuid4().hex[:8]}"
    processed: list[bytes] = []
    system = amqp(
        **{"streams.STREAM.delivery.limit": 2, "streams.STREAM.dead.letter.queue": letters, "prefetch": 1}
    ).create()

    class Failing(sb.StreamTask):
        def process(
            self,
            envelope: sb.IncomingMessageEnvelope,
            collector: sb.MessageCollector,
            coordinator: sb.TaskCoordinator,
        ) -> None:
            if envelope.message == b"bad":
                raise ValueError("bad")
            processed.append(envelope.message)
            coordinator.commit()

    system.send(b"good", b"bad", b"better")
    config = system.config.with_values({"task.inputs": str(system.stream)})
    failures = 0
    while len(processed) < 2:
        container = sb.Container.from_config(config, Failing)
        container.start()
        try:
            container.run("caught-up")
            container.stop()
        except sb.StreambenchError:
            container.stop()
            failures += 1
    assert (failures, processed) == (3, [b"good", b"better"])
    dead = sb.SystemStreamPartition("q", letters, 0)
    (letter,) = reader.read_to_head(system.systems.consumer("q", MetricsRegistry()), {dead: "0"}, at_most=5)[
        dead
    ]
    assert letter.message == b"bad"
    assert b"delivery_limit" in (letter.headers or {})["x-death"]


def test_a_look_takes_no_more_than_it_shows_and_gives_it_back(amqp: Make) -> None:
    system = amqp().create()
    system.send(*numbers(6))
    looking = system.systems.consumer("q", MetricsRegistry())
    assert messages(reader.read_to_head(looking, {system.ssp: "0"}, at_most=2)[system.ssp]) == numbers(2)
    received = system.receive(system.consumer(), 6)
    assert messages(received) == numbers(6)
    assert ["amqp.redelivered" in (each.headers or {}) for each in received] == [
        True,
        True,
        False,
        False,
        False,
        False,
    ]


def test_a_look_at_more_than_amqp_can_hold_back_is_refused(amqp: Make) -> None:
    system = amqp().create()
    with pytest.raises(StreamSystemError, match="no more than 65535"):
        reader.read_to_head(
            system.systems.consumer("q", MetricsRegistry()), {system.ssp: "0"}, at_most=65_536
        )


def test_what_is_measured_stands_in_the_catalogue(amqp: Make) -> None:
    system, metrics = amqp().create(), MetricsRegistry()
    producer = system.producer(metrics)
    producer.send("test", sb.OutgoingMessageEnvelope(system.stream, b"x"))
    producer.flush("test")
    system.receive(system.consumer(metrics=metrics), 1)
    found = {(each.group, each.name): each.kind for each in metrics.readings()}
    assert found == {
        (each.group, each.pattern.replace("<system>", "q")): each.kind
        for each in METRICS
        if each.group == "amqp"
    }
    assert metrics.snapshot()["amqp.q-messages-read"] == 1


def test_following_a_queue_is_refused(amqp: Make) -> None:
    system = amqp().create()
    with pytest.raises(StreamSystemError, match="takes its messages from those who are to process them"):
        next(reader.follow(system.systems.consumer("q", MetricsRegistry()), {system.ssp: "0"}))


def test_a_queue_that_is_deleted_while_it_is_read_is_an_error(amqp: Make) -> None:
    system = amqp().create()
    consumer = system.consumer()
    system.systems.admin("q").delete(system.stream)
    with pytest.raises(UnknownStreamError, match=str(system.stream)):
        while True:
            consumer.poll({system.ssp: 1}, 1_000)


def test_what_other_programs_send_is_understood(amqp: Make) -> None:
    system = amqp(**{"key.header": "id"}).create()
    table = {"id": "k", "n": 5, "yes": True, "nested": {"a": [1, "b"]}, "bytes": b"\xff", "none": None}
    properties = pika.BasicProperties(
        headers=table, timestamp=1_700_000_000, content_type="text/plain", correlation_id="c", app_id="me"
    )
    system.publish("", system.stream.stream, b"hello", properties)
    (envelope,) = system.receive(system.consumer(), 1)
    assert (envelope.key, envelope.message, envelope.timestamp) == (b"k", b"hello", 1_700_000_000_000)
    assert envelope.headers == {
        "n": b"5", "yes": b"true", "nested": b'{"a":[1,"b"]}', "bytes": b"\xff", "none": b"",
        "amqp.content.type": b"text/plain", "amqp.correlation.id": b"c", "amqp.app.id": b"me",
    }  # fmt: skip


def test_each_message_has_its_own_properties_however_many_kinds_exist(amqp: Make) -> None:
    system = amqp().create()
    kinds = [
        {},
        {"type": "t"},
        *({"message_id": f"{number}"} for number in range(110)),
        {"headers": {"h": "1"}},
        {"app_id": "a"},
    ]
    for number, kind in enumerate([*kinds, *kinds]):
        system.publish(
            "", system.stream.stream, b"%d" % number, pika.BasicProperties(delivery_mode=2, **kind)
        )
    names = {"type": "amqp.type", "message_id": "amqp.message.id", "app_id": "amqp.app.id"}
    expected = [
        {"h": b"1"} if "headers" in kind else {names[name]: text.encode() for name, text in kind.items()}
        for kind in kinds
    ]
    received = system.receive(system.consumer(), 2 * len(kinds))
    assert [int(each.message) for each in received] == list(range(2 * len(kinds)))
    assert [each.headers or {} for each in received] == [*expected, *expected]


def test_properties_are_sent_on_except_those_true_of_the_delivery_alone(
    amqp: Make,
) -> None:
    system = amqp().create()
    system.send(b"x", key=b"k", headers={"amqp.message.id": b"7", "amqp.redelivered": b"true", "mine": b"1"})
    (envelope,) = system.receive(system.consumer(), 1)
    assert (envelope.key, envelope.headers) == (b"k", {"mine": b"1", "amqp.message.id": b"7"})


FOREIGN: list[Any] = ["2024-01-01T00:00:00Z", "", b"\xff", "9" * 30, None, True, {"a": 1}, [1]]


@pytest.mark.parametrize("foreign", FOREIGN, ids=repr)
def test_what_is_no_time_is_a_header_like_any_other(foreign: Any) -> None:
    properties = pika.BasicProperties(headers={"timestamp_in_ms": foreign}, timestamp=1_700_000_000)
    _, message, timestamp, headers = received(properties, b"x", "key")
    assert (message, timestamp, list(headers)) == (b"x", 1_700_000_000_000, ["timestamp_in_ms"])
    assert received(pika.BasicProperties(headers={"timestamp_in_ms": foreign}), b"x", "key")[2] is None


def test_times_that_are_written_otherwise_are_understood() -> None:
    then = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)
    for value in (1_700_000_000_000, 1_700_000_000_000.0, "1700000000000", b"1700000000000", then):
        assert received(pika.BasicProperties(headers={"timestamp_in_ms": value}), b"x", "key")[2:] == (
            1_700_000_000_000,
            {},
        )


def test_a_foreign_message_ends_nobody(amqp: Make) -> None:
    system = amqp().create()
    for value in (*FOREIGN, datetime(2024, 1, 1, tzinfo=UTC)):
        system.publish(
            "",
            system.stream.stream,
            b"x",
            pika.BasicProperties(headers={"timestamp_in_ms": value, "table": {"a": [None]}}),
        )
    system.publish("", system.stream.stream, b"far", pika.BasicProperties(timestamp=1 << 62))
    *_, dated, far = system.receive(system.consumer(), len(FOREIGN) + 2)
    assert dated.timestamp == 1_704_067_200_000
    assert (far.message, far.timestamp, far.headers) == (b"far", None, {"amqp.timestamp": b"%d" % (1 << 62)})


class Encoded:
    """A value of a header, as other clients write it and pika would not."""

    def __init__(self, value: bytes) -> None:
        self.value = value


@pytest.fixture
def encoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have pika send what is Encoded as it is."""
    encode = pika.data.encode_value

    def encode_value(pieces: list[bytes], value: Any) -> int:
        if not isinstance(value, Encoded):
            return encode(pieces, value)  # type: ignore[no-any-return]
        pieces.append(value.value)
        return len(value.value)

    monkeypatch.setattr(pika.data, "encode_value", encode_value)


@pytest.mark.usefixtures("encoded")
@pytest.mark.parametrize("kind", ["quorum", "stream"])
def test_a_time_beyond_the_calendar_ends_nobody(amqp: Make, kind: str) -> None:
    system = amqp(**{"queue.type": kind}).create()
    far = Encoded(b"T" + struct.pack(">Q", 1 << 50))
    table = {
        "timestamp_in_ms": far,
        "key": "k",
        "list": [far, {"deep": far}],
        "n": 5,
        "then": datetime(2024, 1, 1, tzinfo=UTC),
    }
    properties = pika.BasicProperties(
        headers=table, content_type="text/plain", app_id="me", timestamp=1_700_000_000
    )
    system.publish("", f"{system.stream.stream}", b"far", properties)
    system.publish("", f"{system.stream.stream}", b"near")
    wait_for(
        lambda: kind != "stream" or system.systems.metadata([system.stream])[system.stream][0].upcoming == "2"
    )
    first, second = system.receive(system.consumer(), 2)
    assert (first.key, first.message, first.timestamp, second.message) == (
        b"k",
        b"far",
        1_700_000_000_000,
        b"near",
    )
    lists = (
        {"list": b'["1125899906842624 s",{"deep":"1125899906842624 s"}]'} if kind == "quorum" else {}
    )  # a stream keeps none
    assert first.headers == {
        **lists, "timestamp_in_ms": b"1125899906842624 s", "n": b"5",
        "then": b"2024-01-01T00:00:00+00:00", "amqp.content.type": b"text/plain", "amqp.app.id": b"me",
    }  # fmt: skip


@pytest.mark.usefixtures("encoded")
def test_numbers_in_headers_stay_what_they_are(amqp: Make) -> None:
    system = amqp().create()
    double, single = Encoded(b"d" + struct.pack(">d", 0.1)), Encoded(b"f" + struct.pack(">f", -1.5))
    table = {"double": double, "single": single, "list": [double, 2], "deep": {"er": single}, "behind": "x"}
    system.publish("", system.stream.stream, b"x", pika.BasicProperties(headers=table))
    (envelope,) = system.receive(system.consumer(), 1)
    assert envelope.headers == {
        "double": b"0.1",
        "single": b"-1.5",
        "list": b"[0.1,2]",
        "deep": b'{"er":-1.5}',
        "behind": b"x",
    }


def test_names_that_are_no_text_are_shown_as_they_are(amqp: Make) -> None:
    system = amqp(**{"streams.STREAM.exchange": "names", "streams.STREAM.exchange.type": "topic"}).create()
    consumer = system.consumer()
    table = {b"\xff": b"1", "t": {b"\xfe": 1}}
    system.publish("names", b"\xfd", b"x", pika.BasicProperties(headers=table))  # type: ignore[arg-type]
    (envelope,) = system.receive(consumer, 1)
    assert envelope.headers == {"\\xff": b"1", "t": b"{b'\\xfe': 1}", "amqp.routing.key": b"\xfd"}


def test_what_comes_back_again_and_again_stays_where_nothing_limits_that(amqp: Make) -> None:
    system = amqp().create()
    system.send(b"x")
    connection = pika.BlockingConnection(pika.URLParameters(system.url))
    channel = connection.channel()
    for _ in range(25):
        found: list[int] = []
        wait_for(
            lambda found=found: (
                found.extend(tag for tag in [taken(channel, system.stream.stream)] if tag) or found
            )
        )
        channel.basic_nack(found[0], requeue=True)
    wait_for(lambda: taken(channel, system.stream.stream))
    connection.close()


def taken(channel: Any, queue: str) -> int | None:
    method = channel.basic_get(queue)[0]
    return None if method is None else method.delivery_tag


@pytest.mark.parametrize(
    ("server", "arguments", "limit"),
    [
        ({"product": "RabbitMQ", "version": "4.1.3"}, {}, -1),
        ({"product": "RabbitMQ", "version": "10.0.0-rc.1"}, {}, -1),
        ({"product": "RabbitMQ", "version": "3.13.7"}, {}, None),
        ({"product": "another", "version": "4.0"}, {}, None),
        ({}, {}, None),
        ({"product": "RabbitMQ", "version": "4.1.3"}, {"x-delivery-limit": 7}, 7),
        ({"product": "RabbitMQ", "version": "4.1.3"}, {"x-dead-letter-exchange": ""}, None),
        ({"product": "RabbitMQ", "version": "4.1.3"}, {"x-queue-type": "classic"}, None),
    ],
)
def test_only_a_server_that_limits_deliveries_is_told_not_to(
    server: dict[str, str], arguments: dict[str, Any], limit: int | None
) -> None:
    assert without_limit({"x-queue-type": "quorum", **arguments}, server).get("x-delivery-limit") == limit


def test_a_queue_has_as_many_partitions_as_are_configured(amqp: Make) -> None:
    system = amqp()
    with pytest.raises(StreamSystemError, match=r"partitions\)$"):
        system.systems.create(system.stream, 2)
    system.create()
    with pytest.raises(StreamExistsError, match="as many partitions as tasks are to compete"):
        system.systems.create(system.stream, 2)


def test_a_queue_made_otherwise_does_not_pass_for_one_with_dead_letters(amqp: Make) -> None:
    system = amqp().create()
    other = system.config.with_values(
        {f"systems.q.streams.{system.stream.stream}.dead.letter.queue": "letters"}
    )
    with pytest.raises(StreamExistsError, match="made with other settings"):
        sb.system.systems.Systems(other).create(system.stream)


def test_exactly_once_is_refused_for_a_queue(amqp: Make) -> None:
    system = amqp().create()
    more = {"task.inputs": str(system.stream), "task.processing.guarantee": "exactly-once"}
    container = sb.Container.from_config(system.config.with_values(more), lambda *_: None)
    with pytest.raises(ConfigError, match=r"samza\.landing"):
        container.start()
