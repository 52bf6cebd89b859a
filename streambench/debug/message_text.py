"""Keys, messages and values as text that a person reads. No data can begin a line, or move the cursor."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from math import isfinite
from numbers import Integral, Real
from os.path import commonprefix
from typing import Any, NamedTuple

from streambench.debug.names import Cut, end_cut, visible
from streambench.errors import escaped
from streambench.redaction import redacted
from streambench.serde.plain import plain

LINE = 100
"""Characters of a message in a line of its own."""

SHORT = 60
"""Characters of a value among others."""

_BLOCK = 4000
"""Characters of a message in several lines."""

_LEAST_ROUNDED = 10**21
"""The least whole number that is shown rounded."""

_ONE_LINE = 60
_COMMON = 12
"""Characters that two long values show of what they have in common."""

_TO = " -> "
_LEAST = 12
_MOST_COMPARED = 100_000
_NOTHING: Any = object()


class MessageText(NamedTuple):
    """A message to be read, and its ``size`` in bytes, as the text that it is here. ``line``: the same in one
    line."""

    text: str
    size: int
    line: str = ""


def message_text(value: Any, limit: int = 1000) -> str:
    """A key or message in a readable form, on one line; ``-`` for None.

    The text is cut at ``limit`` characters, with the number of those omitted, of bytes that are no text the
    number of bytes."""
    return _cut(_raw(value), limit, _more)


def message_line(value: Any, limit: int) -> str:
    """A message in one line of at most ``limit`` characters; what is cut is counted in bytes."""
    return _cut(_raw(value), limit, lambda rest: f"... {_size(rest):,} bytes more")


def short_text(value: Any) -> str:
    """A value among others: ``message_text`` of 60 characters."""
    return message_text(value, SHORT)


def figure_text(value: Any, digits: int = 6) -> str:
    """A figure: whole numbers without a point, others with so many digits; what is no number, as
    ``short_text``."""
    if not isinstance(value, (Real, Decimal)):
        return short_text(value)
    # Of a whole number a float may be too small.
    whole = Decimal(int(value)) if isinstance(value, Integral) else value
    number = whole if isinstance(whole, Decimal) else float(whole)
    is_whole = isfinite(number) and -_LEAST_ROUNDED < number < _LEAST_ROUNDED and number == int(number)
    return f"{number:,.0f}" if is_whole else f"{number:,.{digits}g}"


def fields_text(value: Any, limit: int = SHORT) -> str:
    """A message in few characters: the fields of a record, as ``delay 12, origin MIA``."""
    if not isinstance(value, dict) or not value:
        return message_text(value, limit)
    fields = ", ".join(f"{name} {_side(each, limit)}" for name, each in value.items())
    return _cut(fields, limit, _more)


def message_block(value: Any) -> MessageText:
    """A message in a readable form of several lines: JSON is indented."""
    raw = _raw(value)
    if isinstance(raw, bytes):
        text = _cut(raw, _BLOCK, lambda rest: f"…\n({len(rest):,} more bytes)")
        return MessageText(text, len(raw), message_line(value, LINE))
    laid_out = visible(raw if len(raw) <= _ONE_LINE else str(_written(value, indent=2)))
    left_out = len(laid_out) - _BLOCK
    if left_out > 0:
        laid_out = f"{laid_out[:_BLOCK]}…\n({left_out:,} more characters)"
    return MessageText(laid_out, _size(raw), message_line(value, LINE))


def changed_text(before: Any, after: Any, limit: int = SHORT) -> str:
    """Two values of a key as ``before -> after``.

    Of two records these are the fields that differ, of two long values the part where they begin to."""
    text = Cut(_changed(before, after, limit))
    # Cut again in each value, so that both of them stay.
    text.again = lambda width: end_cut(_changed(before, after, max(_LEAST, (width - len(_TO)) // 2)), width)
    return text


def differing_fields(before: Mapping[Any, Any], after: Mapping[Any, Any]) -> list[Any]:
    """The fields of two records that differ, in their order."""
    names = [*before, *(each for each in after if each not in before)]
    return [name for name in names if before.get(name, _NOTHING) != after.get(name, _NOTHING)]


def _changed(before: Any, after: Any, limit: int) -> str:
    if isinstance(before, dict) and isinstance(after, dict):
        return ", ".join(
            f"{escaped(str(name))} {_pair(before.get(name, _NOTHING), after.get(name, _NOTHING), limit)}"
            for name in differing_fields(before, after)
        )
    values = [_NOTHING if each is None else each for each in (before, after)]
    return _pair(values[0], values[1], limit)


def _pair(before: Any, after: Any, limit: int) -> str:
    """Two values; None is one, as it is in a field."""
    if before is not _NOTHING and after is not _NOTHING:
        whole = [_side(each, _MOST_COMPARED) for each in (before, after)]
        if max(map(len, whole)) <= limit:
            return _TO.join(whole)
        common = len(commonprefix(whole))
        if common > max(_COMMON, limit // 2):
            begin = common - _COMMON
            return _TO.join(f"…{_cut(each[begin:], limit - 1, _more)}" for each in whole)
    # A side that is whole leaves the room that it does not need to the other.
    shown = [_side(each, limit) for each in (before, after)]
    left = [0 if isinstance(each, Cut) else limit - len(each) for each in shown]
    return f"{_side(before, limit + left[1])}{_TO}{_side(after, limit + left[0])}"


def _side(value: Any, limit: int) -> str:
    return "-" if value is _NOTHING else "null" if value is None else message_text(value, limit)


def _cut(raw: str | bytes, limit: int, left_out: Callable[[Any], str]) -> str:
    """Data in one line of at most ``limit`` characters. ``left_out``: the text for the rest of it."""
    if len(raw) <= limit and len(shown := _shown(raw)) <= limit:
        return shown
    # The number has the most digits where all is cut.
    room = max(1, limit - len(left_out(raw)))
    kept = min(room, len(raw))
    while kept > 1 and (over := len(_shown(raw[:kept])) - room) > 0:
        kept -= max(1, over // 10)
    shown = _shown(raw[:kept])
    text = Cut(f"{shown[:-1] if isinstance(raw, bytes) else shown}{left_out(raw[kept:])}")
    text.again = lambda width: _cut(raw, width, left_out)
    return text


def _more(rest: str | bytes) -> str:
    return f"… +{len(rest):,}"


def _shown(raw: str | bytes) -> str:
    return escaped(raw) if isinstance(raw, str) else repr(raw)


def _size(raw: str | bytes) -> int:
    return len(raw.encode(errors="replace")) if isinstance(raw, str) else len(raw)


def _raw(value: Any) -> str | bytes:
    """The text of a value, or the bytes that are none. What would look like no value is in quotes."""
    if value is None:
        return "-"
    if isinstance(value, (bytearray, memoryview)):
        value = bytes(value)
    if isinstance(value, bytes) and not value:
        return "b''"
    if isinstance(value, str) and value in ("", "-"):
        return f'"{value}"'
    return _written(value)


def _written(value: Any, indent: int | None = None) -> str | bytes:
    if isinstance(value, bytes):
        try:
            text = value.decode()
        except UnicodeDecodeError:
            text = repr(value)
            return value if redacted(text) == text else redacted(text)
    elif isinstance(value, str):
        text = value
    else:
        try:
            text = json.dumps(value, ensure_ascii=False, indent=indent)
        except (TypeError, ValueError, RecursionError):
            shown = plain(value)
            text = shown if isinstance(shown, str) else json.dumps(shown, ensure_ascii=False, indent=indent)
    return redacted(text)
