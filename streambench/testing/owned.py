"""Processes that end with the thread that starts them."""

from __future__ import annotations

import ctypes
import signal
import sys
from collections.abc import Callable


def dying_with_parent() -> Callable[[], None] | None:
    """A ``preexec_fn`` by which a child is killed when its parent ends; None where the system has no such
    thing."""
    if not sys.platform.startswith("linux"):
        return None
    libc = ctypes.CDLL(None)
    when_parent_dies = 1  # PR_SET_PDEATHSIG

    def ask() -> None:
        libc.prctl(when_parent_dies, signal.SIGKILL)

    return ask
