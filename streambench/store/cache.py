"""A cache in memory above an engine, for entries that are read or written often."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, Final

from streambench.store.engine import Batches, Entries, Keys, StoreEngine, Times, Values
from streambench.store.layer import Layer


class _Missing:
    pass


_MISSING: Final = _Missing()


class CachedEngine(Layer):
    """The ``size`` entries used last, with what of them is not yet written to the engine below.

    Reading sees what was written, always. Changes are written ``batch`` keys at a time, each with its last
    value only, in the order of their last change. They are also written before anything that looks at the
    engine below: a range, a snapshot, a flush, a mark.

    It holds bytes, unlike Samza's cache of objects: so a value that the user has got, and changes, changes no
    state.
    """

    def __init__(self, engine: StoreEngine, size: int, batch: int) -> None:
        super().__init__(engine)
        self._size = size
        self._batch = batch
        self._entries: OrderedDict[bytes, bytes | None] = OrderedDict()
        self._changed: dict[bytes, None] = {}  # the one changed last is last

    def get(self, key: bytes) -> bytes | None:
        entries = self._entries
        value = entries.get(key, _MISSING)
        if isinstance(value, _Missing):
            value = self.engine.get(key)
            entries[key] = value
            if len(entries) > self._size:
                self._evict()
        else:
            entries.move_to_end(key)
        return value

    def put(self, key: bytes, value: bytes) -> None:
        self._set(key, value)

    def delete(self, key: bytes) -> None:
        self._set(key, None)

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        self._write_down()
        self._entries.clear()
        self.engine.load(keys, values, written)

    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        self._write_down()
        return self.engine.range(from_, to)

    def __len__(self) -> int:
        self._write_down()
        return len(self.engine)

    def batches(self) -> Batches:
        self._write_down()
        return self.engine.batches()

    def snapshot(self) -> Any:
        self._write_down()
        return self.engine.snapshot()

    def restore(self, snapshot: Any) -> None:
        # No undo leads to values that no snapshot has seen.
        self._forget()
        self.engine.restore(snapshot)

    def flush(self) -> None:
        self._write_down()
        self.engine.flush()

    def clear(self) -> None:
        self._forget()
        self.engine.clear()

    def close(self) -> None:
        """Drop what is not written down yet: it is not committed."""
        self._forget()
        self.engine.close()

    def mark(self, marker: bytes) -> None:
        self._write_down()
        self.engine.mark(marker)

    def _set(self, key: bytes, value: bytes | None) -> None:
        entries, changed = self._entries, self._changed
        entries[key] = value
        entries.move_to_end(key)
        changed.pop(key, None)
        changed[key] = None
        if len(changed) >= self._batch:
            self._write_down()
        if len(entries) > self._size:
            self._evict()

    def _evict(self) -> None:
        """Drop what was not used for the longest time; where that is a change, all changes are written
        down."""
        if next(iter(self._entries)) in self._changed:
            self._write_down()
        self._entries.popitem(last=False)

    def _write_down(self) -> None:
        changed = self._changed
        if changed:
            keys = list(changed)
            self.engine.load(keys, [self._entries[key] for key in keys])
            changed.clear()

    def _forget(self) -> None:
        self._changed.clear()
        self._entries.clear()
