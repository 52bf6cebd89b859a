"""Keys and messages as text that a person reads."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from streambench.debug.names import end_cut, visible
from streambench.redaction import redacted
from streambench.serde.plain import plain

LINE = 100
"""Characters of a message in a line of its own."""

_ONE_LINE = 60


class MessageText(NamedTuple):
    """A message to be read, and its ``size`` in bytes, as the text that it is here. ``line``: the same in one
    line."""

    text: str
    size: int
    line: str = ""


def message_text(value: Any, limit: int = 1000) -> str:
    """A key or message in a readable form, on one line if it has none.

    The text is cut at ``limit`` characters, with the number of those omitted."""
    return end_cut(_written(value), limit)


def message_line(value: Any, limit: int) -> str:
    """A message in one line of at most ``limit`` characters; what is cut is counted in bytes."""
    return _cut_line(_one_line(_written(value)), limit)


def message_block(value: Any, limit: int = 4000) -> MessageText:
    """A message in a readable form of several lines: JSON is indented."""
    flat = _written(value)
    laid_out = _written(value, indent=2) if len(flat) > _ONE_LINE else flat
    left_out = len(laid_out) - limit
    if left_out > 0:
        laid_out = f"{laid_out[:limit]}…\n({left_out:,} more characters)"
    line = _cut_line(_one_line(flat), LINE)
    return MessageText(laid_out, len(flat.encode(errors="replace")), line)


def _one_line(text: str) -> str:
    return text.replace("\n", "\\n").replace("\t", "\\t")


def _cut_line(line: str, limit: int) -> str:
    if len(line) <= limit:
        return line
    # The number has the most digits where all is cut.
    kept = max(1, limit - len(_left_out(line)))
    return f"{line[:kept]}{_left_out(line[kept:])}"


def _left_out(text: str) -> str:
    return f"... {len(text.encode(errors='replace')):,} bytes more"


def _written(value: Any, indent: int | None = None) -> str:
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = repr(value)
    elif isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, indent=indent)
        except (TypeError, ValueError, RecursionError):
            shown = plain(value)
            text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=indent)
    return visible(redacted(text))
