"""Recorded messages of a partition: small chunks are joined, and nothing else changes."""

from __future__ import annotations

from streambench.chunk import Chunk, Messages
from streambench.debug.history.recorded_inputs import RecordedPartition
from streambench.model import SystemStreamPartition

SSP = SystemStreamPartition("mem", "in", 0)
COUNT = 3000


def chunk(start: int, stop: int, *, timed: bool = False) -> Chunk:
    numbers = range(start, stop)
    return Chunk(
        SSP,
        [str(number) for number in numbers],
        [f"k{number}" for number in numbers],
        [{"n": number} for number in numbers],
        [*numbers] if timed else None,
    )


def recorded(step: int) -> RecordedPartition:
    """Messages that were read in small chunks, some of them with timestamps."""
    partition = RecordedPartition()
    for start in range(0, COUNT, step):
        partition.add(chunk(start, min(start + step, COUNT), timed=start % 3 == 0))
    return partition


def numbers(chunks: list[Messages]) -> list[int]:
    return [each["n"] for part in chunks for each in part.values()]


def test_small_chunks_are_joined_and_large_ones_kept() -> None:
    assert len(list(recorded(1).since(0))) < 20 + 512
    assert [len(each) for each in recorded(1000).since(0)] == [1000, 1000, 1000]
    assert recorded(1).size == recorded(1000).size


def test_joined_messages_are_found_by_number_and_offset() -> None:
    partition = recorded(7)
    assert partition.end == COUNT
    assert numbers(list(partition.since(0))) == list(range(COUNT))
    assert numbers(list(partition.since(1234))) == list(range(1234, COUNT))
    assert numbers(partition.copies(500, 30)) == list(range(500, 530))
    for number in (0, 6, 7, 511, 512, 1500, COUNT - 1):
        assert partition.offset(number) == str(number)
        assert partition.number(str(number)) == number
        message = partition.message(number)
        is_timed = number // 7 * 7 % 3 == 0
        assert (message.offset, message.key, message.message) == (str(number), f"k{number}", {"n": number})
        assert message.timestamp == (number if is_timed else None)


def test_what_is_read_on_does_not_grow_when_it_is_joined() -> None:
    partition = RecordedPartition()
    partition.add(chunk(0, 100))
    begun = next(partition.since(0))
    for start in range(100, 1000, 100):
        partition.add(chunk(start, start + 100))
    assert len(begun) == 100
    assert next(iter(partition.since(0))) is not begun


def test_joined_messages_are_dropped_by_the_whole_chunk() -> None:
    partition = recorded(10)
    partition.drop_before(COUNT // 2)
    left = numbers(list(partition.since(COUNT // 2)))
    assert left == list(range(COUNT // 2, COUNT))
    partition.drop_before(COUNT)
    partition.add(chunk(COUNT, COUNT + 1))
    assert partition.message(COUNT).message == {"n": COUNT}
