"""The event loop. There is only this one: stepping, running, Spark and tests are callers of ``EventLoop.run``.

One iteration, in this order, always on one thread:

    1  take the message that the chooser chose      4  send what process() and window() collected
    2  call the task's process()                    5  commit what is due or was asked for
    3  call window() where its time has come

The loop is written for speed: everything it needs with every message is a local name, and whatever only some jobs need (listeners,
observers, broadcast inputs) is bound elsewhere, beforehand, so that the others do not pay for it. Where partitions only take turns and
nobody looks at each choice, many choices are made at once (``turns``). Plain messages may then be sent behind a few more inputs, though
before a window or a commit: to go on with one kind of work is quicker than to change.
"""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Callable, Collection, Sequence

from streambench.batch import MessageBatch
from streambench.chunk import Undecodable
from streambench.clock import Clock
from streambench.container.batches import Runs, place_of
from streambench.container.handles import Coordinator, Outgoing, Owner
from streambench.container.intake import Arrival, Intake, ReaderFailure
from streambench.container.multiplexer import Lane, Multiplexer
from streambench.container.outbox import Outbox
from streambench.container.rejects import Rejects, is_letter, noting
from streambench.container.task_instance import EventObserver, Subscription, TaskInstance, is_ignored
from streambench.container.turns import FEWEST, Turning, Turns, take_turns
from streambench.errors import ConfigError, ContainerStateError, MessageTooLargeError, SerdeError, shortened
from streambench.metrics.registry import MetricsRegistry, Timer
from streambench.metrics.utilization import Utilization
from streambench.model import IncomingMessageEnvelope
from streambench.task import RequestScope

_NEVER = sys.maxsize
_MS = 1_000_000
_LOOKED_AT = 250
# So many choices are made one by one after turns that were cut short almost at once: a job that commits with each message, say.
_ALONE = 64

_Unsent = SerdeError | ConfigError | MessageTooLargeError

ChoiceObserver = Callable[[IncomingMessageEnvelope], object]


class EventLoop:
    """Drives tasks with messages until it is told to stop.

    ``commit(tasks)`` is called for step 5 with the tasks that are due. ``on_choice``, if set, sees each chosen message before its task
    does; ``choices``, if set, gets the last ones that were chosen. ``processed`` is how many messages were chosen so far (a broadcast
    message counts once), ``nulls`` how many iterations found none, ``ignored`` how many exceptions were passed over. ``unfinished`` is the
    message at which an exception ended the loop, None where it was not ended by one or between two messages; of a run of messages it is
    the first, and ``unfinished_count`` says how many there are. ``paused`` makes ``run`` return; ``abandoned`` makes it raise
    ContainerStateError, on whichever thread it is, before it does anything else. ``is_inside``: an iteration goes on at
    present, so that nothing may be committed but by the loop itself. Tasks that take batches get ``runs``.
    """

    def __init__(
        self,
        tasks: Sequence[TaskInstance],
        multiplexer: Multiplexer,
        intake: Intake,
        outbox: Outbox,
        commit: Callable[[Sequence[TaskInstance]], None],
        metrics: MetricsRegistry,
        *,
        owner: Owner,
        outgoing: Outgoing,
        rejects: Rejects,
        requests: list[Coordinator],
        clock: Clock,
        window_ms: int,
        commit_ms: int,
        poll_ms: int,
        idle_ms: int,
        compare: Callable[[str, str, str], int | None],
        ignored: Collection[str] = (),
        observer: EventObserver | None = None,
        longest_run: int = 1,
        timing: str = "sampled",
        report: Callable[[int], int] | None = None,
    ) -> None:
        """``timing``: what ``metrics.timer.enabled`` says. ``report(now)`` is told when metrics may be due, and returns when it is to be
        told next."""
        self.processed = self.nulls = 0
        self.paused = self.is_inside = self.abandoned = False
        self.unfinished: IncomingMessageEnvelope | None = None
        self.unfinished_count = 0
        self.on_choice: ChoiceObserver | None = None
        self.choices: deque[IncomingMessageEnvelope] | None = None
        self.shutdown_requested = False
        self.at_end = False
        self._tasks = tasks
        self._windowed = [task for task in tasks if task.window is not None]
        self._multiplexer = multiplexer
        self._intake = intake
        self._outbox = outbox
        self._commit = commit
        self._owner = owner
        self._outgoing = outgoing
        self._requests = requests
        self._clock = clock
        self._window_every = window_ms * _MS if window_ms > 0 and self._windowed else _NEVER
        self._commit_every = commit_ms * _MS if commit_ms > 0 else _NEVER
        self._look_every = poll_ms * _MS
        self._idle_ms = idle_ms
        self._compare = compare
        self._ignored = frozenset(ignored)
        self._observer = observer
        self._rejects = rejects
        self.ignored = 0
        self._served: Lane | None = None
        self._of_window: tuple[int, object] = (0, None)
        self._wants_shutdown: set[str] = set()
        self._ended: set[str] = set()
        self._windows = metrics.counter("window-calls", "container")
        self._commits = metrics.counter("commit-calls", "container")
        self._metrics = metrics
        self._window_ns = metrics.timer("window-ns", "container")
        self._blocked = metrics.timer("block-ns", "container")
        metrics.gauge("event-loop-utilization", "container", Utilization(lambda: self._blocked.total).read)
        self._choose_ns = metrics.timer("choose-ns", "container") if timing == "true" else None
        self._sampled_ns = metrics.timer("process-ns", "container") if timing == "sampled" else None
        self._is_sampled = False
        self._report = report
        self._report_at = _NEVER
        self._last_window = self._last_commit = self._last_look = 0
        self._question, self._asked_after = -1, 0
        self._turning = Turning(outbox, owner, outgoing, requests, intake.inbox, clock, self._failed)
        self.runs = Runs(longest_run, multiplexer, outgoing, reject=rejects.undecodable, failed=self._failed_at_run, begins=self._begins_at)

    def start(self) -> None:
        """Let the time of windows and commits run from now on."""
        now = self._clock.monotonic_ns()
        self._last_window = self._last_commit = self._last_look = now
        if self._report is not None:
            self._report_at = self._report(now)

    @property
    def came_round_ns(self) -> int:
        """When ``run`` last saw to its timers between two messages (on the container's clock, monotonic), which it does at every poll
        interval unless one message takes longer."""
        return self._last_look

    @property
    def awaiting_refill(self) -> Lane | None:
        """The lane whose candidate was chosen last and whose next message has not been offered yet: that happens when ``run`` goes on."""
        return self._served

    def run(self, *, limit: int | None = None, until: Callable[[], object] | None = None, stop_at_head: bool = False) -> int:
        """Process messages; how many. Returns after ``limit`` of them, once ``until()`` is true (asked between messages and when idle),
        with ``stop_at_head`` once all inputs are caught up, when paused, when a task has shut the container down, or when all inputs have
        come to their end. Raises TaskError and others."""
        if limit is not None and limit <= 0:
            return 0
        chooser = self._multiplexer.chooser
        queue = chooser.rotation() if limit is None and until is None and self._choose_ns is None else None
        choose, empty = chooser.quickest() if self._choose_ns is None else (_timed(chooser.choose, self._choose_ns), ())
        update = chooser.update
        offer = self._multiplexer.offer
        lanes = self._multiplexer.lanes
        inbox = self._intake.inbox
        read_clock = self._clock.monotonic_ns
        send = self._outbox.send
        outgoing, requests, owner = self._outgoing, self._requests, self._owner
        on_choice, is_free = self._choice_observer(), self._may_take_turns()
        last = -1 if limit is None else limit
        base = self.processed
        processed = 0
        due = self._next_due()
        self._question = -1
        lane, self._served = self._served, None
        idle_at = -1
        envelope: IncomingMessageEnvelope | None = None
        turns: Turns | None = None
        most, alone = FEWEST, 0
        found = False
        self.is_inside = True
        try:
            # Not "while not ...": Python 3.11 specializes the code of a call that goes on only at a jump back without a condition.
            while True:
                if self.shutdown_requested:
                    break
                if inbox:
                    self.processed, self._served = base + processed, lane
                    self._take_in()
                    if outgoing:
                        send(outgoing)
                        outgoing.clear()
                    on_choice, is_free = self._choice_observer(), self._may_take_turns()
                    if self.paused:
                        break
                if lane is not None:
                    buffer = lane.buffer
                    if buffer:
                        update(buffer.popleft())
                    else:
                        offer(lane)
                        lane = None
                if queue and is_free and processed >= alone and not self._is_sampled:
                    turns = take_turns(queue, lanes, most)
                if turns is not None:
                    try:
                        self._turning.run(turns, due)
                    finally:
                        envelope, lane = turns.last, turns.served
                        processed += turns.done
                        if self.choices is not None:
                            self.choices.extend(turns.chosen(self.choices.maxlen or 0))
                    most = turns.how_many_next(most)
                    if most < FEWEST:
                        most, alone = FEWEST, processed + _ALONE
                    turns = None  # its messages are let go of while they are in the processor's cache
                else:
                    try:
                        envelope = choose()
                    except empty:
                        envelope = None
                    if envelope is None:
                        lane = None
                        self.nulls += 1
                        found = self._multiplexer.look()
                        if self._multiplexer.ended:
                            self._end_inputs()
                    else:
                        lane = lanes[envelope.ssp]
                        if self._is_sampled:
                            self._time(lane)
                        owner.input = envelope
                        if on_choice is not None:
                            on_choice(envelope)
                        subscription = lane.single
                        if subscription is not None:
                            # Looked up, then called: to call the attribute at once takes the interpreter five times as long.
                            process = subscription.process
                            try:
                                process(envelope, subscription.collector, subscription.coordinator)
                            except Exception as error:
                                self._failed(error, subscription.coordinator, envelope, 0)
                            subscription.offset = envelope.offset
                        elif lane.waiting is None:
                            self._deliver(lane, envelope)
                        else:
                            at_most = None if limit is None else limit - processed
                            processed += self.runs.deliver(lane, lane.waiting, at_most, self._shown()) - 1
                        processed += 1
                now = read_clock()
                if now >= due:
                    due = self._timers(now, envelope)
                if outgoing:
                    send(outgoing)
                    outgoing.clear()
                if requests:
                    self._serve(requests)
                if envelope is None:
                    if found or self._look_again() or self._multiplexer.ended:
                        continue
                    if self.at_end or (stop_at_head and self._has_caught_up(processed)):
                        break
                    if until is not None and self._is_reached(until, base + processed, lane):
                        break
                    left = max(0, (self._next_chore() - now) / _MS)
                    with self._blocked.time():
                        self._intake.wait(min(self._idle_ms, left), left if processed == idle_at else 0)
                    idle_at = processed
                elif processed == last or (until is not None and self._is_reached(until, base + processed, lane)):
                    break
        except BaseException as error:
            self.unfinished = self._unfinished(envelope)
            if isinstance(error, _Unsent):
                placed = self._placed(error)
                placed.__cause__ = error.__cause__  # not by ``from``, which mypyc does not know
                raise placed  # noqa: B904
            raise
        finally:
            self.is_inside = False
            outgoing.clear()
            self.processed = base + processed
            self._served = lane
        return processed

    def _has_caught_up(self, processed: int) -> bool:
        """Whether nothing waits anywhere, as seen after ``run`` began; and after the last message, where the job feeds an input of its own.
        Not after each message: where they trickle in, that would never be so."""
        if not self._multiplexer.caught_up():
            return False
        if self._question < 0 or (processed != self._asked_after and self._multiplexer.reads_any(self._outbox.streams)):
            self._question, self._asked_after = self._intake.ask(), processed
        return self._intake.has_answer(self._question, self._multiplexer.systems()) and not self._intake.inbox

    def _shown(self) -> ChoiceObserver | None:
        observe, remember = self.on_choice, None if self.choices is None else self.choices.append
        if observe is None or remember is None:
            return observe or remember

        def both(envelope: IncomingMessageEnvelope) -> None:
            remember(envelope)
            observe(envelope)

        return both

    def _choice_observer(self) -> ChoiceObserver | None:
        return noting(self._rejects, self._shown()) if self._rejects.notes_input else self._shown()

    def _may_take_turns(self) -> bool:
        """Whether nobody has to see each message before its task does, or each step when it is taken."""
        return self.on_choice is None and self._observer is None and not self._rejects.notes_input

    def _is_reached(self, until: Callable[[], object], processed: int, lane: Lane | None) -> bool:
        """Ask ``until``, which may look at the container."""
        self.processed, self._served, self.is_inside = processed, lane, False
        reached = bool(until())
        self.is_inside = True
        return reached or self.paused

    def _take_in(self) -> None:
        """See to what other threads brought."""
        inbox = self._intake.inbox
        while inbox and not self.paused:
            item = inbox.popleft()
            if isinstance(item, Arrival):
                self._multiplexer.accept(item)
            elif isinstance(item, ReaderFailure):
                raise item.error
            else:
                self.is_inside = False
                item()
                self.is_inside = True

    def _look_again(self) -> bool:
        """When there is nothing to do: let out what is still kept back, since it may be an input of this very job."""
        if self._outbox.flush():
            self._run_commit(self._tasks)
        return self._multiplexer.look()

    def _deliver(self, lane: Lane, envelope: IncomingMessageEnvelope) -> None:
        """Give a message to each of several tasks, except to those that begin later. One that cannot be decoded is passed over, if the
        configuration says so."""
        if type(envelope) is Undecodable:
            self._pass_over_undecodable(lane, envelope)
            return
        for subscription in lane.subscriptions:
            if self._begins_later(subscription, envelope):
                continue
            mark = len(self._outgoing)
            try:
                subscription.process(envelope, subscription.collector, subscription.coordinator)
            except Exception as error:
                self._failed(error, subscription.coordinator, envelope, mark)
            subscription.offset = envelope.offset

    def _pass_over_undecodable(self, lane: Lane, envelope: Undecodable) -> None:
        reached = [each for each in lane.subscriptions if not self._begins_later(each, envelope)]
        self._rejects.undecodable(reached[0].task.name, envelope, envelope.error)
        for subscription in reached:
            subscription.offset = envelope.offset
        lane.undecodable -= 1
        lane.find_single()

    def _begins_later(self, subscription: Subscription, envelope: IncomingMessageEnvelope) -> bool:
        if subscription.skip_before is None:
            return False
        if (self._compare(envelope.ssp.system, envelope.offset, subscription.skip_before) or 0) < 0:
            subscription.skipped += 1
            return True
        subscription.skip_before = None
        return False

    def _unfinished(self, envelope: IncomingMessageEnvelope | None) -> IncomingMessageEnvelope | None:
        """The message, if some task was to process it and has not."""
        if envelope is None:
            return None
        lane = self._multiplexer.lanes[envelope.ssp]
        run = lane.waiting.taken if lane.waiting is not None else None
        last, self.unfinished_count = (envelope.offset, 1) if run is None else (run.last_offset, len(run))
        if all(each.offset == last or each.skip_before is not None for each in lane.subscriptions):
            self.unfinished_count = 0
            return None
        return envelope

    def _failed_at_run(self, error: Exception, subscription: Subscription, batch: MessageBatch, mark: int) -> None:
        """As ``_failed``, for a run as a whole."""
        if not is_ignored(error, self._ignored):
            raise subscription.task.failure_at_run(error, batch) from error
        if self._observer:
            for at in range(len(batch)):
                self._observer("ignored", subscription.task.name, f"{batch.ssp}@{batch.offset(at)}")
        self._pass_over(error, subscription.coordinator, mark)

    def _begins_at(self, subscription: Subscription, offset: str) -> bool:
        system = subscription.ssp.system
        return subscription.skip_before is None or (self._compare(system, offset, subscription.skip_before) or 0) >= 0

    def _failed(self, error: Exception, coordinator: Coordinator, envelope: IncomingMessageEnvelope, mark: int) -> None:
        """Pass over an exception that the configuration says to ignore, with what its callback collected; raise TaskError for others."""
        task = coordinator.task
        if not is_ignored(error, self._ignored):
            raise task.failure(error, "", envelope) from error
        if self._observer:
            self._observer("ignored", task.name, f"{envelope.ssp}@{envelope.offset}")
        self._pass_over(error, coordinator, mark)

    def _pass_over(self, error: Exception, coordinator: Coordinator, mark: int) -> None:
        self._outgoing[mark:] = self._rejects.letters_in(self._outgoing[mark:])
        coordinator.forget()
        self.ignored += 1
        self._metrics.counter(f"exception-ignored-{type(error).__name__}", "container").inc()

    def _timers(self, now: int, envelope: IncomingMessageEnvelope | None) -> int:
        """Do what is due at ``now``, in an iteration with this message; when to come back."""
        if self.abandoned:
            raise ContainerStateError("the container was abandoned")
        if now - self._last_window >= self._window_every:
            self._last_window = now
            self._rejects.input = self._owner.input = envelope
            with self._window_ns.time():
                self._window()
        if now - self._last_commit >= self._commit_every:
            self._last_commit = now
            self._outbox.send(self._outgoing)
            self._outgoing.clear()
            self._run_commit(self._tasks)
        if now - self._last_look >= self._look_every:
            dry = self._multiplexer.dry
            # A look takes longer the more partitions there are to poll: with very many, it comes less often.
            self._last_look = now + dry // _LOOKED_AT * self._look_every
            self._outbox.check()
            self._outbox.settle()
            # Without a message, this iteration has looked already.
            if envelope is not None and dry:
                self._multiplexer.look()
                if self._multiplexer.ended:
                    self._end_inputs()
            self._is_sampled = self._sampled_ns is not None
        if now >= self._report_at and self._report is not None:
            self._report_at = self._report(now)
        return self._next_due()

    def _time(self, lane: Lane) -> None:
        """Have the calls for the message that was just chosen be timed."""
        self._is_sampled = False
        assert self._sampled_ns is not None
        for subscription in lane.subscriptions:
            subscription.time_next(self._sampled_ns)

    def _next_due(self) -> int:
        return min(self._next_chore(), self._last_look + self._look_every)

    def _next_chore(self) -> int:
        """When there is something to do even if no message comes."""
        return min(self._last_window + self._window_every, self._last_commit + self._commit_every, self._report_at)

    def _window(self) -> None:
        self._windows.inc()
        first = len(self._outgoing)
        for task in self._windowed:
            mark = len(self._outgoing)
            if self._observer:
                self._observer("window", task.name, None)
            try:
                assert task.window is not None
                task.window(task.collector, task.window_coordinator)
            except Exception as error:
                if not is_ignored(error, self._ignored):
                    raise task.failure(error, "in window()") from error
                self._pass_over(error, task.window_coordinator, mark)
        self._of_window = (first, self._outgoing[first][1] if len(self._outgoing) > first else None)

    def _end_inputs(self) -> None:
        """See to the partitions that have come to their end: a task whose last one that was is told so, once."""
        ended, self._multiplexer.ended = self._multiplexer.ended, []
        for lane in ended:
            for subscription in lane.subscriptions:
                subscription.task.open_inputs -= 1
        done = {subscription.task for lane in ended for subscription in lane.subscriptions if not subscription.task.open_inputs}
        for task in self._tasks:
            if task in done:
                self._end(task)
        self.at_end = len(self._ended) == len(self._tasks)
        self._find_consensus()

    def _end(self, task: TaskInstance) -> None:
        """Tell a task that nothing will come any more, and have what it sends now committed."""
        self._ended.add(task.name)
        if task.end_of_stream is None:
            return
        mark = len(self._outgoing)
        self._rejects.input = self._owner.input = None
        if self._observer:
            self._observer("end_of_stream", task.name, None)
        try:
            task.end_of_stream(task.collector, task.end_coordinator)
        except Exception as error:
            if not is_ignored(error, self._ignored):
                raise task.failure(error, "in end_of_stream()") from error
            self._pass_over(error, task.end_coordinator, mark)
        if task.end_coordinator.commit_scope is None:
            task.end_coordinator.commit()

    def _find_consensus(self) -> None:
        """Every task has asked for a shutdown, or has nothing more to do while the others have asked."""
        if self._wants_shutdown and len(self._wants_shutdown | self._ended) == len(self._tasks):
            self.shutdown_requested = True

    def _placed(self, error: _Unsent) -> _Unsent:
        """The error of an output with the message that led to it, and the callback that sent it (its line is not known any more); an input
        that cannot be decoded names its own place."""
        if not self._outgoing or error is self.runs.refused:
            return error
        at = min(self._outbox.failed_at, len(self._outgoing) - 1)
        envelope, sent = self._outgoing[at][2], self._sent_in(at)
        if envelope is None:
            text = f"{error} ({sent})" if sent else str(error)
        else:
            waiting = self._multiplexer.lanes[envelope.ssp].waiting
            if waiting is not None and waiting.taken is not None:
                place = place_of(waiting.taken)
            else:
                place = f"{envelope.ssp}@{envelope.offset}, key {shortened(envelope.key)}"
            text = f"{error} (while processing {place}{': ' if sent else ''}{sent})"
        return ConfigError(text, key=error.key) if isinstance(error, ConfigError) else type(error)(text)

    def _sent_in(self, at: int) -> str:
        """Which send of which callback it was that collected an output, in words; empty for a dead letter, which no task has sent."""
        source, output, origin, *_ = self._outgoing[at]
        task = next((task for task in self._tasks if task.name == source), None)
        if task is None or is_letter(output):
            return ""
        window, first = self._of_window
        is_of_window = at >= window and self._outgoing[window][1] is first
        if is_of_window:
            name = "window"
        elif origin is None:
            name = "end_of_stream"
        else:
            name = "process_batch" if task.takes_batches else "process"
        of_callback = self._outgoing[window if is_of_window else 0 : at]
        before = sum(1 for each in of_callback if each[0] == source and each[2] is origin)
        return f"send no. {before + 1} of {task.callback(name)}"

    def _serve(self, requests: list[Coordinator]) -> None:
        """Do what tasks asked for in this iteration: commits first, then shutdowns."""
        tasks: dict[str, TaskInstance] = {}
        for asked in requests:
            if asked.commit_scope is RequestScope.ALL_TASKS_IN_CONTAINER:
                tasks.update({task.name: task for task in self._tasks})
            elif asked.commit_scope is RequestScope.CURRENT_TASK:
                tasks[asked.task.name] = asked.task
            if asked.shutdown_scope is RequestScope.ALL_TASKS_IN_CONTAINER:
                self.shutdown_requested = True
            elif asked.shutdown_scope is RequestScope.CURRENT_TASK:
                self._wants_shutdown.add(asked.task.name)
            asked.commit_scope = asked.shutdown_scope = None
        requests.clear()
        if tasks:
            self._run_commit([task for task in self._tasks if task.name in tasks])
        self._find_consensus()

    def _run_commit(self, tasks: Sequence[TaskInstance]) -> None:
        self._commits.inc()
        self._commit(tasks)


def _timed(choose: Callable[[], IncomingMessageEnvelope | None], timer: Timer) -> Callable[[], IncomingMessageEnvelope | None]:
    read, update = time.perf_counter_ns, timer.update

    def timed() -> IncomingMessageEnvelope | None:
        began = read()
        envelope = choose()
        update(read() - began)
        return envelope

    return timed
