"""A watch beside the event loop of a container: the time that each partition takes, and the message that
takes long."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from streambench.container.container import Container
from streambench.debug.control.busy import Busy, busy_with
from streambench.model import SystemStreamPartition
from streambench.redaction import redacted

OnBusy = Callable[[str, float], object]

BUSY_S = 5.0
"""Seconds from which on a container counts as busy with one message."""

_SAMPLED_EACH_S = 0.05
_SAID_EACH_S = 1.0
_LONGEST = 300


class LoopWatch:
    """Looks, on a thread of its own, which message a container is at, about twenty times a second. The loop
    itself does nothing for it.

    The time between two looks counts for the partition of that message, so that the sums are those of a
    sampling profiler. ``on_busy`` is called about once a second while a message, or the ``init`` of a task,
    takes longer than ``BUSY_S``. It gets what is busy, and for how many seconds. ``tasks``: per partition,
    the task that reads it."""

    def __init__(
        self,
        container: Container,
        tasks: Mapping[SystemStreamPartition, str],
        on_busy: OnBusy,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._container = container
        self._tasks = tasks
        self._on_busy = on_busy
        self._now = now
        self._driver = threading.get_ident()
        self._seconds: defaultdict[SystemStreamPartition, float] = defaultdict(float)
        self._looked = self._said = now()
        self._init = ""
        self._init_since = 0.0
        # Messages that take turns in a fixed rhythm must not meet looks in the same one. The random numbers
        # of tasks stay theirs.
        self._random = random.Random()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def __enter__(self) -> LoopWatch:
        """Watch the container that the calling thread is about to drive."""
        self._driver = threading.get_ident()
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._thread.join()

    @property
    def seconds_by_partition(self) -> dict[SystemStreamPartition, float]:
        """The seconds that each partition has taken so far, decoding and sending included."""
        return {ssp: round(seconds, 3) for ssp, seconds in sorted(self._seconds.items())}

    def look(self) -> None:
        """Count the time since the last look, and say where a message takes long."""
        now, envelope = self._now(), self._container.current_input
        if envelope is not None:
            self._seconds[envelope.ssp] += now - self._looked
        self._looked = now
        if now - self._said >= _SAID_EACH_S:
            self._said = now
            self._say(now)

    def _watch(self) -> None:
        while not self._ended.wait(_SAMPLED_EACH_S * self._random.uniform(0.5, 1.5)):
            self.look()

    def _say(self, now: float) -> None:
        init = self._container.status.initialising
        if init != self._init:
            self._init, self._init_since = init, now
        if init:
            what, seconds = f"the init of {init}", now - self._init_since
        elif busy := busy_with(self._container, self._driver):
            what, seconds = self._described(busy), busy.seconds
        else:
            return
        if seconds >= BUSY_S:
            self._on_busy(redacted(what)[:_LONGEST], seconds)

    def _described(self, busy: Busy) -> str:
        task = "a window or a commit" if busy.ssp is None else self._tasks.get(busy.ssp, "")
        return f"{task}{busy.place()}"
