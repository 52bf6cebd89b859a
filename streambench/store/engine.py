"""The contract of a store engine: what keeps the bytes of one store of one task."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar

from streambench.config import Config

BATCH = 10_000
"""The number of entries in a batch, at most."""

Entries = Iterator[tuple[bytes, bytes]]
"""Keys with their values, one after the other."""
Batches = Iterator[tuple[Sequence[bytes], Sequence[bytes]]]
"""Keys and their values, many at a time."""
Keys = Sequence[bytes]
Values = Sequence[bytes | None]
"""Values of keys; None deletes one."""
Times = Sequence[int | None] | None
"""The time (ms) at which each entry was written; None where that is not known."""


class StoreEngine(ABC):
    """A sorted map of bytes to bytes, for one store of one task. Keys are ordered as unsigned bytes. Used on
    one thread at a time.

    An engine knows nothing of serdes and changelogs; ``TaskStore`` above it does. It keeps the very bytes it
    is given, so it is given compact ones.

    **Snapshots.** ``snapshot`` returns something opaque that stands for the state of this moment, for as long
    as it is referenced. ``restore`` brings that state back, as often as one likes. A restore is a change like
    any other: snapshots taken after the restored one stay valid, so that one can go forward again. Both must
    cost no more than what has changed in between.

    **Commits.** What an engine keeps in files may be used again by the next start, if it is exactly the state
    of the last commit. After each commit ``mark`` says which one it was, and ``marked`` reports it to the
    next start. What was written after that mark must be gone by then, however the process ended. An engine
    that cannot promise this is empty at every start, and leaves both methods as they are.
    """

    in_memory: ClassVar[bool] = False
    """True where reading costs no more than a dict: then there is a cache above it only where
    ``stores.<n>.object.cache.size`` asks for one."""

    locks_files: ClassVar[bool] = False
    """True where it keeps files that one process at a time can open: a start of the job waits for them."""

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
    def load(self, keys: Keys, values: Values, written: Times = None) -> None:
        """Put many entries, in order; a value of None deletes. What a restore from a changelog calls, and a
        cache that writes down.

        ``written``: when each entry was written (milliseconds; None: not known), for the layer that knows
        about time; others ignore it."""

    @abstractmethod
    def range(self, from_: bytes | None, to: bytes | None) -> Entries:
        """The entries from ``from_`` (inclusive) to ``to`` (exclusive), in key order, as they are now,
        whatever is written meanwhile. None: no bound. An iterator that holds resources has a ``close()``,
        which is called once no more of it is wanted."""

    @abstractmethod
    def __len__(self) -> int:
        """The number of entries."""

    def batches(self) -> Batches:
        """All entries, as keys and values, up to ``BATCH`` at a time, in any order. Nothing is written
        meanwhile."""
        entries = self.range(None, None)
        try:
            while some := list(islice(entries, BATCH)):
                keys, values = zip(*some, strict=True)
                yield keys, values
        finally:
            close_entries(entries)

    def estimate(self) -> int | None:
        """About how many entries there are; None where it takes long to know."""
        return None

    @abstractmethod
    def snapshot(self) -> Any:
        """Return an object by which ``restore`` comes back to the current state."""

    @abstractmethod
    def restore(self, snapshot: Any) -> None:
        """Return to the state at a snapshot of this engine."""

    @abstractmethod
    def flush(self) -> None:
        """Hand what is cached to the layer below."""

    @abstractmethod
    def clear(self) -> None:
        """Remove all entries, and the mark. Not called while a snapshot is held that is still of use."""

    @abstractmethod
    def close(self) -> None:
        """Free what the engine holds; may be called more than once."""

    def mark(self, marker: bytes) -> None:  # noqa: B027 - engines in memory have nothing to mark
        """Note that the present state is committed; ``marker`` names that commit."""

    def marked(self) -> bytes | None:
        """The marker of the commit whose state a new engine found in its files; None: it found none, and is
        empty."""
        return None


class StoreEngineFactory(ABC):
    """Makes engines: what ``stores.<n>.factory`` names, by a dotted path or as an entry point of
    ``streambench.stores``. One object makes the engines of all tasks of a container. Its own settings stand
    below ``stores.<n>.engine.``; it checks them itself."""

    @abstractmethod
    def get_engine(self, store: str, task: str, config: Config, directory: Path) -> StoreEngine:
        """An engine for one store of one task. ``directory``, which need not exist, is where it may keep
        files; it is this task's and store's alone. Raises ConfigError, StoreError."""


def close_entries(entries: Entries) -> None:
    """Free what the iterator of a range holds, where it holds something."""
    close = getattr(entries, "close", None)
    if close is not None:
        close()
