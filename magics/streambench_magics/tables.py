"""Small tables as the value of a magic: aligned text, an HTML table, and the plain values for who wants to go
on with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.console import Console, RenderableType

from streambench.debug.message_text import message_text
from streambench.debug.names import Cut, end_cut, middle_cut
from streambench.errors import escaped

WIDTH = 120
"""Columns of the text form; fixed, so that a notebook says the same wherever it is run."""

_NAMES = frozenset({"task", "partition", "stream", "job"})
_LEAST_NAME = 24
_LEAST_TEXT = 12
_LONGEST = 100
_MOST_ROWS = 100
"""Rows of a long table that are shown; the value has all of them."""


class Records(Sequence[Mapping[str, Any]]):
    """A list of like records, one mapping of column to value each. ``right``: columns of figures.
    ``data``: columns of keys and messages as they are. ``note``: a line below the table. ``source``: what it
    was made from. ``wide``: further columns of the HTML table, for which the text form has no room.

    ``more``: how to see the others, where only the first 100 are shown; without it, all of them are."""

    def __init__(
        self,
        columns: Sequence[str],
        records: Sequence[Mapping[str, Any]],
        *,
        right: Sequence[str] = (),
        data: Sequence[str] = (),
        note: str = "",
        source: Any = None,
        wide: Sequence[str] = (),
        more: str = "",
    ) -> None:
        self.columns = columns
        self.records = records
        self.right = frozenset(right)
        self.data = frozenset(data)
        self._shown = records[:_MOST_ROWS] if more else records
        is_cut = len(self._shown) < len(records)
        cut = f"the first {_MOST_ROWS} of {len(records):,}; {more}" if is_cut else ""
        self.note = "\n".join(filter(None, [cut, note]))
        self.source = source
        self.wide = [*columns, *wide]

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.records)

    def __repr__(self) -> str:
        return "\n".join([*self._lines(), *([self.note] if self.note else [])])

    def _cell(self, record: Mapping[str, Any], column: str) -> str:
        value = record.get(column)
        if column == "messages" and isinstance(value, int):
            return f"{value:,}"
        return message_text(value, _LONGEST) if column in self.data else cell_text(value)

    def _lines(self) -> list[str]:
        """The table as text.

        Where it is too wide, texts lose their ends first, then names their middles. Figures stay whole, since
        a cut one is wrong."""
        if not self._shown:
            return []
        cells = [[column, *(self._cell(record, column) for record in self._shown)] for column in self.columns]
        widths = [max(map(cell_len, each)) for each in cells]
        names = [at for at, column in enumerate(self.columns) if column in _NAMES - self.right]
        texts = [at for at, column in enumerate(self.columns) if column not in self.right and at not in names]
        for given_way, least in ((texts, _LEAST_TEXT), (names, _LEAST_NAME)):
            for at in sorted(given_way, key=lambda at: -widths[at]):
                over = sum(widths) + 2 * (len(widths) - 1) - WIDTH
                widths[at] = max(min(widths[at], least), widths[at] - max(0, over))
        columns = []
        for at, (column, each) in enumerate(zip(self.columns, cells, strict=True)):
            shown = [_cut(cell, widths[at], name=at in names) for cell in each]
            blanks = [" " * (widths[at] - cell_len(cell)) for cell in shown]
            columns.append(
                [
                    blank + cell if column in self.right else cell + blank
                    for blank, cell in zip(blanks, shown, strict=True)
                ]
            )
        return ["  ".join(row).rstrip() for row in zip(*columns, strict=True)]

    def _repr_html_(self) -> str:
        def cell(tag: str, column: str, text: str) -> str:
            side = "right" if column in self.right else "left"
            style = f"text-align:{side};white-space:nowrap;padding:1px 10px 1px 0"
            return f'<{tag} style="{style}">{escape(text)}</{tag}>'

        head = "".join(cell("th", column, column) for column in self.wide)
        body = "".join(
            "<tr>"
            + "".join(cell("td", column, self._cell(record, column)) for column in self.wide)
            + "</tr>"
            for record in self._shown
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self.records else ""
        return table + (f"<div>{escape(self.note)}</div>" if self.note else "")


def cell_text(value: Any) -> str:
    """A value in a cell of a table."""
    if isinstance(value, str):
        return value if isinstance(value, Cut) else escaped(value)
    return message_text(value, _LONGEST)


def _cut(cell: str, width: int, *, name: bool) -> str:
    if cell_len(cell) <= width:
        return cell
    cut = middle_cut(cell, width) if name else end_cut(cell, width)
    # Of characters that take two columns fewer fit.
    return cut if cell_len(cut) <= width else f"{set_cell_size(cell, width - 1)}…"


def as_text(renderable: RenderableType) -> str:
    """A rich renderable as plain text, without trailing blanks."""
    console = Console(
        width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False
    )
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
