"""Values that a task's code shares with others: globals that it uses, and attributes of its class. Code that
runs again to show the past may change them once more."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from types import FunctionType
from typing import Any

_PLAIN = (int, float, complex, str, bytes, tuple, frozenset, type(None))
_LARGE = (dict, list, set, bytearray)
_MOST_ENTRIES = 10_000
_MISSING: Any = object()


class SharedValues:
    """The shared values of a task's code as they are now; those that are large or no plain data are left
    out."""

    def __init__(self, factory: Any) -> None:
        self._factory = factory
        self._before = {name: _copy(value) for name, value in _values(factory)}

    def changed(self) -> list[str]:
        """The names of the values that have changed since."""
        now = dict(_values(self._factory))
        return [
            name
            for name, before in self._before.items()
            if before is not _MISSING and not _is_equal(before, now.get(name, _MISSING))
        ]


def shared_objects(factory: Any) -> list[Any]:
    """The objects that a task's code shares with others, and that may change."""
    return [value for _, value in _values(factory) if isinstance(value, _LARGE)]


def _values(factory: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(factory, type):
        for name, value in inspect.getmembers_static(factory):
            if not name.startswith("__") and isinstance(value, (*_PLAIN, *_LARGE)):
                yield f"{factory.__name__}.{name}", value
    seen: set[FunctionType] = set()
    left = list(_functions(factory))
    while left:
        function = left.pop()
        if function in seen:
            continue
        seen.add(function)
        for name, value in _used(function):
            if isinstance(value, FunctionType) and value.__module__ == function.__module__:
                left.append(value)
            elif isinstance(value, (*_PLAIN, *_LARGE)):
                yield f"the global {name}", value


def _used(function: FunctionType) -> Iterator[tuple[str, Any]]:
    """Yield the names that a function has from outside, with their values: globals, and those of a cell."""
    for name in function.__code__.co_names:
        yield name, function.__globals__.get(name, _MISSING)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with suppress(ValueError):  # it is bound later, or not any more
            yield name, cell.cell_contents


def _functions(factory: Any) -> Iterator[FunctionType]:
    members = (
        [value for _, value in inspect.getmembers_static(factory)] if isinstance(factory, type) else [factory]
    )
    for value in members:
        function = inspect.unwrap(getattr(value, "__func__", value)) if callable(value) else value
        if isinstance(function, FunctionType):
            yield function


def _copy(value: Any) -> Any:
    if isinstance(value, _LARGE):
        if len(value) > _MOST_ENTRIES:
            return _MISSING
        try:
            return deepcopy(value)
        except Exception:
            return _MISSING
    return value


def _is_equal(one: Any, other: Any) -> bool:
    try:
        return one is other or bool(one == other)
    except Exception:
        return True  # what cannot be compared is not called changed
