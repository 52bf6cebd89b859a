"""Whether the holder of a container is alive: he keeps a lock on the record by which he took it, which goes when his process does.

It decides nothing (the journal does), and where the file system knows no locks nobody learns of it. It is only for telling people.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path


def take_hold(path: Path) -> int | None:
    """Lock a record until ``let_go``, or until the process ends."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(handle)
        return None
    return handle


def let_go(hold: int) -> None:
    """Give up a lock."""
    os.close(hold)


def is_held(path: Path) -> bool:
    """Whether somebody has the lock of a record; False where nobody can tell."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False
