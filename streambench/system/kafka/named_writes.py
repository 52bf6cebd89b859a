"""Writes under a name, step by step, each step once: in one transaction with the number of the step."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from streambench.checkpoint.api import Checkpoint
from streambench.errors import FencedError
from streambench.model import SystemStreamPartition
from streambench.rows import Rows
from streambench.system.kafka.exactly_once import TransactionalCheckpointManager
from streambench.system.kafka.settings import Settings

PREFIX = ".write."
"""The begin of the names under which writes keep their steps. The name of a job begins with no dot."""

_TASK = "write"
_KEPT = 10


class KafkaNamedWrite:
    """A write to the topics of a Kafka, that goes on under its name after a crash.

    It is kept like a job of one task, whose checkpoint is the number of the last step. A process that
    continues the write fences the one before. What was in doubt is looked up, as for a container."""

    def __init__(self, settings: Settings, name: str) -> None:
        self._manager = TransactionalCheckpointManager(settings, f"{PREFIX}{name}", keep=_KEPT)
        self._generation = 0
        self._last: int | None = None
        self._fenced: FencedError | None = None

    def commit(self, step: int, rows: Sequence[Rows]) -> bool:
        """Write rows as a step; False where that step, or a later one, was written before. Raises FencedError
        where another process goes on with the write, here and from then on. After another error the next call
        looks up what was written."""
        if self._fenced is not None:
            raise self._fenced
        try:
            return self._commit(step, rows)
        except BaseException as error:
            if isinstance(error, FencedError):
                self._fenced = error
            self.close()
            raise

    def close(self) -> None:
        """Close connections; may be called more than once."""
        self._generation = 0
        self._manager.close()

    def _commit(self, step: int, rows: Sequence[Rows]) -> bool:
        if not self._generation:
            self._open()
        if self._last is not None and step <= self._last:
            return False
        checkpoint = Checkpoint(
            {}, generation=self._generation, sequence=step, time_ms=time.time_ns() // 1_000_000
        )

        def numbered(ends: Mapping[SystemStreamPartition, str]) -> dict[str, Checkpoint]:
            return {_TASK: checkpoint}

        nothing_pending: Any = None  # a transaction leaves nothing to be applied
        self._manager.commit(numbered, rows, nothing_pending)
        self._last = step
        return True

    def _open(self) -> None:
        now_ms = time.time_ns() // 1_000_000
        number = self._manager.open_generation({0: [_TASK]}, now_ms=now_ms).number
        self._manager.claim(number, 0, now_ms=now_ms)
        last = self._manager.read_last().get(_TASK)
        self._last = None if last is None else last.sequence
        self._generation = number
