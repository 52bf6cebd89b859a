"""The utilization of an event loop."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable

_MINUTE_NS = 60_000_000_000


class Utilization:
    """The share of about the last minute in which the event loop did not sleep."""

    def __init__(self, slept_ns: Callable[[], float]) -> None:
        self._slept_ns = slept_ns
        self._marks = deque([(time.perf_counter_ns(), slept_ns())])

    def read(self) -> float:
        """The share, 0 to 1; 1 where no time has passed."""
        now, slept = time.perf_counter_ns(), self._slept_ns()
        while len(self._marks) > 1 and now - self._marks[1][0] >= _MINUTE_NS:
            self._marks.popleft()
        before, slept_before = self._marks[0]
        if now - self._marks[-1][0] >= _MINUTE_NS // 60:
            self._marks.append((now, slept))
        return min(1.0, max(0.0, 1 - (slept - slept_before) / (now - before))) if now > before else 1.0
