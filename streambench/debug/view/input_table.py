"""The table of inputs in a terminal, as wide as there is room."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from streambench.debug.names import end_cut, figure, middle_cut
from streambench.debug.view.rows import Row

# rich takes long to be imported: not before there is anything to show.
if TYPE_CHECKING:
    from rich.table import Table

_BAR = "oldest to newest"
_LEFT_OUT_FIRST = ("oldest", "upcoming", "waiting", "checkpoint", _BAR, "rate", "position")
_LEAST_STATUS = 12
_LEAST_STREAM = 16
_MOST_STREAM = 48

Columns = dict[str, list[str]]


def input_table(
    shown: Sequence[Row], width: int, *, several: bool = False, bars: list[str] | None = None
) -> Table:
    """The rows with all columns for which there is room. ``several``: they are of several containers.
    ``bars``: one for each row."""
    from rich.cells import cell_len
    from rich.table import Table
    from rich.text import Text

    columns = _columns(shown, several=several)
    if bars is not None:
        at = list(columns).index("lag") - (0 if any(row.folded for row in shown) else 3)
        columns = dict([*list(columns.items())[:at], (_BAR, bars), *list(columns.items())[at:]])
    columns = _fitted(columns, width)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    for name in columns:
        is_text = name in ("stream", "status")
        is_left = is_text or name == _BAR
        # Text gives way, and never figures, which would look like others.
        least = None if is_text else max(map(cell_len, (name, *columns[name])))
        table.add_column(
            name, justify="left" if is_left else "right", overflow="ellipsis", no_wrap=True, min_width=least
        )
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*map(Text, cells))
    return table


_CELLS: Mapping[str, Callable[[Row], str]] = {
    "stream": lambda row: str(row.stream),
    "partition": lambda row: str(row.partition),
    "partitions": lambda row: str(row.folded or row.partition),
    "container": lambda row: str(row.container),
    "oldest": lambda row: row.oldest or "-",
    "position": lambda row: row.position or "-",
    "upcoming": lambda row: row.upcoming or "-",
    "lag": lambda row: figure(row.lag),
    "rate": lambda row: figure(row.rate),
    "waiting": lambda row: figure(row.waiting),
    "checkpoint": lambda row: row.checkpointed or "-",
    "status": lambda row: row.status if row.folded else row.standing,
}
_FOLDED: tuple[str, ...] = ("stream", "partitions", "lag", "rate", "waiting", "status")
_UNFOLDED: tuple[str, ...] = (
    "stream",
    "partition",
    "oldest",
    "position",
    "upcoming",
    "lag",
    "rate",
    "checkpoint",
    "status",
)


def _columns(shown: Sequence[Row], *, several: bool) -> Columns:
    """All columns, as text."""
    names = _FOLDED if any(row.folded for row in shown) else _UNFOLDED
    if several and names is _UNFOLDED:
        names = (*_UNFOLDED[:2], "container", *_UNFOLDED[2:])
    return {name: [_CELLS[name](row) for row in shown] for name in names}


def _fitted(columns: Columns, width: int) -> Columns:
    """The columns for which there is room; then text gives way, its end first, then the middle of names."""
    from rich.cells import cell_len

    if _width(columns) > width:
        columns["stream"] = [middle_cut(cell, _MOST_STREAM) for cell in columns["stream"]]
    for name in _LEFT_OUT_FIRST:
        if _width(columns) > width:
            columns.pop(name, None)
    for name, room, cut in (("status", _LEAST_STATUS, end_cut), ("stream", _LEAST_STREAM, middle_cut)):
        longest = max(map(cell_len, columns[name]), default=0)
        if (over := _width(columns) - width) > 0 and longest > room:
            columns[name] = [cut(cell, max(room, longest - over)) for cell in columns[name]]
    return columns


def _width(columns: Mapping[str, Sequence[str]]) -> int:
    from rich.cells import cell_len

    return sum(max(map(cell_len, (name, *cells))) for name, cells in columns.items()) + 2 * (len(columns) - 1)
