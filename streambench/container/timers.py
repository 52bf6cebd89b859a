"""Step 3: timers, the deadlines of windows, commits, polls and metrics reports.

The time of each task's next ``window()`` is kept with its checkpoint, so that it counts on across runs.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.clock import Clock
from streambench.config import Config
from streambench.container.loop_context import LoopContext
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope

if TYPE_CHECKING:
    from streambench.container.failures import Failures
    from streambench.container.tasks.task_instance import TaskInstance

NEVER = sys.maxsize
AT_END = "task.window.at.end"
_EVERY = "task.window.ms"
_MS = 1_000_000
_STARVED_PER_CHECK = 250


class WindowsLeft(Struct, frozen=True):
    """Messages that no ``window()`` has followed yet when a run ended.

    There are ``messages`` of them, with a window every ``every_ms`` milliseconds (0 or less: none is
    configured). ``has_run``: a window() ran, before them."""

    messages: int = 0
    every_ms: int = 0
    has_run: bool = False

    def __add__(self, other: WindowsLeft) -> WindowsLeft:
        every_ms = max(self.every_ms, other.every_ms)
        return WindowsLeft(self.messages + other.messages, every_ms, self.has_run or other.has_run)

    def then(self, later: WindowsLeft) -> WindowsLeft:
        """The messages left after another run."""
        return later if later.has_run else self + later

    def __bool__(self) -> bool:
        return self.messages > 0

    def __str__(self) -> str:
        """One line: what has not run, and the remedy."""
        those = "the last message" if self.messages == 1 else f"the last {self.messages:,} messages"
        what = f"window() has not run after {those}"
        if self.every_ms <= 0:
            return (
                f"{what}: set {_EVERY} to run it every so many milliseconds, or {AT_END}=true to run "
                "it at the end of such a run"
            )
        when = f"{_EVERY}={self.every_ms}, counted on from run to run"
        return f"{what}: it was not due yet ({when}); {AT_END}=true runs it at the end of such a run, too"


def kept_window(checkpoint: Checkpoint | None) -> int | None:
    """The time (milliseconds since 1970) from which a task's next window counts; None: from its next start.

    After a rewind it counts from the next start: the time in between has nothing to do with the messages that
    come again."""
    return checkpoint.window_ms if checkpoint is not None and checkpoint.generation else None


def has_window(task: object) -> bool:
    """True where a task, or its class, has a ``window()``."""
    return callable(getattr(task, "window", None))


def is_window_due(config: Config, task: object, checkpoints: Iterable[Checkpoint], now_ms: int) -> bool:
    """True where a start at ``now_ms`` would call a ``window()`` at once."""
    every_ms = config.integer(_EVERY)
    if every_ms <= 0 or not has_window(task):
        return False
    kept = [kept_window(each) for each in checkpoints]
    return any(at is not None and now_ms - at >= every_ms for at in kept)


def begin_windows(
    tasks: Iterable[TaskInstance], last: Mapping[str, Checkpoint], config: Config, now_ms: int
) -> None:
    """Give each task with windows the time from which its next one counts: that of its last checkpoint, else
    now."""
    every_ms = config.integer(_EVERY)
    for task in tasks:
        checkpoint = last.get(task.name)
        task.keeps_start = checkpoint is not None and not checkpoint.generation
        if every_ms > 0 and task.window is not None:
            task.window_committed = kept_window(checkpoint)
            task.window_begins = task.window_committed is None
            task.window_ms = now_ms if task.window_begins else task.window_committed


class Windows:
    """Calls ``window()`` of tasks when its time has come. ``due_ns``: when that is next (monotonic).

    While a container runs, time is monotonic. Between two starts only the wall clock goes on, so what is kept
    is a wall time. At a start the time that passed is that of the wall clock; it is 0 where that clock was
    set back.

    Tasks whose last windows were at different times (they come from other containers, say) keep their own
    times. Those that are due together stay together.
    """

    def __init__(
        self,
        tasks: Sequence[TaskInstance],
        config: Config,
        clock: Clock,
        *,
        collected: Collected,
        context: LoopContext,
        dead_letters: DeadLetters,
        failures: Failures,
        metrics: MetricsRegistry,
    ) -> None:
        self.due_ns = NEVER
        self._tasks = [task for task in tasks if task.window is not None]
        self._every_ms = config.integer(_EVERY)
        self._is_silent = not self._tasks or (self._every_ms <= 0 and _EVERY in config)
        self._every_ns = self._every_ms * _MS
        self._clock = clock
        self._collected = collected
        self._context = context
        self._dead_letters = dead_letters
        self._failures = failures
        self._calls = metrics.counter("window-calls", "container")
        self._took = metrics.timer("window-ns", "container")
        self._groups: deque[tuple[int, list[int]]] = deque()
        """When tasks (by their places) had their last window, the longest ago first."""
        self._processed = 0
        self._has_run = False

    def start(self, now_ns: int) -> None:
        """Let the time run from ``now_ns`` on."""
        if self._every_ms <= 0 or not self._tasks:
            return
        now_ms = self._clock.now_ms()
        groups: dict[int, list[int]] = {}
        for place, task in enumerate(self._tasks):
            if task.window_ms is None or task.window_begins:
                task.window_ms = now_ms
            passed = min(max(0, (now_ms - task.window_ms) * _MS), self._every_ns)
            groups.setdefault(now_ns - passed, []).append(place)
        self._groups = deque(sorted(groups.items()))
        self._find_due()

    def left(self, processed: int) -> WindowsLeft:
        """The messages that no window has followed, after ``processed`` messages in all."""
        return (
            WindowsLeft()
            if self._is_silent
            else WindowsLeft(processed - self._processed, self._every_ms, self._has_run)
        )

    def call_due(self, now_ns: int, envelope: IncomingMessageEnvelope | None, processed: int) -> None:
        """Call those that are due, in an iteration with this message, the ``processed``-th. Raises
        TaskError."""
        places: list[int] = []
        while self._groups and now_ns - self._groups[0][0] >= self._every_ns:
            places += self._groups.popleft()[1]
        places.sort()
        self._groups.append((now_ns, places))
        self._find_due()
        self._call([self._tasks[place] for place in places], envelope, processed)

    def call_last(self, now_ns: int, processed: int, ended: Callable[[TaskInstance], bool]) -> None:
        """Call all of them, at the end of a run, but not of tasks that ``ended``: these know that nothing
        follows. Raises TaskError."""
        if self._groups:
            self._groups = deque([(now_ns, list(range(len(self._tasks))))])
            self._find_due()
        self._call([task for task in self._tasks if not ended(task)], None, processed)

    def call_again(
        self, names: Collection[str], envelope: IncomingMessageEnvelope | None, processed: int
    ) -> None:
        """Call those of these tasks, as a recorded run did after this message. Raises TaskError."""
        self._call([task for task in self._tasks if task.name in names], envelope, processed)

    def _find_due(self) -> None:
        self.due_ns = self._groups[0][0] + self._every_ns

    def _call(
        self, tasks: Sequence[TaskInstance], envelope: IncomingMessageEnvelope | None, processed: int
    ) -> None:
        tasks = [task for task in tasks if task.window is not None]  # code may be exchanged for other code
        if not tasks:
            return
        self._processed, self._has_run = processed, True
        self._dead_letters.input = self._context.input = envelope
        now_ms = self._clock.now_ms()
        collected = self._collected
        first = len(collected)
        if self._context.trace is not None:
            names = [task.name for task in tasks]
            self._context.trace.note_callback("window", names, now_ms, first)
        self._calls.inc()
        with self._took.time():
            for task in tasks:
                mark = len(collected)
                self._failures.begin(task)
                try:
                    assert task.window is not None
                    task.call("window", task.window, task.collector, task.window_coordinator)
                except BaseException as error:
                    self._failures.at_callback(error, task.window_coordinator, "window", mark)
                task.window_ms = now_ms
                task.window_sent = task.window_sent or len(collected) > mark
        if self._context.trace is not None:
            self._context.trace.end_callback(len(collected))
        _, output, *_ = collected[first] if len(collected) > first else (None, None)
        self._failures.of_window = (first, output)


class Timers:
    """The deadlines of one event loop, on its container's monotonic clock.

    ``windows``: those of ``window()``. ``last_check_ns``: when the loop last checked its outputs and starved
    partitions, which it does at every poll interval unless one message takes longer."""

    def __init__(
        self, windows: Windows, *, commit_ms: int, poll_ms: int, report: Callable[[int], int] | None = None
    ) -> None:
        """``commit_ms``: 0 or less for no commits by time. ``report(now)`` is called when metrics may be due,
        and returns when to call it next."""
        self.windows = windows
        self.last_check_ns = 0
        self._commit_every = commit_ms * _MS if commit_ms > 0 else NEVER
        self._check_every = poll_ms * _MS
        self._last_commit = 0
        self._report = report
        self._report_at = NEVER

    def start(self, now: int) -> None:
        """Let all intervals run from ``now`` on."""
        self._last_commit = self.last_check_ns = now
        self.windows.start(now)
        if self._report is not None:
            self._report_at = self._report(now)

    def take_commit(self, now: int) -> bool:
        """True where a commit is due; the next one is an interval away."""
        if now - self._last_commit < self._commit_every:
            return False
        self._last_commit = now
        return True

    def take_check(self, now: int, starved: int) -> bool:
        """True where a check is due. With very many starved partitions it comes less often: a check takes
        longer the more of them there are to poll."""
        if now - self.last_check_ns < self._check_every:
            return False
        self.last_check_ns = now + starved // _STARVED_PER_CHECK * self._check_every
        return True

    def report_if_due(self, now: int) -> None:
        """Call ``report`` where metrics may be due."""
        if now >= self._report_at and self._report is not None:
            self._report_at = self._report(now)

    def next_due(self) -> int:
        """When anything is due next."""
        return min(self.next_deadline(), self.last_check_ns + self._check_every)

    def next_deadline(self) -> int:
        """When there is something to do even if no message comes."""
        return min(self.windows.due_ns, self._last_commit + self._commit_every, self._report_at)
