"""Entries that expire a while after they were written."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import islice
from struct import Struct

from streambench.store.engine import Entries, Keys, StoreEngine, Times, Values, close_entries
from streambench.store.layer import Layer

_STAMP = Struct(">q")
STAMP_BYTES = _STAMP.size
"""The length of the time that stands before each value."""

_AT_LEAST = 1_000
_pack, _unpack_from = _STAMP.pack, _STAMP.unpack_from


class ExpiringEngine(Layer):
    """An engine that puts before each value when it was written, and hides what was written ``ttl_ms`` ago or
    longer.

    ``now_ms`` returns the time. Reading an entry does not make it younger. What is hidden is removed little
    by little by ``sweep``."""

    def __init__(self, engine: StoreEngine, ttl_ms: int, now_ms: Callable[[], int]) -> None:
        super().__init__(engine)
        self._ttl_ms = ttl_ms
        self._now_ms = now_ms
        self._puts = 0
        self._swept_to: bytes | None = None

    def get(self, key: bytes) -> bytes | None:
        data = self.engine.get(key)
        if data is None or _unpack_from(data)[0] <= self._now_ms() - self._ttl_ms:
            return None
        return data[STAMP_BYTES:]

    def put(self, key: bytes, value: bytes) -> None:
        self._puts += 1
        self.engine.put(key, _pack(self._now_ms()) + value)

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        """An entry without a known time of writing counts as written now."""
        now = self._now_ms()
        times: Iterable[int | None] = [now] * len(keys) if written is None else written
        # A deletion has no time.
        stamped = [
            None if value is None else _pack(now if time is None else time) + value
            for value, time in zip(values, times, strict=True)
        ]
        self.engine.load(keys, stamped)

    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        return self._living(self.engine.range(from_, to), self._now_ms() - self._ttl_ms)

    def __len__(self) -> int:
        return sum(1 for _ in self.range(None, None))

    def written(self, key: bytes) -> int | None:
        """When an entry was written, in milliseconds; None where there is none, or none any more."""
        time = self.stamp(key)
        return None if time is None or time <= self._now_ms() - self._ttl_ms else time

    def stamp(self, key: bytes) -> int | None:
        """The same, also of an entry that is hidden by now."""
        data = self.engine.get(key)
        return None if data is None else int(_unpack_from(data)[0])

    def sweep(self) -> list[bytes]:
        """Remove some of what has expired; the keys.

        Each call looks at the entries that follow those of the call before, at twice as many as were put
        meanwhile. So it reaches all of them, however fast new ones are put."""
        most = max(_AT_LEAST, 2 * self._puts)
        self._puts = 0
        horizon = self._now_ms() - self._ttl_ms
        entries = self.engine.range(self._swept_to, None)
        looked_at = list(islice(entries, most))
        close_entries(entries)
        self._swept_to = looked_at[-1][0] if len(looked_at) == most else None
        expired = [key for key, data in looked_at if _unpack_from(data)[0] <= horizon]
        if expired:
            self.engine.load(expired, [None] * len(expired))
        return expired

    def _living(self, entries: Entries, horizon: int) -> Entries:
        try:
            for key, data in entries:
                if _unpack_from(data)[0] > horizon:
                    yield key, data[STAMP_BYTES:]
        finally:
            close_entries(entries)


def raw_engine(engine: StoreEngine) -> StoreEngine:
    """The engine that holds entries as they are stored: with their times, where they expire."""
    return engine.engine if isinstance(engine, ExpiringEngine) else engine
