"""Ctrl-C while the command line is still being imported: it ends the process at once, silently."""

from __future__ import annotations

import gc
import os
import signal
from types import FrameType

INTERRUPTED = 130


def begin_imports() -> None:
    """End the process at a Ctrl-C from now on, and collect no garbage.

    Imports leave none, and the search for some is a tenth of the time."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end)
    gc.disable()


def end_imports() -> None:
    """Note that the subcommand is imported: from now on Ctrl-C is an exception, as usual. What was imported
    stays, and no search for garbage looks at it."""
    gc.freeze()
    gc.enable()
    if signal.getsignal(signal.SIGINT) is _end:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)
