"""Messages sent from outside of a container."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.outputs.direct_writer import writing
from streambench.errors import SerdeError, StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.builtin import JsonSerde, StringSerde
from streambench.system.memory import MemoryProducer, MemoryStreams, MemorySystemFactory
from streambench.system.partitioner import partition_for
from streambench.system.systems import Systems

STREAM = SystemStream("mem", "clicks")


class Told(MemoryProducer):
    """Notes, in ``happened``, each flush with how many messages were there by then, and the stop."""

    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams)
        self.streams = streams
        self.happened: list[Any] = []
        self.error: Exception | None = None

    def flush(self, source: str) -> None:
        self.happened.append(sum(map(len, self.streams.of(STREAM))))
        if self.error is not None:
            raise self.error

    def stop(self) -> None:
        self.happened.append("stop")


class Place(MemorySystemFactory):
    """``mem.clicks`` with three partitions, and its producer."""

    def __init__(self) -> None:
        self.streams = MemoryStreams()
        self.streams.create(STREAM, 3)
        self.producer = Told(self.streams)
        self.systems = Systems(Config(), self)
        super().__init__(self.streams)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        return self.producer

    @property
    def content(self) -> list[list[tuple[Any, Any]]]:
        return [list(partition.entries()) for partition in self.streams.of(STREAM)]


@pytest.fixture
def place() -> Place:
    return Place()


def messages(*values: Any, partition: int | None = 0) -> Iterator[OutgoingMessageEnvelope]:
    return (OutgoingMessageEnvelope(STREAM, value, None, None, partition) for value in values)


def test_messages_are_durable_when_sent_and_the_producer_stops_at_the_end(place: Place) -> None:
    with writing(place.systems, STREAM, 3, "test") as writer:
        writer.send(messages("a", "b"))
        assert (writer.sent, writer.durable) == (2, 2)
        writer.send(messages("c"))
        assert (writer.sent, writer.durable) == (3, 3)
    assert place.producer.happened == [2, 3, "stop"]


def test_they_are_encoded_and_go_where_their_key_says_else_in_turn(place: Place) -> None:
    with writing(place.systems, STREAM, 3, "test", (StringSerde(), JsonSerde())) as writer:
        writer.send([OutgoingMessageEnvelope(STREAM, {"n": 1}, "user")])
    assert place.content[partition_for(b"user", 3)] == [(b"user", b'{"n":1}')]
    with writing(place.systems, STREAM, 3, "test") as writer:
        writer.send(messages(b"x", b"y", b"z", partition=None))
    assert [content[-1] for content in place.content] == [(None, b"x"), (None, b"y"), (None, b"z")]


def test_a_flush_comes_in_between_as_often_as_is_asked(place: Place) -> None:
    with writing(place.systems, STREAM, 3, "test") as writer:
        writer.send(messages(*"abcde"), flush_every=2)
    assert place.producer.happened == [2, 4, 5, "stop"]


def test_what_cannot_be_sent_leaves_those_before_it_to_a_flush(place: Place) -> None:
    with writing(place.systems, STREAM, 3, "test", (None, JsonSerde())) as writer:
        with pytest.raises(SerdeError, match=r"cannot be sent to mem\.clicks: .*set"):
            writer.send(messages("a", "b", {1, 2}), flush_every=10)
        assert (writer.sent, writer.durable) == (2, 0)
        writer.flush()
        assert writer.durable == 2
    with (
        pytest.raises(SerdeError, match=r"cannot be sent to mem\.clicks: partition 3 is out of range"),
        writing(place.systems, STREAM, 3, "test") as writer,
    ):
        writer.send(messages("a", partition=3))


def test_what_a_failed_flush_was_to_save_is_not_durable(place: Place) -> None:
    place.producer.error = StreamSystemError("the disk is full")
    with (
        pytest.raises(StreamSystemError, match="the disk is full"),
        writing(place.systems, STREAM, 3, "test") as writer,
    ):
        writer.send(messages("a", "b"), flush_every=1)
    assert (writer.sent, writer.durable) == (1, 0)
    assert place.producer.happened[-1] == "stop"
