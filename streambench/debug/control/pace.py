"""A limit of the speed of a run: so many messages a second, to be watched."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from streambench.container.observer import ContainerObserver
from streambench.model import IncomingMessageEnvelope

_SLICE_S = 0.02


class Pace(ContainerObserver):
    """Makes a run wait after each message until the next one is due. A batch waits once.

    It waits between two messages, in slices: what is posted to the container is done meanwhile."""

    def __init__(self, per_second: float, post: Callable[[Callable[[], None]], None]) -> None:
        """``post``: has the event loop call a function between two messages."""
        self._every_s = 1 / per_second
        self._due = time.monotonic()
        self._post = post
        self._ended = threading.Event()
        self.waits = False

    def end(self) -> None:
        """Make no message wait any more."""
        self._ended.set()

    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        self._due = max(self._due, time.monotonic()) + self._every_s
        self._post(self._wait)
        return False

    def _wait(self) -> None:
        left = self._due - time.monotonic()
        self.waits = left > 0 and not self._ended.wait(min(left, _SLICE_S))
        if self.waits:
            self._post(self._wait)  # behind what was posted meanwhile
