"""``streambench checkpoints``: how far each task has come, how it came there, and going back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing
from typing import Annotated, Any

import typer
from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.cli.job import (
    JobArgument,
    JobOption,
    JsonOption,
    complete_of,
    named_job,
    read_job,
    systems_of,
)
from streambench.cli.option_groups import with_options
from streambench.cli.output import may_ask, moment, print_wait, show_rows, warn, warn_of_pending
from streambench.cli.running_option import RunningOption
from streambench.config import Config
from streambench.container.inputs.partition_identity import PartitionIdentities, replaced
from streambench.container.observe.snapshot import lag_between
from streambench.errors import ConfigError, UnknownStreamError
from streambench.job.rewind import NoPlaceError, Rewind, next_offset, partitions
from streambench.job.running import check_not_running
from streambench.job.starting import starting
from streambench.job.waits import showing_waits
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import natural
from streambench.planning.pending_commits import pending_in
from streambench.system.systems import Systems

_REFUSE = RunningOption()
_FIGURES = ("partition", "processed", "start", "next", "upcoming", "lag", "again")
_COLUMNS = ("task", "stream", "partition", "processed", "start", "next", "upcoming", "lag", "commit", "time")
_HISTORY = ("commit", "time", "task", "stream", "partition", "processed", "start", "next", "again")
_HEADS = {"processed": "checkpointed (last processed)"}


class CheckpointsOptions(Struct):
    """The options that say what is shown, or to where the job goes back."""

    history: Annotated[bool, typer.Option("--history", help="All commits that are kept, oldest first.")] = (
        False
    )
    rewind: Annotated[
        list[str] | None,
        typer.Option(
            metavar="[TASK=]WHERE",
            help="Go back, may be repeated; WHERE: oldest, upcoming, a commit (3.17), or PLACE@OFFSET.",
            autocompletion=complete_of("oldest", "upcoming"),
        ),
    ] = None
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask before going back.")] = False


_DEFAULTS = CheckpointsOptions()


@with_options("options", CheckpointsOptions)
@with_options("running", RunningOption)
def checkpoints(
    job: JobArgument = None,
    config: JobOption = None,
    options: CheckpointsOptions = _DEFAULTS,
    json: JsonOption = False,
    running: RunningOption = _REFUSE,
) -> None:
    """Show the checkpoints of a job, per task and input partition. The checkpointed offset is that of the
    last message processed; lag is how many are left.

    --history lists the commits that are kept; "again" is how many messages going back to one of them would do
    again.

    --rewind moves the checkpoints of all tasks, or of the one named before "=". To "oldest": the first
    message there is, with empty stores. To "upcoming": what is in the inputs now is passed over, and the
    stores stay as they are. To a commit, as --history names it: what each task had committed by then, its
    stores included. To PLACE@OFFSET, a start point: that partition (or all of that stream) continues there,
    even where samza.reset.offset is set, until the task's next commit. The rest, and the stores, stay as they
    are. OFFSET may also be oldest, upcoming, or timestamp:TIME (milliseconds since 1970, or a date): the
    first message that is not older. A job that runs is not rewound, or with --if-running take-over ended at
    its last commit. Outputs that are in their streams stay there, with exactly-once as well: what is done
    again is sent again. It asks first, or takes --yes.

    Examples:

        streambench checkpoints -c job.properties

        streambench checkpoints --history --json -c job.properties

        streambench checkpoints --rewind oldest --yes -c job.properties

        streambench checkpoints --rewind "Partition 1=2.14" --yes -c job.properties

        streambench checkpoints --rewind log.clicks.0@1000 --yes -c job.properties

        streambench checkpoints --rewind log.clicks@timestamp:2026-03-01T12:00Z --yes -c job.properties
    """
    settings = read_job(job, config)
    name = named_job(settings)
    manager = checkpoint_manager(settings, name)
    with closing(manager), systems_of(settings) as systems, showing_waits(print_wait):
        if options.rewind:
            if options.history or json:
                raise typer.BadParameter("--rewind goes without --history and --json")
            if running.if_running == "refuse":
                check_not_running(settings, name, "rewind")
            planned = Rewind(settings, systems, name, manager, warn)
            # Another process may start the job while its user is asked.
            alone = starting(settings, name, "rewind", running.if_running)
            _rewind(planned, options.rewind, alone, yes=options.yes)
        elif options.history:
            _show(_history(systems, manager.history()), _HISTORY, name, as_json=json)
        else:
            _show(_last(settings, systems, manager.read_last()), _COLUMNS, name, as_json=json)
            if manager.directory is not None:
                warn_of_pending(pending_in(manager.directory))


def _show(rows: Iterator[dict[str, Any]], columns: Sequence[str], name: str, *, as_json: bool) -> None:
    empty = f"{name} has no checkpoints yet"
    show_rows(rows, columns, as_json=as_json, empty=empty, right=_FIGURES, heads=_HEADS)


def _row(systems: Systems, task: str, checkpoint: Checkpoint, ssp: SystemStreamPartition) -> dict[str, Any]:
    processed = checkpoint.offsets.get(ssp)
    return {
        "task": task,
        "stream": str(ssp.system_stream),
        "partition": ssp.partition,
        "processed": processed,
        "start": checkpoint.starts.get(ssp) if processed is None else None,
        "next": next_offset(systems, checkpoint, ssp),
        "commit": f"{checkpoint.generation}.{checkpoint.sequence}" if checkpoint.generation else None,
        "time": moment(checkpoint.time_ms),
    }


def _last(config: Config, systems: Systems, last: Mapping[str, Checkpoint]) -> Iterator[dict[str, Any]]:
    identities = PartitionIdentities(systems)
    for task in sorted(last, key=natural):
        for ssp in partitions(last[task]):
            row = _row(systems, task, last[task], ssp)
            try:
                here = systems.metadata([ssp.system_stream])[ssp.system_stream].get(ssp.partition)
            except (UnknownStreamError, ConfigError):
                here = None
            upcoming = here.upcoming if here is not None and systems.admin(ssp.system).replayable else None
            at = row["next"]
            if here is not None and not identities.is_same(last[task], ssp):
                warn(replaced(config, task, ssp, last[task]))
                at = None
            yield {**row, "upcoming": upcoming, "lag": lag_between(at, upcoming) if at is not None else None}


def _history(systems: Systems, history: Mapping[str, Sequence[Checkpoint]]) -> Iterator[dict[str, Any]]:
    # By time first: what a rewind has put in place has no commit's number.
    commits = [
        (each.time_ms, each.generation, each.sequence, natural(task), task, each)
        for task, kept in history.items()
        for each in kept
    ]
    shown = set()
    for *_, task, each in sorted(commits, key=lambda commit: commit[:4]):
        for ssp in partitions(each):
            row = _row(systems, task, each, ssp)
            # A rewind puts a commit in place again, and a start adds new stores to the last one.
            if (place := tuple(row.values())) in shown:
                continue
            shown.add(place)
            now = next_offset(systems, history[task][-1], ssp)
            yield {**row, "again": lag_between(row["next"], now) if row["next"] is not None else None}


def _rewind(
    rewind: Rewind, wishes: Sequence[str], alone: AbstractContextManager[object], *, yes: bool
) -> None:
    """Rewind, once the user agrees. ``alone``: within it no other process starts the job."""
    try:
        rewind.add(wishes)
    except NoPlaceError as error:
        raise typer.BadParameter(str(error)) from error
    if not yes and not may_ask():
        raise typer.BadParameter("going back needs --yes where there is no terminal to ask")
    goals = rewind.places()
    if not yes:
        for task, places in goals.items():
            print(f"{task}: would go on with {places}")
        if not typer.confirm("Go back?"):
            raise typer.Exit(1)
    with alone:
        generation = rewind.apply()
    if yes:
        for task, places in goals.items():
            print(f"{task}: goes on with {places}")
    print(f"{rewind.name} goes on from there (generation {generation.number})")
