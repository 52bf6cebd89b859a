"""Results of a benchmark, and their table."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Group
from rich.table import Table
from rich.text import Text

from streambench.container import event_loop as loop


@dataclass(frozen=True)
class Figure:
    """One measured value. ``aim``: what it should reach at least (``below``: at most)."""

    name: str
    value: float
    unit: str
    aim: float | None = None
    below: bool = False
    note: str = ""

    @property
    def reached(self) -> bool | None:
        """True where the aim is reached; None without one."""
        if self.aim is None:
            return None
        return self.value <= self.aim if self.below else self.value >= self.aim


def machine() -> str:
    """The machine in a line: figures mean nothing without it."""
    load = f", load {os.getloadavg()[0]:.1f}" if hasattr(os, "getloadavg") else ""
    compiled = "yes" if loop.__file__.endswith(".so") else "no"
    machine = f"{os.cpu_count()} cores, {platform.machine()}{load}"
    return f"Python {platform.python_version()}, {machine}; compiled: {compiled}"


def heading() -> Group:
    """The machine, and the names of the columns of ``row``."""
    names = _line("what", "value", "unit", "aim", "", "note", style="bold")
    return Group(Text(f"streambench: {machine()}", style="italic"), names)


def row(figure: Figure) -> Table:
    """A figure for a terminal, as wide as the console: rows that are printed one by one line up."""
    aim = "" if figure.aim is None else f"{'≤' if figure.below else '≥'} {figure.aim:g}"
    mark = {None: "", True: "✓", False: "✗"}[figure.reached]
    value = f"{figure.value:,.2f}" if figure.value < 100 else f"{figure.value:,.0f}"
    return _line(figure.name, value, figure.unit, aim, mark, figure.note)


def _line(*cells: str, style: str = "") -> Table:
    line = Table.grid(padding=(0, 1), expand=True)
    line.add_column(ratio=3)
    line.add_column(width=9, justify="right")
    line.add_column(width=12)
    line.add_column(width=7, justify="right")
    line.add_column(width=1)
    line.add_column(ratio=2)
    line.add_row(*map(Text, cells), style=style)
    return line


def as_json(figures: Sequence[Figure]) -> dict[str, object]:
    """The figures for a file."""
    return {"machine": machine(), "figures": [{**asdict(each), "reached": each.reached} for each in figures]}
