"""A store engine in memory."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator

from streambench.config import Config
from streambench.store.engine import StoreEngine, StoreEngineFactory


class MemoryEngine(StoreEngine):
    """A dict, whose keys are sorted when somebody asks for a range and not before."""

    def __init__(self) -> None:
        self._entries: dict[bytes, bytes] = {}
        self._sorted: list[bytes] | None = None
        self.get = self._entries.get  # type: ignore[method-assign, assignment]

    def get(self, key: bytes) -> bytes | None:
        return self._entries.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        if key not in self._entries:
            self._sorted = None
        self._entries[key] = value

    def delete(self, key: bytes) -> None:
        if self._entries.pop(key, None) is not None:
            self._sorted = None

    def range(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        if self._sorted is None:
            self._sorted = sorted(self._entries)
        keys = self._sorted
        first = 0 if start is None else bisect_left(keys, start)
        last = len(keys) if end is None else bisect_left(keys, end)
        return iter([(key, self._entries[key]) for key in keys[first:last]])

    def load(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        self._sorted = None
        for key, value in entries:
            if value is None:
                self._entries.pop(key, None)
            else:
                self._entries[key] = value

    def snapshot(self) -> dict[bytes, bytes]:
        return dict(self._entries)

    def restore(self, snapshot: dict[bytes, bytes]) -> None:
        self._sorted = None
        self._entries.clear()
        self._entries.update(snapshot)

    def __len__(self) -> int:
        return len(self._entries)


class MemoryEngineFactory(StoreEngineFactory):
    """``stores.<n>.factory=memory``."""

    def get_engine(self, store: str, task: str, config: Config) -> MemoryEngine:
        return MemoryEngine()
