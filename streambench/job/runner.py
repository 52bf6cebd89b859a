"""Driving one container from its start to its stop, under observation."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence

from streambench.container.container import Container, Until
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.container.timers import WindowsLeft
from streambench.counts import first_named
from streambench.errors import StreambenchError
from streambench.job.result import ContainerRun, Ended
from streambench.job.watchdog import stuck_error
from streambench.model import SystemStreamPartition

log = logging.getLogger(__name__)

OnSnapshot = Callable[[ContainerSnapshot], object]
OnHang = Callable[[StreambenchError], object]
NextRound = Callable[[int, int], bool]
"""Asked each time the container has caught up, with how many messages it processed and sent since it was last
asked: is it to look again?"""

EVERY_S = 0.25
_LEAST_WAIT_S = 0.05
_SLOW_INIT_S = 2.0

# A snapshot of very many partitions takes a while, during which no message is processed: snapshots get at
# most this part of the time.
_SHARE = 0.05
_MOST_INITS = 3


def awaited(inits: Sequence[str]) -> str:
    """The calls that a stop waits for, in words. ``inits``: the tasks that are in their ``init``."""
    if not inits:
        return "the message it is at"
    return f"the init of {first_named(inits, _MOST_INITS)}"


class _StoppedEarlyError(StreambenchError):
    """A run was asked to stop before the container had started."""


class ContainerRunner:
    """Starts a container, runs it on the calling thread, and stops it.

    Meanwhile a thread has snapshots taken (between two messages, on the thread of the container) and passes
    them to ``on_snapshot``. It does so every ``every_s`` seconds at most, and ends with one of the final
    state.
    """

    def __init__(
        self,
        container: Container,
        *,
        on_snapshot: OnSnapshot | None = None,
        every_s: float = EVERY_S,
        on_hang: OnHang | None = None,
        on_init: Callable[[str], object] = lambda task: None,
    ) -> None:
        """``on_init`` is called with each task before its ``init``, and with "" once all have been called.

        ``on_hang`` is called where the container is still in a message or in its last commit,
        ``task.shutdown.ms`` after it was to stop. It is called on a thread of its own. Nothing can make it
        stop then, but the process can be ended. Without it that is only logged."""
        self._container = container
        self._on_hang = on_hang or (
            lambda error: log.error("%s; end this process to go on from there", error)
        )
        self._on_init = on_init
        self._initialising = ""
        self._shutdown_s = container.config.integer("task.shutdown.ms") / 1000
        self._thread: int | None = None
        self._is_asking = False
        self._heard = threading.Event()
        self._on_snapshot = on_snapshot
        self._every_s = every_s
        self._stopping = threading.Event()
        self._finished = threading.Event()
        self._started = threading.Event()
        self._taken = threading.Event()
        self._latest: ContainerSnapshot | None = None
        self._pause_s = every_s
        self._restore_shown = time.monotonic()
        self._problem: BaseException | None = None

    def under_way(self) -> str:
        """The call that a stop waits for, in words."""
        task = self._container.status.initialising
        return awaited([task] if task else [])

    def stop_soon(self) -> None:
        """Have the run end cleanly after the message, or the ``init``, that it is at. From any thread, at any
        time."""
        if not self._stopping.is_set():
            self._stopping.set()
            threading.Thread(target=self._watch_stop, name="stop", daemon=True).start()
        # Posted, because a pause by itself concerns only a run that goes on already.
        self._container.post(self._container.pause)

    def run(self, until: Until, next_round: NextRound | None = None) -> ContainerRun:
        """Drive the container to its end. Raises what it raises, and what ``on_snapshot`` raised (after a
        clean stop)."""
        began = time.monotonic()
        container = self._container
        self._thread = threading.get_ident()
        watcher = threading.Thread(target=self._watch, name="snapshots", daemon=True)
        container.on_start = self._starting
        starting = threading.Thread(target=self._watch_start, name="start", daemon=True)
        starting.start()
        try:
            try:
                container.start()
            except _StoppedEarlyError:
                container.status.state = "stopped"  # it takes what a start raises for a failure
                return ContainerRun(container.number, 0, {}, time.monotonic() - began, "signal")
            finally:
                self._started.set()
            self._note_init()
            first = positions(container.snapshot())
            if self._on_snapshot is not None:
                watcher.start()
            ended = self._rounds(until, next_round)
            if until is not None and ended not in ("signal", "shutdown"):
                container.end_run()
                if until == "caught-up" and not container.shut_down:
                    container.run(until)  # the last windows may have sent to inputs of this very job
            left = container.windows_left if until is not None else WindowsLeft()
            container.stop()
        finally:
            self._heard.set()
            self._finished.set()
            if watcher.ident is not None:
                watcher.join()
            self._show_last()
        if self._problem is not None:
            raise self._problem
        last = positions(container.snapshot())
        offsets = {ssp: (position, last.get(ssp, position)) for ssp, position in first.items()}
        number, processed, seconds = container.number, container.processed, time.monotonic() - began
        passed_over = container.error_counts
        return ContainerRun(number, processed, offsets, seconds, ended, passed_over, windows_left=left)

    def _rounds(self, until: Until, next_round: NextRound | None) -> Ended:
        container = self._container
        sent = container.metrics.counter("sends", "producers")
        processed_before = sent_before = 0
        while not self._stopping.is_set():
            container.run(until)
            if self._stopping.is_set() or container.shut_down:
                break
            if container.at_end:
                return "end-of-stream"
            if next_round is None or until != "caught-up":
                return _goal(until)
            container.commit()
            self._is_asking = True
            goes_on = next_round(container.processed - processed_before, sent.count - sent_before)
            self._is_asking = False
            if not goes_on and not self._stopping.is_set():
                return "caught-up"
            processed_before, sent_before = container.processed, sent.count
        return "signal" if self._stopping.is_set() else "shutdown"

    def _watch_stop(self) -> None:
        while not self._heard.wait(max(self._shutdown_s, _LEAST_WAIT_S)):
            if self._container.state in ("stopped", "failed"):
                return
            if self._thread is not None and not self._is_asking:
                self._on_hang(stuck_error(self._container, self._thread))
                return

    def _watch(self) -> None:
        assert self._on_snapshot is not None
        while not self._finished.wait(self._pause_s):
            self._taken.clear()
            self._container.post(self._take)
            while not self._taken.wait(0.05):
                if self._finished.is_set():
                    return
            if self._latest is None:
                continue
            try:
                self._on_snapshot(self._latest)
            except BaseException as error:
                self._problem = error
                self.stop_soon()
                return

    def _watch_start(self) -> None:
        """Name the tasks whose ``init`` takes long: nothing else is seen of a start meanwhile."""
        before = named = ""
        while not self._started.wait(_SLOW_INIT_S):
            task = self._container.status.initialising
            if task and task == before and task != named:
                named = task
                log.warning("container %s is still in the init of %s", self._container.number, task)
            before = task

    def _starting(self) -> None:
        """While the container starts, its own thread shows how far it is, now and then, and hears of a
        stop."""
        if self._stopping.is_set():
            task = self._container.status.initialising
            what = f"before the init of {task}" if task else "while its state was restored"
            raise _StoppedEarlyError(f"stopped {what}")
        self._note_init()
        now = time.monotonic()
        if self._on_snapshot is not None and now - self._restore_shown >= self._every_s:
            self._on_snapshot(self._container.snapshot())
            self._restore_shown = time.monotonic()

    def _note_init(self) -> None:
        task = self._container.status.initialising
        if task != self._initialising:
            self._initialising = task
            self._on_init(task)

    def _take(self) -> None:
        began = time.perf_counter()
        try:
            self._latest = self._container.snapshot()
        except Exception as error:
            log.debug("no snapshot of container %s: %s", self._container.number, error)
        self._pause_s = max(self._every_s, (time.perf_counter() - began) / _SHARE)
        self._taken.set()

    def _show_last(self) -> None:
        if self._on_snapshot is None or self._problem is not None:
            return
        try:
            self._on_snapshot(self._container.snapshot())
        except Exception as error:
            self._problem = error


def _goal(until: Until) -> Ended:
    if until == "caught-up":
        return "caught-up"
    return "count" if isinstance(until, int) else "condition"


def positions(snapshot: ContainerSnapshot) -> dict[SystemStreamPartition, str]:
    """Per input partition, the first offset that is not processed yet."""
    return {each.ssp: each.position for each in snapshot.partitions}
