"""Deep copies of plain data, fast, equal to those of ``copy.deepcopy``.

Large containers of numbers and texts are copied at once, and objects of plain classes by their attributes."""

from __future__ import annotations

import copyreg
import functools
import gc
from collections.abc import Callable
from copy import deepcopy
from typing import Any, ParamSpec, TypeVar

_POINTER = 8
# Their values never change, so that a copy may share them.
_ATOMS = frozenset({int, float, complex, bool, str, bytes, type(None)})

_P = ParamSpec("_P")
_R = TypeVar("_R")


def without_collector(function: Callable[_P, _R]) -> Callable[_P, _R]:
    """Disable the garbage collector in a function that makes many objects and no garbage: it would traverse
    all of them many times."""

    @functools.wraps(function)
    def call(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        was_enabled = gc.isenabled()
        gc.disable()
        try:
            return function(*args, **kwargs)
        finally:
            if was_enabled:
                gc.enable()

    return call


def deep_copy(value: Any, memo: dict[Any, Any]) -> Any:
    """A deep copy. ``memo``: the copies so far, by the ids of their originals, as for ``copy.deepcopy``; it
    keeps no original alive. It also has the classes met so far, and whether they are plain."""
    kind = type(value)
    if kind in _ATOMS:
        return value
    if kind is not dict and kind is not list and kind is not set:
        is_plain = memo.get(kind)
        if is_plain is None:
            memo[kind] = is_plain = copies_by_attributes(kind)
        return _copied_object(kind, value, memo) if is_plain else deepcopy(value, memo)
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


def _copied_object(kind: type, value: Any, memo: dict[Any, Any]) -> Any:
    known = memo.get(id(value), memo)
    if known is not memo:
        return known
    memo[id(value)] = made = kind.__new__(kind)  # type: ignore[call-overload]
    attributes = value.__dict__
    if _ATOMS.issuperset(map(type, attributes.values())):
        made.__dict__.update(attributes)
    else:
        made.__dict__.update({name: deep_copy(each, memo) for name, each in attributes.items()})
    return made


def copies_by_attributes(kind: type) -> bool:
    """True where ``copy.deepcopy`` makes an object of a class without arguments, with its attributes."""
    return (
        bool(kind.__dictoffset__)
        and is_of_attributes(kind)
        and not copyreg._slotnames(kind)  # type: ignore[attr-defined]
        and not any(hasattr(kind, name) for name in ("__setstate__", "__getnewargs__", "__getnewargs_ex__"))
        and getattr(kind, "__getstate__") is getattr(object, "__getstate__")  # noqa: B009
    )


def is_of_attributes(kind: type) -> bool:
    """True where the attributes are all that objects of a class have, and all that a copy is made of. A copy
    by other means may be the object itself."""
    slots = len(copyreg._slotnames(kind))  # type: ignore[attr-defined]
    more = bool(kind.__dictoffset__) + bool(kind.__weakrefoffset__) + slots
    return (
        kind.__itemsize__ == 0
        and kind.__basicsize__ <= object.__basicsize__ + _POINTER * more
        and kind not in copyreg.dispatch_table
        and not hasattr(kind, "__deepcopy__")
        and getattr(kind, "__reduce_ex__") is getattr(object, "__reduce_ex__")  # noqa: B009
        and getattr(kind, "__reduce__") is getattr(object, "__reduce__")  # noqa: B009
    )
