"""Apply the writes of commits to their partitions, through the producers of their systems."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from streambench.checkpoint.pending_writes import PendingWrites, PendingWritesApplier
from streambench.config import Config
from streambench.errors import CheckpointError, MessageTooLargeError, StreamSystemError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.rows import Rows
from streambench.system.api import SystemProducer
from streambench.system.capabilities import Journaled
from streambench.system.systems import Systems

_LARGEST = 1 << 30
_PER_MESSAGE = 32
_PER_HEADER = 8


class ProducersApplier(PendingWritesApplier):
    """Applies the writes of commits through producers: ``producer_of`` gives that of a system.

    ``rewind``: the command that rewinds the job, for errors."""

    def __init__(self, producer_of: Callable[[str], SystemProducer], rewind: str | None = None) -> None:
        self._producer_of = producer_of
        self._rewind = rewind or Config().command("checkpoints --rewind oldest")
        self._checked: set[SystemStreamPartition] = set()

    def check(
        self,
        effects: PendingWrites,
        missing_record: Callable[[int, int], Path | None] = lambda generation, sequence: None,
    ) -> None:
        for rows in effects.rows:
            size = _size(rows)
            if size >= _LARGEST:
                raise MessageTooLargeError(
                    f"{rows.ssp}: {size} bytes in one commit are too many (at most {_LARGEST}); let "
                    "task.commit.max.output.mb be lower, or send less at once"
                )
            if rows.ssp in self._checked:
                continue
            last = self._journaled(rows.ssp.system).last_once(rows.ssp, effects.producer)
            if last is not None and last >= (effects.generation, effects.sequence):
                raise CheckpointError(
                    f"{rows.ssp} holds outputs of a later commit ({last[0]}.{last[1]}) than the one to be "
                    f"made ({effects.generation}.{effects.sequence}): the checkpoints are older than the "
                    "streams. Bring back the checkpoints that go with them, or delete the job's checkpoints "
                    "to begin again"
                )
            missing = None if last is None else missing_record(*last)
            if missing is not None:
                raise CheckpointError(
                    f"{missing} is missing, the record of a commit whose outputs {rows.ssp} holds: the "
                    "checkpoints are older than the streams, and outputs would be written twice. Put the "
                    f"record back from a copy, or say where the job is to go on: {self._rewind}"
                )
            self._checked.add(rows.ssp)

    def apply(self, effects: PendingWrites) -> None:
        for rows in effects.rows:
            self._journaled(rows.ssp.system).append_once(
                rows, effects.producer, effects.generation, effects.sequence
            )
        for system in sorted({rows.ssp.system for rows in effects.rows}):
            self._producer_of(system).flush(effects.producer)

    def _journaled(self, system: str) -> Journaled:
        producer = self._producer_of(system)
        if not isinstance(producer, Journaled):
            raise StreamSystemError(f"{type(producer).__name__} cannot be part of an atomic commit")
        return producer


def apply_left(effects: PendingWrites, systems: Systems) -> None:
    """Apply the effects of a process that may have died before it could."""
    producers: dict[str, SystemProducer] = {}

    def producer_of(system: str) -> SystemProducer:
        if system not in producers:
            producer = producers[system] = systems.producer(system, MetricsRegistry())
            producer.register(effects.producer)
            producer.start()
        return producers[system]

    try:
        ProducersApplier(producer_of).apply(effects)
    finally:
        do_all([producer.stop for producer in producers.values()])


def _size(rows: Rows) -> int:
    """The bytes that these messages take as columns, at most."""
    size = _PER_MESSAGE * (len(rows) + 1) + sum(map(_length, rows.keys)) + sum(map(_length, rows.messages))
    for headers in rows.headers or ():
        if headers:
            size += sum(_PER_HEADER + len(name.encode()) + len(value) for name, value in headers.items())
    return size


def _length(value: Any) -> int:
    return len(value) if isinstance(value, (bytes, str)) else 0
