"""A snapshot as a rich renderable: what the terminal draws, and the text of a notebook's panel.

Displays show a snapshot and nothing else, so that a display can be late but never wrong. What no single
snapshot holds, the rates, is worked out from successive ones by ``Rates``.
"""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

from streambench.counts import sum_known
from streambench.debug.names import figure, middle_cut
from streambench.debug.view.bars import bar, filled
from streambench.debug.view.input_table import input_table
from streambench.debug.view.rates import Rates, all_of
from streambench.debug.view.rows import MAX_ROWS, Row, rows
from streambench.errors import shortened

# The command line imports this before it is known whether there is anything to show.
if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.text import Text

    from streambench.chooser.explanation import Explanation
    from streambench.container.observe.snapshot import ContainerSnapshot
    from streambench.container.restore import RestoreProgress
    from streambench.debug.view.rates import Snapshots

_BAR = 16
_MOST_NAMED = 6
_MOST_KINDS = 3
_PENDING = {"paused": "stopped before", "failed": "failed at"}
"""Per state, what is said of a message that was chosen and is not processed."""

_STATES = {
    "new": "dim",
    "running": "green",
    "paused": "yellow",
    "stopped": "blue",
    "failed": "bold red",
    "restarting": "yellow",
    "past": "magenta",
    "busy": "yellow",
}


def snapshot_table(
    snapshots: Snapshots,
    rates: Rates | None = None,
    *,
    max_rows: int = MAX_ROWS,
    elapsed_s: float | None = None,
    height: int | None = None,
    bars: bool = False,
) -> RenderableType:
    """The table of the inputs of a container, or of several containers of one job.

    A line of totals is above it, and the last choice, with its reasons, below. Where it is wider than the
    console it leaves out columns, and names fewer of the other candidates.

    ``height``: the most lines that it takes, if need be with a row per stream and with the choices of some
    containers only. ``bars``: with a bar per input, where there is room."""
    return _SnapshotTable(all_of(snapshots), rates, max_rows, elapsed_s, height, bars)


class _SnapshotTable:
    """Drawn when it is known how wide the console is."""

    def __init__(
        self,
        snapshots: Sequence[ContainerSnapshot],
        rates: Rates | None,
        max_rows: int,
        elapsed_s: float | None,
        height: int | None,
        bars: bool,
    ) -> None:
        from streambench.container.outputs.dead_letters import ErrorCounts

        self._snapshots = snapshots
        self._rates = rates
        self._max_rows = max_rows
        self._height = height
        self._bars = bars
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
        shown = rows(self._snapshots, self._rates, max_rows=max_rows)
        drawn = [self._bar(row) for row in shown] if self._bars else None
        yield input_table(shown, width, several=len(self._snapshots) > 1, bars=drawn)
        for line in self._ignored:
            yield Text(line, style="yellow")
        for lines in choices:
            yield Text("\n".join(lines), style="dim", overflow="ellipsis", no_wrap=True)

    def _bar(self, row: Row) -> str:
        percent, _ = filled(self._snapshots[0], row)
        return "" if percent is None else bar(percent, _BAR)


def _that_fit(choices: Sequence[list[str]], height: int) -> list[list[str]]:
    """As many of the choices as take no more lines than these; the first one in any case."""
    shown: list[list[str]] = []
    for lines in choices:
        if shown and sum(map(len, shown)) + len(lines) > height:
            break
        shown.append(lines)
    return shown


def headline(snapshots: Snapshots, rates: Rates | None = None, *, elapsed_s: float | None = None) -> Text:
    """One line: the job, its state, how many messages were processed, how many are left, how fast it goes."""
    from rich.text import Text

    from streambench.container.outputs.dead_letters import ErrorCounts

    every = all_of(snapshots)
    if not every:
        return Text("starting", style="dim")
    line = Text(every[0].job, style="bold")
    _append_states(line, every)
    line.append(f"  {figure(sum(each.processed for each in every))} processed")
    if passed_over := sum((each.error_counts for each in every), ErrorCounts()):
        line.append(f"  {passed_over}", style="yellow")
    if restoring := [each.restoring for each in every if each.restoring is not None]:
        line.append(f"  {restored(restoring)}", style="cyan")
    line.append(f"  lag {_lag(every)}")
    rate = rates.total() if rates is not None else None
    if rate is not None:
        line.append(f"  {figure(rate)}/s")
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
        return figure(sum_known(each.lag for each in every))
    known = sum(each.lag or 0 for each in every)
    return f"at least {known:,}" if known else "?"


def restored(progress: Sequence[RestoreProgress]) -> str:
    """Return the progress of a restore of state, in words."""
    done = figure(sum(each.restored for each in progress))
    total = sum_known(each.total for each in progress)
    if total is None:
        return f"restoring state: {done} entries read"
    return f"restoring state: {done} of {figure(total)} entries read"


def _choice_lines(snapshot: ContainerSnapshot, width: int) -> list[str]:
    """The last choice and why; that the gate is closed, even when nothing was chosen yet. The reasons are
    never cut off."""
    from rich.cells import cell_len

    from streambench.chooser.explanation import closed

    lines: list[str] = []
    if snapshot.choices:
        last = snapshot.choices[-1]
        place = f"@{last.offset}"
        key = "" if last.key is None else f", key {shortened(last.key)}"
        is_pending = last.number > snapshot.processed
        lead = _PENDING.get(snapshot.state, "last chosen") if is_pending else "last chosen"
        room = max(20, width - len(place) - len(key) - len(f"{lead}: "))
        what = f"{lead}: {middle_cut(str(last.ssp), room)}{place}"
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
