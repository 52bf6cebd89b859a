"""A snapshot as a rich renderable: what the terminal draws, and the text of a notebook's panel.

Displays show a snapshot and nothing else, so that a picture can be late but never wrong. What no single
snapshot holds, the rates, is worked out from successive ones by ``Rates``.
"""

from __future__ import annotations

import textwrap
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from streambench.debug.names import end_cut, middle_cut
from streambench.errors import shortened
from streambench.model import SystemStream, SystemStreamPartition

Place = tuple[int, SystemStreamPartition]
"""A partition as one container reads it: a broadcast partition is read by several."""

# The command line imports this before it is known whether there is anything to show.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table
    from rich.text import Text

    from streambench.chooser.explanation import Explanation
    from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot
    from streambench.container.task_stores import RestoreProgress

    Snapshots = ContainerSnapshot | Sequence[ContainerSnapshot]

MAX_ROWS = 24
"""More partitions than this are shown as one row per stream."""

_LEFT_OUT_FIRST = ("oldest", "upcoming", "waiting", "checkpoint", "rate", "position")
_LEAST_STATUS = 12
_LEAST_STREAM = 16
_MOST_STREAM = 48
_MOST_NAMED = 6
_MOST_KINDS = 3
_STATES = {
    "new": "dim",
    "running": "green",
    "paused": "yellow",
    "stopped": "blue",
    "failed": "bold red",
    "restarting": "yellow",
}


class Rates:
    """Messages per second, per partition and in all, over the last ``over_ms`` milliseconds of the snapshots
    it is shown.

    Times are those of the snapshots. A rate is None until two of them are some time apart.
    """

    def __init__(self, over_ms: int = 3000) -> None:
        self._over_ms = over_ms
        self._seen: dict[int, deque[tuple[int, int, Mapping[SystemStreamPartition, int]]]] = {}

    def add(self, snapshots: Snapshots) -> None:
        """Take a newer snapshot (of each container) into account. Of containers that are not there any more
        nothing is known."""
        present = all_of(snapshots)
        self._seen = {each.container: self._seen.get(each.container, deque()) for each in present}
        for snapshot in present:
            seen = self._seen[snapshot.container]
            partitions = {each.ssp: each.processed for each in snapshot.partitions}
            if seen and (snapshot.processed < seen[-1][1] or not _continues(partitions, seen[-1][2])):
                seen.clear()
            if seen and seen[-1][0] >= snapshot.time_ms:
                seen.pop()
            seen.append((snapshot.time_ms, snapshot.processed, partitions))
            while len(seen) > 2 and seen[1][0] <= snapshot.time_ms - self._over_ms:
                seen.popleft()

    def of(self, ssp: SystemStreamPartition, container: int = 0) -> float | None:
        """Messages per second of a partition."""
        seen = self._seen.get(container)
        if not seen:
            return None
        (start, _, before), (end, _, now) = seen[0], seen[-1]
        return _rate(now.get(ssp, 0) - before.get(ssp, 0), end - start)

    def total(self) -> float | None:
        """Messages per second of all containers together."""
        known = [
            _rate(seen[-1][1] - seen[0][1], seen[-1][0] - seen[0][0]) for seen in self._seen.values() if seen
        ]
        rates = [rate for rate in known if rate is not None]
        return sum(rates) if rates else None


class Row(Struct, frozen=True):
    """A line of the table: a partition, or a stream with all of its partitions (``folded`` says how many; 0
    for a partition)."""

    stream: SystemStream
    partition: int | None
    container: int
    oldest: str | None
    position: str | None
    upcoming: str | None
    lag: int | None
    rate: float | None
    waiting: int
    checkpointed: str | None
    status: str
    folded: int = 0
    turn: int | None = None

    @property
    def standing(self) -> str:
        """Its status, or when its turn comes if nothing else comes."""
        return f"next in {self.turn}" if self.turn is not None else self.status


def counted(number: int, what: str) -> str:
    """A number of things, in words: "1 message", "1,000 messages"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def all_of(snapshots: Snapshots) -> Sequence[ContainerSnapshot]:
    """The snapshots as a sequence, whether one was given or several."""
    return snapshots if isinstance(snapshots, Sequence) else [snapshots]


def rows(snapshots: Snapshots, rates: Rates | None = None, *, max_rows: int = MAX_ROWS) -> list[Row]:
    """The lines of the table: one per partition, or one per stream where there would be more than
    ``max_rows``."""
    every = [
        _row(snapshot.container, each, rates)
        for snapshot in all_of(snapshots)
        for each in snapshot.partitions
    ]
    every.sort(key=lambda row: (row.stream, row.partition or 0, row.container))
    return every if len(every) <= max_rows else _folded(every)


def snapshot_table(
    snapshots: Snapshots,
    rates: Rates | None = None,
    *,
    max_rows: int = MAX_ROWS,
    elapsed_s: float | None = None,
    height: int | None = None,
) -> RenderableType:
    """The table of a container's inputs (or of several containers of one job) with a line of totals above and
    the last choice, with its reasons, below. Where it is wider than the console it leaves out columns, and
    names fewer of the other candidates.

    ``height``: all of it takes at most so many lines, if need be with a row per stream and with the choices
    of some containers only."""
    return _SnapshotTable(all_of(snapshots), rates, max_rows, elapsed_s, height)


class _SnapshotTable:
    """Drawn when it is known how wide the console is."""

    def __init__(
        self,
        snapshots: Sequence[ContainerSnapshot],
        rates: Rates | None,
        max_rows: int,
        elapsed_s: float | None,
        height: int | None,
    ) -> None:
        from streambench.container.outputs.dead_letters import ErrorCounts

        self._snapshots = snapshots
        self._rates = rates
        self._max_rows = max_rows
        self._height = height
        self._head = headline(snapshots, rates, elapsed_s=elapsed_s)
        self._ignored = sum((each.error_counts for each in snapshots), ErrorCounts()).details()[:_MOST_KINDS]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.text import Text

        width = options.max_width
        choices = [_choice_lines(each, width) for each in self._snapshots if each.choices or each.gate]
        max_rows = self._max_rows
        if self._height is not None:
            left = self._height - len(self._head.wrap(console, width)) - 1 - len(self._ignored)
            choices = _that_fit(
                choices, max(left // 3, left - len(rows(self._snapshots, self._rates, max_rows=max_rows)))
            )
            max_rows = min(max_rows, left - sum(map(len, choices)))
        yield self._head
        yield _table(
            rows(self._snapshots, self._rates, max_rows=max_rows), width, several=len(self._snapshots) > 1
        )
        for line in self._ignored:
            yield Text(line, style="yellow")
        for lines in choices:
            yield Text("\n".join(lines), style="dim", overflow="ellipsis", no_wrap=True)


def _that_fit(choices: Sequence[list[str]], height: int) -> list[list[str]]:
    """As many of the choices as take no more lines than these; the first one in any case."""
    shown: list[list[str]] = []
    for lines in choices:
        if shown and sum(map(len, shown)) + len(lines) > height:
            break
        shown.append(lines)
    return shown


def _table(shown: Sequence[Row], width: int, *, several: bool) -> Table:
    """The rows with all columns for which there is room."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    folded = any(row.folded for row in shown)
    columns = {"stream": [str(row.stream) for row in shown]}
    columns["partitions" if folded else "partition"] = [str(row.folded or row.partition) for row in shown]
    if several and not folded:
        columns["container"] = [str(row.container) for row in shown]
    if not folded:
        columns |= {
            "oldest": [row.oldest or "-" for row in shown],
            "position": [row.position or "-" for row in shown],
            "upcoming": [row.upcoming or "-" for row in shown],
        }
    columns |= {"lag": [_figure(row.lag) for row in shown], "rate": [_figure(row.rate) for row in shown]}
    if folded:
        columns |= {
            "waiting": [_figure(row.waiting) for row in shown],
            "status": [row.status for row in shown],
        }
    else:
        columns |= {
            "checkpoint": [row.checkpointed or "-" for row in shown],
            "status": [row.standing for row in shown],
        }
    if _width(columns) > width:
        columns["stream"] = [middle_cut(cell, _MOST_STREAM) for cell in columns["stream"]]
    for name in _LEFT_OUT_FIRST:
        if _width(columns) > width:
            columns.pop(name, None)
    # Text gives way, its end first, then the middle of names.
    for name, room, cut in (("status", _LEAST_STATUS, end_cut), ("stream", _LEAST_STREAM, middle_cut)):
        longest = max(map(cell_len, columns[name]), default=0)
        if (over := _width(columns) - width) > 0 and longest > room:
            columns[name] = [cut(cell, max(room, longest - over)) for cell in columns[name]]
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for name in columns:
        is_text = name in ("stream", "status")
        # Text gives way, and never figures, which would look like others.
        least = None if is_text else max(map(cell_len, (name, *columns[name])))
        table.add_column(
            name, justify="left" if is_text else "right", overflow="ellipsis", no_wrap=True, min_width=least
        )
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, cells))
    return table


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    from rich.cells import cell_len

    return sum(max(map(cell_len, (name, *cells))) for name, cells in columns.items()) + 2 * (len(columns) - 1)


def headline(snapshots: Snapshots, rates: Rates | None = None, *, elapsed_s: float | None = None) -> Text:
    """One line: the job, its state, how many messages were processed, how many are left, how fast it goes."""
    from rich.text import Text

    from streambench.container.outputs.dead_letters import ErrorCounts

    every = all_of(snapshots)
    if not every:
        return Text("starting", style="dim")
    line = Text(every[0].job, style="bold")
    _append_states(line, every)
    line.append(f"  {_figure(sum(each.processed for each in every))} processed")
    if passed_over := sum((each.error_counts for each in every), ErrorCounts()):
        line.append(f"  {passed_over}", style="yellow")
    if restoring := [each.restoring for each in every if each.restoring is not None]:
        line.append(f"  {restored(restoring)}", style="cyan")
    line.append(f"  lag {_lag(every)}")
    rate = rates.total() if rates is not None else None
    if rate is not None:
        line.append(f"  {_figure(rate)}/s")
    if elapsed_s is not None:
        line.append(f"  {elapsed_s:.1f} s")
    for each in every:
        if each.reason and each.state != "restarting":  # a warning has shown it
            line.append(f"\n{each.reason}", style="red" if each.state == "failed" else "dim")
    return line


def _append_states(line: Text, every: Sequence[ContainerSnapshot]) -> None:
    """The state of the job; of several containers, which of them are in another one."""
    states = [each.state for each in every]
    common = "running" if "running" in states else states[0]
    line.append("  ").append(common, style=_STATES.get(common, ""))
    if len(every) > 1:
        line.append(f"  {len(every)} containers")
    for each in every:
        if each.state != common:
            what = (
                "restoring"
                if each.restoring is not None
                else "starting"
                if each.state == "new"
                else each.state
            )
            line.append(f"; container {each.container} ").append(what, style=_STATES.get(each.state, ""))


def _lag(every: Sequence[ContainerSnapshot]) -> str:
    """Return how many messages are left; where a container is away, how many there are at least."""
    if not any(each.is_away for each in every):
        return _figure(total_lag(every))
    known = sum(each.lag or 0 for each in every)
    return f"at least {known:,}" if known else "?"


def restored(progress: Sequence[RestoreProgress]) -> str:
    """Return the progress of a restore of state, in words."""
    done = _figure(sum(each.restored for each in progress))
    totals = [each.total for each in progress]
    if None in totals:
        return f"restoring state: {done} changes read"
    known = sum(total for total in totals if total is not None)
    return f"restoring state: {done} of {_figure(known)} changes read"


def total_lag(snapshots: Snapshots) -> int | None:
    """Return how many messages are left in all; None where a partition does not know."""
    lags = [each.lag for each in all_of(snapshots)]
    return None if None in lags else sum(lag for lag in lags if lag is not None)


def _row(container: int, each: PartitionSnapshot, rates: Rates | None) -> Row:
    return Row(
        each.ssp.system_stream,
        each.ssp.partition,
        container,
        each.oldest,
        each.position,
        each.upcoming,
        each.lag,
        rates.of(each.ssp, container) if rates is not None else None,
        each.waiting,
        each.checkpointed,
        each.status,
        turn=each.turn,
    )


def _folded(every: Iterable[Row]) -> list[Row]:
    streams: dict[SystemStream, list[Row]] = {}
    for row in every:
        streams.setdefault(row.stream, []).append(row)
    return [
        Row(
            stream,
            None,
            0,
            None,
            None,
            None,
            _sum([row.lag for row in of_stream]),
            _sum_of_known([row.rate for row in of_stream]),
            sum(row.waiting for row in of_stream),
            None,
            _statuses(of_stream),
            len({row.partition for row in of_stream}),
        )
        for stream, of_stream in streams.items()
    ]


def _statuses(of_stream: Sequence[Row]) -> str:
    counts: dict[str, int] = {}
    for row in of_stream:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(
        f"{count} {status}" for status, count in sorted(counts.items(), key=lambda entry: -entry[1])
    )


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _continues(now: Mapping[SystemStreamPartition, int], before: Mapping[SystemStreamPartition, int]) -> bool:
    """Return True where the same partitions are counted on, not others as after a new start."""
    return now.keys() == before.keys() and all(count >= before[ssp] for ssp, count in now.items())


def _rate(messages: int, milliseconds: int) -> float | None:
    return messages * 1000 / milliseconds if milliseconds > 0 else None


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _choice_lines(snapshot: ContainerSnapshot, width: int) -> list[str]:
    """The last choice and why; that the gate is closed, even when nothing was chosen yet. The reasons are
    never cut off."""
    from rich.cells import cell_len

    from streambench.chooser.explanation import closed

    lines: list[str] = []
    if snapshot.choices:
        last = snapshot.choices[-1]
        place = f"@{last.offset}"
        what = f"last chosen: {middle_cut(str(last.ssp), max(20, width - len(place) - 13))}{place}"
        key = "" if last.key is None else f", key {shortened(last.key)}"
        rule = f" ({last.rule})" if last.rule else ""
        if cell_len(what + key + rule) <= width:
            lines.append(what + key + rule)
        else:
            lines += [what + key, *_wrapped(f" {rule}", width)]
        if last.explanation is not None:
            lines += _others(last.explanation, width)
    return lines + [part for line in closed(snapshot.gate) for part in _wrapped(line, width)]


def _others(why: Explanation, width: int) -> list[str]:
    """The candidates that were not chosen, with as many of their names as go into one line each."""
    from rich.cells import cell_len

    lines: list[str] = []
    for most in range(_MOST_NAMED, 1, -1):
        lines = [f"  {line}" for line in why.others(most=most)]
        if all(cell_len(line) <= width for line in lines):
            return lines
    return [part for line in lines for part in _wrapped(line, width)]


def _wrapped(line: str, width: int) -> list[str]:
    """A line as several where it is too long, those that follow indented."""
    indent = " " * (len(line) - len(line.lstrip()))
    return textwrap.wrap(line, max(width, 20), subsequent_indent=f"{indent}  ", break_on_hyphens=False) or [
        ""
    ]
