"""Streams in memory."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import OffsetError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.system.memory import (
    MemoryAdmin,
    MemoryConsumer,
    MemoryProducer,
    MemoryStreams,
    MemorySystemFactory,
    memory_streams,
)

CLICKS = SystemStream("mem", "clicks")
P0, P1 = (SystemStreamPartition("mem", "clicks", number) for number in (0, 1))


@pytest.fixture
def streams() -> MemoryStreams:
    """Streams in memory with ``mem.clicks``, of two partitions."""
    made = MemoryStreams()
    made.create(CLICKS, 2)
    return made


def send(streams: MemoryStreams, partition: int, *messages: Any) -> None:
    producer = MemoryProducer(streams)
    for message in messages:
        producer.send("test", OutgoingMessageEnvelope(CLICKS, message, partition=partition))


def reading(streams: MemoryStreams, **starts: str) -> MemoryConsumer:
    """A consumer of partitions: ``p0="3"`` reads the partition 0 from offset 3 on."""
    consumer = MemoryConsumer(streams)
    for name, offset in starts.items():
        consumer.register(SystemStreamPartition("mem", "clicks", int(name[1:])), offset)
    consumer.start()
    return consumer


def read(
    consumer: MemoryConsumer, *wanted: SystemStreamPartition, at_most: int = 100
) -> list[tuple[int, str, Any]]:
    return [
        (each.ssp.partition, each.offset, each.message)
        for each in consumer.poll(dict.fromkeys(wanted, at_most), 0)
    ]


def test_what_was_sent_is_read_in_order_with_its_index_as_offset(streams: MemoryStreams) -> None:
    send(streams, 0, "a", "b")
    send(streams, 1, "c")
    consumer = reading(streams, p0="0", p1="0")
    assert read(consumer, P0, P1) == [(0, "0", "a"), (0, "1", "b"), (1, "0", "c")]
    assert read(consumer, P0, P1) == []


def test_timestamp_and_headers_come_with_their_message(streams: MemoryStreams) -> None:
    producer = MemoryProducer(streams)
    producer.send("test", OutgoingMessageEnvelope(CLICKS, "plain", partition=0))
    producer.send(
        "test", OutgoingMessageEnvelope(CLICKS, "dated", partition=0, timestamp=7, headers={"h": b"1"})
    )
    producer.sender(CLICKS)(
        "test", OutgoingMessageEnvelope(CLICKS, "x", headers={"i": b"2"}), "k", "headed", 0
    )
    found = reading(streams, p0="0").poll({P0: 10}, 0)
    assert [(each.key, each.message, each.timestamp, each.headers) for each in found] == [
        (None, "plain", None, None),
        (None, "dated", 7, {"h": b"1"}),
        ("k", "headed", None, {"i": b"2"}),
    ]


def test_objects_that_can_change_are_copied_both_ways(streams: MemoryStreams) -> None:
    message = {"n": [1]}
    send(streams, 0, message)
    message["n"].append(2)
    first = reading(streams, p0="0").poll({P0: 1}, 0)[0].message
    first["n"].append(3)
    assert reading(streams, p0="0").poll({P0: 1}, 0)[0].message == {"n": [1]}


def test_what_is_appended_by_partition_is_what_was_sent(streams: MemoryStreams) -> None:
    producer = MemoryProducer(streams)
    appends = producer.appends(CLICKS)
    assert appends is not None
    appends.partitions[1](("k", "plain", None))
    producer.send("test", OutgoingMessageEnvelope(CLICKS, "stamped", partition=1, timestamp=7))
    appends.partitions[1]((None, "last", None))
    seen = [
        (envelope.key, envelope.message, envelope.timestamp)
        for envelope in reading(streams, p1="0").poll({P1: 9}, 0)
    ]
    assert seen == [("k", "plain", None), (None, "stamped", 7), (None, "last", None)]


def test_a_producer_that_sends_in_its_own_way_is_given_each_message(streams: MemoryStreams) -> None:
    class Other(MemoryProducer):
        def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
            raise AssertionError(envelope)

    assert Other(streams).appends(CLICKS) is None


def test_what_several_threads_send_is_not_mixed_up(streams: MemoryStreams) -> None:
    """Each key belongs to its message, whoever else writes at the same time."""

    def write(name: str) -> None:
        send_one = MemoryProducer(streams).sender(CLICKS)
        for number in range(2000):
            text = f"{name}{number}"
            send_one("test", OutgoingMessageEnvelope(CLICKS, text), text, text, 0)

    threads = [threading.Thread(target=write, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    entries = streams.of(CLICKS)[0].entries()
    assert len(entries) == 8000
    assert all(key == message for key, message in entries)
    assert [key for key, _ in entries if key.startswith("a")] == [f"a{number}" for number in range(2000)]


def test_offsets_go_on_past_those_that_are_kept_ready(streams: MemoryStreams) -> None:
    send(streams, 0, *itertools.repeat("m", 100_010))
    found = reading(streams, p0="99990").poll({P0: 1000}, 0)
    assert [each.offset for each in found] == [str(number) for number in range(99_990, 100_010)]


# Errors


def test_a_stream_that_is_not_there_is_reported_with_those_that_are(streams: MemoryStreams) -> None:
    with pytest.raises(
        UnknownStreamError, match=r"there is no stream mem\.nothing in memory; there are: mem\.clicks"
    ):
        MemoryAdmin(streams).metadata([SystemStream("mem", "nothing")])
    with pytest.raises(UnknownStreamError, match="there are: none at all"):
        MemoryAdmin(MemoryStreams()).metadata([CLICKS])


@pytest.mark.parametrize("partition", [2, -1])
def test_a_partition_that_is_not_there_is_an_error_and_nothing_is_written(
    streams: MemoryStreams, partition: int
) -> None:
    with pytest.raises(
        UnknownStreamError, match=rf"mem\.clicks has no partition {partition}; it has 2, numbered from 0"
    ):
        send(streams, partition, "m")
    with pytest.raises(UnknownStreamError, match="numbered from 0"):
        reading(streams, **{f"p{partition}": "0"})
    assert [len(each) for each in streams.of(CLICKS)] == [0, 0]


@pytest.mark.parametrize("offset", ["", "-1", "x", "1.5"])
def test_what_is_no_offset_is_an_error(streams: MemoryStreams, offset: str) -> None:
    with pytest.raises(OffsetError, match="is no offset of it"):
        reading(streams, p0=offset)
    with pytest.raises(OffsetError, match="is no offset of it"):
        MemoryAdmin(streams).after(offset)


def test_an_offset_beyond_the_end_is_an_error(streams: MemoryStreams) -> None:
    send(streams, 0, "a")
    with pytest.raises(OffsetError, match=r"mem\.clicks\.0: offset 2 lies beyond the end, 1"):
        reading(streams, p0="2")


# Administration


def test_the_admin_tells_where_partitions_begin_and_end(streams: MemoryStreams) -> None:
    send(streams, 1, "a", "b")
    assert MemoryAdmin(streams).metadata([CLICKS]) == {
        CLICKS: {0: PartitionMetadata(None, None, "0"), 1: PartitionMetadata("0", "1", "2")},
    }


@pytest.fixture
def shared_system() -> Iterator[str]:
    name = "test-memory-shared"
    yield name
    memory_streams(name).partitions.clear()


def test_a_system_is_one_per_process_and_name(shared_system: str) -> None:
    factory, config = MemorySystemFactory(), Config()
    stream = SystemStream(shared_system, "s")
    factory.get_admin(shared_system, config).create(stream, 1)
    factory.get_producer(shared_system, config, MetricsRegistry()).send(
        "test", OutgoingMessageEnvelope(stream, "m")
    )
    consumer = MemorySystemFactory().get_consumer(shared_system, config, MetricsRegistry())
    ssp = SystemStreamPartition(shared_system, "s", 0)
    consumer.register(ssp, "0")
    assert [each.message for each in consumer.poll({ssp: 1}, 0)] == ["m"]
    assert MemorySystemFactory().get_admin("test-memory-other", config).streams() == []


def test_a_copy_is_continued_on_its_own(streams: MemoryStreams) -> None:
    send(streams, 0, "a")
    original = streams.of(CLICKS)[0]
    copy = original.copy()
    send(streams, 0, "b")
    assert copy.entries() == [(None, "a")]
    assert original.entries() == [(None, "a"), (None, "b")]
