"""State in this process's memory."""

from __future__ import annotations

from bisect import bisect_left
from pathlib import Path

from streambench.config import Config
from streambench.store.engine import BATCH, Batches, Entries, Keys, StoreEngineFactory, Times, Values
from streambench.store.moments import NO_MOMENT, Moment, RewindableEngine

_FEW = 16


class MemoryEngine(RewindableEngine):
    """A dict. The order of the keys is established when it is needed, from the order known before and
    what has changed."""

    in_memory = True

    def __init__(self) -> None:
        super().__init__()
        self._data: dict[bytes, bytes] = {}
        self._ordered: list[bytes] = []
        self._moved: dict[bytes, None] = {}  # keys that came or went since _ordered was in order
        # The dict's own: the one call that must be quick.
        self.get = self._data.get  # type: ignore[method-assign, assignment]

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

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        if self._newest() is None and None not in values:
            if self._ordered:  # without an order so far, all of it is made when it is needed
                self._moved.update(dict.fromkeys(set(keys) - self._data.keys()))
            self._data.update(zip(keys, values, strict=True))  # type: ignore[arg-type]
            return
        for key, value in zip(keys, values, strict=True):
            if value is None:
                self.delete(key)
            else:
                self.put(key, value)

    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        keys = self._in_order()
        first = 0 if from_ is None else bisect_left(keys, from_)
        last = len(keys) if to is None else bisect_left(keys, to)
        return self._entries(keys[first:last], self._moment())

    def __len__(self) -> int:
        return len(self._data)

    def batches(self) -> Batches:
        data = self._data
        keys, values = list(data), list(data.values())
        for at in range(0, len(keys), BATCH):
            yield keys[at : at + BATCH], values[at : at + BATCH]

    def estimate(self) -> int:
        return len(self._data)

    def _entries(self, keys: list[bytes], moment: Moment) -> Entries:
        data = self._data
        for key in keys:
            value = data.get(key)
            if moment.former or moment.next is not None:
                value = moment.value(key, value)
            if value is None:
                return  # the store was closed meanwhile
            yield key, value

    def _in_order(self) -> list[bytes]:
        keys, data, moved = self._ordered, self._data, self._moved
        if not keys:
            self._ordered = keys = sorted(data)
        elif len(moved) <= _FEW:
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

    def flush(self) -> None:
        pass

    def clear(self) -> None:
        self.load(list(self._data), [None] * len(self._data))

    def close(self) -> None:
        self._data.clear()
        self._ordered = []
        self._moved.clear()
        self._newest = NO_MOMENT


class MemoryEngineFactory(StoreEngineFactory):
    """``stores.<n>.factory=memory``."""

    def get_engine(self, store: str, task: str, config: Config, directory: Path) -> MemoryEngine:
        return MemoryEngine()
