"""The undo of a failed callback's writes to a store."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from streambench.store.engine import StoreEngine
from streambench.store.expiry import ExpiringEngine

_NOTHING: Any = object()


class InputOwner(Protocol):
    """Knows the message that is processed at present."""

    @property
    def input(self) -> object: ...


class Undo:
    """Notes what each write overwrites, until another callback begins: ``put`` and ``delete`` stand in for
    those of the engine.

    A new input begins another callback by itself, so that nothing is called per message. Where the input
    stays the same (a window after the message, say) ``begin`` says so. ``changed`` are the keys that the
    changelog is to learn of, which it takes back, too.
    """

    __slots__ = (
        "_changed",
        "_count",
        "_delete",
        "_engine",
        "_expiring",
        "_former",
        "_input",
        "_owner",
        "_put",
    )

    def __init__(
        self, engine: StoreEngine, owner: InputOwner, changed: Callable[[], dict[bytes, None]]
    ) -> None:
        self._engine = engine
        self._expiring = engine if isinstance(engine, ExpiringEngine) else None
        self._put, self._delete = engine.put, engine.delete
        self._owner = owner
        self._changed = changed
        self._input: Any = _NOTHING
        self._former: dict[bytes, tuple[bytes | None, int | None]] = {}
        self._count = 0

    def begin(self) -> None:
        """Another callback begins."""
        self._input = self._owner.input
        self._former = {}
        self._count = len(self._changed())

    def put(self, key: bytes, value: bytes) -> None:
        """Put, after a note of the former value."""
        self._note(key)
        self._put(key, value)

    def delete(self, key: bytes) -> None:
        """Delete, after a note of the former value."""
        self._note(key)
        self._delete(key)

    def overwritten(self) -> list[bytes]:
        """The keys that the callback of the present input has written."""
        return list(self._former) if self._owner.input is self._input else []

    def take_back(self) -> None:
        """Bring back what the callback of the present input has overwritten."""
        if self._owner.input is not self._input:
            return  # it has not written anything
        former, self._former = self._former, {}
        changed = self._changed()
        # Until it is drained a dict of changes only grows, at its end.
        while len(changed) > self._count:
            changed.popitem()
        for key, (value, written) in former.items():
            if value is None:
                self._delete(key)
                if written is not None:
                    changed[key] = None  # it had expired, of which the changelog has not heard yet
            elif self._expiring is None:
                self._put(key, value)
            else:
                self._engine.load([key], [value], [written])

    def _note(self, key: bytes) -> None:
        if self._owner.input is not self._input:
            self.begin()
        if key not in self._former:
            written = None if self._expiring is None else self._expiring.stamp(key)
            self._former[key] = (self._engine.get(key), written)
