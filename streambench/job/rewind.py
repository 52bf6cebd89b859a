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
        self.manager = manager
        self.systems = systems
        self.config = config
        self.warn = warn
        self.wanted: dict[str, Checkpoint] = {}
        """Per task the checkpoint that is put in place."""
        self.identities = PartitionIdentities(systems)
        self.kept_stores: dict[str, set[str]] = {}
        """Per task the stores that do not go back with its partitions."""
        inputs = all_inputs(config)
        self.metadata: Metadata = systems.metadata(inputs)
        self.model: JobModel = plan(config, name, self.metadata, manager.last_generation())

    def tasks(self, only: str | None) -> dict[str, tuple[SystemStreamPartition, ...]]:
        """The tasks with their partitions, or one of them."""
        tasks = {task.name: task.partitions for task in self.model.tasks}
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
            goal = _goal(self, task if equals else None, where, self.wanted)
            self.wanted.update(goal)
            if "@" not in where:
                for each in goal:
                    self.kept_stores.pop(each, None)
        _check_state(self, self.wanted)
        stores = sorted(set().union(*self.kept_stores.values()))
        if stores:
            self.warn(
                f"the stores stay as they are ({', '.join(stores)}): what is processed again is done to them "
                "again. A rewind to oldest, or to a commit, takes them along"
            )
        for task, checkpoint in self.wanted.items():
            for ssp in partitions(checkpoint):
                known = ssp.partition in self.metadata.get(ssp.system_stream, {})
                if known and not self.identities.is_same(checkpoint, ssp):
                    self.warn(replaced(self.config, task, ssp, checkpoint))

    def places(self) -> dict[str, str]:
        """Per task, the next message of each partition, as a text."""
        return {
            task: ", ".join(
                f"{ssp} at {next_offset(self.systems, self.wanted[task], ssp)}"
                for ssp in partitions(self.wanted[task])
            )
            for task in sorted(self.wanted, key=natural)
        }

    def apply(self) -> Generation:
        """Put the checkpoints in place, which ends what still runs of the job."""
        last = self.manager.last_generation()
        number = 1 if last is None else last.number + 1
        wanted = {task: structs.replace(each, rewound=number) for task, each in self.wanted.items()}
        return self.manager.rewind(wanted, now_ms=SystemClock().now_ms())


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


def _check_state(job: Rewind, wanted: Mapping[str, Checkpoint]) -> None:
    """Raise StoreError where the state as of one of these checkpoints cannot be rebuilt any more."""
    numbers = {task.name: task.number for task in job.model.tasks}
    stores = store_definitions(job.config, job.name, job.systems)
    for task, checkpoint in wanted.items():
        for store, offset in checkpoint.changelogs.items():
            stream = stores[store].changelog if store in stores else None
            if stream is not None and task in numbers:
                ssp = stream.partition(numbers[task])
                admin = job.systems.admin(ssp.system)
                try:
                    rewind = job.config.command("checkpoints --rewind oldest")
                    check_not_compacted(ssp, offset, admin.compacted_to(ssp), admin.compare, rewind)
                except UnknownStreamError:
                    check_needs_nothing(ssp, store, offset, admin.compare)


def _goal(
    job: Rewind, only: str | None, where: str, so_far: Mapping[str, Checkpoint]
) -> dict[str, Checkpoint]:
    """The checkpoints that a wish asks for, by task."""
    now = SystemClock().now_ms()
    if where == "oldest":
        return {
            task: _begun(job, {ssp: _at(job, ssp, "oldest") for ssp in ssps}, now)
            for task, ssps in job.tasks(only).items()
        }
    if where == "upcoming":
        return _all_moved(
            job, only, {ssp for ssps in job.tasks(only).values() for ssp in ssps}, where, so_far
        )
    if re.fullmatch(r"\d+\.\d+", where):
        generation, sequence = map(int, where.split("."))
        history = job.manager.history()
        _check_commit(job, history, generation, sequence)
        return {
            task: _committed(job, history.get(task, []), task, generation, sequence)
            for task in job.tasks(only)
        }
    place, at, offset = where.rpartition("@")
    if not at:
        what = (
            f"'{where}' is no place to go back to: give oldest, upcoming, a commit such as 3.17, "
            "PARTITION@OFFSET or STREAM@OFFSET"
        )
        raise NoPlaceError(what)
    stream = SystemStream.parse(place)
    if stream not in job.metadata:
        head, _, last = place.rpartition(".")
        if not last.isdecimal() or SystemStream.parse(head) not in job.metadata:
            raise UnknownStreamError(
                f"{place} is no input of {job.name}; its inputs are "
                f"{', '.join(sorted(map(str, job.metadata)))}"
            )
        return _moved(job, only, SystemStreamPartition.parse(place), offset, so_far)
    read = {ssp for ssps in job.tasks(only).values() for ssp in ssps if ssp.system_stream == stream}
    if not read:
        raise UnknownStreamError(f"{stream} is no input of {only}")
    return _all_moved(job, only, read, offset, so_far)


def _all_moved(
    job: Rewind,
    only: str | None,
    partitions: Collection[SystemStreamPartition],
    where: str,
    so_far: Mapping[str, Checkpoint],
) -> dict[str, Checkpoint]:
    """The checkpoints of the tasks that read these partitions; see ``_moved``."""
    moved: dict[str, Checkpoint] = {}
    for ssp in sorted(partitions):
        moved |= _moved(job, only, ssp, where, {**so_far, **moved})
    return moved


def _begun(job: Rewind, starts: Mapping[SystemStreamPartition, str], now_ms: int) -> Checkpoint:
    """The checkpoint of a task that has processed nothing yet."""
    return Checkpoint({}, starts, time_ms=now_ms, identities=job.identities.at({}, starts))


def _check_commit(
    job: Rewind, history: Mapping[str, Sequence[Checkpoint]], generation: int, sequence: int
) -> None:
    """Raise CheckpointError where no task ever made this commit, though some made earlier ones: it is
    mistyped."""
    made = {each.since for kept in history.values() for each in kept if each.generation and not each.rewound}
    if made and (generation, sequence) not in made and (generation, sequence) > min(made):
        last = ".".join(map(str, max(made)))
        raise CheckpointError(
            f"{job.name}: there is no commit {generation}.{sequence}; the last is {last} (--history lists "
            "them)"
        )


def _committed(
    job: Rewind, kept: Sequence[Checkpoint], task: str, generation: int, sequence: int
) -> Checkpoint:
    """Return what was in place for a task at that commit.

    That is its own last one by then, or what a rewind has put in place since that."""
    found = [each for each in kept if (0, 0) < each.since <= (generation, sequence)]
    found.sort(key=lambda each: each.since)
    if not found:
        first = (
            f"the oldest that is kept is {kept[0].generation}.{kept[0].sequence}" if kept else "none is kept"
        )
        raise CheckpointError(f"{job.name}: {task} has no commit {generation}.{sequence} or before; {first}")
    return found[-1]


def _moved(
    job: Rewind, only: str | None, ssp: SystemStreamPartition, where: str, so_far: Mapping[str, Checkpoint]
) -> dict[str, Checkpoint]:
    """The checkpoints of the tasks that read a partition, with the message that ``where`` names as the next
    one there."""
    readers = {task: ssps for task, ssps in job.tasks(only).items() if ssp in ssps}
    there = job.metadata[ssp.system_stream]
    if ssp.partition not in there:
        raise no_partition(ssp.system_stream, ssp.partition, len(there))
    if not readers:
        raise UnknownStreamError(f"{ssp} is no input of {only or job.name}")
    offset = _at(job, ssp, where)
    moved, now = {}, SystemClock().now_ms()
    for task, ssps in readers.items():
        before = so_far.get(task) or _before(job, task, needed=len(ssps) > 1)
        reached = next_offset(job.systems, before, ssp)
        if reached is not None and (lag_between(offset, reached) or 0) > 0:
            job.kept_stores.setdefault(task, set()).update(before.changelogs)
        moved[task] = Checkpoint(
            {each: done for each, done in before.offsets.items() if each != ssp},
            {**before.starts, ssp: offset},
            before.changelogs,
            time_ms=now,
            identities={**before.identities, **job.identities.at({}, {ssp: offset})},
            formats=before.formats,
            absent=before.absent,
        )
    return moved


def _before(job: Rewind, task: str, *, needed: bool) -> Checkpoint:
    """The last checkpoint of a task. A damaged one can be done without if only the stores would be taken from
    it (not ``needed``)."""
    try:
        return job.manager.read_last().get(task, Checkpoint({}))
    except CheckpointError as error:
        if needed:
            raise
        job.warn(f"{error}. {task} continues with empty stores")
        return Checkpoint({})


def _at(job: Rewind, ssp: SystemStreamPartition, where: str) -> str:
    there = job.metadata[ssp.system_stream][ssp.partition]
    offset = start_point(job.systems, ssp, there, where)
    if where.startswith("timestamp:") and offset == there.upcoming:
        job.warn(f"{ssp}: no message is that new; it continues with the next one that arrives")
    return offset
