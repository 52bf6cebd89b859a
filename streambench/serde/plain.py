"""Messages for people and for JSON: whatever a serde made of them, as plain data and as text that a terminal
bears."""

from __future__ import annotations

import dataclasses
import datetime as dt
import math
import sys
from collections.abc import Mapping, Set
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

from streambench.errors import represented

_DEEPEST = 100
_MOST_ROWS = 1_000
_NESTED = object()


def plain(value: Any, depth: int = 0) -> Any:
    """The same as dicts with text for names, lists, text, numbers, None: what any encoder of JSON takes.

    Bytes become text, with ``\\xff`` for what is none; times ISO 8601; decimals and numbers beyond 64 bits
    text. A batch or table of Arrow becomes its rows (the first thousand), what nests too deeply ``...``,
    anything else its repr.
    """
    found = _scalar(value)
    if found is not _NESTED:
        return found
    if depth >= _DEEPEST:
        return "..."
    if isinstance(value, Mapping):
        return {_name(name): plain(inner, depth + 1) for name, inner in value.items()}
    if isinstance(value, (list, tuple, Set)):
        return [plain(inner, depth + 1) for inner in value]
    if _is_arrow(value):
        rows = plain(value.slice(0, _MOST_ROWS).to_pylist(), depth + 1)
        left = value.num_rows - _MOST_ROWS
        return [*rows, f"... {left} more rows"] if left > 0 else rows
    if isinstance(value, msgspec.Struct):
        return {name: plain(getattr(value, name), depth + 1) for name in value.__struct_fields__}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {
            field.name: plain(getattr(value, field.name), depth + 1) for field in dataclasses.fields(value)
        }
    return represented(value).encode(errors="backslashreplace").decode()


def _scalar(value: Any) -> Any:
    """The value where nothing stands inside it, else ``_NESTED``."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**64 else str(value)
    if isinstance(value, str):
        return value.encode(errors="backslashreplace").decode()
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value).decode(errors="backslashreplace")
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, (Decimal, UUID, dt.timedelta)):
        return str(value)
    return _NESTED


def printable(value: Any) -> str:
    """A key or message in one line, as text: without what would end the line or move the cursor."""
    if value is None:
        return "-"
    if isinstance(value, (bytes, bytearray, memoryview)):
        text = bytes(value).decode(errors="backslashreplace")
    elif _is_arrow(value):
        text = str(plain(value))
    else:
        text = value if isinstance(value, str) else represented(value)
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def _is_arrow(value: Any) -> bool:
    """A batch or table of Arrow. Where pyarrow was never imported, which takes long, there is none."""
    arrow = sys.modules.get("pyarrow")
    return arrow is not None and isinstance(value, (arrow.RecordBatch, arrow.Table))


def _name(name: Any) -> str:
    made = plain(name)
    return made if isinstance(made, str) else str(made)
