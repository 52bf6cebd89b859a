"""Long work in slices: with progress, and an end between two slices at an interrupt."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from streambench.debug.stopping.interrupt import noted_interrupts

Progress = Callable[[int, int], object]
"""Is called with the number of messages that are done, and with that of all."""

_T = TypeVar("_T")
_LEAST, _MOST = 10, 2_000
_SHORT_S, _LONG_S = 0.2, 1.0
_LOOK_S = 0.1


class Slices:
    """The number of messages to process at once: fewer where a task is slow. ``size``: that number."""

    def __init__(self) -> None:
        self.size = _LEAST
        self._began = time.monotonic()

    def end(self) -> None:
        """End a slice, which says how large the next one is."""
        now = time.monotonic()
        took, self._began = now - self._began, now
        if took < _SHORT_S:
            self.size = min(_MOST, self.size * 2)
        elif took > _LONG_S:
            self.size = max(1, self.size // 2)


class Stoppable:
    """Work on a thread of its own, with ``name`` in the name of the thread. ``stop`` is set at the first
    interrupt: the work ends between two slices then. ``done``, ``total``: its progress, which the caller's
    thread reports."""

    def __init__(self, name: str, progress: Progress) -> None:
        self.stop = threading.Event()
        self.done = self.total = 0
        self._name = name
        self._progress = progress

    def run(self, work: Callable[[], _T]) -> _T:
        """The result of ``work``. Raises what it raises, and what the report of its progress does, once the
        work has ended. Raises KeyboardInterrupt at a second interrupt, and leaves the work alone."""
        result: list[_T] = []
        errors: list[BaseException] = []
        problems: list[Exception] = []
        # An interrupt in Thread.join() would have it say that the thread has ended.
        ended = threading.Event()

        def call() -> None:
            try:
                result.append(work())
            except BaseException as error:
                errors.append(error)
            finally:
                ended.set()

        # In the context of the caller: what a task prints belongs to the cell that is run.
        context: Any = contextvars.copy_context()
        thread = threading.Thread(
            target=context.run, args=(call,), daemon=True, name=f"streambench {self._name}"
        )
        thread.start()
        with noted_interrupts() as interrupted:
            while not ended.is_set():
                try:
                    ended.wait(_LOOK_S)
                    if self.total and not problems:
                        self._progress(self.done, self.total)
                except KeyboardInterrupt:
                    if self.stop.is_set():
                        raise
                    self.stop.set()
                except Exception as error:
                    problems.append(error)
                    self.stop.set()
                if interrupted.is_set():
                    self.stop.set()
        if problems:
            raise problems[0]
        if errors:
            raise errors[0]
        return result[0]
