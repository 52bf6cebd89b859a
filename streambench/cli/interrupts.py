"""Ctrl-C of the command line: while it is still being imported, and where the interpreter would drop it."""

from __future__ import annotations

import gc
import os
import signal
import sys
import threading
from types import FrameType
from typing import Any

INTERRUPTED = 130
_AGAIN_S = 0.01


def begin_imports() -> None:
    """End the process at a Ctrl-C from now on, at once and silently, and collect no garbage.

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
        sys.unraisablehook = _repeat_interrupt


def _end(number: int, frame: FrameType | None) -> None:
    os._exit(INTERRUPTED)


def _repeat_interrupt(unraisable: Any) -> None:
    """Interrupt the main thread once more for a KeyboardInterrupt that Python drops.

    It passes no exception on from a finalizer, nor from the callback of a weak reference, as Py4J has for
    each Java object."""
    if isinstance(unraisable.exc_value, KeyboardInterrupt):
        # Later, as this is still called from there.
        main = threading.main_thread().ident
        again = threading.Timer(_AGAIN_S, signal.pthread_kill, [main, signal.SIGINT])
        again.daemon = True
        again.start()
    else:
        sys.__unraisablehook__(unraisable)
