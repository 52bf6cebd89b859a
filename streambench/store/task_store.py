"""What a task sees of its store: objects in, objects out, on its own thread."""

from __future__ import annotations

from collections.abc import Iterator
from threading import get_ident
from typing import Any, Protocol

from streambench.errors import SerdeError, StoreError, described
from streambench.serde.api import Serde
from streambench.store.engine import StoreEngine
from streambench.task import KeyValueStore


class Owner(Protocol):
    """Whose thread a store may be used on: ``ident`` as ``threading.get_ident`` has it; ``check`` raises WrongThreadError on any other."""

    ident: int

    def check(self, what: str) -> None: ...


class TaskStore(KeyValueStore):
    """One task's part of a store. The object stays the same for the life of the task; what it holds is restored in place.

    Values are turned into bytes when they are put and back when they are got, so that changing an object that was got changes nothing
    until it is
    put again. With ``changelog`` it remembers which keys were changed until ``drain``; it may be used on its ``owner``'s thread only
    (None: on any).
    """

    def __init__(
        self,
        name: str,
        engine: StoreEngine,
        key_serde: Serde,
        value_serde: Serde,
        *,
        changelog: bool,
        owner: Owner | None = None,
    ) -> None:
        self.name = name
        self.engine = engine
        self._key_serde = key_serde
        self._value_serde = value_serde
        self._changed: dict[bytes, None] = {}
        self._has_changelog = changelog
        self._owner = owner
        self._closed = False

    def get(self, key: Any) -> Any:
        value = self.engine.get(self._key(key))
        return None if value is None else self._value_serde.from_bytes(value)

    def put(self, key: Any, value: Any) -> None:
        if value is None:
            raise StoreError(f"store {self.name}: None is not a valid value for {key!r}; to remove a key use delete()")
        key_bytes = self._key(key)
        try:
            # A copy of the right size: some encoders return bytes from a buffer of 4 kB that lives as long as they do.
            data = b"%b" % self._value_serde.to_bytes(value)
        except Exception as error:
            raise SerdeError(f"store {self.name}: cannot encode the value of {key!r}: {described(error)}") from error
        self.engine.put(key_bytes, data)
        if self._has_changelog:
            self._changed[key_bytes] = None

    def delete(self, key: Any) -> None:
        key_bytes = self._key(key)
        if self.engine.get(key_bytes) is None:
            return
        self.engine.delete(key_bytes)
        if self._has_changelog:
            self._changed[key_bytes] = None

    def range(self, from_: Any, to: Any) -> Iterator[tuple[Any, Any]]:
        return self._decoded(self.engine.range(self._key(from_), self._key(to)))

    def all(self) -> Iterator[tuple[Any, Any]]:
        self._usable()
        return self._decoded(self.engine.range(None, None))

    def flush(self) -> None:
        self.engine.flush()

    def close(self) -> None:
        self._closed = True
        self.engine.close()

    def drain(self) -> list[tuple[bytes, bytes | None]]:
        """The keys changed since the last drain with their present values (None for a deleted one), in the order of their first change."""
        changed = [(key, self.engine.get(key)) for key in self._changed]
        self._changed.clear()
        return changed

    def _key(self, key: Any) -> bytes:
        self._usable()
        if key is None:
            raise StoreError(f"store {self.name}: None is not a valid key")
        try:
            return b"%b" % self._key_serde.to_bytes(key)
        except Exception as error:
            raise SerdeError(f"store {self.name}: cannot encode the key {key!r}: {described(error)}") from error

    def _usable(self) -> None:
        owner = self._owner
        if owner is not None and get_ident() != owner.ident:
            owner.check(f"the store {self.name}")
        if self._closed:
            raise StoreError(f"store {self.name} is closed: its container has stopped")

    def _decoded(self, entries: Iterator[tuple[bytes, bytes]]) -> Iterator[tuple[Any, Any]]:
        key_of, value_of = self._key_serde.from_bytes, self._value_serde.from_bytes
        return ((key_of(key), value_of(value)) for key, value in entries)
