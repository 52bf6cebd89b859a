"""The contract of a store engine: what keeps the bytes of one store of one task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

from streambench.config import Config


class StoreEngine(ABC):
    """A sorted map of bytes to bytes, for one store of one task. Keys are ordered as unsigned bytes. Used on one thread at a time.

    An engine knows nothing of serdes, changelogs or commits; ``TaskStore`` above it does. It keeps the very bytes it is given, so
    it is given compact ones.

    **Snapshots.** ``snapshot`` returns something opaque that stands for the state of this moment, for as long as somebody holds it;
    ``restore`` brings that state back, as often as one likes. A restore is a change like any other: snapshots taken after the restored one
    stay valid, so that one can go forward again. Both must cost no more than what has changed in between.
    """

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """The value of a key, None where it has none."""

    @abstractmethod
    def put(self, key: bytes, value: bytes) -> None:
        """Set the value of a key."""

    @abstractmethod
    def delete(self, key: bytes) -> None:
        """Remove a key; nothing happens where it has no value."""

    @abstractmethod
    def load(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> None:
        """Put many entries, in order; a value of None deletes. What a restore from a changelog calls."""

    @abstractmethod
    def range(self, from_: bytes | None, to: bytes | None) -> Iterator[tuple[bytes, bytes]]:
        """The entries from ``from_`` (inclusive) to ``to`` (exclusive), in key order, as they are now, whatever is written meanwhile.
        None: no bound."""

    @abstractmethod
    def __len__(self) -> int:
        """How many entries there are."""

    @abstractmethod
    def snapshot(self) -> Any:
        """Something that ``restore`` takes to come back to the state of now."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Come back to the state at a snapshot of this engine."""

    @abstractmethod
    def flush(self) -> None:
        """Hand what is cached to the layer below."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the engine holds; may be called more than once."""


class StoreEngineFactory(ABC):
    """Makes engines: what ``stores.<n>.factory`` names."""

    @abstractmethod
    def get_engine(self, store: str, task: str, config: Config) -> StoreEngine:
        """A new, empty engine for one store of one task; its own settings stand below ``stores.<store>.``. Raises ConfigError."""
