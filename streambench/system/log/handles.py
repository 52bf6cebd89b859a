"""Handles: the open files of a log, never more than so many at once, so that a thousand partitions need not a
thousand descriptors."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Mapping
from pathlib import Path

from streambench.errors import StreamSystemError


class Handles:
    """Opens files when they are asked for and closes those that were not used for the longest time.

    A descriptor is valid until the next ``open`` of another file. What was written through one that has been
    closed meanwhile can still be forced to the disk: that goes by file, not by descriptor.
    """

    def __init__(self, capacity: int = 100) -> None:
        self._capacity = capacity
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._writable: set[Path] = set()
        self._dirty: set[Path] = set()
        # Descriptors are numbers: of a log that was never closed, they would stay open for ever.
        weakref.finalize(self, _close_left, self._open).atexit = False

    def open(self, path: Path, *, write: bool = False) -> int:
        """The descriptor of a file (which is not created). Raises FileNotFoundError. What was opened to write
        can also be read."""
        descriptor = self._open.get(path)
        if descriptor is not None and (not write or path in self._writable):
            self._open.move_to_end(path)
            return descriptor
        if descriptor is not None:
            self.close(path)
        while len(self._open) >= self._capacity:
            self.close(next(iter(self._open)))
        descriptor = os.open(path, os.O_RDWR if write else os.O_RDONLY)
        self._open[path] = descriptor
        if write:
            self._writable.add(path)
        return descriptor

    def is_open(self, path: Path) -> bool:
        """True if ``open`` gives the descriptor without opening the file."""
        return path in self._open

    def mark_dirty(self, path: Path) -> None:
        """Data was written to the file; ``force`` has to be called some time."""
        self._dirty.add(path)

    def force(self, path: Path) -> None:
        """Force what was written to the disk, if anything was."""
        if path in self._dirty:
            os.fsync(self.open(path, write=True))
            self._dirty.discard(path)

    def close(self, path: Path) -> None:
        """Close a file if it is open."""
        descriptor = self._open.pop(path, None)
        self._writable.discard(path)
        if descriptor is not None:
            os.close(descriptor)

    def forget(self, path: Path) -> None:
        """Close a file that was deleted or replaced: what was written to it is of no interest any more."""
        self._dirty.discard(path)
        self.close(path)

    def close_below(self, directory: Path) -> None:
        """Forget all files below a directory that is gone."""
        for path in [path for path in self._open if directory in path.parents]:
            self.forget(path)

    def close_all(self) -> None:
        """Close everything, and force nothing."""
        self._dirty.clear()
        for path in list(self._open):
            self.close(path)


def _close_left(descriptors: Mapping[Path, int]) -> None:
    for descriptor in descriptors.values():
        os.close(descriptor)


def unusable(what: str, path: Path, error: OSError) -> StreamSystemError:
    """The error for a file that the operating system refuses to read or write. ``path``: which one, where the
    error does not say it."""
    return StreamSystemError(
        f"{what}: {error.filename or path} cannot be read or written: {error.strerror or error}"
    )
