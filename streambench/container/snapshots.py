"""Snapshots of stores: written at commits beside their changelogs, so that a start need not read these whole.

The state at an offset of a changelog is what all messages before it lead to. So a snapshot at any offset up
to the committed one, with the messages between the two, leads to the committed state. It does not where
compaction has removed some of those, or where the changelog was replaced.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from streambench.checkpoint.api import Checkpoint
from streambench.errors import StreambenchError, described
from streambench.model import SystemStreamPartition
from streambench.planning.store_definitions import StoreDefinition
from streambench.store.task_store import TaskStore
from streambench.system.capabilities import KeepingSnapshots, SnapshotName, StateSnapshots
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_SHARE = 50
"""Writing snapshots takes at most one part in so many of the time of a run."""

_AT_ONCE_NS = 1_000_000_000
"""The longest time that a commit in the middle of a run may take for snapshots."""

_STOP_PART = 3
"""The last commit may take one part in so many of the time that a stop may take."""

_LAST_PART = 4
"""The last commit writes a snapshot after one part in so many of the changes that others wait for."""

_ENTRY_NS = 500.0
_FILE_NS = 5_000_000
_MANY = 10_000
_FORGETTING = 0.99


class _NotRemovedError(StreambenchError):
    """A snapshot was written, and an older one could not be removed."""


class StoreSnapshots:
    """The snapshots of one task's part of a store, and the newest one that leads to its state."""

    def __init__(
        self, job: str, files: StateSnapshots, store: TaskStore, definition: StoreDefinition
    ) -> None:
        self._job = job
        self._files = files
        self._store = store
        self._least = definition.snapshot_changes
        self._stamped = definition.ttl_ms is not None
        self._newest: SnapshotName | None = None
        self._entries = 0
        self.is_loaded = False
        self.read = 0
        """The number of entries that were read from the snapshot."""
        self._older: Iterator[SnapshotName] = iter(())
        self._damaged: list[SnapshotName] = []
        self._entry_ns = _ENTRY_NS

    @property
    def entries(self) -> int:
        """The number of entries of the newest snapshot."""
        return self._entries

    def find(self, committed: int) -> int | None:
        """Look for the newest snapshot that leads to the committed state. Returns its offset; None: there is
        none."""
        try:
            self._older = iter(self._files.names(committed))
        except Exception as error:
            log.warning("%s: snapshots cannot be listed: %s", self._job, described(error))
            return None
        return self._find_older()

    def _find_older(self) -> int | None:
        """Look for the next snapshot that leads to the committed state; its offset."""
        for name in self._older:
            try:
                entries = self._files.entries(name, stamped=self._stamped)
            except Exception as error:
                self._report(name, error)
                continue
            if entries is not None:
                self._newest, self._entries = name, entries
                return name.offset
        self._newest, self._entries = None, 0
        return None

    def load(self, progress: Callable[[], object]) -> int | None:
        """Fill the store, which is empty, with the snapshot that was found, or with an older one where that
        is damaged. Returns its offset; None: the store is empty. ``progress`` is called now and then."""
        while self._newest is not None:
            if self._fill(self._newest, progress):
                self.is_loaded = True
                return self._newest.offset
            self._store.engine.clear()
            self.read = 0
            self._find_older()
        return None

    def _fill(self, name: SnapshotName, progress: Callable[[], object]) -> bool:
        """Fill the store with a snapshot; False where that is damaged."""
        batches = self._files.read(name)
        while True:
            try:
                batch = next(batches, None)
            except Exception as error:
                self._report(name, error)
                return False
            if batch is None:
                return True
            self._store.load(*batch)
            self.read += len(batch[0])
            progress()

    def _report(self, name: SnapshotName, error: Exception) -> None:
        self._damaged.append(name)
        log.warning(
            "%s: the snapshot %s cannot be used, so that the start reads more of the changelog: %s",
            self._job, self._files.path(name), described(error),
        )  # fmt: skip

    def is_overtaken(self) -> bool:
        """True where compaction has overtaken the snapshot that the store was filled with, since then. It is
        forgotten."""
        if self._newest is None or not self.is_loaded or self._files.is_valid(self._newest):
            return False
        self._newest, self._entries, self.is_loaded, self.read = None, 0, False, 0
        return True

    def is_due(self, offset: int, part: int = 1) -> bool:
        """True where a snapshot at this offset is worth its cost. ``part``: after one part in so many of the
        changes."""
        changes = self._changes(offset)
        return changes > 0 and changes * part >= max(self._least, self._entries)

    def cost_ns(self, offset: int) -> float:
        """An estimate of the time that a snapshot takes."""
        entries = self._store.engine.estimate()
        most = self._entries + self._changes(offset)
        return _FILE_NS + self._entry_ns * (most if entries is None else min(entries, most))

    def kept(self, offset: int) -> int | None:
        """The offset of the newest snapshot, from which on the changelog is not compacted; None where a new
        one is overdue. ``offset``: the committed one."""
        if self._newest is None or self._changes(offset) > 2 * max(self._least, self._entries):
            return None
        return self._newest.offset

    def put_off(self) -> None:
        """Note that a snapshot was due and seemed too expensive. After a while one is tried all the same."""
        self._entry_ns *= _FORGETTING

    def write(self, offset: int, checkpoint: Checkpoint) -> None:
        """Write a snapshot of the present state, which is that of a checkpoint, and remove what it replaces.
        Raises _NotRemovedError where only that fails."""
        name = SnapshotName(offset, (checkpoint.generation, checkpoint.sequence))
        began_ns = time.monotonic_ns()
        entries = self._files.write(name, self._store.batches(), stamped=self._stamped)
        if entries is None:
            return
        self._newest, self._entries = name, entries
        if entries >= _MANY:
            self._entry_ns = (time.monotonic_ns() - began_ns) / entries
        try:
            self._files.remove_older(name)
            while self._damaged:
                self._files.remove(self._damaged[-1])
                self._damaged.pop()
        except Exception as error:
            raise _NotRemovedError(f"{self._files.path(name)} was written, but {described(error)}") from None

    def _changes(self, offset: int) -> int:
        return offset - (0 if self._newest is None else self._newest.offset)


class Snapshots:
    """The snapshots of all stores of a container that can have some. ``stop_ms``: the time for a stop."""

    def __init__(self, job: str, systems: Systems, *, stop_ms: int) -> None:
        self._job = job
        self._systems = systems
        self._stop_ns = stop_ms * 1_000_000 // _STOP_PART
        self._stores: dict[tuple[str, str], StoreSnapshots] = {}
        self._budget_ns: float = _AT_ONCE_NS
        self._budget_at_ns = time.monotonic_ns()
        self._has_failed = False

    def add(
        self, task: str, store: TaskStore, definition: StoreDefinition, changelog: SystemStreamPartition
    ) -> None:
        """Have snapshots of a store, where its changelog can have them. Raises UnknownStreamError."""
        admin = self._systems.admin(changelog.system)
        files = admin.snapshots(changelog) if isinstance(admin, KeepingSnapshots) else None
        if files is not None and definition.snapshot_changes:
            self._stores[task, store.name] = StoreSnapshots(self._job, files, store, definition)

    @property
    def loaded(self) -> int:
        """The number of stores that were filled from a snapshot."""
        return sum(store.is_loaded for store in self._stores.values())

    def find(self, task: str, store: str, committed: str) -> str | None:
        """Look for the newest snapshot that leads to the committed state of a store; its offset."""
        of_store = self._stores.get((task, store))
        found = None if of_store is None else of_store.find(int(committed))
        return None if found is None else str(found)

    def load(self, task: str, store: str, progress: Callable[[], object]) -> str | None:
        """Fill an empty store with the snapshot that was found, or with an older one where that is damaged.

        Returns the offset up to which the store has the state then, else None. ``progress`` is called now and
        then, and what it raises ends the load."""
        found = self._stores[task, store].load(progress)
        return None if found is None else str(found)

    def entries(self, task: str, store: str) -> int:
        """The number of entries of the snapshot of a store that was found or loaded."""
        return self._stores[task, store].entries

    def read(self) -> int:
        """The number of entries that were read from the snapshots of all stores."""
        return sum(store.read for store in self._stores.values())

    def is_overtaken(self, task: str, store: str) -> bool:
        """True where compaction has overtaken the snapshot that a store was filled with, since then."""
        of_store = self._stores.get((task, store))
        return of_store is not None and of_store.is_overtaken()

    def kept(self, task: str, store: str, committed: str | None) -> str | None:
        """The offset from which on the changelog of a store must stay as it is, for its snapshot."""
        of_store = self._stores.get((task, store))
        kept = None if of_store is None or committed is None else of_store.kept(int(committed))
        return None if kept is None else str(kept)

    def write_due(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """Write what is due after a commit with these checkpoints, and takes little of the run's time. What
        fails is only logged: the commit is made."""
        due = list(self._due(checkpoints, 1))
        if not due:
            return
        now_ns = time.monotonic_ns()
        self._budget_ns = min(_AT_ONCE_NS, self._budget_ns + (now_ns - self._budget_at_ns) / _SHARE)
        for store, offset, checkpoint in due:
            if store.cost_ns(offset) <= self._budget_ns:
                self._budget_ns -= self._write(store, offset, checkpoint)
            else:
                store.put_off()
        self._budget_at_ns = time.monotonic_ns()

    def write_last(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        """As ``write_due``, after the last commit of a run."""
        left_ns: float = self._stop_ns
        for store, offset, checkpoint in list(self._due(checkpoints, _LAST_PART)):
            if store.cost_ns(offset) <= left_ns:
                left_ns -= self._write(store, offset, checkpoint)

    def _due(
        self, checkpoints: Mapping[str, Checkpoint], part: int
    ) -> Iterable[tuple[StoreSnapshots, int, Checkpoint]]:
        for (task, name), store in self._stores.items():
            checkpoint = checkpoints.get(task)
            committed = None if checkpoint is None else checkpoint.changelogs.get(name)
            if checkpoint is not None and committed is not None and store.is_due(int(committed), part):
                yield store, int(committed), checkpoint

    def _write(self, store: StoreSnapshots, offset: int, checkpoint: Checkpoint) -> int:
        """Write a snapshot; how long it took, in nanoseconds."""
        began_ns = time.monotonic_ns()
        try:
            store.write(offset, checkpoint)
        except _NotRemovedError as error:
            self._warn("the snapshot %s", error)
        except Exception as error:
            self._warn(
                "no snapshot of a store was written; the next start reads more of its changelog: %s", error
            )
        return time.monotonic_ns() - began_ns

    def _warn(self, text: str, error: Exception) -> None:
        """Log an error, as a warning only the first time."""
        level = logging.DEBUG if self._has_failed else logging.WARNING
        self._has_failed = True
        log.log(level, f"%s: {text}", self._job, described(error))
