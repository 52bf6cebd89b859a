"""``streambench checkpoints``: how far each task has come, how it came there, and going back."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Annotated, Any

import typer

from streambench import load
from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.checkpoint.choice import checkpoint_manager
from streambench.cli.job import JobArgument, JobOption, JsonOption, read_job, systems_of
from streambench.cli.output import moment, say, show_rows
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.identities import Identities, replaced
from streambench.container.offsets import start_point
from streambench.container.snapshot import lag_between
from streambench.errors import CheckpointError, ConfigError, UnknownStreamError, no_partition
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.model import JobModel, natural
from streambench.planning.plan import Metadata, all_inputs, job_name, plan
from streambench.store.definitions import store_definitions
from streambench.store.restore import check_needs_nothing, check_not_compacted
from streambench.system.systems import Systems

_FIGURES = ("partition", "processed", "start", "next", "upcoming", "lag", "again")
_COLUMNS = ("task", "stream", "partition", "processed", "start", "next", "upcoming", "lag", "commit", "time")
_HISTORY = ("commit", "time", "task", "stream", "partition", "processed", "start", "next", "again")


def add_to(app: typer.Typer) -> None:
    app.command(name="checkpoints")(checkpoints)


def checkpoints(
    job: JobArgument = None,
    config: JobOption = None,
    history: Annotated[bool, typer.Option("--history", help="All commits that are kept, oldest first.")] = False,
    rewind: Annotated[
        list[str] | None,
        typer.Option(metavar="[TASK=]WHERE", help="Go back, may be repeated; WHERE: oldest, upcoming, a commit (3.17), or PLACE@OFFSET."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before going back.")] = False,
    json: JsonOption = False,
) -> None:
    """Show the checkpoints of a job: per task and input partition the last message processed, and how many are left (lag).

    --history lists the commits that are kept; "again" is how many messages going back to one of them would do again.

    --rewind moves the checkpoints of all tasks, or of the one named before "=". To "oldest": the first message there is, with empty
    stores. To "upcoming": what is in the inputs now is passed over, and the stores stay as they are. To a commit, as --history names it:
    what each task had committed by then, its stores included. To PLACE@OFFSET, a start point: that partition (or all partitions of that
    stream) goes on with this message, even where samza.reset.offset is set, until the task's next commit; the rest, and the stores, stay as
    they are. OFFSET may also be oldest, upcoming, or timestamp:TIME (milliseconds since 1970, or a date): the first message that is not
    older. What still runs of the job is stopped by it. Outputs that are in their streams stay there, with exactly-once as well: what is
    done again is sent again. It asks first, or takes --yes.

    Examples:

        streambench checkpoints -c job.properties

        streambench checkpoints --history --json -c job.properties

        streambench checkpoints --rewind oldest --yes -c job.properties

        streambench checkpoints --rewind "Partition 1=2.14" --yes -c job.properties

        streambench checkpoints --rewind log.clicks.0@1000 --yes -c job.properties

        streambench checkpoints --rewind log.clicks@timestamp:2026-03-01T12:00Z --yes -c job.properties
    """
    settings = read_job(job, config)
    name = _name(settings)
    manager = checkpoint_manager(settings, name)
    try:
        with systems_of(settings) as systems:
            if rewind:
                if history or json:
                    raise typer.BadParameter("--rewind goes without --history and --json")
                _rewind(_Job(settings, systems, name, manager), rewind, yes=yes)
            elif history:
                rows = _history(systems, manager.history())
                show_rows(rows, _HISTORY, as_json=json, empty=f"{name} has no checkpoints yet", right=_FIGURES)
            else:
                shown = _last(systems, manager.read_last())
                show_rows(shown, _COLUMNS, as_json=json, empty=f"{name} has no checkpoints yet", right=_FIGURES)
    finally:
        manager.close()


def _name(config: Config) -> str:
    """The job's name; the task is loaded only where the configuration leaves the name to it."""
    if "job.name" in config or config.origin:
        return job_name(config)
    return job_name(config, load.by_path(config, "task.class", config.required("task.class")))


def _partitions(checkpoint: Checkpoint) -> list[SystemStreamPartition]:
    return sorted({*checkpoint.offsets, *checkpoint.starts})


def _next(systems: Systems, checkpoint: Checkpoint, ssp: SystemStreamPartition) -> str | None:
    """The first message that is not processed yet."""
    processed = checkpoint.offsets.get(ssp)
    return systems.admin(ssp.system).after(processed) if processed is not None else checkpoint.starts.get(ssp)


def _row(systems: Systems, task: str, checkpoint: Checkpoint, ssp: SystemStreamPartition) -> dict[str, Any]:
    processed = checkpoint.offsets.get(ssp)
    return {
        "task": task,
        "stream": str(ssp.system_stream),
        "partition": ssp.partition,
        "processed": processed,
        "start": checkpoint.starts.get(ssp) if processed is None else None,
        "next": _next(systems, checkpoint, ssp),
        "commit": f"{checkpoint.generation}.{checkpoint.sequence}" if checkpoint.generation else None,
        "time": moment(checkpoint.time_ms),
    }


def _last(systems: Systems, last: Mapping[str, Checkpoint]) -> Iterator[dict[str, Any]]:
    identities = Identities(systems)
    for task in sorted(last, key=natural):
        for ssp in _partitions(last[task]):
            row = _row(systems, task, last[task], ssp)
            try:
                here = systems.metadata([ssp.system_stream])[ssp.system_stream].get(ssp.partition)
            except (UnknownStreamError, ConfigError):
                here = None
            upcoming = here.upcoming if here is not None and systems.admin(ssp.system).replayable else None
            at = row["next"]
            if here is not None and not identities.is_same(last[task], ssp):
                print(f"warning: {replaced(task, ssp, last[task])}", file=sys.stderr)
                at = None
            yield {**row, "upcoming": upcoming, "lag": lag_between(at, upcoming) if at is not None else None}


def _history(systems: Systems, history: Mapping[str, Sequence[Checkpoint]]) -> Iterator[dict[str, Any]]:
    # By time first: what a rewind has put in place has no commit's number.
    commits = [(each.time_ms, each.generation, each.sequence, natural(task), task, each) for task, kept in history.items() for each in kept]
    for *_, task, each in sorted(commits, key=lambda commit: commit[:4]):
        for ssp in _partitions(each):
            row = _row(systems, task, each, ssp)
            now = _next(systems, history[task][-1], ssp)
            yield {**row, "again": lag_between(row["next"], now) if row["next"] is not None else None}


class _Job:
    """What a rewind needs to know of a job. Checkpoints are read only where needed: a damaged one must not prevent doing without it."""

    def __init__(self, config: Config, systems: Systems, name: str, manager: CheckpointManager) -> None:
        self.name = name
        self.manager = manager
        self.systems = systems
        self.config = config
        self.identities = Identities(systems)
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


def _rewind(job: _Job, wishes: Sequence[str], *, yes: bool) -> None:
    wanted: dict[str, Checkpoint] = {}
    for wish in wishes:
        task, equals, where = wish.rpartition("=")
        goal = _goal(job, task if equals else None, where, wanted)
        wanted.update(goal)
        if "@" not in where:
            for each in goal:
                job.kept_stores.pop(each, None)
    _check_state(job, wanted)
    kept_stores = sorted(set().union(*job.kept_stores.values()))
    if kept_stores:
        print(
            f"warning: the stores stay as they are ({', '.join(kept_stores)}): what is processed again is done to them again. "
            "--rewind oldest, or to a commit, takes them along",
            file=sys.stderr,
        )
    if not yes and not sys.stdin.isatty():
        raise typer.BadParameter("going back needs --yes where nobody can be asked")
    for task in sorted(wanted, key=natural):
        places = ", ".join(f"{ssp} at {_next(job.systems, wanted[task], ssp)}" for ssp in _partitions(wanted[task]))
        say(f"{task}: {'goes' if yes else 'would go'} on with {places}")
        for ssp in _partitions(wanted[task]):
            if ssp.partition in job.metadata.get(ssp.system_stream, {}) and not job.identities.is_same(wanted[task], ssp):
                print(f"warning: {replaced(task, ssp, wanted[task])}", file=sys.stderr)
    if not yes and not typer.confirm("Go back?"):
        raise typer.Exit(1)
    generation = job.manager.rewind(wanted, now_ms=SystemClock().now_ms())
    say(f"{job.name} goes on from there (generation {generation.number})")


def _check_state(job: _Job, wanted: Mapping[str, Checkpoint]) -> None:
    """Raise StoreError where the state as of one of these checkpoints cannot be rebuilt any more."""
    numbers = {task.name: task.number for task in job.model.tasks}
    stores = store_definitions(job.config, job.name, job.systems)
    for task, checkpoint in wanted.items():
        for store, offset in checkpoint.changelogs.items():
            stream = stores[store].changelog if store in stores else None
            if stream is not None and task in numbers:
                ssp = SystemStreamPartition(stream.system, stream.stream, numbers[task])
                admin = job.systems.admin(ssp.system)
                try:
                    check_not_compacted(ssp, offset, admin.compacted_to(ssp), admin.compare)
                except UnknownStreamError:
                    check_needs_nothing(ssp, store, offset, admin.compare)


def _goal(job: _Job, only: str | None, where: str, so_far: Mapping[str, Checkpoint]) -> dict[str, Checkpoint]:
    """The checkpoints that a wish asks for, by task."""
    now = SystemClock().now_ms()
    if where == "oldest":
        return {task: _begun(job, {ssp: _at(job, ssp, "oldest") for ssp in ssps}, now) for task, ssps in job.tasks(only).items()}
    if where == "upcoming":
        return _all_moved(job, only, {ssp for ssps in job.tasks(only).values() for ssp in ssps}, where, so_far)
    if re.fullmatch(r"\d+\.\d+", where):
        generation, sequence = map(int, where.split("."))
        history = job.manager.history()
        _check_commit(job, history, generation, sequence)
        return {task: _committed(job, history.get(task, []), task, generation, sequence) for task in job.tasks(only)}
    place, at, offset = where.rpartition("@")
    if not at:
        what = f"'{where}' is no place to go back to: give oldest, upcoming, a commit such as 3.17, PARTITION@OFFSET or STREAM@OFFSET"
        raise typer.BadParameter(what, param_hint="--rewind")
    stream = SystemStream.parse(place)
    if stream not in job.metadata:
        head, _, last = place.rpartition(".")
        if not last.isdecimal() or SystemStream.parse(head) not in job.metadata:
            raise UnknownStreamError(f"{place} is no input of {job.name}; its inputs are {', '.join(sorted(map(str, job.metadata)))}")
        return _moved(job, only, SystemStreamPartition.parse(place), offset, so_far)
    read = {ssp for ssps in job.tasks(only).values() for ssp in ssps if ssp.system_stream == stream}
    if not read:
        raise UnknownStreamError(f"{stream} is no input of {only}")
    return _all_moved(job, only, read, offset, so_far)


def _all_moved(
    job: _Job, only: str | None, partitions: Collection[SystemStreamPartition], where: str, so_far: Mapping[str, Checkpoint]
) -> dict[str, Checkpoint]:
    """As ``_moved``, of several partitions."""
    moved: dict[str, Checkpoint] = {}
    for ssp in sorted(partitions):
        moved |= _moved(job, only, ssp, where, {**so_far, **moved})
    return moved


def _begun(job: _Job, starts: Mapping[SystemStreamPartition, str], now_ms: int) -> Checkpoint:
    """The checkpoint of a task that has processed nothing yet."""
    return Checkpoint({}, starts, time_ms=now_ms, identities=job.identities.at({}, starts))


def _check_commit(job: _Job, history: Mapping[str, Sequence[Checkpoint]], generation: int, sequence: int) -> None:
    """Raise CheckpointError where no task ever made this commit, though some made earlier ones: it is mistyped."""
    made = {(each.generation, each.sequence) for kept in history.values() for each in kept if each.generation}
    if made and (generation, sequence) not in made and (generation, sequence) > min(made):
        last = ".".join(map(str, max(made)))
        raise CheckpointError(f"{job.name}: there is no commit {generation}.{sequence}; the last is {last} (--history lists them)")


def _committed(job: _Job, kept: Sequence[Checkpoint], task: str, generation: int, sequence: int) -> Checkpoint:
    """What a task had committed by then: the last of its own commits up to that one, not what a later rewind has put in place."""
    found = [each for each in kept if (0, 0) < (each.generation, each.sequence) <= (generation, sequence)]
    found.sort(key=lambda each: (each.generation, each.sequence))
    if not found:
        first = f"the oldest that is kept is {kept[0].generation}.{kept[0].sequence}" if kept else "none is kept"
        raise CheckpointError(f"{job.name}: {task} has no commit {generation}.{sequence} or before; {first}")
    return found[-1]


def _moved(job: _Job, only: str | None, ssp: SystemStreamPartition, where: str, so_far: Mapping[str, Checkpoint]) -> dict[str, Checkpoint]:
    """The checkpoints of the tasks that read a partition, with the message that ``where`` names as the next one there."""
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
        reached = _next(job.systems, before, ssp)
        if reached is not None and (lag_between(offset, reached) or 0) > 0:
            job.kept_stores.setdefault(task, set()).update(before.changelogs)
        moved[task] = Checkpoint(
            {each: done for each, done in before.offsets.items() if each != ssp},
            {**before.starts, ssp: offset},
            before.changelogs,
            time_ms=now,
            identities={**before.identities, **job.identities.at({}, {ssp: offset})},
        )
    return moved


def _before(job: _Job, task: str, *, needed: bool) -> Checkpoint:
    """The last checkpoint of a task. A damaged one can be done without if only the stores would be taken from it (not ``needed``)."""
    try:
        return job.manager.read_last().get(task, Checkpoint({}))
    except CheckpointError as error:
        if needed:
            raise
        print(f"warning: {error}. {task} goes on with empty stores", file=sys.stderr)
        return Checkpoint({})


def _at(job: _Job, ssp: SystemStreamPartition, where: str) -> str:
    there = job.metadata[ssp.system_stream][ssp.partition]
    offset = start_point(job.systems, ssp, there, where)
    if where.startswith("timestamp:") and offset == there.upcoming:
        say(f"{ssp}: no message is that new; it goes on with what comes from now on")
    return offset
