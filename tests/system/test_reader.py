"""Looking into streams from outside of a container."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import ClassVar

import pytest

from streambench.errors import OffsetError, StreamSystemError
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.memory import MemoryConsumer, MemoryProducer, MemoryStreams
from streambench.system.reader import follow, read_to_head

STREAM = SystemStream("mem", "clicks")
PARTITIONS = [SystemStreamPartition("mem", "clicks", number) for number in range(2)]


class Told(MemoryConsumer):
    """Gives at most two messages at a time, notes how it was asked, and whether it was stopped."""

    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams)
        self.timeouts: list[int] = []
        self.wanted: list[dict[int, int]] = []
        self.stopped = 0

    def stop(self) -> None:
        self.stopped += 1

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        self.timeouts.append(timeout_ms)
        self.wanted.append({ssp.partition: number for ssp, number in wanted.items()})
        return super().poll({ssp: min(2, number) for ssp, number in wanted.items()}, 0)


class Remote(Told):
    polled_by_loop: ClassVar[bool] = False


class Silent(Remote):
    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return False


@pytest.fixture
def streams() -> MemoryStreams:
    """``mem.clicks``: five messages in partition 0, one in partition 1."""
    streams = MemoryStreams()
    streams.create(STREAM, 2)
    producer = MemoryProducer(streams)
    for number in range(5):
        producer.send("test", OutgoingMessageEnvelope(STREAM, number, partition=0))
    producer.send("test", OutgoingMessageEnvelope(STREAM, 5, partition=1))
    return streams


def starts(*offsets: str) -> dict[SystemStreamPartition, str]:
    return dict(zip(PARTITIONS, offsets, strict=False))


def test_each_partition_is_read_from_its_start_to_its_head(streams: MemoryStreams) -> None:
    consumer = Told(streams)
    found = read_to_head(consumer, starts("1", "0"))
    assert [[each.message for each in found[ssp]] for ssp in PARTITIONS] == [[1, 2, 3, 4], [5]]
    assert consumer.stopped == 1


def test_no_more_is_asked_of_a_partition_than_is_wanted_of_it(streams: MemoryStreams) -> None:
    consumer = Told(streams)
    found = read_to_head(consumer, starts("0", "0"), at_most=3)
    assert [len(found[ssp]) for ssp in PARTITIONS] == [3, 1]
    assert consumer.wanted == [{0: 3, 1: 3}, {0: 1}]


def test_a_partition_that_holds_nothing_further_gives_an_empty_list(streams: MemoryStreams) -> None:
    assert read_to_head(Told(streams), starts("5", "1")) == {PARTITIONS[0]: [], PARTITIONS[1]: []}
    assert read_to_head(Told(streams), {}) == {}


@pytest.mark.parametrize(("kind", "waits"), [(Told, False), (Remote, True)])
def test_a_consumer_may_wait_unless_it_is_polled_by_the_loop(
    streams: MemoryStreams, kind: type[Told], waits: bool
) -> None:
    consumer = kind(streams)
    read_to_head(consumer, starts("0", "0"))
    assert {timeout > 0 for timeout in consumer.timeouts} == {waits}


def test_patience_ends_with_an_error_that_names_the_partition(streams: MemoryStreams) -> None:
    consumer = Silent(streams)
    with pytest.raises(StreamSystemError, match=r"mem\.clicks\.0 did not answer within 0 seconds"):
        read_to_head(consumer, starts("5"), patience_s=0)
    assert consumer.stopped == 1


def test_a_consumer_that_does_not_start_is_stopped(streams: MemoryStreams) -> None:
    consumer = Told(streams)
    with pytest.raises(OffsetError):
        read_to_head(consumer, starts("77"))
    assert consumer.stopped == 1


def test_a_follower_gets_what_comes_later_and_closing_stops_the_consumer(
    streams: MemoryStreams,
) -> None:
    consumer = Remote(streams)
    with closing(follow(consumer, starts("4"))) as arrivals:
        assert [each.message for each in next(arrivals)] == [4]
        assert next(arrivals) == []
        MemoryProducer(streams).send("test", OutgoingMessageEnvelope(STREAM, 6, partition=0))
        assert [each.message for each in next(arrivals)] == [6]
        assert consumer.stopped == 0
    assert consumer.stopped == 1
