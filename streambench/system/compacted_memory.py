"""Changelogs in this process's memory, which are compacted: they do not grow for as long as the process
lives.

What stands before the offset that is still wanted (``SystemAdmin.keep_from``) becomes the last value of each
key, under its own offset.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.api import Chunk
from streambench.system.memory import (
    MemoryAdmin,
    MemoryStreams,
    MemorySystemFactory,
    Partition,
)
from streambench.system.numbered import to_number

_FIELDS = 3
_LEAST = 1_000


class CompactedPartition(Partition):
    """A partition whose beginning, below ``base``, holds the last message of each key only."""

    __slots__ = ("_offsets", "_older", "base")

    def __init__(self) -> None:
        super().__init__()
        self.base = 0
        self._offsets: list[int] = []
        self._older = Partition()

    def __len__(self) -> int:
        return self.base + super().__len__()

    def chunk(self, ssp: SystemStreamPartition, start: int, at_most: int) -> Chunk:
        first = bisect_left(self._offsets, start)
        if start < self.base and first < len(self._offsets):
            chunk = self._older.chunk(ssp, first, at_most)
            chunk.offsets = [str(offset) for offset in self._offsets[first : first + at_most]]
            return chunk
        chunk = super().chunk(ssp, max(start - self.base, 0), at_most)
        chunk.offsets = [str(self.base + int(offset)) for offset in chunk.offsets]
        return chunk

    def compact(self, below: int) -> None:
        """Remove what other messages before the offset ``below`` replace, unless it is too little to be worth
        it."""
        count = below - self.base
        if count < max(_LEAST, len(self._offsets)):
            return
        fields = self._older.fields + self.fields[: count * _FIELDS]
        offsets = [*self._offsets, *range(self.base, below)]
        last = {fields[at * _FIELDS]: at for at in range(len(offsets))}
        kept = sorted(at for at in last.values() if fields[at * _FIELDS + 1] is not None)
        older = Partition()
        for at in kept:
            older.put(*fields[at * _FIELDS : (at + 1) * _FIELDS])
        self._older, self._offsets = older, [offsets[at] for at in kept]
        self.base = below
        del self.fields[: count * _FIELDS]


class CompactedAdmin(MemoryAdmin):
    """Knows what was compacted."""

    def keep_from(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        for ssp, offset in offsets.items():
            self._partition(ssp).compact(to_number(offset, ssp))

    def compacted_to(self, ssp: SystemStreamPartition) -> str | None:
        base = self._partition(ssp).base
        return str(base) if base else None

    def _partition(self, ssp: SystemStreamPartition) -> CompactedPartition:
        partition = self._streams.partition(ssp.system_stream, ssp.partition)
        assert isinstance(partition, CompactedPartition)
        return partition


class CompactedMemoryFactory(MemorySystemFactory):
    """Makes the parts of the changelogs that this process has in its memory."""

    def __init__(self) -> None:
        super().__init__(_streams)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> MemoryAdmin:
        return CompactedAdmin(_streams)


_streams = MemoryStreams(CompactedPartition)
