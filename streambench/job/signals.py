"""Ctrl-C and SIGTERM as a wish to stop, not as an accident."""

from __future__ import annotations

import logging
import os
import signal
import threading
from collections.abc import Callable, Iterable
from types import FrameType, TracebackType
from typing import Any

log = logging.getLogger(__name__)


class StopSignals:
    """While it is entered, the first signal calls ``stop`` on a thread of its own, and every further one raises KeyboardInterrupt.

    Off the main thread, where Python allows no signal handlers, it does nothing: whoever has the main thread decides there. ``stop``
    is not called by the handler itself, because a handler may run while the main thread holds a lock that ``stop`` needs.
    """

    def __init__(self, stop: Callable[[], object], signals: Iterable[signal.Signals] = (signal.SIGINT, signal.SIGTERM)) -> None:
        self._stop = stop
        self._signals = tuple(signals)
        self._former: dict[signal.Signals, Any] = {}
        self._asked = False

    def __enter__(self) -> StopSignals:
        if threading.current_thread() is threading.main_thread():
            reading, self._writing = os.pipe()
            self._listener = threading.Thread(target=self._listen, args=(reading,), name="stop signals", daemon=True)
            self._listener.start()
            for each in self._signals:
                self._former[each] = signal.signal(each, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._former:
            for each, former in self._former.items():
                signal.signal(each, former)
            self._former.clear()
            os.close(self._writing)
            self._listener.join()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._asked:
            raise KeyboardInterrupt
        self._asked = True
        os.write(self._writing, b"!")

    def _listen(self, reading: int) -> None:
        try:
            while os.read(reading, 1):
                log.warning("stopping after the message it is at; Ctrl-C once more stops it at once")
                self._stop()
        finally:
            os.close(reading)
