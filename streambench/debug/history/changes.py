"""Changes of objects, taken back in place: far quicker than a copy where few of many objects have changed.

The objects are those that are reached from some roots. Of each its contents are kept as they are: not copies,
but references. Later they are compared, and only those objects are kept on that have other contents then."""

from __future__ import annotations

import copyreg
import logging
import random
import sys
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum
from functools import partial
from operator import is_
from pathlib import PosixPath, PurePosixPath
from re import Pattern
from types import BuiltinFunctionType, FunctionType, MethodType, SimpleNamespace
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import force_setattr

from streambench.debug.history.copies import is_of_attributes, without_collector

_ATOMS: frozenset[type] = frozenset(
    {
        int, float, complex, bool, str, bytes, type(None), type(...), type(NotImplemented), range, type,
        slice, FunctionType, BuiltinFunctionType, date, datetime, time, timedelta, timezone, Decimal, Pattern,
        PosixPath, PurePosixPath, logging.Logger,
    }
)  # fmt: skip
"""Types of values that never change, or that a copy of a task's memory shares with the task."""

_MISSING: Any = object()

_MOST_FOLLOWING = 8
"""Contents that are made of former ones in a row: these hold objects that are not reached any more."""


class _Kind(NamedTuple):
    """A kind of objects. ``contents`` returns those of an object, in the order in which ``restore`` takes
    them back; ``values`` those of them that may be objects which change."""

    contents: Callable[[Any], Any]
    is_same: Callable[[Any, Any], bool]
    restore: Callable[[Any, Any], object]
    values: Callable[[Any], Iterable[Any]]


class Contents:
    """The contents of all objects that are reached from ``roots``. ``is_known``: False where there are some
    that cannot be taken back, so that nothing is.

    ``outside``: objects that are left as they are, with all that is in them. ``forbidden``: objects that must
    not be touched: where one of them is reached, nothing is known."""

    @without_collector
    def __init__(
        self, roots: Iterable[Any], outside: Iterable[Any] = (), forbidden: Iterable[Any] = ()
    ) -> None:
        # One beside the other: a tuple for each object would take the collector of garbage long.
        self._objects: list[Any] = []
        self._of_kinds: list[_Kind] = []
        self._contents: list[Any] = []
        self._is_whole = True
        self._follows = 0
        self.is_known = self._keep(roots, set(map(id, outside)), set(map(id, forbidden)))

    @without_collector
    def following(
        self, roots: Iterable[Any], outside: Iterable[Any] = (), forbidden: Iterable[Any] = ()
    ) -> Contents:
        """The contents as they are now. Those here keep only the objects that have changed, as by
        ``keep_changed``.

        Only what is in changed objects is collected again."""
        if not self._is_whole or self._follows == _MOST_FOLLOWING:
            self.keep_changed()
            return Contents(roots, outside, forbidden)
        now = Contents(())
        now._follows = self._follows + 1
        now._objects, now._of_kinds = self._objects.copy(), self._of_kinds.copy()
        now._contents, left = self._contents.copy(), list(roots)
        for index in self._keep_changed():
            value, kind = now._objects[index], now._of_kinds[index]
            now._contents[index] = contents = kind.contents(value)
            left.extend(each for each in kind.values(contents) if type(each) not in _ATOMS)
        seen = {*map(id, now._objects), *map(id, outside)}
        now.is_known = self.is_known and now._keep(left, seen, set(map(id, forbidden)))
        return now

    def _keep(self, roots: Iterable[Any], seen: set[int], forbidden: set[int]) -> bool:
        # What is reached is kept by the contents that hold it, so that identities stay.
        left, kinds, atoms = list(roots), dict(_KINDS), _ATOMS
        objects, of_kinds, all_contents = self._objects, self._of_kinds, self._contents
        while left:
            value = left.pop()
            number = id(value)
            if number in seen:
                continue
            if number in forbidden:
                return False
            seen.add(number)
            kind = kinds.get(type(value)) or _new_kind(type(value))
            if kind is None:
                return False
            kinds[type(value)] = kind
            contents = kind.contents(value)
            objects.append(value)
            of_kinds.append(kind)
            all_contents.append(contents)
            for each in kind.values(contents):
                if type(each) not in atoms:
                    left.append(each)
        return True

    @without_collector
    def keep_changed(self) -> None:
        """Keep only the objects whose contents have changed."""
        self._keep_changed()

    def _keep_changed(self) -> list[int]:
        """Keep only these objects; the indexes that they had."""
        every = zip(self._objects, self._of_kinds, self._contents, strict=True)
        changed = [
            index for index, (value, kind, former) in enumerate(every) if not kind.is_same(value, former)
        ]
        self._is_whole = False
        self._objects = [self._objects[index] for index in changed]
        self._of_kinds = [self._of_kinds[index] for index in changed]
        self._contents = [self._contents[index] for index in changed]
        return changed

    @property
    def size(self) -> int:
        """The memory that it takes, in bytes, roughly."""
        return sum(100 + sys.getsizeof(each) for each in self._contents)

    def restore(self) -> None:
        """Give the objects that are kept their former contents."""
        for value, kind, contents in zip(self._objects, self._of_kinds, self._contents, strict=True):
            kind.restore(value, contents)


def _is_same_dict(value: Mapping[Any, Any], former: Mapping[Any, Any]) -> bool:
    return (
        len(value) == len(former)
        and all(map(is_, value.values(), former.values()))
        and all(map(is_, value, former))
    )


def _is_same_list(value: Collection[Any], former: Collection[Any]) -> bool:
    return len(value) == len(former) and all(map(is_, value, former))


def _is_same_set(value: set[Any], former: set[Any]) -> bool:
    return len(value) == len(former) and set(map(id, value)) == set(map(id, former))


def _restore_dict(value: Any, contents: Any) -> None:
    value.clear()
    value.update(contents)


def _restore_list(value: Any, contents: Any) -> None:
    value[:] = contents


def _restore_deque(value: Any, contents: Any) -> None:
    value.clear()
    value.extend(contents)


def _in_dict(contents: Mapping[Any, Any]) -> Iterable[Any]:
    values = contents.values()
    return values if _ATOMS.issuperset(map(type, contents)) else [*contents, *values]


def _nothing(contents: Any) -> Iterable[Any]:
    return ()


def _itself(contents: Any) -> Iterable[Any]:
    return contents  # type: ignore[no-any-return]


def _always_same(value: Any, contents: Any) -> bool:
    return True


def _immutable(values: Callable[[Any], Iterable[Any]]) -> _Kind:
    """Objects that do not change themselves; what is in them may."""
    return _Kind(values, _always_same, lambda value, contents: None, _itself)


_DICT = _Kind(dict.copy, _is_same_dict, _restore_dict, _in_dict)
_COPIED_DICT = _Kind(lambda value: dict(value.items()), _is_same_dict, _restore_dict, _in_dict)
_LIST = _Kind(list.copy, _is_same_list, _restore_list, _itself)

_KINDS: dict[type, _Kind] = {
    dict: _DICT,
    list: _LIST,
    set: _Kind(set.copy, _is_same_set, _restore_dict, _itself),
    tuple: _immutable(_itself),
    frozenset: _immutable(_itself),
    OrderedDict: _COPIED_DICT,
    Counter: _COPIED_DICT,
    defaultdict: _COPIED_DICT,
    deque: _Kind(list, _is_same_list, _restore_deque, _itself),
    bytearray: _Kind(bytes, lambda value, former: value == former, _restore_list, _nothing),
    array: _Kind(
        lambda value: value[:], lambda value, former: bool(value == former), _restore_list, _nothing
    ),
    random.Random: _Kind(
        random.Random.getstate,
        lambda value, former: value.getstate() == former,
        random.Random.setstate,
        _nothing,
    ),
    MethodType: _immutable(lambda value: (value.__self__,)),
    partial: _immutable(lambda value: (value.func, value.args, value.keywords)),
}


def _new_kind(kind: type) -> _Kind | None:
    """The kind of objects of a class; None where they cannot be taken back."""
    if kind in _ATOMS or issubclass(kind, (type, Enum)):
        return _immutable(lambda value: ())
    if issubclass(kind, Struct):
        return _of_names(kind, kind.__struct_fields__)
    if kind is SimpleNamespace:
        return _of_names(kind, ())
    if is_of_attributes(kind):
        return _of_names(kind, copyreg._slotnames(kind))  # type: ignore[attr-defined]
    return _immutable(_itself) if issubclass(kind, tuple) and hasattr(kind, "_fields") else None


def _of_names(kind: type, slots: Collection[str]) -> _Kind:
    """Objects with attributes: those in a ``__dict__``, where they have one, and these."""
    if not slots and not kind.__dictoffset__:
        return _immutable(_nothing)
    if not slots:
        return _Kind(
            lambda value: value.__dict__.copy(),
            lambda value, former: _is_same_dict(value.__dict__, former),
            lambda value, former: _restore_dict(value.__dict__, former),
            _in_dict,
        )
    has_dict = bool(kind.__dictoffset__)
    set_slot = force_setattr if issubclass(kind, Struct) else object.__setattr__

    def contents(value: Any) -> dict[str, Any]:
        of_slots = {name: getattr(value, name, _MISSING) for name in slots}
        return of_slots | value.__dict__ if has_dict else of_slots

    def restore(value: Any, former: Mapping[str, Any]) -> None:
        for name in slots:
            if former[name] is _MISSING:
                if hasattr(value, name):
                    object.__delattr__(value, name)
            elif getattr(value, name, _MISSING) is not former[name]:
                set_slot(value, name, former[name])
        if has_dict:
            _restore_dict(value.__dict__, {name: each for name, each in former.items() if name not in slots})

    return _Kind(contents, lambda value, former: _is_same_dict(contents(value), former), restore, _in_dict)
