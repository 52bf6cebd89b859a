"""The progress and the utilization of an event loop, for observers."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streambench.container.inputs.partition_buffer import PartitionBuffer
    from streambench.model import IncomingMessageEnvelope


import time
from collections import deque
from collections.abc import Callable


class LoopProgress:
    """The progress of an event loop.

    ``processed``: messages processed so far (a broadcast message counts once). ``nulls``: iterations without
    a message. ``in_iteration``: an iteration is under way, so that only the loop itself may commit.

    ``unfinished``: the message at which an exception ended the loop; None where none did, or between two
    messages. Of a batch it is the first message, and ``unfinished_count`` is the number of its messages.

    ``last_chosen``: the partition whose candidate was chosen last and whose next message the chooser has not
    got yet: it gets it when ``run`` goes on. ``held``: a message that was chosen and that an observer holds
    back from its task; the next ``run`` begins with it.
    """

    __slots__ = (
        "held",
        "in_iteration",
        "last_chosen",
        "nulls",
        "processed",
        "unfinished",
        "unfinished_count",
    )

    def __init__(self) -> None:
        self.processed = self.nulls = self.unfinished_count = 0
        self.unfinished: IncomingMessageEnvelope | None = None
        self.held: IncomingMessageEnvelope | None = None
        self.last_chosen: PartitionBuffer | None = None
        self.in_iteration = False

    @property
    def chosen(self) -> int:
        """Messages chosen so far: those processed, those at which a failure ended it, and the one held."""
        return self.processed + self.unfinished_count + (self.held is not None)


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
