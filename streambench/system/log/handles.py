"""Handles: the open files of a log, never more than so many at once, so that a thousand partitions need not a thousand descriptors."""

from __future__ import annotations

import fcntl
import os
import weakref
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from streambench.durable import make_durable


class Handles:
    """Opens files when they are asked for and closes those that were not used for the longest time.

    A descriptor is valid until the next ``open`` of another file. What was written through one that has been closed meanwhile can still
    be forced to the disk: that goes by file, not by descriptor.
    """

    def __init__(self, capacity: int = 100) -> None:
        self._capacity = capacity
        self._open: OrderedDict[Path, int] = OrderedDict()
        self._writable: set[Path] = set()
        self._dirty: set[Path] = set()
        # Descriptors are numbers: of a log that nobody has closed, they would stay open for ever.
        weakref.finalize(self, _close_left, self._open).atexit = False

    def open(self, path: Path, *, write: bool = False) -> int:
        """The descriptor of a file (which is not created). Raises FileNotFoundError. What was opened to write can also be read."""
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


def write_durably(path: Path, data: bytes) -> None:
    """Put a file in place in one step, by way of a temporary one: whoever looks sees the old one or the new one, whole."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        _write_file(temporary, data, force=True)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)
    make_durable(path.parent)


def create_durably(path: Path, data: bytes, *, force: bool = True) -> bool:
    """Put a file in place in one step, unless there is one: False then. Of several who try, one wins.

    Without ``force`` it is not durable, though as whole as with it."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        _write_file(temporary, data, force=force)
        os.link(temporary, path)
    except FileExistsError:
        return False
    finally:
        temporary.unlink(missing_ok=True)
    if force:
        make_durable(path.parent)
    return True


def _write_file(path: Path, data: bytes, *, force: bool) -> None:
    with open(path, "xb") as file:
        file.write(data)
        if force:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock that a file stands for (it is created if need be) against all other threads and processes. Waits for it; who dies lets
    go of it. Not reentrant. Raises FileNotFoundError where there is no such directory.

    This is what filelock does underneath; it happens with every batch, and the rest of filelock takes longer than all else of an append.
    """
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        # Closing would not do where a process has been forked meanwhile, which has the file open, too.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
