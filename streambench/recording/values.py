"""Python objects as JSON and back, without a loss: numbers, text, bytes, times, and what collects them.

Objects of other classes are refused: to bring them back, code of the file would have to run."""

from __future__ import annotations

import datetime as dt
import math
from base64 import b64decode, b64encode
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec

_DEEPEST = 100
_TAG = "$"
_CHANGING = (list, dict, set, deque, bytearray)
_PLAIN = (bool, str, type(None))
_FACTORIES: dict[str, Callable[[], Any]] = {
    each.__name__: each for each in (int, float, str, list, dict, set, bool)
}
_TEXTS: dict[type, tuple[str, Callable[[Any], str], Callable[[str], Any]]] = {
    bytes: ("bytes", lambda value: b64encode(value).decode(), b64decode),
    bytearray: (
        "bytearray",
        lambda value: b64encode(value).decode(),
        lambda text: bytearray(b64decode(text)),
    ),
    float: ("float", repr, float),
    int: ("int", str, int),
    Decimal: ("decimal", str, Decimal),
    UUID: ("uuid", str, UUID),
    dt.datetime: ("datetime", dt.datetime.isoformat, dt.datetime.fromisoformat),
    dt.date: ("date", dt.date.isoformat, dt.date.fromisoformat),
    dt.time: ("time", dt.time.isoformat, dt.time.fromisoformat),
    dt.timedelta: (
        "timedelta",
        lambda value: f"{value.days} {value.seconds} {value.microseconds}",
        lambda text: dt.timedelta(*map(int, text.split())),
    ),
}
_LISTS: dict[type, tuple[str, Callable[[list[Any]], Any]]] = {
    tuple: ("tuple", tuple),
    set: ("set", set),
    frozenset: ("frozenset", frozenset),
}
_PAIRS: dict[type, tuple[str, Callable[[list[Any]], Any]]] = {
    dict: ("dict", dict),
    OrderedDict: ("ordered", OrderedDict),
    Counter: ("counter", lambda pairs: Counter(dict(pairs))),
}
_FROM_TEXT = {name: made for name, _, made in _TEXTS.values()}
_FROM_LIST = dict(_LISTS.values())
_FROM_PAIRS = dict(_PAIRS.values())


class NotPlainError(Exception):
    """An object that cannot be kept. The text names its class."""


def packed(value: Any) -> bytes:
    """The JSON of a value. Raises NotPlainError."""
    return msgspec.json.encode(_Writer(value).written(value))


def unpacked(data: bytes) -> Any:
    """The value of its JSON."""
    return _Reader().read(msgspec.json.decode(data))


class _Writer:
    """Writes one value. An object that can change and stands in several places of it is written once, as
    ``$shared``, and named in the others, as ``$same``."""

    def __init__(self, value: Any) -> None:
        self._counts: Counter[int] = Counter()
        self._numbers: dict[int, int] = {}
        self._count(value, 0)

    def written(self, value: Any) -> Any:
        if self._counts[id(value)] < 2:
            return self._once(value)
        number = self._numbers.get(id(value))
        if number is not None:
            return {_TAG + "same": number}
        number = self._numbers[id(value)] = len(self._numbers)
        return {_TAG + "shared": [number, self._once(value)]}

    def _count(self, value: Any, depth: int) -> None:
        if depth > _DEEPEST:
            raise NotPlainError("it is nested too deeply, or holds itself")
        if not isinstance(value, _CHANGING):
            if type(value) is tuple:
                for each in value:
                    self._count(each, depth + 1)
            return
        self._counts[id(value)] += 1
        if self._counts[id(value)] == 1 and not isinstance(value, bytearray):
            for each in value.values() if isinstance(value, dict) else value:
                self._count(each, depth + 1)

    def _once(self, value: Any) -> Any:
        kind = type(value)
        is_small = kind is int and -(2**53) < value < 2**53
        if kind in _PLAIN or is_small or (kind is float and math.isfinite(value)):
            return value
        written = self.written
        if kind is list:
            return [written(each) for each in value]
        if kind is dict and all(type(name) is str and not name.startswith(_TAG) for name in value):
            return {name: written(each) for name, each in value.items()}
        if kind in _TEXTS:
            name, text, _ = _TEXTS[kind]
            return {_TAG + name: text(value)}
        if kind in _LISTS:
            return {_TAG + _LISTS[kind][0]: [written(each) for each in value]}
        if kind in _PAIRS:
            return {_TAG + _PAIRS[kind][0]: self._pairs(value)}
        if kind is deque:
            return {_TAG + "deque": [value.maxlen, [written(each) for each in value]]}
        if kind is defaultdict and getattr(value.default_factory, "__name__", "") in _FACTORIES:
            return {_TAG + "defaultdict": [value.default_factory.__name__, self._pairs(value)]}
        raise NotPlainError(f"a {kind.__module__}.{kind.__qualname__}")

    def _pairs(self, value: Any) -> list[Any]:
        return [[self.written(key), self.written(each)] for key, each in value.items()]


class _Reader:
    """Reads one value."""

    def __init__(self) -> None:
        self._shared: dict[int, Any] = {}

    def read(self, value: Any) -> Any:
        if type(value) is list:
            return [self.read(each) for each in value]
        if type(value) is not dict:
            return value
        tag = next(iter(value), "")
        if len(value) != 1 or not tag.startswith(_TAG):
            return {name: self.read(each) for name, each in value.items()}
        return self._tagged(tag[1:], value[tag])

    def _tagged(self, name: str, content: Any) -> Any:
        if name == "same":
            return self._shared[content]
        if name == "shared":
            found = self._shared[content[0]] = self.read(content[1])
            return found
        if name in _FROM_TEXT:
            return _FROM_TEXT[name](content)
        if name in _FROM_LIST:
            return _FROM_LIST[name]([self.read(each) for each in content])
        if name in _FROM_PAIRS:
            return _FROM_PAIRS[name](self._pairs(content))
        if name == "deque":
            return deque((self.read(each) for each in content[1]), content[0])
        if name == "defaultdict":
            return defaultdict(_FACTORIES[content[0]], self._pairs(content[1]))
        raise NotPlainError(f"${name}, which this version does not know")

    def _pairs(self, content: list[Any]) -> list[Any]:
        return [(self.read(key), self.read(each)) for key, each in content]
