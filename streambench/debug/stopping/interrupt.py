"""Interruption of another thread in the middle of its work, within the limits of Python."""

from __future__ import annotations

import ctypes
import signal
import sys
import threading
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from types import CodeType, FrameType


class GivenUp(KeyboardInterrupt):
    """Raised in the middle of a task's callback, because its caller would not wait any longer."""

    def __init__(self) -> None:
        super().__init__("given up in the middle of a message")


@contextmanager
def noted_interrupts() -> Iterator[threading.Event]:
    """An event that is set at Ctrl-C, which raises KeyboardInterrupt all the same.

    Python drops what is raised in a finalizer, or in the callback of a weak reference. Off the main thread,
    where no KeyboardInterrupt comes, it is never set."""
    pressed, former = threading.Event(), signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(former):
        yield pressed
        return

    def note(number: int, frame: FrameType | None) -> None:
        pressed.set()
        former(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, former)


def interrupt_inside(ident: int, codes: Collection[CodeType]) -> bool:
    """Raise GivenUp in the thread with this ``threading.get_ident()`` if it is inside one of these functions;
    whether it is.

    It comes when the thread next runs Python code: a call such as ``time.sleep`` returns first."""
    frame = sys._current_frames().get(ident)
    while frame is not None:
        if frame.f_code in codes:
            return bool(
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(ident), ctypes.py_object(GivenUp))
            )
        frame = frame.f_back
    return False


def forget_interrupt() -> None:
    """Drop the GivenUp that is on its way to the calling thread, if one is."""
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(threading.get_ident()), None)
    clear_interrupts()


def clear_interrupts() -> None:
    """Have Python look no longer for an interrupt of a thread that may not run Python code for long.

    Until it has arrived, Python 3.11 has every thread look for it before each function. A thread with a
    debugger or a profiler does nothing else any more. It stops looking when any interrupt has arrived: here
    one that a thread raises in itself. The other one arrives all the same, when its thread runs again."""

    def interrupt_itself() -> None:
        with suppress(GivenUp):
            ident = ctypes.c_ulong(threading.get_ident())
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(GivenUp))
            while True:
                pass

    thread = threading.Thread(target=interrupt_itself, name="streambench interrupt")
    thread.start()
    thread.join()
