"""A container: its life cycle from ``start`` to ``stop``, and the calls that run its event loop.

A container made by ``from_config`` plans the job by itself and runs all its tasks. A runner that spreads a
job over several containers plans it once and hands each its part (``planned``).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NoReturn, Self, TypeVar

from streambench import imports as load
from streambench.checkpoint.api import CheckpointManager
from streambench.chooser.api import MessageChooser
from streambench.chooser.checked import chooser_failure
from streambench.clock import Clock, SystemClock
from streambench.config import Config
from streambench.container.assembly import Given, begin, build
from streambench.container.commit import warn_of_uncommitted
from streambench.container.event_loop import EventLoop
from streambench.container.failure_capture import capture_failure
from streambench.container.failure_hold import FailureHold
from streambench.container.inputs.consumers import Command
from streambench.container.loop_context import LoopContext
from streambench.container.observe.capture import keep_last_snapshot
from streambench.container.observe.metrics import readings_by_task
from streambench.container.observe.status import ABANDONED, ContainerStatus
from streambench.container.observe.view import ContainerView
from streambench.container.observer import ContainerObserver
from streambench.container.runtime import Resources, Runtime
from streambench.container.tasks.task_instance import check_task
from streambench.container.timers import AT_END, WindowsLeft
from streambench.container.trace import Trace
from streambench.descriptors import limit_error
from streambench.errors import ConfigError, ContainerStateError, FencedError, do_all
from streambench.metrics.registry import Reading
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.planning.model import PlannedContainer
from streambench.planning.plan import job_name
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# Explaining a choice looks at every candidate: of a step over many partitions only the last choices are
# explained.
_EXPLAINED_LEAST = 10
_CANDIDATES_PER_STEP = 20_000

Until = Literal["caught-up"] | int | Callable[[], object] | None


class Container(ContainerView):
    """Runs tasks. ``start``, then ``step`` or ``run`` as often as one likes, then ``stop``. A ``with`` block
    starts it, and stops it with a commit; an exception abandons it, as a crash would.

    All of these are called on one thread at a time; from other threads only ``post`` and ``pause`` may be
    used. When a task (or a system) raises, the container closes its tasks without a commit, and its state is
    ``failed``. The next start continues from the last checkpoint.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | Path,
        task: Any = None,
        *,
        planned: PlannedContainer | None = None,
        systems: Systems | None = None, checkpoints: CheckpointManager | None = None,
        clock: Clock | None = None, ends: Mapping[SystemStreamPartition, str] | None = None,
        chooser: MessageChooser | None = None, observer: ContainerObserver | None = None,
        remember_choices: int = 0,
    ) -> None:  # fmt: skip
        """``config``: a Config, a mapping, or the path of a properties file. ``task``: a task class or
        process function, instead of ``task.class``. ``planned``: its part of the job; without one, all
        tasks. ``ends``: per input partition the first offset that is not read any more.

        ``chooser`` stands in for the configured one. ``observer`` observes it from the
        start on; ``remember_choices``: how many of the last choices a snapshot shows."""
        config = Config.of(config)
        config.validate()
        factory = (
            task if task is not None else load.by_path(config, "task.class", config.required("task.class"))
        )
        self.status = ContainerStatus(
            config,
            factory,
            job_name(config, factory),
            0 if planned is None else planned.number,
            systems=systems or Systems(config),
            clock=clock or SystemClock(),
            remember_choices=remember_choices,
            observer=observer,
        )
        self.status.systems.metrics = self.status.metrics
        if planned is not None:
            self.status.has_share = bool(planned.model.containers[planned.number].tasks)
        self.on_start: Callable[[], object] | None = None
        """Called by ``start`` now and then while it restores state, of which a snapshot shows how far it is,
        and before it calls the ``init`` of each task: both may take long. What it raises ends the start."""
        self.is_stopping = False
        """True during the last commit."""
        self._given = Given(
            planned=planned, checkpoints=checkpoints, ends=dict(ends or {}),
            chooser=chooser,
        )  # fmt: skip
        self._resources = Resources(self.status)
        self._resources.checkpoints = checkpoints
        self._context = LoopContext()
        self.failure_hold = FailureHold(self.status, self._context, self._close_failed)
        self._runtime: Runtime | None = None
        self._runs = 0
        self._is_advancing = self._abandoned = self._is_in_block = False
        check_task(factory, config.placed("task.class") if task is None else "task.class")

    @classmethod
    def from_config(cls, config: Config | Mapping[str, Any] | str | Path, task: Any = None) -> Container:
        """A container with all tasks of the job. The inputs need not exist before ``start``. Raises
        ConfigError."""
        return cls(config, task, remember_choices=100)

    def __repr__(self) -> str:
        return f"<container {self.name}: {self.state}>"

    def __enter__(self) -> Self:
        """The container, started unless it is running already. Raises what ``start`` raises."""
        if self.state != "running":
            self.start()
        self._is_in_block = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop it, or abandon it where an exception ends the block, unless it has stopped or failed."""
        self._is_in_block = False
        if error is None:
            self.stop()
        elif self.state == "running":
            try:
                self.abandon()
            except Exception as problem:
                log.warning("while the container was abandoned: %s", problem)

    def start(self) -> None:
        """Plan (unless that was done), take over from older starts, restore state, call the tasks' ``init``,
        begin to read.

        Raises ConfigError, UnknownStreamError, CheckpointError, FencedError, TaskError; the container has
        then released everything."""
        if self.state == "running" and self._is_in_block:
            return  # by ``with``
        if self.state != "new":
            raise ContainerStateError(
                f"this container is {self.state}; it can be started only once: make a new one"
            )
        self._context.take()
        self.failure_hold.end_former()
        try:
            self._start()
        except BaseException as error:
            self._fail_and_raise(error)
        self.status.state = "running"

    def step(self, n: int = 1, *, batches: bool = False) -> int:
        """Process up to ``n`` messages; how many were. Waits until a message is there, or every input is
        known to be at its head.

        A task that takes batches gets batches of one message; with ``batches``, as large ones as ``run``
        makes."""
        return self._advance(lambda: self._step(n), one_by_one=not batches)

    def run(self, until: Until = None) -> int:
        """Process messages, and return how many.

        ``until`` says when it returns:

        - ``"caught-up"``: at the head of all inputs.
        - An int: after so many messages.
        - A callable: once it returns true. It is called between messages or batches, and repeatedly while
          there are none. An exception of it ends the run, not the container.
        - None: when it is paused, or shut down by a task.

        Each of them returns as well when all inputs have ended (``at_end``), and where an observer holds a
        message."""
        if until is None:
            return self._advance(lambda: self._loop.run())
        if until == "caught-up":
            return self._advance(lambda: self._loop.run(stop_at_head=True))
        if isinstance(until, int) and not isinstance(until, bool):
            return self._advance(lambda: self._loop.run(limit=until))
        if callable(until):
            return self._run_until(until)
        what = "Give 'caught-up', a number of messages, a function, or nothing"
        raise ConfigError(f"run until {until!r}? {what}")

    def commit(self) -> None:
        """Commit all tasks now. Between two messages: a task asks its coordinator. Raises
        ContainerStateError."""
        self._check_outside()
        self._drive(lambda: self.runtime.commits.commit(self.tasks))  # Step 5: commit

    def end_run(self) -> None:
        """Call window() of all tasks once more, where ``task.window.at.end`` asks for it.

        What it sends is sent, not committed yet. Raises TaskError, ContainerStateError."""
        self._check_outside()
        if self.config.boolean(AT_END):
            self._drive(self._loop.call_last_windows)

    def pause(self) -> None:
        """Make the current ``run`` or ``step`` return after its present message; a later call is not
        affected. May be called from any thread."""
        run = self._runs

        def pause() -> None:
            if self._runs == run:
                self._loop.paused = True

        self.post(pause)

    def post(self, command: Command) -> None:
        """Have the event loop call ``command`` between two messages, while it runs. May be called from any
        thread."""
        self.status.consumers.post(command)

    def stop(self) -> None:
        """Commit, close the tasks, release everything. After a failure, or when called again, it does
        nothing.

        Every step is taken even if one before it failed. The first failure is raised at the end, and a failed
        commit makes the state ``failed``."""
        if self.state == "new":
            self._resources.release(lambda: None)
            self.status.state = "stopped"
        if self.state != "running":
            self.failure_hold.end()
            return
        self._check_still()
        self._context.take()
        self.is_stopping = True
        try:
            self.runtime.commits.commit(self.tasks, is_last=True)  # Step 5: commit
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self.is_stopping = False
        keep_last_snapshot(self.status)
        self.status.state = "stopped"
        self._resources.report_final()
        self._resources.release(self._close_committed, finish_pending=True)

    def abandon(self, *, stuck: bool = False) -> None:
        """Release everything as a crash would: no commit, no flush, no callback. Between two messages.
        Raises ContainerStateError.

        ``stuck``: while a task is in the middle of a message that does not end, on another thread than this
        one. If it ever continues, it has no effect: the task's handles refuse, nothing of it is sent or
        committed, and ``run`` raises there."""
        if stuck:
            self._abandoned = True
            if self.state == "running":
                keep_last_snapshot(self.status)
            if self._runtime is not None:
                self._loop.abandoned = True
            self._context.revoke()
            if self._runtime is not None:
                self._runtime.outbox.close_for_writes()
            self.pause()  # ends a burst
        else:
            self._check_outside()
        if self.state in ("new", "running"):
            self.status.state, self.status.reason = "failed", ABANDONED
        if self.has_begun:
            self._loop.paused = True
        self.failure_hold.forget()
        self._resources.release(lambda: None)

    @property
    def is_released(self) -> bool:
        """True once everything is released: it has stopped, or failed and is not held."""
        return self._resources.is_released

    @property
    def is_replaced(self) -> bool:
        """True where another process seems to have taken it over. May be read on any thread."""
        return self._runtime is not None and self._runtime.checkpoints.is_replaced()

    def fail_if_replaced(self) -> None:
        """Fail between two runs, as a run would, where another process has taken over. All is released then,
        without a commit, and nothing more is sent. Raises FencedError."""
        self._check_still()
        if self.state == "running":
            self._drive(self.runtime.outbox.check)
        elif self.failure_hold.is_held:
            try:
                self.runtime.outbox.check()
            except FencedError as error:
                self.status.reason = str(error)
                self.failure_hold.end()
                raise

    @property
    def has_begun(self) -> bool:
        """True once it reads its inputs, and from then on."""
        return self._runtime is not None

    @property
    def shut_down(self) -> bool:
        """True once the tasks have asked the container to stop."""
        return self.state == "running" and self._loop.coordination.shutdown_requested

    @property
    def at_end(self) -> bool:
        """True once all inputs have ended: nothing more will be processed, and ``run`` returns at once."""
        return self.has_begun and self._loop.coordination.at_end

    @property
    def windows_left(self) -> WindowsLeft:
        """The messages that no window() has followed yet."""
        if not self.has_begun:
            return WindowsLeft()
        return self._loop.timers.windows.left(self.status.progress.processed)

    @property
    def busy_s(self) -> float:
        """Seconds for which ``run`` or ``step`` has been busy with one message, window or commit, give or
        take a poll interval. 0 while neither runs. May be read on any thread."""
        if not self._is_advancing:
            return 0.0
        return max(
            0.0,
            (self.status.clock.monotonic_ns() - max(self._advancing_since, self._loop.timers.last_check_ns))
            / 1e9,
        )

    @property
    def current_input(self) -> IncomingMessageEnvelope | None:
        """The message that is being processed; None between two. May be read on any thread."""
        return self._context.input

    def observe(self, observer: ContainerObserver) -> None:
        """Attach an observer, before the start or between two messages. Raises ContainerStateError in the
        middle of one."""
        self._check_outside()
        self.status.observation.add(observer)
        self._show_to_observers()

    def stop_observing(self, observer: ContainerObserver) -> None:
        """Detach an observer, between two messages; nothing happens where it is not attached. Raises
        ContainerStateError."""
        self._check_outside()
        self.status.observation.remove(observer)
        self._show_to_observers()

    def _show_to_observers(self) -> None:
        """Attach the current observers to all parts. Without any, the parts call nothing."""
        if self.state not in ("new", "running"):
            return
        for task in self.status.tasks:
            task.observe()
        if self._runtime is not None:
            self._runtime.outbox.observe()
            if self._is_advancing:  # asked for by ``until``: the run looks again behind a command
                self.post(lambda: None)

    def exchange(self, what: Callable[[], None], factory: Any) -> None:
        """Exchange the code of the tasks between two messages: call ``what``, and keep ``factory`` for
        later starts. Raises ContainerStateError and what ``what`` raises; both change nothing."""
        self._check_outside()
        self.require_running()
        self._context.take()
        what()
        self.status.factory = factory

    def replace(self, what: Callable[[], None], factory: Any) -> None:
        """As ``exchange``, where ``what`` replaces state and outputs as well. If it fails, the container
        fails, because it has half of each: the next start continues from the last commit."""
        self._check_outside()
        self._drive(what)
        self.status.factory = factory

    def read_metrics(self, own: type | None = None) -> dict[str, Sequence[Reading]]:
        """All metrics as they are now by their task, those of the container under no name. On the thread that
        drives it, or between two runs: what gauges read may be a store.

        ``own``: only those of this class that tasks have registered."""
        if self.state == "running":
            self._context.take()
        if own is not None:
            return {task.name: task.metrics.readings(own) for task in self.tasks}
        return readings_by_task(self.status)

    def trace(self, trace: Trace) -> None:
        """Note in ``trace`` what happens from the start on. Before ``start``."""
        self._context.trace = self.status.consumers.trace = self.status.observation.trace = trace

    def require_running(self) -> None:
        """Raise ContainerStateError unless the container is started and has neither failed nor stopped."""
        if self.state != "running":
            hint = (
                "start() it first"
                if self.state == "new"
                else "make a new one: it goes on from the last checkpoint"
            )
            raise ContainerStateError(
                f"the container is {self.state}; {hint}" + (f" ({self.reason})" if self.reason else "")
            )

    def _check_outside(self) -> None:
        """Raise ContainerStateError in the middle of a message: a commit would make half of it durable."""
        if self.status.progress.in_iteration:
            raise ContainerStateError(
                f"{self.name} is in the middle of a message: a task asks for a commit with "
                "coordinator.commit(), and for the end with "
                "coordinator.shutdown(); post() calls a function between two messages"
            )

    def _check_still(self) -> None:
        """Raise ContainerStateError when called from within a ``run`` or ``step`` of this container."""
        self._check_outside()
        if self._is_advancing:
            raise ContainerStateError(
                f"{self.name} is running: pause() it, and go on when its run() or step() has returned"
            )

    @property
    def runtime(self) -> Runtime:
        """The parts that the start built. Before, and after a start that failed, there are none."""
        assert self._runtime is not None, "the container has not begun"
        return self._runtime

    @property
    def _loop(self) -> EventLoop:
        return self.runtime.event_loop

    def _drive(self, what: Callable[[], _T]) -> _T:
        self.require_running()
        self._context.take()
        try:
            return what()
        except BaseException as error:
            self._fail_and_raise(error)

    def _advance(self, what: Callable[[], int], *, one_by_one: bool = False) -> int:
        self.require_running()
        self._check_still()
        self._loop.dispatcher.batches.one_by_one = one_by_one
        self._runs += 1
        self._advancing_since = self.status.clock.monotonic_ns()
        self._loop.paused = False
        self._is_advancing = True
        try:
            done = self._drive(what)
            self.status.explain_held()
            return done
        finally:
            self._is_advancing = False

    def _run_until(self, until: Callable[[], object]) -> int:
        problems: list[Exception] = []

        def is_reached() -> object:
            try:
                return until()
            except Exception as error:
                problems.append(error)
                return True

        done = self._advance(lambda: self._loop.run(until=is_reached))
        if problems:
            raise problems[0]
        return done

    def _step(self, n: int) -> int:
        """Process messages one by one, the last ones with explanations, which a chooser can give only right
        after a choice.

        With batches, all choices are explained: to begin in the middle of a batch would cut it."""
        explained = min(
            self.status.choices.maxlen or 0,
            max(_EXPLAINED_LEAST, _CANDIDATES_PER_STEP // len(self.runtime.multiplexer.partitions)),
        )
        whole = self.runtime.takes_batches and not self._loop.dispatcher.batches.one_by_one
        done = 0 if whole else self._loop.run(limit=n - explained, stop_at_head=True)
        if self._loop.paused or not explained:
            return done if self._loop.paused else done + self._loop.run(limit=n - done, stop_at_head=True)

        self._loop.choice_watch.explain = self.status.explain
        try:
            return done + self._loop.run(limit=n - done, stop_at_head=True)
        finally:
            self._loop.choice_watch.explain = None

    def _start(self) -> None:
        status = self.status
        began = time.perf_counter_ns()
        status.started_ms = status.clock.now_ms()
        runtime = build(status, self._resources, self._given, self._context, self._show_start)
        self._runtime, status.multiplexer = runtime, runtime.multiplexer
        self._show_to_observers()
        begin(status, runtime)
        if self._context.trace is not None:
            self._context.trace.begin(self._context, self.status.progress)
        took = time.perf_counter_ns() - began
        status.metrics.gauge("container-startup-time", "container").set(took / 1e6)

    def _show_start(self) -> None:
        if self.on_start is not None:
            self.on_start()

    def _fail_and_raise(self, error: BaseException) -> NoReturn:
        failure: Exception | None = limit_error(error) or chooser_failure(error)
        self._fail(failure or error)
        if failure is not None:
            raise failure from error
        raise error

    def _fail(self, error: BaseException) -> None:
        """Close without a commit, or stay open for ``failure_hold``. What closing raises is only logged: the
        failure that led here is what the caller must see."""
        if self._abandoned:
            return
        keep_last_snapshot(self.status)
        # The reason first: another thread may look as soon as the state is another.
        self.status.reason = str(error) or type(error).__name__
        self.status.state = "failed"
        if self.has_begun:
            self._loop.paused = True
        capture_failure(self.status, self._runtime, error)
        if not self.failure_hold.begin(error):
            self._close_failed()

    def _close_failed(self) -> None:
        self._resources.report_final()
        try:
            self._resources.release(self._close_tasks, finish_pending=True)
        except Exception as problem:
            log.warning("while closing after a failure: %s", problem)

    def _close_tasks(self) -> None:
        do_all([task.close for task in self.status.tasks])

    def _close_committed(self) -> None:
        """Close the tasks after the last commit, and say so where one of them still does what only another
        commit would have kept."""
        try:
            self._close_tasks()
        finally:
            warn_of_uncommitted(
                self.name, 0 if self._runtime is None else len(self._runtime.collected), self.tasks
            )
