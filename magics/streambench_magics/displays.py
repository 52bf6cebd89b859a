"""The values of ``streambench.debug`` as the text that a cell shows of them: that of the magics."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from IPython.core.interactiveshell import InteractiveShell

from streambench.debug.comparison.comparison import Comparison
from streambench.debug.comparison.comparison_lines import comparison_lines
from streambench.debug.control.hot_swap import Swap
from streambench.debug.crash.crash import Crash
from streambench.debug.crash.crash_lines import crash_lines, report_lines
from streambench.debug.crash.crash_report import Report
from streambench.debug.effects.effect_lines import change_line, output_line
from streambench.debug.effects.events import Cause, Change, Output, PositionDiff
from streambench.debug.message_text import short_text
from streambench_magics.commands.diff_table import diff_table
from streambench_magics.commands.time_commands import swap_text

_INDENT = " " * 8


def register(shell: InteractiveShell) -> None:
    """Register the lines of the magics as the text of these values."""
    formatter = _formatter(shell)
    for kind, text in _TEXTS.items():
        formatter.for_type(kind, _printing(text))


def unregister(shell: InteractiveShell) -> None:
    """Show the fields of these values again."""
    formatter = _formatter(shell)
    for kind in _TEXTS:
        formatter.pop(kind, None)


def _formatter(shell: InteractiveShell) -> Any:
    assert shell.display_formatter is not None  # made with the shell
    return shell.display_formatter.formatters["text/plain"]


def _printing(text: Callable[[Any], str]) -> Callable[[Any, Any, bool], None]:
    def printed(value: Any, printer: Any, cycle: bool) -> None:
        first, *lines = text(value).split("\n")
        printer.text(first)
        for line in lines:
            printer.break_()
            printer.text(line)

    return printed


def _output(output: Output) -> str:
    key = "" if output.key is None else f"  key {short_text(output.key)}"
    return f"{output.position:,}{key}  {output_line(output)}"


def _change(change: Change) -> str:
    return f"{change.position:,}  {_place(change)}{change_line(change)}"


def _cause(cause: Cause) -> str:
    message = "a message that is not known any more"
    if cause.ssp is not None:
        key = "" if cause.key is None else f"key {short_text(cause.key)}  "
        message = f"{_place(cause)}{key}{short_text(cause.message)}"
    head = f"{cause.position:,}  {cause.source or message}"
    return "\n".join([head, *(f"{_INDENT}{change_line(each)}" for each in cause.changes)])


def _swap(swap: Swap) -> str:
    replayed = f": {swap_text(swap)}" if swap.asked else ""
    return f"swapped at {swap.position:,}{replayed}"


def _place(value: Change | Cause) -> str:
    return "" if value.ssp is None else f"{value.ssp}@{value.offset}  "


_TEXTS: Mapping[type[Any], Callable[[Any], str]] = {
    Output: _output,
    Change: _change,
    Cause: _cause,
    PositionDiff: lambda diff: repr(diff_table(diff)),
    Swap: _swap,
    Crash: lambda crash: "\n".join(crash_lines(crash)),
    Report: lambda report: "\n".join(report_lines(report)),
    Comparison: lambda comparison: "\n".join(comparison_lines(comparison, ("first", "second"))),
}
"""Per kind of value, its text."""
