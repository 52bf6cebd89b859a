"""The pages of the full-screen view: state, outputs, message, checkpoints, metrics, watches, breakpoints."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streambench.debug.message_text import changed_text, figure_text, message_text
from streambench.debug.names import figure, middle_cut
from streambench.debug.view.bars import line_over_time
from streambench.debug.view.panel_state import PanelState, to_do_again
from streambench.errors import isolated

_VALUE = 120
_NAME = 40
_LINE = 48


class Page(NamedTuple):
    """A page: ``mark`` stands behind its name (a count)."""

    name: str
    mark: str
    content: RenderableType


def pages(frame: PanelState, printed: Sequence[str] = ()) -> list[Page]:
    """All pages. ``printed``: the lines that the task has printed."""
    made: list[Callable[[PanelState], Page]] = [
        _state,
        _outputs,
        _message,
        _checkpoints,
        _metrics,
        _watches,
        _breakpoints,
    ]
    lines = Text("\n".join(printed) or "the task has printed nothing")
    return [*(make(frame) for make in made), Page("Printed", str(len(printed) or ""), lines)]


def _state(frame: PanelState) -> Page:
    standing = frame.standing
    if standing is None:
        return Page("State", "", Text(_why_not(frame), style="dim"))
    parts: list[RenderableType] = []
    if standing.changes:
        parts.append(
            _table(
                ["store", "key", "before -> after"],
                (
                    [each.store, _short(each.key), changed_text(each.before, each.after, _VALUE)]
                    for each in standing.changes
                ),
                style="bold",
            )
        )
    elif standing.oldest is not None and standing.position:
        parts.append(Text("this message changed no store", style="dim"))
    entries = standing.entries
    if entries.shown:
        parts.append(
            _table(
                ["task", "store", "key", "value"],
                ([each.task, each.store, _short(each.key), _short(each.value)] for each in entries.shown),
            )
        )
    else:
        parts.append(Text("no entries", style="dim"))
    if not entries.is_all:
        parts.append(Text("there are more: / searches for a key", style="dim"))
    return Page("State", standing.state_mark, Group(*parts))


def _outputs(frame: PanelState) -> Page:
    standing = frame.standing
    if standing is None:
        return Page("Outputs", "", Text(_why_not(frame), style="dim"))
    if not standing.outputs:
        return Page("Outputs", "", Text("the last messages sent nothing", style="dim"))
    table = _table(
        ["message", "to", "key", "output", "", "cause"],
        # The newest first.
        (
            [
                f"{each.position:,}",
                middle_cut(each.destination, _NAME),
                "" if each.key is None else _short(each.key),
                _short(each.message),
                each.held_text or "sent",
                standing.cause(each),
            ]
            for each in reversed(standing.outputs)
        ),
    )
    return Page("Outputs", standing.outputs_mark, table)


def _message(frame: PanelState) -> Page:
    said = Text("no message yet", style="dim") if frame.message is None else Text(frame.message.text)
    return Page("Message", "", said)


def _checkpoints(frame: PanelState) -> Page:
    again = to_do_again((frame.live or frame.snapshot).partitions)
    said = Text(f"{figure(again)} messages to process again after a crash now")
    standing = frame.standing
    commits = standing.commits if standing is not None else ()
    now_ms = frame.snapshot.time_ms
    table = _table(
        ["commit", "at", "age", "to process again"],
        (
            [
                each.name,
                time.strftime("%H:%M:%S", time.localtime(each.time_ms / 1000)),
                _age(now_ms - each.time_ms),
                figure(each.again),
            ]
            for each in commits
        ),
    )
    nothing = Text("no commit is kept" if standing is not None else _why_not(frame), style="dim")
    return Page("Checkpoints", str(len(commits) or ""), Group(said, table if commits else nothing))


def _metrics(frame: PanelState) -> Page:
    parts: list[RenderableType] = []
    if frame.rates:
        for name, values in (("rate/s", frame.rates), ("lag", frame.lags)):
            parts.append(
                Text(f"{name:<7}{values[-1]:>12,.0f}  {line_over_time(values, _LINE)}", no_wrap=True)
            )
    figures, newest = frame.figures, frame.snapshot.counts
    parts.append(_figures(figures.shown(newest)))
    if figures.to_run:
        parts.append(Text(f"{figures.run_note}: a watch on self does that", style="dim"))
    if unknown := figures.unknown(newest):
        parts += [Text(figures.newest_note, style="dim"), _figures(unknown)]
    parts += [Text(line, style="yellow") for line in frame.snapshot.error_counts.details()]
    return Page("Metrics", "", Group(*parts))


def _figures(figures: Sequence[tuple[str, float]]) -> RenderableType:
    return _table(["", ""], ([name, figure_text(value)] for name, value in figures))


def _watches(frame: PanelState) -> Page:
    standing = frame.standing
    if standing is None or not standing.watches:
        said = _why_not(frame) if standing is None else "no watches: w adds one, as NAME=EXPRESSION"
        return Page("Watches", "", Text(said, style="dim"))
    table = _table(
        ["", "watch", "expression", "value"],
        (["*" if each.changed else "", each.name, each.expression, each.value] for each in standing.watches),
    )
    return Page("Watches", standing.watches_mark, table)


def _breakpoints(frame: PanelState) -> Page:
    if not frame.breakpoints:
        said = Text("no breakpoints: . adds one, by a condition on the message", style="dim")
        return Page("Breaks", "", said)
    table = _table(
        ["id", "on", "condition", "hits", ""],
        (
            [str(each.id), each.on, str(each), f"{each.hits:,}", "" if each.enabled else "disabled"]
            for each in frame.breakpoints
        ),
    )
    return Page("Breaks", str(len(frame.breakpoints)), table)


def _why_not(frame: PanelState) -> str:
    """Why a page has nothing of a job that does not stand still."""
    if frame.state in ("failed", "stopped"):
        return f"the job has {frame.state}, and its stores are closed"
    return "pause it to see this (space)"


def _table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, style: str = "") -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim", row_styles=[style] if style else None)
    for name in columns:
        figures = name in ("message", "hits", "to process again")
        table.add_column(name, justify="right" if figures else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(isolated(each)) for each in row))
    return table


def _age(milliseconds: int) -> str:
    seconds = max(0, milliseconds // 1000)
    if seconds < 90:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 5400 else f"{seconds // 3600} h"


def _short(value: object) -> str:
    return message_text(value, _VALUE)
