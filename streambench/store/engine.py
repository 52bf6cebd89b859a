"""The contract of a store engine: what keeps the bytes of one store of one task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any

from streambench.config import Config


class StoreEngine(ABC):
    """A sorted map from bytes to bytes. Serdes, checks and the changelog are above it; threads never come near it."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None where it has none."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""

    @abstractmethod
    def delete(self, key: bytes) -> None:
        """Remove a key, if it is there."""

    @abstractmethod
    def range(self, start: bytes | None, end: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries from ``start`` (inclusive) to ``end`` (exclusive) in the order of their bytes, as they are at the call; None: no
        bound."""

    @abstractmethod
    def load(self, entries: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Apply many entries at once, in order; a value of None deletes. For restores."""

    @abstractmethod
    def snapshot(self) -> Any:
        """What ``restore`` takes to bring the present contents back."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Bring back the contents as they were when ``snapshot`` was taken."""

    @abstractmethod
    def __len__(self) -> int:
        """How many entries there are."""

    def flush(self) -> None:  # noqa: B027 - an engine in memory has nothing to flush
        """Write what is kept back."""

    def close(self) -> None:  # noqa: B027 - an engine in memory has nothing to close
        """Let go of files; may be called more than once."""


class StoreEngineFactory(ABC):
    """Makes the engines of a store; ``stores.<n>.factory`` names it."""

    @abstractmethod
    def get_engine(self, store: str, task: str, config: Config) -> StoreEngine:
        """A new, empty engine for one task's part of a store."""
