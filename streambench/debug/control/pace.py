"""A limit of the speed of a run: so many messages a second, to be watched."""

from __future__ import annotations

import threading
import time

from streambench.container.observer import ContainerObserver
from streambench.model import IncomingMessageEnvelope


class Pace(ContainerObserver):
    """Has each message wait until it is due. A batch waits once."""

    def __init__(self, per_second: float) -> None:
        self._every_s = 1 / per_second
        self._due = time.monotonic()
        self._ended = threading.Event()

    def end(self) -> None:
        """Have no message wait any more."""
        self._ended.set()

    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        self._ended.wait(max(0.0, self._due - time.monotonic()))
        self._due = max(self._due, time.monotonic()) + self._every_s
        return False
