"""An engine above another one that it never writes to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambench.errors import StoreError
from streambench.store.engine import Entries, Keys, StoreEngine, Times, Values, close_entries


class OverlayEngine(StoreEngine):
    """``below`` with other values for some keys: first those of ``values`` (None: no value), then what was
    written here. Neither ``below`` nor ``values`` is changed. ``below`` must not change either."""

    in_memory = True

    def __init__(self, below: StoreEngine, values: Mapping[bytes, bytes | None]) -> None:
        self._below = below
        self._values = values
        self._own: dict[bytes, bytes | None] = {}

    def reset(self, values: Mapping[bytes, bytes | None]) -> None:
        """Drop what was written here, and put these values above ``below``."""
        self._values, self._own = values, {}

    def changed(self) -> dict[bytes, bytes | None]:
        """The values that stand above ``below``."""
        return {**self._values, **self._own}

    def get(self, key: bytes) -> bytes | None:
        if key in self._own:
            return self._own[key]
        if key in self._values:
            return self._values[key]
        return self._below.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self._own[key] = value

    def delete(self, key: bytes) -> None:
        self._own[key] = None

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        self._own.update(zip(keys, values, strict=True))

    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        changed = self.changed()
        keys = sorted(key for key in changed if (from_ is None or key >= from_) and (to is None or key < to))
        return self._merged(self._below.range(from_, to), keys, changed)

    def __len__(self) -> int:
        return sum(1 for _ in self.range(None, None))

    def snapshot(self) -> Any:
        return self, dict(self._own)

    def restore(self, snapshot: Any) -> None:
        if not isinstance(snapshot, tuple) or snapshot[0] is not self:
            raise StoreError("this is no snapshot of this store")
        self._own = dict(snapshot[1])

    def flush(self) -> None:
        pass

    def clear(self) -> None:
        self._own.update(dict.fromkeys([key for key, _ in self.range(None, None)]))

    def close(self) -> None:
        """Drop what was written here; the engine below stays open."""
        self._own = {}

    def _merged(
        self,
        below: Entries,
        keys: list[bytes],
        changed: Mapping[bytes, bytes | None],
    ) -> Entries:
        at = 0
        try:
            for key, value in below:
                while at < len(keys) and keys[at] < key:
                    yield from _entry(keys[at], changed[keys[at]])
                    at += 1
                if at < len(keys) and keys[at] == key:
                    yield from _entry(key, changed[key])
                    at += 1
                else:
                    yield key, value
            for key in keys[at:]:
                yield from _entry(key, changed[key])
        finally:
            close_entries(below)


def _entry(key: bytes, value: bytes | None) -> list[tuple[bytes, bytes]]:
    return [] if value is None else [(key, value)]
