"""The stores of a container: created, restored from changelogs, and drained with every commit."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import msgspec
from msgspec import Struct

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.clock import Clock
from streambench.config import Config
from streambench.container.known_stores import (
    KnownStores,
    check_formats,
    goes_back_before,
    holds_state,
    known_stores,
    unknown_state,
    warn_of_stores,
)
from streambench.container.loop_context import LoopContext
from streambench.container.outputs.outbox import StoreChanges
from streambench.container.restore import (
    Restore,
    RestoreProgress,
    check_needs_nothing,
    check_not_compacted,
    restore_all,
)
from streambench.container.snapshots import Snapshots
from streambench.container.trace import Trace, TracedClock
from streambench.counts import sum_known
from streambench.errors import StreambenchError, StreamSystemError, UnknownStreamError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.model import ContainerModel, TaskModel
from streambench.planning.store_definitions import StoreDefinition, store_definitions
from streambench.store.engine import StoreEngine
from streambench.store.metered import MeteredStore
from streambench.store.task_store import StoreCounts, TaskStore
from streambench.store.traced import TracedEngine
from streambench.system.api import SystemAdmin
from streambench.system.capabilities import Compacting
from streambench.system.systems import Systems
from streambench.temporary import TemporaryDirectory

log = logging.getLogger(__name__)

_KEEP_EVERY_NS = 60_000_000_000
_KEEP_SHARE = 200
"""Reading all checkpoints that are kept takes at most one part in so many of the time."""


class StoreParts(Struct, frozen=True, kw_only=True):
    """The parts of a container that its stores need. ``directory``: that of the job, for the files of stores.
    Where it is None, they get one for this container alone, which is deleted with it. ``meter``: where the
    tasks' calls of their stores are timed."""

    config: Config
    job: str
    systems: Systems
    clock: Clock
    metrics: MetricsRegistry
    directory: Path | None
    meter: MetricsRegistry | None = None


class TaskStores:
    """All stores of one container. Every task has its part of each store, and writes one partition of each
    changelog, alone."""

    def __init__(
        self,
        parts: StoreParts,
        container: ContainerModel,
        partitions: int,
        context: LoopContext,
        last: Mapping[str, Checkpoint],
    ) -> None:
        """``partitions``: how many partitions changelogs have. ``last``: the checkpoints so far.

        Raises StoreError, and creates no stream, where a checkpoint needs a changelog that is not there."""
        config, job, systems, clock, metrics = (
            parts.config, parts.job, parts.systems, parts.clock, parts.metrics,
        )  # fmt: skip
        self._meter = parts.meter
        self._config = config
        self._undoes = bool(config.names("task.ignored.exceptions"))
        self._job = job
        self._systems = systems
        self._clock = clock
        self._clock_of_trace: TracedClock | None = None
        self._tasks = container.tasks
        self._definitions = store_definitions(config, job, systems)
        of_tasks = {task.name: last.get(task.name, Checkpoint({})) for task in container.tasks}
        self._known = {
            task: known_stores(self._definitions, checkpoint) for task, checkpoint in of_tasks.items()
        }
        warn_of_stores(config, job, self._definitions, of_tasks)
        self._counts = {name: StoreCounts(name, metrics) for name in self._definitions}
        self._metrics = metrics
        self._directory = parts.directory
        self._temporary: TemporaryDirectory | None = None
        self._remove_temporary: Callable[[], object] = lambda: None
        self._keep_at_ns = clock.monotonic_ns()
        self._last = dict(of_tasks)
        self._snapshots = Snapshots(job, systems, stop_ms=config.integer("task.shutdown.ms"))
        self._stores: dict[str, dict[str, TaskStore]] = {task.name: {} for task in self._tasks}
        try:
            for task in self._tasks:
                for name, definition in self._definitions.items():
                    self._stores[task.name][name] = self._store(definition, task, context)
            if self._temporary is not None and not any(self._temporary.path.iterdir()):
                self._remove_temporary()
            self._create_changelogs(partitions, last)
        except BaseException:
            self.close()
            raise

    @property
    def definitions(self) -> Mapping[str, StoreDefinition]:
        """The stores of the job, by name."""
        return self._definitions

    @property
    def locks_files(self) -> bool:
        """True where stores keep files that one process at a time can open."""
        return any(store.engine.locks_files for stores in self._stores.values() for store in stores.values())

    def stores(self, task: str) -> dict[str, TaskStore]:
        """The stores of a task, by name."""
        return self._stores[task]

    def changelogs(self, task: str) -> dict[str, SystemStreamPartition]:
        """The changelog partitions of a task, by the names of the stores."""
        return self._changelogs[task]

    def known(self, task: str) -> KnownStores:
        """The memory of stores for the next checkpoints of a task."""
        return self._known[task]

    def upcoming(self, task: str, stores: Collection[str]) -> dict[str, str]:
        """Of some stores of a task, the upcoming offsets of their changelogs, as they are now."""
        ssps = {store: self._changelogs[task][store] for store in stores}
        metadata = self._systems.metadata_of(ssps.values())
        return {
            store: metadata[ssp.system_stream][ssp.partition].upcoming or "0" for store, ssp in ssps.items()
        }

    def fenced(self) -> dict[str, list[SystemStreamPartition]]:
        """Per source of changes the partitions that it writes alone."""
        return {
            self._source(task.name): list(self.changelogs(task.name).values())
            for task in self._tasks
            if self.changelogs(task.name)
        }

    def restore(
        self,
        last: Mapping[str, Checkpoint],
        progress: Callable[[RestoreProgress], object] | None,
        manager: CheckpointManager,
    ) -> list[StoreChanges]:
        """Fill the stores; what must be written to the changelogs to set right what a run left there that
        died before its commit."""
        began_ns = self._clock.monotonic_ns()
        restores, found = self._restores(last)

        def report() -> None:
            if progress is not None:
                read = self._snapshots.read() + sum(each.entries for _, _, each in restores)
                of_snapshots = sum(self._snapshots.entries(*each) for each in found)
                totals = [each.total for _, _, each in restores]
                progress(RestoreProgress(read, sum_known([of_snapshots, *totals])))

        self._load_snapshots(restores, found, report)
        self._read([each for _, _, each in restores], report)
        self._read(list(self._overtaken(restores)), report)
        corrections = []
        for task, store, each in restores:
            self._metrics.counter("entries-restored", f"store-{store}").inc(each.entries)
            if each.committed is not None:
                self._write_marker(task, store, last[task])
            wrong = each.corrections(self._stores[task][store].written_at)
            if wrong:
                self._report_correction(task, store, each, len(wrong), last.get(task), manager)
                corrections.append(self._changes(task, store, wrong))
        read = sum(each.entries for _, _, each in restores)
        if read or self._snapshots.loaded:
            seconds = (self._clock.monotonic_ns() - began_ns) / 1e9
            log.info(
                "%s: %d entries of changelogs were read in %.1f s to restore %d stores, %d from snapshots",
                self._job,
                read,
                seconds,
                len(restores),
                self._snapshots.loaded,
            )
        return corrections

    def _load_snapshots(
        self,
        restores: list[tuple[str, str, Restore]],
        found: Collection[tuple[str, str]],
        report: Callable[[], None],
    ) -> None:
        """Fill the stores for which a snapshot was found. A restore whose snapshot is damaged reads more."""
        for at, (task, store, one) in enumerate(restores):
            if (task, store) in found:
                held = self._snapshots.load(task, store, report)
                if held != one.held:
                    restores[at] = task, store, one.again(held)

    def _read(self, restores: Sequence[Restore], report: Callable[[], None]) -> None:
        """Read the changelogs of these restores."""
        for system in sorted({each.ssp.system for each in restores}):
            of_system = [each for each in restores if each.ssp.system == system]
            restore_all(self._systems.consumer(system, self._metrics), of_system, report)

    def _overtaken(self, restores: list[tuple[str, str, Restore]]) -> Iterator[Restore]:
        """The restores from snapshots behind which compaction may have removed deletions while the rest was
        read, put back to their begin."""
        for at, (task, store, one) in enumerate(restores):
            if self._snapshots.is_overtaken(task, store):
                self._stores[task][store].engine.clear()
                restores[at] = task, store, one.again()
                yield restores[at][2]

    def _report_correction(
        self,
        task: str,
        store: str,
        restore: Restore,
        count: int,
        last: Checkpoint | None,
        manager: CheckpointManager,
    ) -> None:
        """Log why a changelog is set right. Raises StoreError where no checkpoint knows its state."""
        if restore.committed is not None:
            log.info("%s: %d uncommitted changes of the store %s are undone", task, count, store)
        elif last is None:
            log.warning(
                "%s: no checkpoint knows of %s, which holds state; the store %s begins empty",
                task, restore.ssp, store,
            )  # fmt: skip
        elif goes_back_before(store, last, manager.history().get(task, ())):
            log.info(
                "%s was rewound to before the state in %s: the store %s begins empty",
                task, restore.ssp, store,
            )  # fmt: skip
        else:
            raise unknown_state(self._config, task, store, restore.ssp)

    def _restores(
        self, last: Mapping[str, Checkpoint]
    ) -> tuple[list[tuple[str, str, Restore]], set[tuple[str, str]]]:
        """Per task and store with a changelog, its restore; and the tasks and stores whose restore begins
        with a snapshot, which is to be loaded."""
        metadata = self._systems.metadata_of(
            ssp for of_task in self._changelogs.values() for ssp in of_task.values()
        )
        for task, changelogs in self._changelogs.items():
            for store, ssp in changelogs.items():
                checkpoint, here = last.get(task, Checkpoint({})), metadata[ssp.system_stream][ssp.partition]
                if holds_state(self._systems, ssp, here, checkpoint.changelogs.get(store)):
                    check_formats(self._config, self._definitions[store], task, checkpoint)
        restores, found = [], set()
        for task, changelogs in self._changelogs.items():
            checkpoint = last.get(task, Checkpoint({}))
            for store, ssp in changelogs.items():
                engine = self._stores[task][store].engine
                marked = engine.marked()
                is_there = marked is not None and marked == self._marker(task, store, checkpoint)
                if marked is not None and not is_there:
                    engine.clear()
                admin = self._systems.admin(ssp.system)
                here, committed = metadata[ssp.system_stream][ssp.partition], checkpoint.changelogs.get(store)
                if committed is not None and not is_there:
                    rewind = self._config.command("checkpoints --rewind oldest")
                    check_not_compacted(ssp, committed, admin.compacted_to(ssp), admin.compare, rewind)
                self._snapshots.add(task, self._stores[task][store], self._definitions[store], ssp)
                held = None
                if committed is not None:
                    held = self._snapshots.find(task, store, committed)
                    if is_there:
                        held = committed
                    elif held is not None:
                        found.add((task, store))
                one = Restore(engine, ssp, here, committed, admin.compare, store=store, held=held)
                restores.append((task, store, one))
        return restores, found

    def drain(self, task: str) -> list[StoreChanges]:
        """Flush the stores of a task; what changed in them since the last drain."""
        stores = self._stores[task]
        for each in stores.values():
            each.flush()
        changes = []
        for name, store in stores.items():
            # Of stores without a changelog nothing comes, but what has expired in them goes.
            entries = store.drain()
            if entries:
                changes.append(self._changes(task, name, entries))
        return changes

    def committed(self, checkpoints: Mapping[str, Checkpoint], manager: CheckpointManager) -> None:
        """Note a commit of drained changes by these checkpoints: in stores on disk, and for the compaction of
        changelogs."""
        for task, checkpoint in checkpoints.items():
            for store in self._changelogs[task]:
                self._write_marker(task, store, checkpoint)
        self._last.update(checkpoints)
        self._snapshots.write_due(checkpoints)
        now_ns = self._clock.monotonic_ns()
        if now_ns >= self._keep_at_ns:
            self._retain_changelogs(manager)
            took_ns = self._clock.monotonic_ns() - now_ns
            self._keep_at_ns = now_ns + max(_KEEP_EVERY_NS, took_ns * _KEEP_SHARE)

    def write_last_snapshots(self) -> None:
        """Write the snapshots that are due after the last commit: until the next start nothing changes."""
        self._snapshots.write_last(self._last)

    def close(self) -> None:
        """Close all stores."""
        steps: list[Callable[[], object]] = [
            store.close for stores in self._stores.values() for store in stores.values()
        ]
        do_all([*steps, self._remove_temporary])

    def _changes(self, task: str, store: str, entries: list[tuple[bytes, bytes | None]]) -> StoreChanges:
        return StoreChanges(
            task, store, self._changelogs[task][store], entries, self._stores[task][store].written(entries)
        )

    def _write_marker(self, task: str, store: str, checkpoint: Checkpoint) -> None:
        self._stores[task][store].engine.mark(self._marker(task, store, checkpoint))

    def _marker(self, task: str, store: str, checkpoint: Checkpoint) -> bytes:
        """The unmistakable name of a commit of a store, also where streams or checkpoints were deleted and
        written again since."""
        definition = self._definitions[store]
        place = self._changelogs[task][store]
        commit = (
            checkpoint.changelogs.get(store),
            checkpoint.generation,
            checkpoint.sequence,
            checkpoint.time_ms,
        )
        return msgspec.json.encode((str(place), *commit, definition.ttl_ms is not None))

    def _retain_changelogs(self, manager: CheckpointManager) -> None:
        """Have the changelogs keep what is needed to go back to any checkpoint that is kept."""
        of_systems = {ssp.system for changelogs in self._changelogs.values() for ssp in changelogs.values()}
        keeping = {
            system: admin
            for system in of_systems
            if isinstance(admin := self._systems.admin(system), Compacting)
        }
        if not keeping:
            return
        try:
            history = manager.history()
            for task, changelogs in self._changelogs.items():
                for store, ssp in changelogs.items():
                    wanted = [
                        each.changelogs[store] for each in history.get(task, ()) if store in each.changelogs
                    ]
                    if wanted and ssp.system in keeping:
                        kept = self._snapshots.kept(task, store, self._last[task].changelogs.get(store))
                        wanted += [] if kept is None else [kept]
                        least = _least(wanted, self._systems.admin(ssp.system))
                        keeping[ssp.system].keep_from({ssp: least})
        except (StreambenchError, OSError) as error:
            log.warning(
                "%s: the changelogs could not learn what to keep, and keep what they did before: %s",
                self._job,
                error,
            )

    def _store(self, definition: StoreDefinition, task: TaskModel, context: LoopContext) -> TaskStore:
        name = definition.name
        directory, trace = self._store_directory(definition, task), context.trace
        engine: StoreEngine
        if trace is None:
            engine = definition.engine(task.name, self._config, directory, self._clock.now_ms)
        else:
            number = trace.number(task.name, name)
            engine = definition.engine(
                task.name, self._config, directory, self._traced_clock(trace).now_ms,
                lambda engine: TracedEngine(engine, number, trace),
            )  # fmt: skip
        store = (TaskStore if self._meter is None else MeteredStore)(
            name,
            engine,
            definition.key_serde,
            definition.value_serde,
            changelog=definition.changelog is not None,
            owner=context,
            counts=self._counts[name],
            limit=definition.limit,
        )
        if isinstance(store, MeteredStore) and self._meter is not None:
            store.meter(self._meter)
        if self._undoes:
            store.undo_by(context)
        if definition.changelog is None or not definition.reuses_files:
            engine.clear()
        return store

    def _traced_clock(self, trace: Trace) -> TracedClock:
        """The clock of all stores that are traced."""
        if self._clock_of_trace is None:
            self._clock_of_trace = TracedClock(self._clock, trace)
        return self._clock_of_trace

    def _store_directory(self, definition: StoreDefinition, task: TaskModel) -> Path:
        """The directory of a task's store."""
        key = definition.directory_key
        if self._config.text(key) is not None:
            base = self._config.directory_at(key) / quote(self._job, safe=" ")
        elif self._directory is not None:
            base = self._directory / "stores"
        else:
            if self._temporary is None:
                self._temporary = TemporaryDirectory("streambench-stores-")
                # Also where this is never closed.
                self._remove_temporary = weakref.finalize(self, self._temporary.remove)
            base = self._temporary.path
        return base / definition.name / quote(task.name, safe=" ")

    def _create_changelogs(self, partitions: int, last: Mapping[str, Checkpoint]) -> None:
        self._changelogs: dict[str, dict[str, SystemStreamPartition]] = {
            task.name: {} for task in self._tasks
        }
        present: dict[str, int | None] = {}
        for name, definition in self._definitions.items():
            stream = definition.changelog
            if stream is None:
                continue
            for task in self._tasks:
                self._changelogs[task.name][name] = SystemStreamPartition(
                    stream.system, stream.stream, task.number
                )
            admin = self._systems.admin(stream.system)
            if not admin.replayable:
                what = (
                    f"{stream} keeps nothing that could be read again, and a changelog must: name a "
                    "stream of a log or a Kafka"
                )
                raise self._config.error(f"stores.{name}.changelog", what)
            try:
                present[name] = admin.partition_count(stream)
            except UnknownStreamError:
                for task in self._tasks:
                    committed = last.get(task.name, Checkpoint({})).changelogs.get(name)
                    if committed is not None:
                        check_needs_nothing(self._changelogs[task.name][name], name, committed, admin.compare)
                present[name] = None
        # Only now: a start that is refused is to leave no empty stream behind, which would look like one that
        # has lost its messages.
        for name, count in present.items():
            definition = self._definitions[name]
            stream = definition.changelog
            assert stream is not None
            if count is None:
                self._systems.admin(stream.system).create(stream, partitions, **definition.changelog_settings)
            elif count < partitions:
                self._grow(name, stream, count, partitions)

    def _grow(self, store: str, changelog: SystemStream, present: int, wanted: int) -> None:
        """Add the partitions of new tasks to a changelog; those of the others stay as they are."""
        key = f"stores.{store}.changelog"
        try:
            self._systems.admin(changelog.system).grow(changelog, wanted)
        except StreamSystemError as error:
            raise self._config.error(
                key,
                f"{changelog} has {present} partitions and the tasks need {wanted}, one each; add them "
                f"there. {error}",
            ) from error
        log.warning(
            "%s: %s grows from %d to %d partitions; new tasks begin with empty state. If an input has got "
            "more partitions, keys that go to "
            "another one now leave their state with the task that had them before",
            key,
            changelog,
            present,
            wanted,
        )

    def _source(self, task: str) -> str:
        return f"{self._job}/{task}"


def _least(offsets: Sequence[str], admin: SystemAdmin) -> str:
    least, *others = offsets
    for offset in others:
        if (admin.compare(offset, least) or 0) < 0:
            least = offset
    return least
