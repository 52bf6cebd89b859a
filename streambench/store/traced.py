"""An engine whose writes are traced with what they overwrite."""

from __future__ import annotations

import logging
from typing import Any, Protocol

from streambench.store.engine import Batches, Keys, StoreEngine, Times, Values
from streambench.store.expiry import raw_engine
from streambench.store.layer import Layer
from streambench.store.memory import MemoryEngine

log = logging.getLogger(__name__)

_MOST_KEPT = 128 << 20


class WriteLog(Protocol):
    """Takes traced writes, if ``active``. ``traced`` gets five entries for each. These are its position,
    which ``at()`` returns, the number of the store, the key, its former value and its new one. None stands
    for no value."""

    @property
    def active(self) -> bool: ...

    @property
    def traced(self) -> list[Any]: ...

    def at(self) -> Any: ...


class TracedEngine(Layer):
    """Traces each write. It stands below the layer that knows the age of entries: what is traced can be
    written back as it is.

    ``engine``: the engine below, and after ``close`` a copy of its entries in memory. ``is_kept``: false
    where they were too large for that, more than 128 MB."""

    def __init__(self, engine: StoreEngine, number: int, log: WriteLog) -> None:
        super().__init__(engine)
        self.is_kept = True
        self._is_open = True
        self._log = log
        self._number = number
        below, remove, extend, get, at = engine.put, engine.delete, log.traced.extend, engine.get, log.at

        # Closures: they run with every write, and have all that they need at hand.
        def put(key: bytes, value: bytes) -> None:
            if log.active:
                extend((at(), number, key, get(key), value))
            below(key, value)

        def delete(key: bytes) -> None:
            if log.active:
                extend((at(), number, key, get(key), None))
            remove(key)

        # The engine's own: reading costs nothing more.
        self.get = get  # type: ignore[method-assign]
        self.put = put  # type: ignore[method-assign]
        self.delete = delete  # type: ignore[method-assign]

    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        if self._log.active:
            for key, value in zip(keys, values, strict=True):
                self._note(key, self.get(key), value)
        self.engine.load(keys, values, written)

    def _note(self, key: bytes, former: bytes | None, value: bytes | None) -> None:
        self._log.traced.extend((self._log.at(), self._number, key, former, value))

    def batches(self) -> Batches:
        return self.engine.batches()

    def restore(self, snapshot: Any) -> None:
        before = dict(self.engine.range(None, None))
        self.engine.restore(snapshot)
        after = dict(self.engine.range(None, None))
        for key in before.keys() | after.keys():
            if before.get(key) != after.get(key):
                self._note(key, before.get(key), after.get(key))

    def close(self) -> None:
        """Close the engine; its last entries stay to be looked at."""
        if not self._is_open:
            return
        self._is_open = False
        open_engine = self.engine
        self.engine = kept = MemoryEngine()
        self.get = kept.get  # type: ignore[method-assign]
        try:
            self.is_kept = _copy(open_engine, kept)
        except Exception:  # the engine may be what has failed
            self.is_kept = False
            log.debug("the entries of a closed store cannot be kept", exc_info=True)
        finally:
            open_engine.close()


def traced_engine(engine: StoreEngine) -> TracedEngine:
    """The traced layer of an engine, which holds entries as they are written."""
    found = raw_engine(engine)
    assert isinstance(found, TracedEngine), "the store is not traced"
    return found


def _copy(engine: StoreEngine, to: StoreEngine) -> bool:
    """Copy the entries of an engine; False where they are too large, and none is copied."""
    size = 0
    for keys, values in engine.batches():
        size += sum(map(len, keys)) + sum(map(len, values))
        if size > _MOST_KEPT:
            to.close()
            return False
        to.load(keys, values)
    return True
