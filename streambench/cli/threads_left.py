"""Threads that keep the command alive after its end: those that the code of a task has started."""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType

from streambench.counts import first_named

_PATIENCE_S = 1.0
_MOST = 3


def name_threads_left(code: object) -> None:
    """Before the interpreter waits for threads: name those that it still waits for after a second. Ctrl-C
    then ends the process, with the exit code of the command."""
    if not _left():
        return

    def end(number: int, frame: FrameType | None) -> None:
        os._exit(code if isinstance(code, int) else int(code is not None))

    signal.signal(signal.SIGINT, end)
    # Not joined here: pools end their threads only while the interpreter does.
    threading.Thread(target=_name_them, name="threads left", daemon=True).start()


def _name_them() -> None:
    threading.Event().wait(_PATIENCE_S)
    if left := _left():
        names = first_named([each.name for each in left], _MOST)
        what = "the thread" if len(left) == 1 else "the threads"
        print(f"waiting for {what} {names} of the task; Ctrl-C ends it", file=sys.stderr, flush=True)


def _left() -> list[threading.Thread]:
    main = threading.main_thread()
    return [each for each in threading.enumerate() if not each.daemon and each is not main]
