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
from types import FrameType
from typing import Any

from streambench.locks import not_for_children

log = logging.getLogger(__name__)

STOPPING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

_PATIENCE_S = 3.0
_MERGED_S = 0.2
_SHOW_CURSOR = b"\x1b[?25h"
_LAST_WORDS = b"\nended at once, since it could not be stopped; what was committed stays committed\n"


class StopSignals:
    """While it is entered, the first signal calls ``stop`` on a thread of its own, and the second one raises
    KeyboardInterrupt.

    The code of a task may catch that, or may not even return to Python. Then a third signal calls ``kill``;
    so does the second one if its block still runs 3 seconds later. The process ends as by the signal, with
    128 and its number as exit code. Nothing is lost by that but what was not committed. A
    process in which a user types, a notebook's or an interactive interpreter, is never ended: there, every
    signal from the second on raises KeyboardInterrupt.

    Off the main thread, where Python allows no signal handlers, it does nothing: the owner of the main thread
    decides there. ``stop`` is not called by the handler itself, because a handler may run while the main
    thread holds a lock that ``stop`` needs. A signal that is ignored (SIGHUP under nohup) stays so.

    What a task forks (a pool of processes, say) is ended by SIGTERM, and ignores the others. Those are for
    this process, which still waits for an answer to its current message.
    """

    def __init__(
        self,
        stop: Callable[[], object],
        signals: Iterable[signal.Signals] = STOPPING,
        *,
        kill: Callable[[], object] = lambda: None,
        after: str | Callable[[], str] = "the message it is at",
    ) -> None:
        """``kill``: ends at once what would be left behind, from any thread. ``after``: what the first signal
        lets end."""
        self._after = after
        self._stop = stop
        self._kill = kill
        self._signals = tuple(signals)
        self._former: dict[signal.Signals, Any] = {}
        self._handled = 0
        self._is_over = self._is_stopping = False
        self._last: int = signal.SIGINT
        self._may_end = not hasattr(sys, "ps1")

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            self._reading, self._writing = os.pipe()
            os.set_blocking(self._writing, False)
            self._listener = threading.Thread(target=self._listen, name="stop signals", daemon=True)
            self._listener.start()
            # Handlers run on the main thread, which native code may never give back; this is written to in
            # any case.
            self._former_wakeup = signal.set_wakeup_fd(self._writing, warn_on_full_buffer=False)
            for each in self._signals:
                if signal.getsignal(each) is not signal.SIG_IGN or each is not signal.SIGHUP:
                    self._former[each] = signal.signal(each, self._handle)
            not_for_children(self)
        return self

    def __exit__(self, *error: object) -> None:
        if self._former:
            for each, former in self._former.items():
                signal.signal(each, former)
            self._former.clear()
            signal.set_wakeup_fd(self._former_wakeup)
            self._is_over = True
            self._wake()
            self._listener.join()
            os.close(self._writing)

    def count_stop(self) -> None:
        """Count a stop that a key has asked for, and that is under way, as the first signal."""
        self._handled = max(self._handled, 1)
        self._is_stopping = True

    def close(self) -> None:
        """In a process that was forked from this one, release its signals."""
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
        self._wake()  # what signals wake may be something else by now
        if self._handled > 2 and self._may_end:
            self._end()
        if self._handled > 1:
            raise KeyboardInterrupt

    def _wake(self) -> None:
        with contextlib.suppress(OSError):
            os.write(self._writing, b"\0")

    def _listen(self) -> None:
        reading, heard = self._reading, _Heard()
        try:
            while True:
                if not select.select([reading], [], [], heard.left_s())[0]:
                    self._on_time(heard)
                    continue
                self._last = heard.add(os.read(reading, 64), self._signals) or self._last
                count = max(heard.signals, self._handled)
                if count and not self._is_stopping:
                    self._is_stopping = True
                    self._stop()
                    again = "Ctrl-C" if self._last == signal.SIGINT else signal.Signals(self._last).name
                    after = self._after if isinstance(self._after, str) else self._after()
                    log.warning("stopping after %s; %s once more stops it at once", after, again)
                if count > 1 and self._may_end:
                    heard.deadline = heard.deadline or time.monotonic() + _PATIENCE_S
                if heard.signals > 1 and self._handled < 2:
                    heard.merged = heard.merged or time.monotonic() + _MERGED_S
                if count > 2 and self._may_end:
                    self._end()
                if self._is_over:
                    return
        finally:
            self._reading = -1
            os.close(reading)

    def _on_time(self, heard: _Heard) -> None:
        """End a process that has not stopped in time. Repeat a signal that has called no handler: two
        signals at the same moment call it once."""
        if heard.deadline is not None and heard.deadline <= time.monotonic():
            self._end()
        heard.merged = None
        if self._handled < 2:
            heard.echoes += 1
            signal.pthread_kill(threading.main_thread().ident or 0, self._last)

    def _end(self) -> None:
        try:
            self._kill()
            # Neither logging nor sys.stderr: the main thread may hold their locks.
            if os.isatty(1):
                os.write(1, _SHOW_CURSOR)
            os.write(2, _LAST_WORDS)
        finally:
            os._exit(128 + self._last)


class _Heard:
    """The signals that have arrived. ``echoes``: how many more will arrive that this process sends itself.
    ``deadline``: when it is to be ended; ``merged``: when a second one must have called the handler."""

    def __init__(self) -> None:
        self.signals = self.echoes = 0
        self.deadline: float | None = None
        self.merged: float | None = None

    def left_s(self) -> float | None:
        """The seconds until something is due; None: nothing is."""
        due = [each for each in (self.deadline, self.merged) if each is not None]
        return max(0.0, min(due) - time.monotonic()) if due else None

    def add(self, numbers: bytes, signals: Iterable[int]) -> int | None:
        """Count those that are signals to stop by; the last of them."""
        last = None
        for number in numbers:
            if number not in signals:
                continue
            if self.echoes:
                self.echoes -= 1
            else:
                last = number
                self.signals += 1
        return last
