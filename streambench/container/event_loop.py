"""Steps 1 to 5: the event loop. There is only this one: stepping, running, Spark and tests call
``EventLoop.run``.

One iteration, always in this order and on one thread:

    1  take the message that the chooser chose
    2  call the task's process()
    3  call window() where it is due
    4  send what process() and window() collected
    5  commit what is due or was asked for

The loop is written for speed. Everything that it needs with every message is a local name, and what only some
jobs need (listeners, observers, broadcast inputs) is bound elsewhere, beforehand. Where the chooser is a
round robin without observers, many choices are made at once (``burst``): steps 1 and 2 for many messages.
Plain messages may then be sent behind a few more inputs, though before a window or a commit.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from streambench.chooser.fast_paths import quickest, rotation
from streambench.container.failures import Unsent, unfinished_count
from streambench.container.inputs.consumers import FetchedRecords, ReaderFailure
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.loop_parts import CallSampler, HeadCheck, LoopParts
from streambench.container.progress import Utilization
from streambench.container.tasks.task_instance import TaskInstance, TaskPartition
from streambench.errors import ContainerStateError
from streambench.metrics.registry import Timer
from streambench.model import IncomingMessageEnvelope

_MS = 1_000_000

Choose = Callable[[], IncomingMessageEnvelope | None]
Until = Callable[[], object]


class EventLoop:
    """Drives tasks with messages until it is paused, shut down, or at the end of its inputs.

    ``paused`` makes ``run`` return. ``abandoned`` makes it raise ContainerStateError, on whichever thread it
    is, before it does anything else. ``progress`` is the position that it
    has reached.
    """

    def __init__(self, parts: LoopParts) -> None:
        self.paused = self.abandoned = False
        self._resumed: IncomingMessageEnvelope | None = None
        self.progress = parts.progress
        self.choice_watch = parts.choice_watch
        self.coordination = parts.coordination
        self.timers = parts.timers
        self.dispatcher = parts.dispatcher
        self._tasks = parts.tasks
        self._multiplexer = parts.multiplexer
        self._consumers = parts.consumers
        self._outbox = parts.outbox
        self._commit_tasks = parts.commit_tasks
        self._context = parts.context
        self._collected = parts.collected
        self._requests = parts.requests
        self._clock = parts.clock
        self._idle_ms = parts.idle_ms
        self._failures = parts.failures
        self._burst_runner = parts.burst_runner
        self._heads = HeadCheck(parts.multiplexer, parts.consumers, parts.outbox)
        metrics = parts.metrics
        self._commit_calls = metrics.counter("commit-calls", "container")
        self._blocked = blocked = metrics.timer("block-ns", "container")
        metrics.gauge("event-loop-utilization", "container", Utilization(lambda: blocked.total).read)
        self._choose_ns = metrics.timer("choose-ns", "container") if parts.timing == "true" else None
        self._sampler = CallSampler(
            metrics.timer("process-ns", "container") if parts.timing == "sampled" else None
        )

    def start(self) -> None:
        """Let the time of windows and commits run from now on."""
        self.timers.start(self._clock.monotonic_ns())

    def run(self, *, limit: int | None = None, until: Until | None = None, stop_at_head: bool = False) -> int:
        """Process messages; how many. Returns after ``limit`` of them, or once ``until()`` is true (called
        between messages and when idle). With ``stop_at_head`` it returns once all inputs are caught up. It
        also returns when paused, when a task has shut the container down, when an observer holds a message,
        and when all inputs have ended. Raises TaskError and others."""
        if limit is not None and limit <= 0:
            return 0
        if self.progress.held is not None:
            return self._resume(limit=limit, until=until, stop_at_head=stop_at_head)
        queue, choose, empty, update = self._choice_calls(limit, until)
        partitions, refill, send = self._multiplexer.partitions, self._multiplexer.refill, self._outbox.send
        plan, due, inbox = self._burst_runner.planner.plan, self.timers.next_due(), self._consumers.inbox
        coordination, collected, requests = self.coordination, self._collected, self._requests
        on_choice, may_burst = self.choice_watch.observer(), self.choice_watch.may_burst()
        context, read_clock, sampler = self._context, self._clock.monotonic_ns, self._sampler
        at_most, base, processed, single_until, arrived = limit or -1, self.progress.processed, 0, 0, False
        envelope: IncomingMessageEnvelope | None = None
        subscriptions: Iterable[TaskPartition]
        partition = self._begin_run()
        try:
            while True:  # Python 3.11 specializes a loop whose jump back has no condition
                if coordination.shutdown_requested:
                    break
                if inbox:
                    if self._take_inbox(base + processed, partition):
                        break
                    on_choice, may_burst = self.choice_watch.observer(), self.choice_watch.may_burst()
                # 1. Take the chosen envelope. First offer the next message of the partition chosen last.
                if partition is not None:
                    buffer = partition.buffer
                    if buffer:
                        update(buffer.popleft())
                    else:
                        refill(partition)
                        partition = None
                if queue and may_burst and processed >= single_until and not sampler.is_due and plan(queue):
                    # 1 and 2 for many messages at once.
                    processed, single_until, envelope, partition = self._run_burst(processed, due)
                else:
                    try:
                        envelope = choose()
                    except empty:
                        envelope = None
                    if envelope is None:
                        partition, arrived = None, self._poll_starved()
                    else:
                        partition = partitions[envelope.ssp]
                        if sampler.is_due:
                            sampler.time(partition)
                        context.input = envelope
                        if on_choice is not None and on_choice(envelope):
                            partition = None  # the chooser gets its next message when it was processed
                            self._hold(envelope)
                            break
                        # 2. Process it: in the one task of its partition, in rare cases in several or none.
                        count, subscriptions = 1, partition.subscriptions
                        if partition.sole_subscription is None:
                            count, subscriptions = self._receivers(partition, envelope, at_most - processed)
                        for subscription in subscriptions:
                            # Looked up, then called: an attribute called at once takes five times as long.
                            process = subscription.process
                            try:
                                # Step 2: dispatch
                                process(envelope, subscription.collector, subscription.coordinator)
                            except BaseException as error:
                                self._failures.at_message(error, subscription.coordinator, envelope)
                            subscription.offset = envelope.offset  # Step 2: offset
                        processed += count
                # 3. Window, where one is due, and whatever else has its time.
                now = read_clock()
                if now >= due:
                    due = self._handle_timers(now, envelope, base + processed)
                # 4. Send what was collected (StreamWriters.send).
                if collected:
                    send(collected)  # Step 4: send
                    collected.clear()
                # 5. Commit what is due or was asked for.
                if requests:
                    self._handle_requests()
                if envelope is None:
                    if not arrived and self._idle(now, base + processed, until, stop_at_head=stop_at_head):
                        break
                elif processed == at_most or (until and self._is_reached(until, base + processed, partition)):
                    break
        except BaseException as error:
            raise self._ended_by(error, envelope)  # noqa: B904 - mypyc knows no ``from``
        finally:
            processed = self._end_run(base, processed, partition)
        return processed

    def call_last_windows(self) -> None:
        """Call ``window()`` of the tasks once, as the end of a run; not of those whose ``end_of_stream`` was
        called.

        Their output is sent, their requests are handled. Raises TaskError and others."""
        self.call_between(
            lambda: self.timers.windows.call_last(
                self._clock.monotonic_ns(), self.progress.processed, self.coordination.knows_its_end
            )
        )

    def call_between(self, callbacks: Callable[[], None]) -> None:
        """Do what calls callbacks of tasks between two messages. Their output is sent, their requests are
        handled. Raises TaskError and others."""
        progress = self.progress
        progress.in_iteration = True
        try:
            callbacks()
            self._send()
            self._handle_requests()
        except BaseException as error:
            raise self._placed(error)  # noqa: B904 - mypyc knows no ``from``
        finally:
            progress.in_iteration = False
            self._collected.clear()

    def _choice_calls(
        self, limit: int | None, until: Until | None
    ) -> tuple[deque[IncomingMessageEnvelope] | None, Choose, Any, Callable[[IncomingMessageEnvelope], None]]:
        """The calls by which ``run`` chooses: the queue of a round robin where bursts are allowed, and
        ``choose``. Then the exceptions by which it reports that there is no message, and ``update``."""
        chooser = self._multiplexer.chooser
        if self._resumed is not None:
            return None, self._take_resumed, (), chooser.update
        if self._choose_ns is not None:
            return None, _timed(chooser.choose, self._choose_ns), (), chooser.update
        choose, empty = quickest(chooser)
        queue = rotation(chooser) if limit is None and until is None else None
        return queue, choose, empty, chooser.update

    def _hold(self, envelope: IncomingMessageEnvelope) -> None:
        """Pause before the task gets this message."""
        self.progress.held = envelope
        self.paused = True

    def _resume(self, *, limit: int | None, until: Until | None, stop_at_head: bool) -> int:
        """``run``, with the message that is held as the first one."""
        progress = self.progress
        self.choice_watch.resumed = self._resumed = progress.held
        progress.held = None
        try:
            done = self.run(limit=limit, until=_at_once, stop_at_head=stop_at_head)
        finally:
            # Not taken where a command paused the run before it.
            progress.held, self._resumed, self.choice_watch.resumed = self._resumed, None, None
        if self.paused or done == limit or not done or (until is not None and until()):
            return done
        left = None if limit is None else limit - done
        return done + self.run(limit=left, until=until, stop_at_head=stop_at_head)

    def hold_unfinished(self, envelope: IncomingMessageEnvelope) -> None:
        """Have the next run begin with the message at which an exception ended the last one, or with its
        batch. ``envelope``: that message, or the first one of the batch."""
        progress = self.progress
        self.dispatcher.batches.again = progress.unfinished_count
        progress.held, progress.unfinished, progress.unfinished_count = envelope, None, 0
        progress.last_chosen = None  # the chooser gets its next message when it was processed
        for asked in list(self._requests):
            asked.forget()

    def _take_resumed(self) -> IncomingMessageEnvelope | None:
        resumed, self._resumed = self._resumed, None
        return resumed

    def _begin_run(self) -> PartitionBuffer | None:
        """Begin a call of ``run``; the partition whose next message the chooser has not got yet."""
        progress = self.progress
        self._heads.begin()
        self._burst_runner.planner.resize(None)
        progress.in_iteration = True
        partition, progress.last_chosen = progress.last_chosen, None
        return partition

    def _end_run(self, base: int, processed: int, partition: PartitionBuffer | None) -> int:
        """End a call of ``run``; how many messages it processed, those of a burst that failed included."""
        progress, burst = self.progress, self._burst_runner.failed
        if burst is not None:
            self._burst_runner.failed = None
            processed, partition = processed + burst.done, burst.served
        progress.in_iteration = False
        self._collected.clear()
        progress.processed, progress.last_chosen = base + processed, partition
        return processed

    def _run_burst(
        self, processed: int, due: int
    ) -> tuple[int, int, IncomingMessageEnvelope | None, PartitionBuffer | None]:
        """Run the planned burst.

        Returns the messages processed so far, how many these have to be before the next burst, the message
        chosen last, and its partition."""
        runner = self._burst_runner
        burst = runner.planner.take_planned()
        try:
            runner.run(burst, due)
        except BaseException:
            runner.failed = burst
            raise
        finally:
            self.choice_watch.remember(burst)
        processed += burst.done
        return processed, processed + runner.planner.resize(burst), burst.last, burst.served

    def _receivers(
        self, partition: PartitionBuffer, envelope: IncomingMessageEnvelope, left: int
    ) -> tuple[int, Iterable[TaskPartition]]:
        """The tasks for a message that has no single one, after the number of messages that this processes.
        ``left``: at most so many, where that is more than 0."""
        at_most = left if left > 0 else None
        return self.dispatcher.receivers(partition, envelope, at_most, self.choice_watch)

    def _is_reached(self, until: Until, total: int, partition: PartitionBuffer | None) -> bool:
        """Call ``until``, which may look at the container."""
        progress = self.progress
        progress.processed, progress.last_chosen, progress.in_iteration = total, partition, False
        reached = bool(until())
        progress.in_iteration = True
        return reached or self.paused

    def _take_inbox(self, total: int, partition: PartitionBuffer | None) -> bool:
        """Take what other threads brought: fetched records and commands. True where ``run`` is to return."""
        progress = self.progress
        progress.processed, progress.last_chosen = total, partition
        inbox = self._consumers.inbox
        while inbox and not self.paused:
            item = inbox.popleft()
            if isinstance(item, FetchedRecords):
                self._multiplexer.accept(item)
            elif isinstance(item, ReaderFailure):
                raise item.error
            else:
                progress.in_iteration = False
                item()
                progress.in_iteration = True
        self._send()
        return self.paused

    def _handle_timers(self, now: int, envelope: IncomingMessageEnvelope | None, total: int) -> int:
        """Do what is due at ``now``, in an iteration with this message; when something is due next."""
        if self.abandoned:
            raise ContainerStateError("the container was abandoned")
        self.progress.processed = total
        timers = self.timers
        if now >= timers.windows.due_ns:
            timers.windows.call_due(now, envelope, total)
        if timers.take_commit(now):
            self.coordination.request_commit()  # step 5 of this iteration does it, as for a task
        if timers.take_check(now, self._multiplexer.starved):
            # Without a message, this iteration has polled already.
            self._periodic_work(poll=envelope is not None)
        timers.report_if_due(now)
        return timers.next_due()

    def _periodic_work(self, *, poll: bool) -> None:
        """Have producers append what waits too long, poll, and measure, from time to time."""
        self._outbox.check()
        self._outbox.apply_limits()
        if poll and self._multiplexer.starved:
            self._multiplexer.poll_starved()
            self._end_inputs()
        self._sampler.arm()
        trace = self._context.trace
        if trace is not None and trace.on_check is not None:
            trace.on_check()

    def _poll_starved(self) -> bool:
        """Poll for partitions without messages, as the chooser has none; True where one arrived."""
        self.progress.nulls += 1
        arrived = self._multiplexer.poll_starved()
        self._end_inputs()
        return arrived

    def _end_inputs(self) -> None:
        """Note partitions that have ended, which the multiplexer found."""
        if self._multiplexer.ended:
            ended, self._multiplexer.ended = self._multiplexer.ended, []
            self.coordination.end_inputs(ended)

    def _idle(self, now: int, total: int, until: Until | None, *, stop_at_head: bool) -> bool:
        """Flush, then wait for messages; True where ``run`` is to return instead."""
        # What the outbox keeps back may be an input of this very job.
        if self._outbox.flush():
            self._commit(self._tasks)
        if self._multiplexer.poll_starved() or self._multiplexer.ended:
            return False
        heads = self._heads
        if self.coordination.at_end or (stop_at_head and heads.has_caught_up(total)):
            return True
        if until is not None and self._is_reached(until, total, None):
            return True
        left = max(0, (self.timers.next_deadline() - now) / _MS)
        with self._blocked.time():
            self._consumers.wait(min(self._idle_ms, left), left if total == heads.idle_at else 0)
        heads.idle_at = total
        return False

    def _send(self) -> None:
        """Step 4, for output that must leave before the end of the iteration."""
        if self._collected:
            self._outbox.send(self._collected)  # Step 4: send
            self._collected.clear()

    def _handle_requests(self) -> None:
        """Do what tasks asked for in this iteration: commits first, then shutdowns."""
        tasks = self.coordination.take_requests()
        if tasks:
            self._commit(tasks)
        self.coordination.check_shutdown_votes()

    def _commit(self, tasks: Sequence[TaskInstance]) -> None:
        self._commit_calls.inc()
        # Commits.commit
        self._commit_tasks(tasks)  # Step 5: commit

    def _ended_by(self, error: BaseException, envelope: IncomingMessageEnvelope | None) -> BaseException:
        """Note the message at which an exception ended ``run``; the exception to raise."""
        burst = self._burst_runner.failed
        if burst is not None:
            envelope = burst.last
        if envelope is not None:
            count = unfinished_count(self._multiplexer.partitions[envelope.ssp], envelope)
            self.progress.unfinished_count = count
            self.progress.unfinished = envelope if count else None
        return self._placed(error)

    def _placed(self, error: BaseException) -> BaseException:
        """The error of an output with the place that it came from; others as they are. An input that cannot
        be decoded names its own place."""
        if not isinstance(error, Unsent) or not self._collected or error is self.dispatcher.batches.refused:
            return error
        return self._failures.place(
            error, self._outbox.failed_index, self._tasks, self._multiplexer.partitions
        )


def _at_once() -> bool:
    return True


def _timed(choose: Choose, timer: Timer) -> Choose:
    read, update = time.perf_counter_ns, timer.update

    def timed() -> IncomingMessageEnvelope | None:
        began = read()
        envelope = choose()
        update(read() - began)
        return envelope

    return timed
