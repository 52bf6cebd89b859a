"""State in this process's memory."""

from __future__ import annotations

import weakref
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Any

from streambench.config import Config
from streambench.errors import StoreError
from streambench.store.engine import StoreEngine, StoreEngineFactory

_FEW = 16


class _Moment:
    """A state in the past, told backwards: what keys had as values that were changed since, up to the next moment.

    Moments are linked from older to newer ones, so that a write has to be noted in the newest only; and nothing but the holder of a
    snapshot keeps a moment alive, so that nothing is noted that nobody can ask for.
    """

    __slots__ = ("__weakref__", "engine", "former", "next")

    def __init__(self, engine: MemoryEngine | None = None) -> None:
        self.engine = engine
        self.former: dict[bytes, bytes | None] = {}
        self.next: _Moment | None = None

    def value(self, key: bytes, now: bytes | None) -> bytes | None:
        """The value of a key at this moment, ``now`` being the present one."""
        moment: _Moment | None = self
        while moment is not None:
            if key in moment.former:
                return moment.former[key]
            moment = moment.next
        return now

    def changes(self) -> dict[bytes, bytes | None]:
        """The values at this moment of all keys that were changed since."""
        changes: dict[bytes, bytes | None] = {}
        moment: _Moment | None = self
        while moment is not None:
            for key, value in moment.former.items():
                changes.setdefault(key, value)
            moment = moment.next
        return changes


_NO_MOMENT = weakref.ref(_Moment())


class MemoryEngine(StoreEngine):
    """A dict. The order of the keys is established when somebody asks for it, from the order known before and what has changed."""

    def __init__(self) -> None:
        self._data: dict[bytes, bytes] = {}
        self._ordered: list[bytes] = []
        self._moved: dict[bytes, None] = {}  # keys that came or went since _ordered was in order
        self._newest = _NO_MOMENT
        self.get = self._data.get  # type: ignore[method-assign, assignment] # the dict's own: the one call that must be quick

    def get(self, key: bytes) -> bytes | None:
        return self._data.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        data = self._data
        moment = self._newest()
        if moment is not None and key not in moment.former:
            moment.former[key] = data.get(key)
        if key not in data:
            self._moved[key] = None
        data[key] = value

    def delete(self, key: bytes) -> None:
        if key in self._data:
            moment = self._newest()
            former = self._data.pop(key)
            if moment is not None:
                moment.former.setdefault(key, former)
            self._moved[key] = None

    def load(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        if self._newest() is None and None not in values:
            self._moved.update(dict.fromkeys(set(keys) - self._data.keys()))
            self._data.update(zip(keys, values, strict=True))  # type: ignore[arg-type]
            return
        for key, value in zip(keys, values, strict=True):
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)

    def range(self, from_: bytes | None, to: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        keys = self._in_order()
        first = 0 if from_ is None else bisect_left(keys, from_)
        last = len(keys) if to is None else bisect_left(keys, to)
        return self._entries(keys[first:last], self._moment())

    def __len__(self) -> int:
        return len(self._data)

    def _entries(self, keys: list[bytes], moment: _Moment) -> Iterator[tuple[bytes, bytes]]:
        data = self._data
        for key in keys:
            value = data.get(key) if not moment.former and moment.next is None else moment.value(key, data.get(key))
            assert value is not None
            yield key, value

    def _in_order(self) -> list[bytes]:
        keys, data, moved = self._ordered, self._data, self._moved
        if len(moved) <= _FEW:
            for key in moved:
                at = bisect_left(keys, key)
                was_there = at < len(keys) and keys[at] == key
                if key in data and not was_there:
                    keys.insert(at, key)
                elif was_there and key not in data:
                    del keys[at]
        else:
            kept = [key for key in keys if key not in moved] if keys else []
            # Two ordered runs, one behind the other, are what sort() is quickest with.
            kept += sorted(key for key in moved if key in data)
            kept.sort()
            self._ordered = keys = kept
        moved.clear()
        return keys

    def snapshot(self) -> Any:
        return self._moment()

    def _moment(self) -> _Moment:
        newest = self._newest()
        if newest is not None and not newest.former:
            return newest
        moment = _Moment(self)
        if newest is not None:
            newest.next = moment
        self._newest = weakref.ref(moment)
        return moment

    def restore(self, snapshot: Any) -> None:
        if not isinstance(snapshot, _Moment) or snapshot.engine is not self:
            raise StoreError("this is no snapshot of this store")
        changes = snapshot.changes()
        self.load(list(changes), list(changes.values()))

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.__init__()  # type: ignore[misc]


class MemoryEngineFactory(StoreEngineFactory):
    """``stores.<n>.factory=memory``."""

    def get_engine(self, store: str, task: str, config: Config) -> MemoryEngine:
        return MemoryEngine()
