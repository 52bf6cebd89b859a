"""``streambench streams``: what streams there are; making, growing, repairing and deleting them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer
from msgspec import Struct

from streambench.cli.groups import COLUMNS, FIGURES, group_rows, readers, silent_systems
from streambench.cli.job import (
    JobOption,
    JsonOption,
    complete_words,
    is_job,
    split_job,
    stream_named,
    systems_of,
)
from streambench.cli.option_groups import with_options
from streambench.cli.output import confirm, print_error, show_rows, warn_of_pending
from streambench.cli.repair import repair
from streambench.config import Config
from streambench.counts import counted
from streambench.errors import (
    CorruptDataError,
    StreambenchError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.model import PartitionMetadata, SystemStream
from streambench.planning.pending_commits import pending_for
from streambench.system.listing import Listing, listing
from streambench.system.systems import KEYS_MOVE, Systems

_COLUMNS = ("stream", "partition", "oldest", "newest", "upcoming")
# Systems say sooner, and better, why they do not answer.
_PATIENCE_S = 15.0
_VERBS = ("list", "create", "grow", "repair", "delete")


def _complete(context: typer.Context, incomplete: str) -> list[str]:
    is_given = any(word in _VERBS for word in context.params.get("words") or [])
    verbs = [] if is_given else [verb for verb in _VERBS if verb.startswith(incomplete)]
    return [*verbs, *complete_words(context, incomplete)]


class StreamsOptions(Struct):
    """The options of the actions on streams."""

    partitions: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="create, grow: how many; else as configured, else 1."),
    ] = None
    groups: Annotated[
        bool, typer.Option("--groups", help="Who reads what, and how far: a row per job and partition.")
    ] = False
    partition: Annotated[
        int | None, typer.Option(min=0, metavar="N", help="repair: this partition only; else all of them.")
    ] = None
    dry_run: Annotated[bool, typer.Option("--dry-run", help="repair: only say what would be lost.")] = False
    yes: Annotated[bool, typer.Option("--yes", "-y", help="delete, repair: do not ask.")] = False

    def check(self, verb: str) -> None:
        """Raise BadParameter for options that do not go with an action."""
        if self.partitions is not None and verb not in ("create", "grow"):
            raise typer.BadParameter("--partitions goes with create and grow only")
        if self.partitions is None and verb == "grow":
            raise typer.BadParameter("to how many partitions? Give --partitions")
        if (self.partition is not None or self.dry_run) and verb != "repair":
            raise typer.BadParameter(
                f"{'--dry-run' if self.dry_run else '--partition'} goes with repair only"
            )
        if self.groups and verb != "list":
            raise typer.BadParameter("--groups only lists")


_DEFAULTS = StreamsOptions()


@with_options("options", StreamsOptions)
def streams(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[JOB.properties] [list|create|grow|repair|delete] [SYSTEM.STREAM]",
            show_default=False,
            autocompletion=_complete,
        ),
    ] = None,
    config: JobOption = None,
    options: StreamsOptions = _DEFAULTS,
    json: JsonOption = False,
) -> None:
    """List the streams of a job's systems, one row per partition; create one; give one more partitions;
    repair one; delete one.

    --groups shows the jobs that read from here: per partition the process that has it, the next message, and
    how many are left.

    A job that runs sees the partitions of a stream that has grown at its next start. Where messages have
    keys, many keys go to other partitions from then on. What a job keeps for them (counts, say) stays with
    its tasks, and starts from zero where a key moves to another task. What is there already stays where it
    is, so that a key's old and new messages are in no order any more.

    Where files of a log are damaged or missing, repair says what of the stream is lost (offsets, messages,
    bytes). Once that is confirmed, it moves damaged bytes aside, to files that it names. Reading continues
    behind what is lost, whose offsets are given to no other messages.

    Examples:

        streambench streams list -c job.properties

        streambench streams --groups -c job.properties

        streambench streams create log.numbers --partitions 3 -c job.properties

        streambench streams grow log.numbers --partitions 6 -c job.properties

        streambench streams repair log.numbers --dry-run -c job.properties

        streambench streams delete log.numbers -c job.properties
    """
    settings, verb, names = _understood(config, list(words or []))
    options.check(verb)
    only = names[0] if names else None
    if options.groups:
        _list_groups(settings, only, as_json=json)
    elif verb == "list":
        _list(settings, only, as_json=json)
    elif verb == "create":
        _create(settings, names[0], options.partitions)
    elif options.partitions is not None and verb == "grow":
        _grow(settings, names[0], options.partitions)
    elif verb == "repair":
        repair(
            settings, names[0], options.partition, ask=not options.yes, dry_run=options.dry_run, as_json=json
        )
    else:
        _delete(settings, names[0], ask=not options.yes)


def _understood(option: Any, words: list[str]) -> tuple[Config, str, list[SystemStream]]:
    """The configuration, the verb, the streams. The file may stand before or behind the verb."""
    verb = next((word for word in words[:2] if word in _VERBS), "list")
    rest = [word for word in words if word != verb]
    if option is None:
        rest.sort(key=lambda word: not is_job(word))
    settings, names = split_job(option, rest)
    if len(names) == 2 and "." not in names[0] and not any(word in _VERBS for word in words):
        raise typer.BadParameter(f"there is no action '{names[0]}'; there are {', '.join(_VERBS)}")
    if len(names) > 1 or (verb != "list" and not names):
        what = f"one stream, not {len(names)}." if names else "which stream?"
        raise typer.BadParameter(
            f"{what} Write: streams list, streams create (or grow, repair, delete) SYSTEM.STREAM"
        )
    return settings, verb, [stream_named(name) for name in names]


def _list_groups(config: Config, only: SystemStream | None, *, as_json: bool) -> None:
    with systems_of(config) as systems:
        silent = silent_systems(config, only, patience_s=_PATIENCE_S)
        rows = group_rows(config, systems, only, silent)
        empty = "nothing has been read by any job yet"
        show_rows(rows, COLUMNS, as_json=as_json, empty=empty, right=FIGURES)
    _show(list(silent.values()))


def _list(config: Config, only: SystemStream | None, *, as_json: bool) -> None:
    with systems_of(config) as systems:
        problems: list[StreambenchError] = []
        if only is not None:
            metadata = systems.metadata([only])
        else:
            metadata, problems = _present(systems, listing(config, patience_s=_PATIENCE_S))
        kept = {stream for stream in metadata if systems.admin(stream.system).replayable}

    def rows() -> Iterator[dict[str, Any]]:
        for stream, partitions in metadata.items():
            for partition, here in sorted(partitions.items()):
                upcoming = here.upcoming if stream in kept else None
                row = (str(stream), partition, here.oldest, here.newest, upcoming)
                yield dict(zip(_COLUMNS, row, strict=True))

    if metadata or not problems:
        show_rows(rows(), _COLUMNS, as_json=as_json, empty="there are no streams yet", right=_COLUMNS[1:])
    warn_of_pending(pending_for(config, metadata))
    _show(problems)


def _show(problems: list[StreambenchError]) -> None:
    """Say what is wrong, and end with that."""
    for error in problems:
        print_error(error)
    if problems:
        raise typer.Exit(1)


def _present(
    systems: Systems, listed: Listing
) -> tuple[dict[SystemStream, dict[int, PartitionMetadata]], list[StreambenchError]]:
    """The streams that are there (one that is only named as an input need not be), and what is wrong with the
    others."""
    found: dict[SystemStream, dict[int, PartitionMetadata]] = {}
    problems = list(listed.problems)
    silent: set[str] = set()
    for stream in listed.streams:
        if stream.system not in silent:
            try:
                found.update(systems.metadata([stream]))
            except UnknownStreamError:
                continue
            except StreamSystemError as error:
                problems.append(error)
                if not isinstance(error, CorruptDataError):
                    silent.add(stream.system)
    return found, problems


def _create(config: Config, stream: SystemStream, partitions: int | None) -> None:
    with systems_of(config) as systems:
        try:
            made = systems.create(stream, partitions)
        except StreamExistsError:
            is_asked = f"systems.{stream.system}.streams.{stream.stream}.partitions" in config
            if partitions is not None or is_asked:
                raise
            made = False  # no other number was asked for
        number = len(systems.metadata([stream])[stream])
    what = "has been created" if made else "is there already"
    print(f"{stream} {what}, with {counted(number, 'partition')}")


def _grow(config: Config, stream: SystemStream, partitions: int) -> None:
    with systems_of(config) as systems:
        before = systems.grow(stream, partitions)
    print(f"{stream} has {counted(partitions, 'partition')} now; it had {before}")
    if partitions > before:
        print(KEYS_MOVE)


def _delete(config: Config, stream: SystemStream, *, ask: bool) -> None:
    with systems_of(config) as systems:
        systems.metadata([stream])
        jobs = readers(config, stream)
        read_by = f" (jobs that have read it: {', '.join(jobs)})" if jobs else ""
        if ask:
            confirm(
                f"Delete {stream} with all it holds?{read_by}", f"{stream} would be deleted with all it holds"
            )
        systems.admin(stream.system).delete(stream)
    print(f"{stream} has been deleted{read_by}")
