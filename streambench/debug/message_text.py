"""Keys and messages as text that a person reads."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from streambench.debug.names import end_cut, visible
from streambench.serde.plain import plain

_ONE_LINE = 60


class MessageText(NamedTuple):
    """A message to be read, and its ``size`` in bytes, as the text that it is here."""

    text: str
    size: int


def message_text(value: Any, limit: int = 1000) -> str:
    """A key or message in a readable form, on one line if it has none; cut at ``limit`` characters, with the
    number of those left out."""
    return end_cut(_written(value), limit)


def message_block(value: Any, limit: int = 4000) -> MessageText:
    """A message in a readable form of several lines: JSON is indented."""
    flat = _written(value)
    laid_out = _written(value, indent=2) if len(flat) > _ONE_LINE else flat
    left_out = len(laid_out) - limit
    if left_out > 0:
        laid_out = f"{laid_out[:limit]}…\n({left_out:,} more characters)"
    return MessageText(laid_out, len(flat.encode(errors="replace")))


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
    return visible(text)
