"""Changelogs in memory: they hold what a restore needs, and do not grow with every change."""

from __future__ import annotations

import random

from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.compacted_memory import CompactedPartition
from streambench.system.memory import MemoryConsumer, MemoryStreams

STREAM = SystemStream("_checkpoints", "c")
SSP = SystemStreamPartition("_checkpoints", "c", 0)
KEYS = 50

Entries = list[tuple[int, bytes, bytes | None, int | None]]


def read(streams: MemoryStreams, start: int) -> Entries:
    consumer = MemoryConsumer(streams)
    consumer.register(SSP, str(start))
    found: Entries = []
    while not consumer.at_head(SSP):
        for chunk in consumer.poll_chunks({SSP: 7}, 0):
            times = chunk.timestamps or [None] * len(chunk.offsets)
            found += zip(map(int, chunk.offsets), chunk.keys, chunk.messages, times, strict=True)
    return found


def test_what_is_compacted_restores_every_state_that_is_still_wanted() -> None:
    chance = random.Random(3)
    streams = MemoryStreams(CompactedPartition)
    streams.create(STREAM, 1)
    partition = streams.partition(STREAM, 0)
    assert isinstance(partition, CompactedPartition)
    everything: Entries = []
    for _ in range(8):
        for _ in range(1_500):
            offset, key = len(partition), b"%d" % chance.randrange(KEYS)
            value = None if chance.random() < 0.2 else b"%d" % offset
            written = offset if chance.random() < 0.1 else None
            partition.append(OutgoingMessageEnvelope(STREAM, value, key, timestamp=written), key, value)
            everything.append((offset, key, value, written))
        keep = len(partition) - chance.randrange(100)
        partition.compact(keep)
        for start in (0, keep // 2, keep - 1, keep, len(partition)):
            found = read(streams, start)
            assert [entry for entry in found if entry[0] >= keep] == everything[max(start, keep) :]
            assert set(found) <= set(everything[start:])
        state = {key: value for offset, key, value, _ in everything if offset < keep}
        assert {key: value for offset, key, value, _ in read(streams, 0) if offset < keep} == {
            key: value for key, value in state.items() if value is not None
        }
        assert len(read(streams, 0)) <= KEYS + 100


def test_a_partition_of_which_nothing_is_left_is_at_its_head() -> None:
    streams = MemoryStreams(CompactedPartition)
    streams.create(STREAM, 1)
    partition = streams.partition(STREAM, 0)
    assert isinstance(partition, CompactedPartition)
    for at in range(2_000):
        partition.append(OutgoingMessageEnvelope(STREAM, None, b"k"), b"k", b"v" if at < 1_999 else None)
    partition.compact(2_000)
    assert len(partition) == 2_000 and read(streams, 0) == []
