"""The effects of messages: changes of state, outputs, windows, commits."""

from __future__ import annotations

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streambench.debug.effects.events import Change, Output


class Effects(Struct, frozen=True, gc=False):
    """Everything that happened with the message at a position, up to the next one.

    ``changes``: one per key; a key that has its former value again is left out. ``writes``: all of them, in
    their order. ``windows`` and ``ends``: the tasks whose ``window()`` or ``end_of_stream()`` was called.
    ``committed``: the tasks that were committed."""

    position: int
    changes: tuple[Change, ...] = ()
    outputs: tuple[Output, ...] = ()
    windows: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    committed: tuple[str, ...] = ()
    writes: tuple[Change, ...] = ()


def net(changes: list[Change]) -> tuple[Change, ...]:
    """One change for each key, in the order of the first."""
    if len(changes) == 1:
        return (changes[0],) if _differ(changes[0].before, changes[0].after) else ()
    first: dict[tuple[str, str, str], Change] = {}
    last: dict[tuple[str, str, str], Change] = {}
    for each in changes:
        key = each.task, each.store, repr(each.key)
        first.setdefault(key, each)
        last[key] = each
    return tuple(
        replace(each, after=last[key].after)
        for key, each in first.items()
        if _differ(each.before, last[key].after)
    )


def _differ(before: Any, after: Any) -> bool:
    """True for values that differ, or that cannot be compared, as arrays."""
    try:
        return bool(before != after)
    except Exception:
        return True
