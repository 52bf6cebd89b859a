"""One call of a step or run, which another thread waits for."""

from __future__ import annotations

import threading
from collections.abc import Callable

_LOOK_AGAIN_S = 0.2


class Advance:
    """The outcome of a step or run on another thread: ``done`` messages, or ``error``.

    No Event and no Future: an interrupt inside of one of these, which are written in Python, breaks it."""

    def __init__(self, advance: Callable[[], int]) -> None:
        self.advance = advance
        self.done = 0
        self.error: BaseException | None = None
        self.has_begun = self.has_ended = False
        self._ended = threading.Lock()
        self._ended.acquire()

    def end(self) -> None:
        """Let others go on. Called once, by the thread that advanced."""
        self.has_ended = True
        self._ended.release()

    def await_end(self, meanwhile: Callable[[], object] = lambda: None) -> None:
        """Wait for the end, and call ``meanwhile`` some times a second. An interrupt is raised, and it may be
        waited for again."""
        while not self.has_ended:
            meanwhile()
            # What an interrupt leaves locked here is waited for only for a moment.
            if self._ended.acquire(timeout=_LOOK_AGAIN_S):
                self._ended.release()

    def result(self) -> int:
        """The number of messages, after the end. Raises what was raised."""
        if self.error is not None:
            raise self.error
        return self.done
