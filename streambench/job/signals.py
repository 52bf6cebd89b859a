"""Ctrl-C, SIGTERM and the end of the terminal as a wish to stop, not as an accident."""

from __future__ import annotations

import contextlib
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any

from streambench.held import not_for_children

log = logging.getLogger(__name__)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PATIENCE_S = 3.0
_SHOW_CURSOR = b"\x1b[?25h"
_LAST_WORDS = b"\nended at once, since it could not be stopped; what was committed stays committed\n"


class StopSignals:
    """While it is entered, the first signal calls ``stop`` on a thread of its own, and the second one raises KeyboardInterrupt.

    The code of a task may catch that, or may not even return to Python: a third signal, or the second one if its block has not come to
    an end 3 seconds later, calls ``kill`` and ends the process as the signal would have done, with 128 and its number as exit code.
    Nothing is lost by that but what was not committed. A process in which somebody types, a notebook's or an interactive interpreter, is
    never ended: there, every signal from the second on raises KeyboardInterrupt.

    Off the main thread, where Python allows no signal handlers, it does nothing: whoever has the main thread decides there. ``stop``
    is not called by the handler itself, because a handler may run while the main thread holds a lock that ``stop`` needs. A signal that
    is ignored (SIGHUP under nohup) stays so.

    What a task forks (a pool of processes, say) is ended by SIGTERM, and ignores the others: these are for this process to heed, which
    still wants an answer to the message it is at.
    """

    def __init__(
        self, stop: Callable[[], object], signals: Iterable[signal.Signals] = STOPPING, *, kill: Callable[[], object] = lambda: None
    ) -> None:
        """``kill``: ends at once what would be left behind, from any thread."""
        self._stop = stop
        self._kill = kill
        self._signals = tuple(signals)
        self._former: dict[signal.Signals, Any] = {}
        self._handled = 0
        self._is_over = False
        self._last: int = signal.SIGINT
        self._may_end = not hasattr(sys, "ps1")

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
            self._listener = threading.Thread(target=self._listen, name="stop signals", daemon=True)
            self._listener.start()
            # Handlers run on the main thread, which native code may never give back; this is written to in any case.
            self._former_wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
            for each in self._signals:
                if signal.getsignal(each) is not signal.SIG_IGN or each is not signal.SIGHUP:
                    self._former[each] = signal.signal(each, self._handle)
            not_for_children(self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._former:
            for each, former in self._former.items():
                signal.signal(each, former)
            self._former.clear()
            signal.set_wakeup_fd(self._former_wakeup)
            self._is_over = True
            self._wake()
            self._listener.join()
            os.close(self._writing)

    def close(self) -> None:
        """In a process that was forked from this one, let go of its signals."""
        former, self._former = self._former, {}
        if former:
            signal.set_wakeup_fd(-1)
            for each in former:
                signal.signal(each, signal.SIG_DFL if each is signal.SIGTERM else signal.SIG_IGN)
            os.close(self._writing)
            if self._reading >= 0:
                os.close(self._reading)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._last = number
        self._handled += 1
        self._wake()  # what signals wake may be somebody else by now
        if self._handled > 2 and self._may_end:
            self._end()
        if self._handled > 1:
            raise KeyboardInterrupt

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, b"\0")

    def _listen(self) -> None:
        reading = self._reading
        woken, is_told = 0, False
        deadline: float | None = None
        try:
            while True:
                left = None if deadline is None else max(0.0, deadline - time.monotonic())
                if not select.select([reading], [], [], left)[0]:
                    self._end()
                heard = os.read(reading, 64)
                for number in heard:
                    if number in self._signals:
                        self._last = number
                        woken += 1
                count = max(woken, self._handled)
                if count and not is_told:
                    is_told = True
                    self._stop()
                    again = "Ctrl-C" if self._last == signal.SIGINT else signal.Signals(self._last).name
                    log.warning("stopping after the message it is at; %s once more stops it at once", again)
                if count > 1 and deadline is None and self._may_end:
                    deadline = time.monotonic() + _PATIENCE_S
                if count > 2 and self._may_end:
                    self._end()
                if self._is_over:
                    return
        finally:
            self._reading = -1
            os.close(reading)

    def _end(self) -> None:
        try:
            self._kill()
            # Neither logging nor sys.stderr: the main thread may hold their locks.
            if os.isatty(1):
                os.write(1, _SHOW_CURSOR)
            os.write(2, _LAST_WORDS)
        finally:
            os._exit(128 + self._last)
