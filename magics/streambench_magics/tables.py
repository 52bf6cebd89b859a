"""Small tables as the value of a magic: aligned text, an HTML table, and the plain values for who wants to go on with them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from streambench.serde.plain import plain

WIDTH = 120
"""Columns of the text form; fixed, so that a notebook says the same wherever it is run."""


class Records(Sequence[Mapping[str, Any]]):
    """A list of like records, one mapping of column to value each. ``right``: columns of figures. ``note``: a line below the table.
    ``source``: what it was made from."""

    def __init__(
        self, columns: Sequence[str], records: Sequence[Mapping[str, Any]], *, right: Sequence[str] = (), note: str = "", source: Any = None
    ) -> None:
        self.columns = columns
        self.records = records
        self.right = frozenset(right)
        self.note = note
        self.source = source

    def __len__(self) -> int:
        return len(self.records)

    def __getitem__(self, index: Any) -> Any:
        return self.records[index]

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        return iter(self.records)

    def __repr__(self) -> str:
        lines = []
        if self.records:
            table = Table(box=None, pad_edge=False, header_style="", expand=False)
            cells = [[cell_text(record.get(column)) for column in self.columns] for record in self.records]
            for number, column in enumerate(self.columns):
                # What is too long is a message, and a figure that is cut is a wrong one.
                whole = max(len(column), *(len(row[number]) for row in cells)) if column in self.right else None
                side: JustifyMethod = "right" if column in self.right else "left"
                table.add_column(Text(column), justify=side, no_wrap=True, overflow="ellipsis", min_width=whole)
            for row in cells:
                table.add_row(*map(Text, row))
            lines.append(as_text(table))
        return "\n".join([*lines, *([self.note] if self.note else [])])

    def _repr_html_(self) -> str:
        def cell(tag: str, column: str, text: str) -> str:
            side = "right" if column in self.right else "left"
            return f'<{tag} style="text-align:{side};white-space:nowrap;padding:1px 10px 1px 0">{escape(text)}</{tag}>'

        head = "".join(cell("th", column, column) for column in self.columns)
        body = "".join(
            "<tr>" + "".join(cell("td", column, cell_text(record.get(column))) for column in self.columns) + "</tr>"
            for record in self.records
        )
        table = f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>" if self.records else ""
        return table + (f"<div>{escape(self.note)}</div>" if self.note else "")


def cell_text(value: Any) -> str:
    """A value in a cell of a table."""
    return "-" if value is None else value if isinstance(value, str) else message_text(value, 100)


def message_text(value: Any, limit: int = 1000) -> str:
    """A key or message as somebody would like to read it, cut at ``limit`` characters."""
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = repr(value[:limit])
    elif isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False)
        except (TypeError, ValueError, RecursionError):
            shown = plain(value)
            text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def as_text(renderable: RenderableType) -> str:
    """A rich renderable as plain text, without trailing blanks."""
    console = Console(width=WIDTH, color_system=None, force_terminal=False, force_jupyter=False, legacy_windows=False)
    with console.capture() as captured:
        console.print(renderable)
    return "\n".join(line.rstrip() for line in captured.get().rstrip().splitlines())
