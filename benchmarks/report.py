"""Results of a benchmark, and their table."""

from __future__ import annotations

import os
import platform
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.table import Table

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


def table(figures: Sequence[Figure]) -> Table:
    """The figures for a terminal."""
    shown = Table(title=f"streambench: {machine()}", title_justify="left")
    for column in ("what", "value", "unit", "aim", "", "note"):
        shown.add_column(column, justify="right" if column in ("value", "aim") else "left")
    for each in figures:
        aim = "" if each.aim is None else f"{'≤' if each.below else '≥'} {each.aim:g}"
        mark = {None: "", True: "✓", False: "✗"}[each.reached]
        value = f"{each.value:,.2f}" if each.value < 100 else f"{each.value:,.0f}"
        shown.add_row(each.name, value, each.unit, aim, mark, each.note)
    return shown


def as_json(figures: Sequence[Figure]) -> dict[str, object]:
    """The figures for a file."""
    return {"machine": machine(), "figures": [{**asdict(each), "reached": each.reached} for each in figures]}
