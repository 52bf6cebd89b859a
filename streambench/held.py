"""Held: what belongs to this process, and not to those that are forked from it.

A forked child (a worker of multiprocessing, for example) has all open files of its parent. A lock would stay taken, and a port in use, for
as long as the child lives, though whoever took them is dead: so the child closes them first of all.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
from pathlib import Path
from typing import Protocol, TypeVar
from weakref import WeakSet


class _Closes(Protocol):
    def close(self) -> object: ...


_C = TypeVar("_C", bound=_Closes)

_ours: WeakSet[_Closes] = WeakSet()
# Nobody forks between the opening of a file and the note of it.
_noting = threading.RLock()


def not_for_children(what: _C) -> _C:
    """Have this (a socket, for example) closed in every process that is forked from this one. ``close`` is called there; it must leave
    alone what the parent does with it."""
    with _noting:
        _ours.add(what)
    return what


class Held:
    """The lock that a file stands for, until ``release`` or the end of this process. Children do not have it."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor: int | None = descriptor

    @classmethod
    def locked(cls, path: Path, *, create: bool = True) -> Held:
        """Take the lock; the file is created if need be, and if it may be. Raises BlockingIOError where another one has it, and other
        OSErrors."""
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        with _noting:
            held = not_for_children(cls(os.open(path, flags, 0o644)))
        try:
            fcntl.flock(held.descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            held.close()
            raise
        return held

    @property
    def descriptor(self) -> int:
        assert self._descriptor is not None, "this lock has been released"
        return self._descriptor

    def write(self, data: bytes) -> None:
        """Have the file say this, and nothing else."""
        os.ftruncate(self.descriptor, 0)
        os.pwrite(self.descriptor, data, 0)

    def release(self) -> None:
        """Leave the lock to others, whoever may have the file open."""
        if self._descriptor is not None:
            fcntl.flock(self._descriptor, fcntl.LOCK_UN)
            self.close()

    def close(self) -> None:
        """Have nothing to do with it any more. It stays locked as long as another process has it by a fork."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def _close_all() -> None:
    _noting.release()
    for each in list(_ours):
        with contextlib.suppress(OSError):
            each.close()
    _ours.clear()


os.register_at_fork(before=_noting.acquire, after_in_parent=_noting.release, after_in_child=_close_all)
