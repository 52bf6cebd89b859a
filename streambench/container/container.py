"""A container: some tasks of a job, the event loop that drives them, and everything between the streams and them.

A container made by ``from_config`` plans the job by itself and runs all its tasks. A runner that spreads a job over several containers
plans it once and hands each its part (``model``, ``number``, ``generation``).
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import CodeType
from typing import Any, Literal, NoReturn, TypeVar

from streambench import load
from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.checkpoint.choice import checkpoint_manager
from streambench.chooser.explanation import Explanation
from streambench.chooser.failure import chooser_failure
from streambench.chooser.wiring import wire_chooser
from streambench.clock import Clock, SystemClock
from streambench.config import Config
from streambench.container.atomic_outbox import AtomicOutbox, check_atomic, check_replayable, is_exactly_once
from streambench.container.commits import Commits
from streambench.container.handles import Collector, Context, Coordinator, Outgoing, Owner
from streambench.container.inputs import checked_inputs, commit_interval, compare_in, lanes_of, longest_run, room
from streambench.container.intake import Command, Intake, by_system
from streambench.container.listeners import lifecycle_listeners
from streambench.container.loop import EventLoop
from streambench.container.multiplexer import Multiplexer
from streambench.container.offsets import StartingOffsets
from streambench.container.outbox import LiveOutbox, Outbox
from streambench.container.rejects import PassedOver, Rejects
from streambench.container.reporting import Reporting
from streambench.container.snapshot import ContainerSnapshot, PartitionSnapshot, partition_snapshots, take_snapshot
from streambench.container.state import RestoreProgress, State
from streambench.container.task_instance import EventObserver, TaskInstance, check_task, task_object
from streambench.errors import ConfigError, ContainerStateError, FencedError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.planning.model import ContainerModel, JobModel
from streambench.planning.places import open_generation
from streambench.planning.plan import Metadata, all_inputs, job_name, plan
from streambench.serde.streams import StreamSerdes
from streambench.system.systems import Systems
from streambench.task import RequestScope

log = logging.getLogger(__name__)

_T = TypeVar("_T")

ContainerState = Literal["new", "running", "stopped", "failed"]
# Explaining a choice looks at every candidate: of a step over many partitions only the last choices are explained.
_EXPLAINED_LEAST = 10
_CANDIDATES_PER_STEP = 20_000

Until = Literal["caught-up"] | int | Callable[[], object] | None


class Container:
    """Runs tasks. ``start``, then ``step`` or ``run`` as often as one likes, then ``stop``.

    All of these are called on one thread at a time; from other threads only ``post`` and ``pause`` may be used. When a task (or a system)
    raises, the container closes its tasks without a commit, its state is ``failed``, and the next start goes on from the last checkpoint.
    """

    def __init__(
        self,
        config: Config | Mapping[str, Any] | str | Path,
        task: Any = None,
        *,
        model: JobModel | None = None,
        number: int = 0,
        generation: int | None = None,
        systems: Systems | None = None,
        checkpoints: CheckpointManager | None = None,
        clock: Clock | None = None,
        ends: Mapping[SystemStreamPartition, str] | None = None,
        observer: EventObserver | None = None,
        remember_choices: int = 0,
    ) -> None:
        """``config``: a Config, a mapping, or the path of a properties file. ``task``: a task class or process function, instead of
        ``task.class``. ``ends``: per input partition the first offset that is not read any more. ``observer`` is told of every call and
        effect; ``remember_choices``: how many of the last choices a snapshot shows."""
        self.config = config = Config.of(config)
        config.validate()
        self.factory = task if task is not None else load.by_path(config, "task.class", config.required("task.class"))
        self.name = job_name(config, self.factory)
        self.number = number
        self.state: ContainerState = "new"
        self.reason = ""
        self.has_begun = False
        """Whether it has come so far as to read its inputs."""
        self.metrics = MetricsRegistry()
        self._commit_ns = self.metrics.timer("commit-ns", "container")
        self.choices: deque[IncomingMessageEnvelope] = deque(maxlen=remember_choices)
        self.explanations: dict[tuple[SystemStreamPartition, str], Explanation] = {}
        self.restoring: RestoreProgress | None = None
        self.on_restore: Callable[[], object] | None = None
        """Called now and then while ``start`` restores state, which may take long; a snapshot tells how far it is."""
        self.last_partitions: tuple[PartitionSnapshot, ...] = ()
        self.seen: dict[SystemStream, Mapping[int, PartitionMetadata]] = {}
        """What the input streams held when their systems last answered."""
        self.is_stopping = False
        """Whether it is at its last commit."""
        self.started_ms = 0
        self._model = model
        self._generation = generation
        self._systems = systems or Systems(config)
        self._checkpoints = checkpoints
        self._clock = clock or SystemClock()
        self._ends = dict(ends or {})
        self._observer = observer
        self._owner = Owner()
        self._tasks: list[TaskInstance] = []
        self._writers: list[Callable[[], None]] = []
        self._reporting: Reporting | None = None
        self._outgoing: Outgoing = []
        self._requests: list[Coordinator] = []
        self._intake = Intake(self._clock)
        self._runs = 0
        self._is_advancing = self._abandoned = False
        check_task(self.factory)

    @classmethod
    def from_config(cls, config: Config | Mapping[str, Any] | str | Path, task: Any = None) -> Container:
        """A container with all tasks of the job. The inputs need not exist before ``start``. Raises ConfigError."""
        return cls(config, task, remember_choices=100)

    def start(self) -> None:
        """Plan (unless that was done), take over from older starts, restore state, call the tasks' ``init``, begin to read.

        Raises ConfigError, UnknownStreamError, CheckpointError, FencedError, TaskError; the container has then let go of everything."""
        if self.state != "new":
            raise ContainerStateError(f"this container is {self.state}; it can be started only once: make a new one")
        self._owner.take()
        try:
            self._start()
        except BaseException as error:
            self._fail_and_raise(error)
        self.state = "running"

    def step(self, n: int = 1, *, runs: bool = False) -> int:
        """Process up to ``n`` messages; how many were. Waits until a message is there, or every input is known to be at its head.

        A task that takes batches gets them one at a time; with ``runs`` in runs, as in ``run``."""
        return self._advance(lambda: self._step(n), one_by_one=not runs)

    def run(self, until: Until = None) -> int:
        """Process messages; how many. ``"caught-up"``: to the head of all inputs; an int: so many; a callable: until it returns true (it
        is asked between messages, or runs of them, and again and again while there are none; what it raises ends the run, not the
        container); None: until paused or shut down by a task. Each of them returns as well when all inputs have come to their end
        (``at_end``)."""
        if until is None:
            return self._advance(lambda: self._loop.run())
        if until == "caught-up":
            return self._advance(lambda: self._loop.run(stop_at_head=True))
        if isinstance(until, int) and not isinstance(until, bool):
            return self._advance(lambda: self._loop.run(limit=until))
        if callable(until):
            return self._run_until(until)
        raise ConfigError(f"run until {until!r}? Give 'caught-up', a number of messages, a function, or nothing")

    def commit(self) -> None:
        """Commit all tasks now. Between two messages: a task asks its coordinator. Raises ContainerStateError."""
        self._check_outside()
        self._drive(lambda: self._commit(self._tasks))

    def pause(self) -> None:
        """Have the ``run`` or ``step`` that goes on at present return after the message it is at; a later one is not concerned. May be
        called from any thread."""
        run = self._runs

        def pause() -> None:
            if self._runs == run:
                self._loop.paused = True

        self.post(pause)

    def post(self, command: Command) -> None:
        """Have the event loop call ``command`` between two messages, while it runs. May be called from any thread."""
        self._intake.post(command)

    def stop(self) -> None:
        """Commit, close the tasks, let go of everything. After a failure, or when called again, it does nothing.

        Every step is taken even if one before it failed; the first failure is raised at the end, and a failed commit makes the state
        ``failed``."""
        if self.state == "new":
            self._release(lambda: None)
            self.state = "stopped"
        if self.state != "running":
            return
        self._check_still()
        self._owner.take()
        self.is_stopping = True
        try:
            self._commit(self._tasks)
        except BaseException as error:
            self._fail(error)
            raise
        finally:
            self.is_stopping = False
        self._keep_last_picture()
        self.state = "stopped"
        self._tell_last()
        self._release(self._close_committed, settle=True)

    def abandon(self, *, stuck: bool = False) -> None:
        """Let go of everything as a crash would: no commit, no flush, no callback. Between two messages. Raises ContainerStateError.

        ``stuck``: while a task is in the middle of a message that does not end, on another thread than this one. If it ever goes on, it can
        do nothing any more: what its task was handed refuses, nothing of it is sent or committed, and ``run`` raises there."""
        if stuck:
            self._abandoned = True
            if self.state == "running":
                self._keep_last_picture()
            self._loop.abandoned = True
            self._owner.revoke()
            self._outbox.refuse()
            self.pause()  # ends turns
        else:
            self._check_outside()
        if self.state in ("new", "running"):
            self.state, self.reason = "failed", "abandoned"
        if self.has_begun:
            self._loop.paused = True
        self._release(lambda: None)

    def snapshot(self) -> ContainerSnapshot:
        """A picture of the container as it is now. On the thread that drives it, or between runs."""
        return take_snapshot(self)

    @property
    def shut_down(self) -> bool:
        """Whether the tasks have asked the container to stop."""
        return self.state == "running" and self._loop.shutdown_requested

    @property
    def at_end(self) -> bool:
        """Whether all inputs have come to their end: nothing more will ever be processed, and ``run`` returns at once."""
        return self.has_begun and self._loop.at_end

    @property
    def processed(self) -> int:
        """How many messages were processed so far; a broadcast message counts once."""
        return self._loop.processed if self.has_begun else 0

    @property
    def nulls(self) -> int:
        """How often there was no message to choose."""
        return self._loop.nulls if self.has_begun else 0

    @property
    def chosen(self) -> int:
        """How many messages were chosen so far: those that were processed, and the one at which a failure ended it."""
        return self.processed + (self._loop.unfinished_count if self.has_begun else 0)

    @property
    def passed_over(self) -> PassedOver:
        """How many messages were dropped or dead-lettered, and failures ignored, so far."""
        return self._rejects.counts + PassedOver(ignored=self._loop.ignored) if self.has_begun else PassedOver()

    @property
    def busy_s(self) -> float:
        """For how many seconds ``run`` or ``step`` has been busy with one message (or one window, or commit), give or take a poll interval;
        0 where neither goes on at present. May be read on any thread."""
        if not self._is_advancing:
            return 0.0
        return max(0.0, (self._clock.monotonic_ns() - max(self._advancing_since, self._loop.came_round_ns)) / 1e9)

    @property
    def callbacks(self) -> set[CodeType]:
        """The code of the tasks' callbacks, as far as it is written in Python: a thread that has a frame of it is in the middle of one."""
        return {code for task in self._tasks for code in task.codes()}

    @property
    def polls(self) -> Mapping[str, int]:
        """How often each system was polled so far."""
        return self._intake.polls

    @property
    def tasks(self) -> Sequence[TaskInstance]:
        """The task instances, in natural order of their names."""
        return tuple(self._tasks)

    def on_choice(self, observe: Callable[[IncomingMessageEnvelope], object] | None) -> None:
        """Show each chosen message to ``observe`` before its task sees it; None: to nobody, which costs nothing."""
        self._loop.runs.shown = self.choices.maxlen if observe is None else None
        self._loop.on_choice = observe

    def require_running(self) -> None:
        """Raise ContainerStateError unless the container is started and has neither failed nor stopped."""
        if self.state != "running":
            hint = "start() it first" if self.state == "new" else "make a new one: it goes on from the last checkpoint"
            raise ContainerStateError(f"the container is {self.state}; {hint}" + (f" ({self.reason})" if self.reason else ""))

    def _check_outside(self) -> None:
        """Raise ContainerStateError in the middle of a message, half of which a commit would make durable."""
        if self.has_begun and self._loop.is_inside:
            raise ContainerStateError(
                f"{self.name} is in the middle of a message: a task asks for a commit with coordinator.commit(), and for the end with "
                "coordinator.shutdown(); what is between two messages can be done by what is posted"
            )

    def _check_still(self) -> None:
        """Raise ContainerStateError where a ``run`` or ``step`` of this container is what led here."""
        self._check_outside()
        if self._is_advancing:
            raise ContainerStateError(f"{self.name} is running: pause() it, and go on when its run() or step() has returned")

    def _drive(self, what: Callable[[], _T]) -> _T:
        self.require_running()
        self._owner.take()
        try:
            return what()
        except BaseException as error:
            self._fail_and_raise(error)

    def _advance(self, what: Callable[[], int], *, one_by_one: bool = False) -> int:
        self.require_running()
        self._check_still()
        self._loop.runs.one_by_one = one_by_one
        self._runs += 1
        self._advancing_since = self._clock.monotonic_ns()
        self._loop.paused = False
        self._is_advancing = True
        try:
            return self._drive(what)
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
        """Of the last messages of a step the chooser explains itself, one by one: while it still stands as it did when it chose."""
        explained = min(self.choices.maxlen or 0, max(_EXPLAINED_LEAST, _CANDIDATES_PER_STEP // len(self._multiplexer.lanes)))
        done = self._loop.run(limit=n - explained, stop_at_head=True)
        observe = self._loop.on_choice
        if self._loop.paused or not explained:
            return done if self._loop.paused else done + self._loop.run(limit=n - done, stop_at_head=True)

        def explained_too(envelope: IncomingMessageEnvelope) -> None:
            if observe is not None:
                observe(envelope)
            self._explain(envelope)

        self._loop.on_choice = explained_too
        try:
            return done + self._loop.run(limit=n - done, stop_at_head=True)
        finally:
            if self._loop.on_choice is explained_too:
                self._loop.on_choice = observe

    def _explain(self, envelope: IncomingMessageEnvelope) -> None:
        """Keep why this message was chosen just now, for as long as the choice is remembered."""
        why = self._multiplexer.explain(envelope, self._multiplexer.lanes[envelope.ssp])
        self.explanations[envelope.ssp, envelope.offset] = why
        while len(self.explanations) > len(self.choices):
            del self.explanations[next(iter(self.explanations))]

    def _start(self) -> None:
        began = time.perf_counter_ns()
        config = self.config
        self.started_ms = self._clock.now_ms()
        reporting = self._reporting = Reporting(config, self.name, self.number, self._systems, self._clock, self.metrics)
        reporting.start(self)
        inputs = checked_inputs(config, self.name, self._systems)
        metadata = self._systems.inputs(inputs)
        self._serdes = StreamSerdes(config)
        self._rejects = Rejects(config, self._systems, self._outgoing, self.metrics)
        checkpoints = self._checkpoints = self._checkpoints or checkpoint_manager(config, self.name)
        if self._model is None:
            self._model = plan(config.with_values({"job.container.count": 1}), self.name, metadata, checkpoints.last_generation())
        model = self._model
        container = model.containers[self.number]
        now_ms = self._clock.now_ms()
        exactly_once = is_exactly_once(config)
        if exactly_once:
            check_replayable(config, inputs, self._systems)
            check_atomic(config, self.name, self._systems, checkpoints)
        if self._generation is None:
            self._generation = open_generation(checkpoints, model, now_ms=now_ms).number
        epoch = checkpoints.claim(self._generation, self.number, now_ms=now_ms)
        last = checkpoints.read_last()
        # Until it was fenced, a former holder has gone on, perhaps with what has arrived since.
        metadata = self._systems.inputs(inputs)
        on_send = None if self._observer is None else self._observe_send
        parts = (self._systems, checkpoints, self._serdes, self.metrics, self._rejects, on_send)
        self._outbox: Outbox
        if exactly_once:
            self._outbox = AtomicOutbox(*parts, config=config, inputs=inputs, on_full=self._request_commit)
        else:
            self._outbox = LiveOutbox(*parts)
        self._writers.append(self._outbox.stop)
        self._meter = self.metrics if config.text("metrics.timer.enabled") == "true" else None
        self._state_of_tasks = State(
            config, self.name, self._systems, container, model.changelog_partitions, self._owner,
            clock=self._clock, metrics=self.metrics, directory=checkpoints.directory, last=last, meter=self._meter,
        )  # fmt: skip
        self._writers.append(self._state_of_tasks.close)
        self._commits = Commits(
            self._tasks, self._outbox, self._state_of_tasks, checkpoints, self._clock, self._observer, systems=self._systems
        )
        try:
            self._outbox.start([task.name for task in container.tasks], self._state_of_tasks.fenced(), self._generation, epoch)
        except FencedError as error:
            if last:
                raise
            # Fences that are ahead of checkpoints that do not exist.
            raise FencedError(
                f"{error}. If nothing of this job runs, its checkpoints have been deleted or lie elsewhere: bring them back, or delete "
                "this changelog to begin anew"
            ) from error
        began_restore = time.perf_counter_ns()
        corrections = self._state_of_tasks.restore(last, self._tell_of_restore)
        self.metrics.gauge("restore-time", "container").set((time.perf_counter_ns() - began_restore) / 1e6)
        self.restoring = None
        self._outbox.correct(corrections)
        self._make_tasks(container)
        generation = checkpoints.last_generation()
        starting = StartingOffsets(config, self._systems, metadata, last, generation.known if generation else frozenset())
        self._place_tasks(last, starting)
        for task in self._tasks:
            placed = [(each.start, each.offset) for each in task.subscriptions]
            task.init()
            task.context.start_at = None
            for each, former in zip(task.subscriptions, placed, strict=True):
                if (each.start, each.offset) != former:
                    each.start = starting.asked_for(task.name, each.ssp, each.start)
        self._commits.record_starts(last, {each.changelog for each in corrections})
        self._begin_to_read(metadata, reporting)
        self.metrics.gauge("container-startup-time", "container").set((time.perf_counter_ns() - began) / 1e6)

    def _make_tasks(self, container: ContainerModel) -> None:
        outgoing, requests = self._outgoing, self._requests
        listeners = lifecycle_listeners(self.config)
        # A run of messages takes so long that to time it costs nothing.
        run_timer = None if self.config.text("metrics.timer.enabled") == "false" else self.metrics.timer("process-ns", "container")
        timer = None if self._meter is None else run_timer
        for model in container.tasks:
            stores = self._state_of_tasks.stores(model.name)
            metrics = MetricsRegistry(getattr(self.factory, "__name__", "user"))
            context = Context(model.name, model.partitions, self.config, metrics, stores, self._owner)
            self._tasks.append(
                TaskInstance(
                    model, task_object(self.factory, self.config), context,
                    lambda task: Collector(task, outgoing, self._owner),
                    lambda task: Coordinator(task, requests, self._owner),
                    stores, metrics, listeners, self._observer, timer, run_timer,
                )
            )  # fmt: skip

    def _place_tasks(self, last: Mapping[str, Checkpoint], starting: StartingOffsets) -> None:
        for task in self._tasks:
            for subscription in task.subscriptions:
                subscription.start, subscription.offset = starting.of(task.name, subscription.ssp, last.get(task.name))
            task.committed = task.offsets()
            task.context.start_at = task.start_at

    def _begin_to_read(self, metadata: Metadata, reporting: Reporting) -> None:
        self.seen = dict(metadata)
        config = self.config
        lanes = lanes_of(config, self._tasks, self._systems, self._serdes, metadata, self._ends)
        takes_batches = any(task.takes_batches for task in self._tasks)
        longest = longest_run(config)
        if takes_batches:
            for lane in lanes.values():
                lane.take_batches(longest, room(config, lane.ssp.system))
        inputs = sorted({ssp.system_stream for ssp in lanes})
        chooser = wire_chooser(config, inputs, metadata, self.metrics, compare_in(inputs, self._systems), self._clock)
        multiplexer = Multiplexer(self._intake, chooser, lanes, compare=self._compare)
        self._multiplexer = multiplexer
        starts = by_system({ssp: lane.start for ssp, lane in lanes.items()})
        read = all_inputs(config)
        consumers = {system: self._systems.input(system, self.metrics, read, self.name) for system in starts}
        self._loop = EventLoop(
            self._tasks, multiplexer, self._intake, self._outbox, self._commit, self.metrics,
            owner=self._owner, outgoing=self._outgoing, requests=self._requests, clock=self._clock,
            window_ms=config.integer("task.window.ms"), commit_ms=commit_interval(config, consumers.values()),
            poll_ms=config.integer("task.poll.interval.ms"), idle_ms=config.integer("task.max.idle.ms"),
            rejects=self._rejects, compare=self._compare, ignored=config.names("task.ignored.exceptions"), observer=self._observer,
            longest_run=longest, timing=config.required("metrics.timer.enabled"), report=reporting.at,
        )  # fmt: skip
        self.has_begun = True
        self._loop.choices = self.choices if self.choices.maxlen else None
        self.on_choice(None)
        for system, consumer in consumers.items():
            self._intake.add(system, consumer, starts[system], room(config, system), runs=takes_batches)
        self._commits.acknowledge_by(self._intake, lanes.values(), self._systems)
        multiplexer.start()
        reporting.begin()
        self._loop.start()

    def _compare(self, system: str, offset: str, other: str) -> int | None:
        return self._systems.admin(system).compare(offset, other)

    def _commit(self, tasks: Sequence[TaskInstance]) -> None:
        with self._commit_ns.time():
            self._commits.commit(tasks)

    def _request_commit(self) -> None:
        """Have the event loop commit at the end of this iteration."""
        self._tasks[0].coordinator.commit(RequestScope.ALL_TASKS_IN_CONTAINER)

    def _tell_of_restore(self, progress: RestoreProgress) -> None:
        self.restoring = progress
        if self.on_restore is not None:
            self.on_restore()

    def _observe_send(self, task: str, stream: Any) -> None:
        assert self._observer is not None
        self._observer("send", task, str(stream))

    def _fail_and_raise(self, error: BaseException) -> NoReturn:
        failure = chooser_failure(error)
        self._fail(failure or error)
        if failure is not None:
            raise failure from error
        raise error

    def _fail(self, error: BaseException) -> None:
        """Close without a commit. What closing raises is only logged: the failure that led here is what the caller must see."""
        if self._abandoned:
            return
        self._keep_last_picture()
        self.state = "failed"
        self.reason = str(error) or type(error).__name__
        if self.has_begun:
            self._loop.paused = True
        self._tell_last()
        try:
            self._release(self._close_tasks, settle=True)
        except Exception as problem:
            log.warning("while closing after a failure: %s", problem)

    def _keep_last_picture(self) -> None:
        """What a snapshot will show when neither the systems nor the chooser can be asked any more."""
        try:
            self.last_partitions = partition_snapshots(self)
            if self.choices:
                last = self.choices[-1]
                why = self._multiplexer.explain(last, self._loop.awaiting_refill)
                self.explanations.setdefault((last.ssp, last.offset), why)
        except Exception as problem:
            log.warning("no last picture of the inputs: %s", problem)

    def _tell_last(self) -> None:
        if self._reporting is not None:
            self._reporting.tell_last()

    def _close_tasks(self) -> None:
        do_all([task.close for task in self._tasks])

    def _close_committed(self) -> None:
        """Close the tasks after the last commit, and say so where one of them still does what only another commit would have kept."""
        try:
            self._close_tasks()
        finally:
            sent, changed = len(self._outgoing), sum(store.changes for task in self._tasks for store in task.stores.values())
            if sent or changed:
                log.warning(
                    "%s: what tasks did in close() is lost, because the last commit comes before it (messages sent: %d, keys of stores "
                    "changed: %d); do it in process(), window() or end_of_stream()", self.name, sent, changed,
                )  # fmt: skip

    def _release(self, close_tasks: Callable[[], None], *, settle: bool = False) -> None:
        """Stop reading, close the tasks, stop writing; every step even if one before failed, whose error is raised at the end. ``settle``:
        wait until everybody can read what was committed."""
        steps: list[Callable[[], None]] = [lambda: self._intake.stop(self.config.integer("task.shutdown.ms"))]
        if self.has_begun:
            steps.append(self._multiplexer.stop)
        steps += [close_tasks, *reversed(self._writers)]
        if self._checkpoints is not None:
            steps += [*([self._checkpoints.settle] if settle else []), self._checkpoints.close]
        if self._reporting is not None:
            steps.append(self._reporting.stop)
        steps.append(self._systems.close)
        do_all(steps)
