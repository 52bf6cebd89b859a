"""The messages that a container read, as they were read, to be read again."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence

from streambench.chunk import Chunk, Messages
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.system.api import SystemConsumer

_PER_MESSAGE = 150
_SAMPLE = 16
_SMALL = 256
_JOINED = 512
"""Chunks of fewer than ``_SMALL`` messages are joined where they have so many together: a full collection
of garbage goes over every list, and stops all threads for as long."""


class RecordedPartition:
    """The messages of one partition by their numbers, from 0 on. ``size``: in bytes, roughly."""

    def __init__(self) -> None:
        self.size = 0
        self._starts: deque[int] = deque()
        self._chunks: deque[Messages] = deque()
        self._sizes: deque[int] = deque()
        self._small = self._small_messages = 0
        self.end = 0

    def add(self, chunk: Messages) -> None:
        """Add messages behind the others."""
        if not len(chunk):
            return
        size = _size(chunk)
        self._starts.append(self.end)
        self._chunks.append(chunk)
        self._sizes.append(size)
        self.size += size
        self.end += len(chunk)
        if type(chunk) is Chunk and len(chunk) < _SMALL:
            self._small += 1
            self._small_messages += len(chunk)
            if self._small_messages >= _JOINED:
                self._join_small()
        else:
            self._small = self._small_messages = 0

    def _join_small(self) -> None:
        """Make one chunk of the small ones at the end; those may be read on meanwhile."""
        start, size, chunks = self.end, 0, list[Chunk]()
        for _ in range(min(self._small, len(self._chunks))):
            chunk = self._chunks.pop()
            assert isinstance(chunk, Chunk)
            chunks.append(chunk)
            start = self._starts.pop()
            size += self._sizes.pop()
        self._starts.append(start)
        self._chunks.append(Chunk.joined(chunks[::-1]))
        self._sizes.append(size)
        self._small = self._small_messages = 0

    def drop_before(self, number: int) -> None:
        """Drop messages before a number, those that fill whole chunks."""
        while self._chunks and self._starts[0] + len(self._chunks[0]) <= number:
            self._starts.popleft()
            self._chunks.popleft()
            self.size -= self._sizes.popleft()

    def snapshot(self) -> RecordedPartition:
        """The messages that are there now, of which none is dropped."""
        made = RecordedPartition()
        made._starts, made._chunks, made.end = self._starts.copy(), self._chunks.copy(), self.end
        made._sizes, made.size = self._sizes.copy(), self.size
        return made

    def since(self, number: int) -> Iterator[Messages]:
        """The messages from a number on, by the chunk."""
        starts, chunks = list(self._starts), list(self._chunks)
        at = bisect_right(starts, number) - 1
        for start, chunk in zip(starts[max(at, 0) :], chunks[max(at, 0) :], strict=True):
            yield chunk.part(max(0, number - start), len(chunk))

    def message(self, number: int) -> IncomingMessageEnvelope:
        """The message of a number, as it was read."""
        return self._part(number).envelopes()[0]

    def copies(self, number: int, count: int) -> list[Messages]:
        """So many messages from a number on, for a task, which may change them."""
        found: list[Messages] = []
        for chunk in self.since(number):
            found.append(_copied(chunk.part(0, min(count, len(chunk)))))
            count -= len(found[-1])
            if not count:
                break
        return found

    def _part(self, number: int) -> Messages:
        at = bisect_right(self._starts, number) - 1
        within = number - self._starts[at]
        return self._chunks[at].part(within, within + 1)

    def offset(self, number: int) -> str:
        """The offset of the message of a number."""
        at = bisect_right(self._starts, number) - 1
        return self._chunks[at].offset(number - self._starts[at])

    def number(self, offset: str) -> int | None:
        """The number of the message at an offset; None where there is none."""
        for start, chunk in zip(reversed(self._starts), reversed(self._chunks), strict=True):
            for at in range(len(chunk)):
                if chunk.offset(at) == offset:
                    return start + at
        return None


class RecordedConsumer(SystemConsumer):
    """Hands out recorded messages of the partitions of one system."""

    polled_by_loop = True

    def __init__(self, messages: Mapping[SystemStreamPartition, Iterator[Messages]]) -> None:
        self._left = dict(messages)
        self._begun: dict[SystemStreamPartition, Messages] = {}

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        """Nothing to do: the first message is known."""

    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        self._left = {}

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        return [each for chunk in self.poll_batches(wanted, timeout_ms) for each in chunk.envelopes()]

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        return [each for each in self.poll_batches(wanted, timeout_ms) if isinstance(each, Chunk)]

    def poll_batches(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> Sequence[Messages]:
        found: list[Messages] = []
        for ssp, most in wanted.items():
            while most > 0:
                chunk = self._begun.pop(ssp, None) or next(self._left.get(ssp, iter(())), None)
                if chunk is None:
                    break
                if len(chunk) > most:
                    self._begun[ssp] = chunk.part(most, len(chunk))
                    chunk = chunk.part(0, most)
                found.append(_copied(chunk))
                most -= len(chunk)
        return found

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return True


class RecordedInputs:
    """The recorded messages of all input partitions of a container; a partition is known by its index in
    ``ssps``."""

    def __init__(self, lanes: Mapping[SystemStreamPartition, PartitionBuffer]) -> None:
        self.ssps = list(lanes)
        self.indexes = {ssp: index for index, ssp in enumerate(self.ssps)}
        self._partitions = [RecordedPartition() for _ in self.ssps]

    def add(self, chunks: deque[Messages]) -> None:
        """Take chunks as they were read."""
        while chunks:
            chunk = chunks.popleft()
            self._partitions[self.indexes[chunk.ssp]].add(chunk)

    def partition(self, index: int) -> RecordedPartition:
        """The messages of a partition."""
        return self._partitions[index]

    def drop_before(self, numbers: Sequence[int]) -> None:
        """Drop messages before these numbers, one per partition."""
        for partition, number in zip(self._partitions, numbers, strict=True):
            partition.drop_before(number)

    def since(self, numbers: Sequence[int]) -> dict[SystemStreamPartition, Iterator[Messages]]:
        """The messages from these numbers on, one per partition."""
        return {
            ssp: partition.since(number)
            for ssp, partition, number in zip(self.ssps, self._partitions, numbers, strict=True)
        }

    @property
    def size(self) -> int:
        """The size in bytes, roughly."""
        return sum(each.size for each in self._partitions)


def _copied(chunk: Messages) -> Messages:
    """A chunk of objects as a copy, which a task may change."""
    from copy import deepcopy

    from msgspec.structs import replace

    from streambench.system.copying import are_immutable

    if not isinstance(chunk, Chunk) or (are_immutable(chunk.messages) and are_immutable(chunk.keys)):
        return chunk
    return replace(chunk, keys=deepcopy(chunk.keys), messages=deepcopy(chunk.messages))


def _size(chunk: Messages) -> int:
    """The size of a chunk in bytes, by its first messages."""
    sample = chunk.part(0, min(_SAMPLE, len(chunk))).values()
    known = [len(each) if isinstance(each, (bytes, str)) else 500 for each in sample if each is not None]
    return len(chunk) * (_PER_MESSAGE + sum(known) // max(1, len(known)))
