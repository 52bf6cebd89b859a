"""Checkpoints in this process's memory: for tests, for notebooks, and for jobs whose streams are in memory as
well."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from threading import Lock

from streambench.checkpoint import validation as rules
from streambench.checkpoint.api import Checkpoint, CheckpointManager, Checkpoints, Generation
from streambench.checkpoint.pending_writes import PendingWrites, PendingWritesApplier
from streambench.rows import Rows, ends_of


class _Memory:
    """The state that all managers of one job share. ``holders``: per container of the last generation, the
    epoch of its holder."""

    def __init__(self, job: str, keep: int) -> None:
        self.job = job
        self.keep = keep
        self.lock = Lock()
        self.generation: Generation | None = None
        self.places: Mapping[str, int] = {}
        self.holders: dict[int, int] = {}
        self.history: dict[str, deque[Checkpoint]] = {}

    def add(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        for task, checkpoint in checkpoints.items():
            kept = self.history.setdefault(task, deque(maxlen=self.keep))
            if not kept or kept[-1] != checkpoint:
                kept.append(checkpoint)

    def open(
        self,
        assignment: Mapping[int, Sequence[str]],
        places: Mapping[str, int] | None = None,
        backfill: str = "",
    ) -> Generation:
        merged = rules.merged_places(self.job, self.places, places)
        known = frozenset(ssp for kept in self.history.values() for ssp in kept[-1].partitions)
        self.generation = Generation(
            self.generation.number + 1 if self.generation else 1, assignment, merged, known, backfill
        )
        self.places = merged
        self.holders = {}
        return self.generation


class MemoryCheckpointManager(CheckpointManager):
    """Keeps checkpoints as long as the process lives. ``checkpoints``, and ``last`` (the generation before),
    are there from the start; ``keep``: how many per task."""

    atomic: str | None = "memory"

    def __init__(
        self,
        checkpoints: Mapping[str, Checkpoint] | None = None,
        *,
        job: str = "job",
        keep: int = 100,
        last: Generation | None = None,
    ) -> None:
        self._memory = _Memory(job, keep)
        self._memory.add(checkpoints or {})
        if last is not None:
            self._memory.generation, self._memory.places = last, last.places
        self._claim: tuple[int, int, int] | None = None

    def sibling(self) -> MemoryCheckpointManager:
        """Another manager of the same checkpoints, with a claim of its own: what another process would have
        on a disk."""
        other = MemoryCheckpointManager()
        other._memory = self._memory
        return other

    def open_generation(
        self,
        assignment: Mapping[int, Sequence[str]],
        *,
        now_ms: int,
        places: Mapping[str, int] | None = None,
        backfill: str = "",
    ) -> Generation:
        checked = rules.checked_assignment(assignment)
        with self._memory.lock:
            rules.check_backfill(self._memory.job, self._memory.generation, backfill)
            return self._memory.open(checked, places, backfill)

    def last_generation(self) -> Generation | None:
        return self._memory.generation

    def claim(self, generation: int, container: int, *, now_ms: int) -> int:
        memory = self._memory
        self._claim = None
        with memory.lock:
            rules.check_claim(memory.job, memory.generation, generation, container)
            epoch = memory.holders.get(container, 0) + 1
            memory.holders[container] = epoch
            self._claim = (generation, container, epoch)
            return epoch

    def read_last(self) -> dict[str, Checkpoint]:
        with self._memory.lock:
            return {task: kept[-1] for task, kept in self._memory.history.items()}

    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        with self._memory.lock:
            self._check(checkpoints)
            self._memory.add(checkpoints)

    def commit(
        self, checkpoints: Checkpoints, rows: Sequence[Rows], applier: PendingWritesApplier
    ) -> Mapping[str, Checkpoint]:
        made = checkpoints(ends_of(rows))
        with self._memory.lock:
            generation, container, epoch = self._check(made)
            applier.apply(PendingWrites(f"{self._memory.job}/c{container}", generation, epoch, rows))
            self._memory.add(made)
        return made

    def check(self) -> None:
        if self._claim is not None:
            with self._memory.lock:
                self._check(())

    def _check(self, checkpoints: Collection[str]) -> tuple[int, int, int]:
        """The claim, if it stands and covers these tasks."""
        memory = self._memory
        if self._claim is None:
            raise rules.unclaimed(memory.job)
        generation, container, epoch = self._claim
        last = memory.generation
        assert last is not None
        if last.number != generation:
            self._claim = None
            raise rules.superseded(memory.job, container, last.number)
        if memory.holders[container] != epoch:
            self._claim = None
            raise rules.replaced(memory.job, container)
        rules.check_tasks(memory.job, container, last.assignment[container], checkpoints)
        return generation, container, epoch

    def history(self) -> dict[str, list[Checkpoint]]:
        with self._memory.lock:
            return {task: list(kept) for task, kept in self._memory.history.items()}

    def rewind(self, checkpoints: Mapping[str, Checkpoint], *, now_ms: int) -> Generation:
        memory = self._memory
        with memory.lock:
            last = memory.generation
            rules.check_rewind(memory.job, last, memory.history, checkpoints)
            memory.add(checkpoints)
            return memory.open(last.assignment if last else {}, backfill=last.backfill if last else "")

    def close(self) -> None:
        self._claim = None


_managers: dict[tuple[str, str], MemoryCheckpointManager] = {}


def memory_checkpoints(system: str, job: str, *, keep: int) -> MemoryCheckpointManager:
    """A manager of the checkpoints that this process keeps for a job in the memory system of that name."""
    return _managers.setdefault((system, job), MemoryCheckpointManager(job=job, keep=keep)).sibling()
