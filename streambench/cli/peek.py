"""``streambench peek``: what is in a stream, without touching any job's checkpoints."""

from __future__ import annotations

import heapq
import itertools
import select
import sys
from collections.abc import Generator, Mapping, Sequence
from contextlib import closing
from typing import Annotated, Any

import typer

from streambench.chunk import Undecodable
from streambench.cli.envelopes import add_base64, json_row
from streambench.cli.job import JobOption, JsonOption, StreamArgument, complete_of, stream_in, systems_of
from streambench.cli.output import moment, print_json, warn_of_pending
from streambench.config import Config
from streambench.counts import first_named
from streambench.errors import OffsetError, described, isolated, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.planning.pending_commits import pending_for
from streambench.serde.api import Serde
from streambench.serde.plain import printable
from streambench.serde.streams import StreamSerdes, readable
from streambench.system import reader
from streambench.system.api import SystemConsumer
from streambench.system.systems import Systems

_LIMIT = 10
_SHOWN = 3
_LONGEST = 1_000
_CUT = "... ({:,} more characters)"

_Envelopes = Generator[IncomingMessageEnvelope, None, None]


def peek(
    words: StreamArgument = None,
    config: JobOption = None,
    start: Annotated[
        str,
        typer.Option(
            "--from",
            metavar="oldest|newest|OFFSET",
            help="The first message of each partition.",
            autocompletion=complete_of("oldest", "newest"),
        ),
    ] = "oldest",
    partition: Annotated[int | None, typer.Option(min=0, metavar="N", help="Only this partition.")] = None,
    limit: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help=f"At most so many messages; {_LIMIT} if not given, without --follow.",
            show_default=False,
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Wait for more at the end, until Ctrl-C.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show messages of a stream, decoded with the serdes of the configuration. Nothing is changed by it: no
    checkpoint, no offset.

    A stream that is kept nowhere (tcp, udp) can only be listened to, with --follow, while no job does. What
    is shown then is not acknowledged: senders that wait for that send it again. From a queue of a message
    broker, messages are taken for the look and given back: the broker marks them as redelivered.

    Messages of several partitions come in the order of their timestamps (with --follow: as they arrive). One
    that cannot be decoded is shown as it is, with the reason. Keys and messages are shown as JSON, text and
    bytes as they read, long ones cut. --json shows all of them: what it prints, send --envelopes takes. Bytes
    that are no text, and what JSON cannot hold, stand in message_base64, key_base64 and headers_base64 beside
    it.

    Examples:

        streambench peek log.clicks -c job.properties

        streambench peek log.clicks --from newest --follow -c job.properties

        streambench peek log.clicks --partition 2 --from 1000 --limit 50 --json -c job.properties
    """
    settings, stream = stream_in(config, words)
    warn_of_pending(pending_for(settings, [stream]))
    with systems_of(settings) as systems:
        starts = _starts(systems, stream, start, partition)
        view = _View(settings, stream, as_json=json)
        consumer = systems.consumer(stream.system, MetricsRegistry())
        if follow:
            view.show_all(_as_they_come(consumer, starts), limit)
        elif view.show_all(_by_time(consumer, starts, limit or _LIMIT), limit or _LIMIT) == 0:
            places = _first_of([f"{ssp.partition} from {offset}" for ssp, offset in starts.items()])
            print(f"there is nothing yet in {stream} (partition {places})", file=sys.stderr)


def _starts(
    systems: Systems, stream: SystemStream, start: str, only: int | None
) -> dict[SystemStreamPartition, str]:
    """Return the first offset of each partition that is to be read."""
    metadata = systems.metadata([stream])[stream]
    if only is not None and only not in metadata:
        raise no_partition(stream, only, len(metadata))
    admin = systems.admin(stream.system)
    starts = {}
    for number, here in sorted(metadata.items()):
        if only in (None, number):
            ssp = stream.partition(number)
            offset = reader.start_in(admin, ssp, here, start, exactly=only is not None)
            if offset is not None:
                starts[ssp] = offset
    if not starts:
        ends = _first_of([f"{number} at {here.upcoming}" for number, here in sorted(metadata.items())])
        raise OffsetError(
            f"{stream}: {start} is beyond the end of all partitions, which is (the next offset): partition "
            f"{ends}. Begin there with --follow to wait for what comes, or write --from oldest, newest, or "
            "an offset before the end"
        )
    return starts


def _first_of(places: Sequence[str]) -> str:
    """All of them, if they are few, else the first ones and how many more there are."""
    return first_named(places, _SHOWN + 1 if len(places) == _SHOWN + 1 else _SHOWN)


def _by_time(
    consumer: SystemConsumer, starts: Mapping[SystemStreamPartition, str], at_most: int
) -> _Envelopes:
    """Yield what is there, up to the head of each partition, merged by timestamp."""
    found = reader.read_to_head(consumer, starts, at_most=at_most)
    yield from heapq.merge(*found.values(), key=lambda envelope: (envelope.timestamp or 0, envelope.ssp))


def _as_they_come(consumer: SystemConsumer, starts: Mapping[SystemStreamPartition, str]) -> _Envelopes:
    with closing(reader.follow(consumer, starts)) as arrivals:
        for arrived in arrivals:
            yield from arrived
            sys.stdout.flush()
            if not arrived and _reader_is_gone():
                raise BrokenPipeError


def _reader_is_gone() -> bool:
    """Return True where standard output is a pipe whose other end is closed: without a message to write,
    nothing else would show it."""
    try:
        pipe = select.poll()
        pipe.register(sys.stdout.fileno(), 0)
    except (AttributeError, OSError, ValueError):  # no poll() on this system, or no file
        return False
    return any(event & (select.POLLERR | select.POLLHUP) for _, event in pipe.poll(0))


def _shown(value: Any) -> str:
    """A key, message or header in one line: text and bytes as they read, anything else as JSON.

    A long one is cut, with the number of characters that are cut."""
    text = (
        printable(value)
        if value is None or isinstance(value, (str, bytes, bytearray, memoryview))
        else _as_json(value)
    )
    cut = len(text) - _LONGEST
    if cut > len(_CUT.format(cut)):
        text = f"{text[:_LONGEST]}{_CUT.format(cut)}"
    return isolated(text)


def _as_json(value: Any) -> str:
    return printable(json_row({"": value}).decode()[len('{"":') : -1])


class _View:
    """Decodes and prints messages."""

    def __init__(self, config: Config, stream: SystemStream, *, as_json: bool) -> None:
        self._as_json = as_json
        self._serdes: Mapping[str, Serde | None] = dict(
            zip(("key", "message"), StreamSerdes(config).for_stream(stream), strict=True)
        )

    def show_all(self, found: _Envelopes, limit: int | None) -> int | None:
        """Print messages, at most so many, and close their source. Return their number; None where Ctrl-C has
        ended it."""
        shown = 0
        try:
            with closing(found):
                for envelope in itertools.islice(found, None if limit is None else min(limit, sys.maxsize)):
                    self._show(envelope)
                    shown += 1
        except KeyboardInterrupt:
            return None
        return shown

    def _show(self, envelope: IncomingMessageEnvelope) -> None:
        problems: list[str] = []
        if isinstance(envelope, Undecodable):
            key, message = envelope.key, envelope.message
            problems.append(f"cannot be read: {envelope.error}")
        else:
            key = self._decoded("key", envelope.key, problems)
            message = self._decoded("message", envelope.message, problems)
        row: dict[str, Any] = {
            "partition": envelope.ssp.partition,
            "offset": envelope.offset,
            "timestamp": envelope.timestamp,
            "key": key,
            "message": message,
        }
        if envelope.headers:
            row["headers"] = dict(envelope.headers)
        if problems:
            row["error"] = "; ".join(problems)
        if self._as_json:
            add_base64(row, {"key": envelope.key, "message": envelope.message}, self._serdes)
            print_json(row)
        else:
            when = moment(envelope.timestamp) if envelope.timestamp else "-"
            note = f"  [{printable(row['error'])}]" if problems else ""
            pairs = (envelope.headers or {}).items()
            headers = "".join(f"  {printable(name)}={_shown(value)}" for name, value in pairs)
            where = f"{envelope.ssp}@{envelope.offset}"
            print(f"{where}  {when}  {_shown(key)}  {_shown(message)}{headers}{note}")

    def _decoded(self, what: str, data: Any, problems: list[str]) -> Any:
        return readable(
            self._serdes[what],
            data,
            lambda error: problems.append(f"the {what} cannot be decoded: {described(error)}"),
        )
