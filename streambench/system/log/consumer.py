"""Input: the consumer of a log: one cursor for each partition, polled by the event loop itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streambench.chunk import ArrowChunk, Chunk, chunk_of
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.adapters import ChunkConsumer
from streambench.system.log.cursor import Cursor
from streambench.system.log.streams import Log
from streambench.system.numbered import to_number


class LogConsumer(ChunkConsumer):
    """Reads partitions of one log."""

    polled_by_loop: ClassVar[bool] = True

    def __init__(self, system: str, log: Log, metrics: MetricsRegistry) -> None:
        self._system = system
        self._log = log
        self._wanted: dict[SystemStreamPartition, int] = {}
        self._cursors: dict[SystemStreamPartition, Cursor] = {}
        self._read = metrics.counter(f"{system}-messages-read", "log")

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wanted[ssp] = to_number(offset, ssp)

    def fail_on_data_loss(self) -> None:
        """Have a gap or damage raise CorruptDataError, whatever the configuration says: for state."""
        for ssp in self._wanted:
            self._log.partition(ssp.stream, ssp.partition).fail_on_data_loss()

    def start(self) -> None:
        for ssp, offset in self._wanted.items():
            self._cursors[ssp] = self._log.partition(ssp.stream, ssp.partition).cursor(offset)

    def stop(self) -> None:
        self._cursors.clear()
        self._log.close()

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        chunks = []
        cursors = self._cursors
        for ssp, at_most in wanted.items():
            batches = cursors[ssp].read(at_most)
            if batches:
                chunk = chunk_of(ssp, batches)
                self._read.count += len(chunk.offsets)
                chunks.append(chunk)
        return chunks

    def poll_batches(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[ArrowChunk]:
        chunks = []
        for ssp, at_most in wanted.items():
            for batch in self._cursors[ssp].read(at_most):
                self._read.count += batch.num_rows
                chunks.append(ArrowChunk(ssp, batch))
        return chunks

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        cursor = self._cursors.get(ssp)
        return cursor is not None and cursor.at_head
