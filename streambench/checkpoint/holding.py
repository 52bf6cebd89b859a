"""Whether the holder of a container is alive: he keeps a lock on the record by which he took it, which goes when his process does.

It decides nothing (the journal does), and where the file system knows no locks nobody learns of it. It is only for telling people.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

from streambench.held import Held


def take_hold(path: Path) -> Held | None:
    """Lock a record until that is released, or until the process ends; None where it cannot be locked."""
    try:
        return Held.locked(path, create=False)
    except OSError:
        return None


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
