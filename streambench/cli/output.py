"""The output of the command line: tables for people, one JSON object per line for programs, errors in one
line."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, Protocol

from streambench import config
from streambench.cli.envelopes import json_row
from streambench.clock import as_text
from streambench.descriptors import limit_error
from streambench.errors import StreambenchError, described, escaped
from streambench.job.failure import user_frames
from streambench.metrics.log_reporter import LinesOnStderr, show_on_stderr
from streambench.redaction import redacted

# rich takes long to be imported: where only an error or a version is shown, it is not.
if TYPE_CHECKING:
    from rich.console import Console

    from streambench.container.outputs.dead_letters import ErrorCounts
    from streambench.container.timers import WindowsLeft
    from streambench.planning.pending_commits import PendingOutputs

# Without a terminal, nothing is cut off to fit one.
_NO_SCREEN = 10_000

# Columns that are left to prose in a table before it goes below its row instead, those between two columns,
# and how it is indented there.
_LEAST_PROSE = 30
_GAP = 2
_BELOW = (0, 0, 0, 4)

# ipykernel sets these for the commands of a cell.
_OF_KERNELS = {"TERM": "xterm-color", "CLICOLOR_FORCE": "1", "GIT_PAGER": "cat"}

TRACEBACK = "STREAMBENCH_TRACEBACK"
"""Set to 1, this environment variable has errors shown with all of their traceback."""


def is_cell() -> bool:
    """True for a ``!command`` in a cell of a notebook. It has a terminal, but one that keeps each frame that
    is drawn on it, and has no keys."""
    return all(os.environ.get(name) == text for name, text in _OF_KERNELS.items())


def live_console(*, stderr: bool = False) -> Console:
    """Return a console for what changes in its place; where nothing can, it is no terminal."""
    from rich.console import Console

    is_live = (sys.stderr if stderr else sys.stdout).isatty() and not is_cell()
    # Without a terminal, rich would take FORCE_COLOR for one.
    return Console(stderr=stderr, highlight=False, force_terminal=None if is_live else False)


def may_ask() -> bool:
    """True where a question can be answered: at a terminal."""
    return sys.stdin.isatty() and not is_cell()


def screen(*, is_folded: bool = True) -> Console:
    """Return standard output, as wide as the terminal. Without one, or where nothing is to be folded, it is
    as wide as its lines."""
    from rich.console import Console

    if is_folded and sys.stdout.isatty():
        return Console(highlight=False)
    return Console(highlight=False, width=_NO_SCREEN, soft_wrap=True)


def confirm(question: str, unasked: str) -> None:
    """Ask at the terminal. Raises Exit at a no, and BadParameter where there is no terminal.

    ``unasked``: what would be done without an answer, in words."""
    import typer

    if not may_ask():
        raise typer.BadParameter(f"{unasked}, and there is no terminal to ask at: give --yes")
    if not typer.confirm(question):
        raise typer.Exit(1)


def warn(what: object) -> None:
    """Print a warning on standard error."""
    print(f"warning: {what}", file=sys.stderr)


def warn_of_pending(found: Iterable[PendingOutputs]) -> None:
    """Warn of what is committed and may not be in its streams yet."""
    for each in found:
        warn(each)


class Outcome(Protocol):
    """The result of a run or a deployment."""

    @property
    def passed_over(self) -> ErrorCounts: ...

    @property
    def windows_left(self) -> WindowsLeft: ...


def print_notes(result: Outcome) -> None:
    """Print the ignored failures by class, and a warning for messages that no window has followed."""
    for line in result.passed_over.details():
        print(f"  {line}")
    if result.windows_left:
        warn(result.windows_left)


def print_wait(text: str) -> None:
    """Print what a command waits for."""
    print(text, file=sys.stderr, flush=True)


def show_rows(
    rows: Iterable[Mapping[str, Any]],
    columns: Sequence[str],
    *,
    as_json: bool,
    empty: str = "",
    right: Sequence[str] = (),
    heads: Mapping[str, str] = MappingProxyType({}),
    folded: str | None = None,
) -> None:
    """Rows as JSON lines, or as a table of these columns; ``empty``: what to say if there are none.

    ``right``: the columns of figures. ``heads``: the heads of columns that are not called by their names.

    ``folded``: the one column that gives way where the terminal is too narrow. Without it the terminal wraps
    the lines: a cell that is cut has lost its value."""
    if as_json:
        for row in rows:
            print_json(row)
        return
    from rich.table import Table
    from rich.text import Text

    listed = list(rows)
    if not listed:
        print(empty)
        return
    table = Table(box=None, pad_edge=False, header_style="dim")
    for column in columns:
        justify: Literal["left", "right"] = "right" if column in right else "left"
        table.add_column(heads.get(column, column), justify=justify, no_wrap=column != folded)
    for row in listed:
        table.add_row(*(Text(cell(row[column])) for column in columns))
    screen(is_folded=folded is not None).print(table, crop=False)


def show_entries(
    rows: Sequence[Mapping[str, Any]], columns: Sequence[str], *, title: str, prose: str, as_json: bool
) -> None:
    """Rows, at least one, as in a reference: as JSON lines, or as a table of these columns in which only
    ``prose`` is folded. Where the terminal leaves too little room for that, each row is a few lines below its
    ``title``. The title is to be copied and so stays whole.
    """
    from rich.padding import Padding
    from rich.text import Text

    console = screen()
    # The prose column is left out: it takes the width that the others leave.
    widths = [
        max(len(text) for text in (column, *(cell(row[column]) for row in rows)))
        for column in columns
        if column != prose
    ]
    if as_json or console.width - sum(widths) - _GAP * len(widths) >= _LEAST_PROSE:
        show_rows(rows, columns, as_json=as_json, folded=prose)
        return
    for row in rows:
        console.print(Text(cell(row[title])), soft_wrap=True)
        figures = [
            f"{name}: {row[name]}"
            for name in columns
            if name not in (title, prose) and row[name] not in (None, "")
        ]
        console.print(Padding(Text(", ".join(figures), style="dim"), _BELOW, expand=False))
        console.print(Padding(Text(row[prose]), _BELOW, expand=False))


def print_json(row: Mapping[str, Any]) -> None:
    """One row as one line."""
    sys.stdout.write(json_row(row).decode() + "\n")


def cell(value: Any) -> str:
    """A value as it stands in a table."""
    return "-" if value is None else str(value)


def moment(time_ms: int) -> str | None:
    """A time as ISO 8601 in UTC, to the millisecond (the number where it is out of range); None for none."""
    return as_text(time_ms) if time_ms else None


def print_error(error: BaseException) -> None:
    """One line on standard error, and where in the user's own code it happened; no frames of streambench."""
    sys.stdout.flush()
    if os.environ.get(TRACEBACK) == "1":
        whole = redacted("".join(traceback.format_exception(error)))
        sys.stderr.write(escaped(whole, keep="\n\t"))
        return
    error = limit_error(error) or error
    frames = user_frames(error)
    is_expected = frames or isinstance(error, (StreambenchError, OSError))
    internal = "" if is_expected else f" (unexpected; {TRACEBACK}=1 shows where)"
    print(f"error: {redacted(_of_file(error) or described(error))}{internal}", file=sys.stderr)
    if frames:
        print(frames, file=sys.stderr)


def _of_file(error: BaseException) -> str | None:
    """Return the operating system's error of a file, the file first; None for any other error."""
    if not isinstance(error, OSError) or error.filename is None or error.strerror is None:
        return None
    return f"{error.filename}: {error.strerror.lower()}"


def log_to_stderr() -> None:
    """Have warnings of streambench, and of what it uses, and metrics that are logged, appear on standard
    error, a line each."""
    for logger in (logging.getLogger("streambench"), logging.getLogger()):
        if not any(isinstance(each, _Lines) for each in logger.handlers):
            logger.addHandler(_Lines(logging.WARNING))
    logging.getLogger("streambench").propagate = False
    show_on_stderr()


class _Lines(LinesOnStderr):
    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._of_config: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if record.name == config.__name__:
            if record.getMessage() in self._of_config:
                return  # it is looked at by each that takes it
            self._of_config.add(record.getMessage())
        if (
            record.module == "java_gateway"
            and record.exc_info is not None
            and isinstance(record.exc_info[1], KeyboardInterrupt)
        ):
            return  # py4j reports a Ctrl-C as an error before it passes it on
        super().emit(record)
