"""A layer: an engine above another one."""

from __future__ import annotations

from typing import Any

from streambench.store.engine import Entries, Keys, StoreEngine, Times, Values


class Layer(StoreEngine):
    """An engine above ``engine``, which does all that a subclass does not do itself."""

    def __init__(self, engine: StoreEngine) -> None:
        self.engine = engine

    @property
    def locks_files(self) -> bool:  # type: ignore[override]
        return self.engine.locks_files

    def get(self, key: bytes) -> bytes | None:
        return self.engine.get(key)

    def put(self, key: bytes, value: bytes) -> None:
        self.engine.put(key, value)

    def delete(self, key: bytes) -> None:
        self.engine.delete(key)

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        self.engine.load(keys, values, written)

    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        return self.engine.range(from_, to)

    def __len__(self) -> int:
        return len(self.engine)

    def estimate(self) -> int | None:
        return self.engine.estimate()

    def snapshot(self) -> Any:
        return self.engine.snapshot()

    def restore(self, snapshot: Any) -> None:
        self.engine.restore(snapshot)

    def flush(self) -> None:
        self.engine.flush()

    def clear(self) -> None:
        self.engine.clear()

    def close(self) -> None:
        self.engine.close()

    def mark(self, marker: bytes) -> None:
        self.engine.mark(marker)

    def marked(self) -> bytes | None:
        return self.engine.marked()
