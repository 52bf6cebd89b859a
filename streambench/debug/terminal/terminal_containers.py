"""The containers of a job as lines of the full-screen view, one of them selected."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from streambench.debug.names import figure

_SHARE = 6
"""A table of the containers takes at most one of so many lines of the screen; more are named in one line."""


class ContainerLine(Struct, frozen=True):
    """A container: its state, and its figures where they are known."""

    number: int
    state: str
    processed: int
    lag: int | None
    rate: float | None
    is_selected: bool


def container_list(containers: Sequence[ContainerLine], width: int, height: int) -> RenderableType:
    """The containers as a table, or in one line where the screen is not high enough for that."""
    return _table(containers) if len(containers) < height // _SHARE else _line(containers, width)


def _table(containers: Sequence[ContainerLine]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for name in ("", "container", "state", "processed", "rate/s", "lag"):
        table.add_column(name, justify="left" if name in ("", "state") else "right")
    for each in containers:
        table.add_row(
            ">" if each.is_selected else " ",
            str(each.number),
            each.state,
            figure(each.processed),
            "-" if each.rate is None else figure(each.rate),
            figure(each.lag),
            style="bold" if each.is_selected else "",
        )
    return table


def _line(containers: Sequence[ContainerLine], width: int) -> Text:
    """All of them in a line; where that is too long, those next to the selected one."""
    named = [f" {each.number} {each.state} {figure(each.processed)} " for each in containers]
    selected = next(at for at, each in enumerate(containers) if each.is_selected)
    left = width - len("containers ... ...")
    shown: list[int] = []
    for at in sorted(range(len(named)), key=lambda at: abs(at - selected)):
        if shown and len(named[at]) > left:
            break
        left -= len(named[at])
        shown.append(at)
    line = Text("containers ", style="dim", no_wrap=True, overflow="ellipsis")
    line.append("..." if min(shown) else "")
    for at in sorted(shown):
        line.append(named[at], style="not dim bold reverse" if at == selected else "not dim")
    return line.append("" if max(shown) + 1 == len(named) else "...")
