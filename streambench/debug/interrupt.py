"""Ending what another thread is in the middle of, as far as Python can."""

from __future__ import annotations

import ctypes
import sys
import threading
from collections.abc import Collection
from types import CodeType


class GivenUp(KeyboardInterrupt):
    """Raised in the middle of a task's callback, because somebody would not wait for its end any longer."""

    def __init__(self) -> None:
        super().__init__("given up in the middle of a message")


def interrupt_inside(ident: int, codes: Collection[CodeType]) -> bool:
    """Raise GivenUp in the thread with this ``threading.get_ident()`` if it is inside one of these functions; whether it is.

    It comes when the thread next runs Python code: a call such as ``time.sleep`` returns first."""
    frame = sys._current_frames().get(ident)
    while frame is not None:
        if frame.f_code in codes:
            return bool(ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(GivenUp)))
        frame = frame.f_back
    return False


def forget_interrupt() -> None:
    """Drop the GivenUp that is on its way to the calling thread, if one is."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
