"""Going back: the checkpoints that a rewind puts in place of those of a job.

A wish is ``[TASK=]WHERE``. WHERE is ``oldest``, ``upcoming``, a commit (``3.17``), or ``PLACE@OFFSET``. PLACE
is a partition or a stream, and OFFSET may also be ``oldest``, ``upcoming`` or ``timestamp:TIME``.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence

from msgspec import structs

from streambench.checkpoint.api import Checkpoint, CheckpointManager, Generation
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.inputs.partition_identity import PartitionIdentities, replaced
from streambench.container.inputs.starting_offsets import start_point
from streambench.container.observe.snapshot import lag_between
from streambench.container.restore import check_needs_nothing, check_not_compacted
from streambench.errors import CheckpointError, ConfigError, UnknownStreamError, no_partition
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import JobModel, natural
from streambench.planning.plan import Metadata, all_inputs, plan
from streambench.planning.store_definitions import store_definitions
from streambench.system.systems import Systems


class NoPlaceError(ConfigError):
    """The error for a text that names no place to rewind to."""


class Rewind:
    """A rewind of a job, planned by ``add`` and made by ``apply``.

    Checkpoints are read only where needed: a damaged one must not prevent doing without it. ``warn`` gets
    each thing that may be unexpected, as a sentence."""

    def __init__(
        self,
        config: Config,
        systems: Systems,
        name: str,
        manager: CheckpointManager,
        warn: Callable[[str], object],
    ) -> None:
        self.name = name
        self._manager = manager
        self._systems = systems
        self._config = config
        self._warn = warn
        self._wanted: dict[str, Checkpoint] = {}
        """Per task the checkpoint that is put in place."""
        self._identities = PartitionIdentities(systems)
        self._kept_stores: dict[str, set[str]] = {}
        """Per task the stores that do not go back with its partitions."""
        inputs = all_inputs(config)
        self._metadata: Metadata = systems.metadata(inputs)
        self._model: JobModel = plan(config, name, self._metadata, manager.last_generation())

    def _tasks(self, only: str | None) -> dict[str, tuple[SystemStreamPartition, ...]]:
        """The tasks with their partitions, or one of them."""
        tasks = {task.name: task.partitions for task in self._model.tasks}
        if only is None:
            return tasks
        if only not in tasks:
            raise ConfigError(f"{self.name} has no task '{only}'; it has {', '.join(tasks)}")
        return {only: tasks[only]}

    def add(self, wishes: Sequence[str]) -> None:
        """Plan these, the later ones after the earlier ones.

        Raises ConfigError for what is no place, UnknownStreamError, and CheckpointError where a commit is not
        kept. Raises StoreError where the state as of it cannot be rebuilt any more."""
        for wish in wishes:
            task, equals, where = wish.rpartition("=")
            goal = self._goal(task if equals else None, where)
            self._wanted.update(goal)
            if "@" not in where:
                for each in goal:
                    self._kept_stores.pop(each, None)
        self._check_state()
        stores = sorted(set().union(*self._kept_stores.values()))
        if stores:
            self._warn(
                f"the stores stay as they are ({', '.join(stores)}): what is processed again is done to them "
                "again. A rewind to oldest, or to a commit, takes them along"
            )
        for task, checkpoint in self._wanted.items():
            for ssp in partitions(checkpoint):
                known = ssp.partition in self._metadata.get(ssp.system_stream, {})
                if known and not self._identities.is_same(checkpoint, ssp):
                    self._warn(replaced(self._config, task, ssp, checkpoint))

    def places(self) -> dict[str, str]:
        """Per task, the next message of each partition, as a text."""
        return {
            task: ", ".join(
                f"{ssp} at {next_offset(self._systems, self._wanted[task], ssp)}"
                for ssp in partitions(self._wanted[task])
            )
            for task in sorted(self._wanted, key=natural)
        }

    def apply(self) -> Generation:
        """Put the checkpoints in place, which ends what still runs of the job."""
        last = self._manager.last_generation()
        number = 1 if last is None else last.number + 1
        wanted = {task: structs.replace(each, rewound=number) for task, each in self._wanted.items()}
        return self._manager.rewind(wanted, now_ms=SystemClock().now_ms())

    def _check_state(self) -> None:
        """Raise StoreError where the state as of one of these checkpoints cannot be rebuilt any more."""
        numbers = {task.name: task.number for task in self._model.tasks}
        stores = store_definitions(self._config, self.name, self._systems)
        for task, checkpoint in self._wanted.items():
            for store, offset in checkpoint.changelogs.items():
                stream = stores[store].changelog if store in stores else None
                if stream is not None and task in numbers:
                    ssp = stream.partition(numbers[task])
                    admin = self._systems.admin(ssp.system)
                    try:
                        rewind = self._config.command("checkpoints --rewind oldest")
                        check_not_compacted(ssp, offset, admin.compacted_to(ssp), admin.compare, rewind)
                    except UnknownStreamError:
                        check_needs_nothing(ssp, store, offset, admin.compare)

    def _goal(self, only: str | None, where: str) -> dict[str, Checkpoint]:
        """The checkpoints that a wish asks for, by task."""
        now = SystemClock().now_ms()
        if where == "oldest":
            return {
                task: self._begun({ssp: self._at(ssp, "oldest") for ssp in ssps}, now)
                for task, ssps in self._tasks(only).items()
            }
        if where == "upcoming":
            return self._moved(only, {ssp for ssps in self._tasks(only).values() for ssp in ssps}, where)
        if re.fullmatch(r"\d+\.\d+", where):
            generation, sequence = map(int, where.split("."))
            history = self._manager.history()
            self._check_commit(history, generation, sequence)
            return {
                task: self._committed(history.get(task, []), task, generation, sequence)
                for task in self._tasks(only)
            }
        place, at, offset = where.rpartition("@")
        if not at:
            what = (
                f"'{where}' is no place to go back to: give oldest, upcoming, a commit such as 3.17, "
                "PARTITION@OFFSET or STREAM@OFFSET"
            )
            raise NoPlaceError(what)
        stream = SystemStream.parse(place)
        if stream not in self._metadata:
            head, _, last = place.rpartition(".")
            if not last.isdecimal() or SystemStream.parse(head) not in self._metadata:
                raise UnknownStreamError(
                    f"{place} is no input of {self.name}; its inputs are "
                    f"{', '.join(sorted(map(str, self._metadata)))}"
                )
            return self._moved(only, [SystemStreamPartition.parse(place)], offset)
        read = {ssp for ssps in self._tasks(only).values() for ssp in ssps if ssp.system_stream == stream}
        if not read:
            raise UnknownStreamError(f"{stream} is no input of {only}")
        return self._moved(only, read, offset)

    def _begun(self, starts: Mapping[SystemStreamPartition, str], now_ms: int) -> Checkpoint:
        """The checkpoint of a task that has processed nothing yet."""
        return Checkpoint({}, starts, time_ms=now_ms, identities=self._identities.at({}, starts))

    def _check_commit(
        self, history: Mapping[str, Sequence[Checkpoint]], generation: int, sequence: int
    ) -> None:
        """Raise CheckpointError where no task ever made this commit, though some made earlier ones: it is
        mistyped."""
        commits = [each for kept in history.values() for each in kept]
        made = {each.since for each in commits if each.generation and not each.rewound}
        if made and (generation, sequence) not in made and (generation, sequence) > min(made):
            last = ".".join(map(str, max(made)))
            raise CheckpointError(
                f"{self.name}: there is no commit {generation}.{sequence}; the last is {last} (--history "
                "lists them)"
            )

    def _committed(self, kept: Sequence[Checkpoint], task: str, generation: int, sequence: int) -> Checkpoint:
        """Return what was in place for a task at that commit.

        That is its own last one by then, or what a rewind has put in place since that."""
        found = [each for each in kept if (0, 0) < each.since <= (generation, sequence)]
        found.sort(key=lambda each: each.since)
        if not found:
            first = "none is kept"
            if kept:
                first = f"the oldest that is kept is {kept[0].generation}.{kept[0].sequence}"
            commit = f"{generation}.{sequence}"
            raise CheckpointError(f"{self.name}: {task} has no commit {commit} or before; {first}")
        return found[-1]

    def _moved(
        self, only: str | None, ssps: Collection[SystemStreamPartition], where: str
    ) -> dict[str, Checkpoint]:
        """The checkpoints of the tasks that read these partitions, with the message that ``where`` names as
        the next one in each."""
        moved: dict[str, Checkpoint] = {}
        for ssp in sorted(ssps):
            moved |= self._moved_in(ssp, only, where, {**self._wanted, **moved})
        return moved

    def _moved_in(
        self, ssp: SystemStreamPartition, only: str | None, where: str, so_far: Mapping[str, Checkpoint]
    ) -> dict[str, Checkpoint]:
        readers = {task: ssps for task, ssps in self._tasks(only).items() if ssp in ssps}
        there = self._metadata[ssp.system_stream]
        if ssp.partition not in there:
            raise no_partition(ssp.system_stream, ssp.partition, len(there))
        if not readers:
            raise UnknownStreamError(f"{ssp} is no input of {only or self.name}")
        offset = self._at(ssp, where)
        moved, now = {}, SystemClock().now_ms()
        for task, ssps in readers.items():
            before = so_far.get(task) or self._before(task, needed=len(ssps) > 1)
            reached = next_offset(self._systems, before, ssp)
            if reached is not None and (lag_between(offset, reached) or 0) > 0:
                self._kept_stores.setdefault(task, set()).update(before.changelogs)
            moved[task] = Checkpoint(
                {each: done for each, done in before.offsets.items() if each != ssp},
                {**before.starts, ssp: offset},
                before.changelogs,
                time_ms=now,
                identities={**before.identities, **self._identities.at({}, {ssp: offset})},
                formats=before.formats,
                absent=before.absent,
            )
        return moved

    def _before(self, task: str, *, needed: bool) -> Checkpoint:
        """The last checkpoint of a task. A damaged one can be done without if only the stores would be taken
        from it (not ``needed``)."""
        try:
            return self._manager.read_last().get(task, Checkpoint({}))
        except CheckpointError as error:
            if needed:
                raise
            self._warn(f"{error}. {task} continues with empty stores")
            return Checkpoint({})

    def _at(self, ssp: SystemStreamPartition, where: str) -> str:
        there = self._metadata[ssp.system_stream][ssp.partition]
        offset = start_point(self._systems, ssp, there, where)
        if where.startswith("timestamp:") and offset == there.upcoming:
            self._warn(f"{ssp}: no message is that new; it continues with the next one that arrives")
        return offset


@contextlib.contextmanager
def planned_rewind(
    config: Config, name: str, where: str, warn: Callable[[str], object] = lambda text: None
) -> Iterator[Rewind]:
    """A rewind of a job to one place, not made yet. Raises what ``Rewind.add`` raises."""
    with (
        contextlib.closing(Systems(config)) as systems,
        contextlib.closing(checkpoint_manager(config, name)) as manager,
    ):
        rewind = Rewind(config, systems, name, manager, warn)
        rewind.add([where])
        yield rewind


def partitions(checkpoint: Checkpoint) -> list[SystemStreamPartition]:
    """The partitions that a checkpoint is about."""
    return sorted({*checkpoint.offsets, *checkpoint.starts})


def next_offset(systems: Systems, checkpoint: Checkpoint, ssp: SystemStreamPartition) -> str | None:
    """The first message that is not processed yet."""
    processed = checkpoint.offsets.get(ssp)
    return systems.admin(ssp.system).after(processed) if processed is not None else checkpoint.starts.get(ssp)
