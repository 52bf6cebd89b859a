"""Values of stores and messages in the tables of a panel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from streambench.debug.effects.effects import net
from streambench.debug.effects.events import Change
from streambench.debug.message_text import differing_fields, message_text
from streambench.debug.view.standing import KEY_TEXT
from streambench.errors import escaped

VALUE = KEY_TEXT
NOTHING = "–"


def before_and_after(change: Change) -> str:
    """Two cells of a table, with the two values of a change."""
    if not net([change]):
        same = "" if change.before is None else "written as it was"
        return f'<td class="sb-num">{_two_values(change)[0]}</td><td class="sb-dim">{same}</td>'
    cells = zip(("sb-before", "sb-after"), _two_values(change), strict=True)
    return "".join(
        f'<td class="sb-num{"" if value == NOTHING else f" {kind}"}">{value}</td>' for kind, value in cells
    )


def _two_values(change: Change) -> list[str]:
    """The values before and after; of two records, the fields that differ."""
    before, after = change.before, change.after
    are_records = isinstance(before, dict) and isinstance(after, dict)
    if are_records and (differing := differing_fields(before, after)):
        return [_fields(before, differing), _fields(after, differing)]
    return [NOTHING if each is None else record_html(each) for each in (before, after)]


def record_html(value: Any) -> str:
    """A value; a record without records in it as its fields."""
    is_flat = isinstance(value, dict) and not any(isinstance(each, dict | list) for each in value.values())
    return _fields(value, list(value)) if is_flat and value else value_html(value)


def _fields(record: Mapping[Any, Any], names: Sequence[Any]) -> str:
    """Some fields of a record, as ``late 171 · n 688``; they are not cut where the line may break."""
    shown = [f"{escaped(str(name))} {message_text(record[name], VALUE)}" for name in names if name in record]
    return " · ".join(escape(each) for each in shown) or NOTHING


def value_html(value: Any) -> str:
    return escape(message_text(value, VALUE))
