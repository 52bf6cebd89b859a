"""Deep copies of plain data, fast: as ``copy.deepcopy`` makes them, but large containers of numbers and texts
are copied at once."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

# Their values never change, so that a copy may share them.
_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None)})


def deep_copy(value: Any, memo: dict[int, Any]) -> Any:
    """A deep copy. ``memo``: the copies so far, by the ids of their originals, as for ``copy.deepcopy``; it
    keeps no original alive."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is not dict and kind is not list and kind is not set:
        return deepcopy(value, memo)
    known = memo.get(id(value), memo)  # itself stands for none, as a copy may be None
    if known is not memo:
        return known
    if kind is dict:
        if _ATOMS.issuperset(map(type, value)) and _ATOMS.issuperset(map(type, value.values())):
            memo[id(value)] = made = value.copy()
            return made
        memo[id(value)] = made = {}
        for key, each in value.items():
            made[deep_copy(key, memo)] = deep_copy(each, memo)
    elif _ATOMS.issuperset(map(type, value)):
        memo[id(value)] = made = value.copy()
    elif kind is list:
        memo[id(value)] = made = []
        made.extend([deep_copy(each, memo) for each in value])
    else:
        return deepcopy(value, memo)
    return made
