"""The difference of two positions as a table."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streambench.debug.effects.events import PositionDiff
from streambench.debug.message_text import changed_text, short_text
from streambench_magics.tables import Records

_WHAT = "what"


def diff_table(diff: PositionDiff, note: str = "") -> Records:
    """Everything that differs: state, attributes and offsets with both values, and the outputs between."""
    rows = list(_rows(diff))
    arrow = f"{diff.before:,} -> {diff.after:,}"
    several = len({row["task"] for row in rows}) > 1
    alike = f"{diff.before:,} and {diff.after:,} are alike" if not rows else ""
    return Records(
        [_WHAT, *(["task"] if several else []), "name", arrow],
        [{**row, arrow: row["values"]} for row in rows],
        note="; ".join(filter(None, [alike, note])),
        source=diff,
        more="the value has all of them",
    )


def _rows(diff: PositionDiff) -> Iterator[dict[str, Any]]:
    for task, stores in diff.stores.items():
        for store, entries in stores.items():
            for key, (before, after) in entries.items():
                yield _row("state", task, f"{store}[{short_text(key)}]", changed_text(before, after))
    for task, values in diff.attributes.items():
        for name, (before, after) in values.items():
            yield _row("attribute", task, name, changed_text(before, after))
    for task, offsets in diff.offsets.items():
        for ssp, (first, last) in offsets.items():
            yield _row("offset", task, str(ssp), f"{first or '-'} -> {last or '-'}")
    for each in diff.outputs:
        key = "" if each.key is None else f"key {short_text(each.key)}  "
        yield _row("output", each.task, each.stream, f"{each.position:,}: {key}{short_text(each.message)}")


def _row(what: str, task: str, name: str, values: str) -> dict[str, Any]:
    return {_WHAT: what, "task": task, "name": name, "values": values}
