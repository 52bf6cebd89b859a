"""The parts of an event loop, which ``assembly`` builds."""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from streambench.batch import MessageBatch
from streambench.clock import Clock
from streambench.container.burst import BurstRunner, ChoiceBurst
from streambench.container.coordination import Coordination
from streambench.container.dispatch import Dispatcher
from streambench.container.failures import Failures
from streambench.container.inputs.consumers import Consumers
from streambench.container.inputs.multiplexer import Multiplexer
from streambench.container.loop_context import LoopContext
from streambench.container.observer import Observation, Observe
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.dead_letters import DeadLetters, noting
from streambench.container.outputs.outbox import Outbox
from streambench.container.progress import LoopProgress
from streambench.container.tasks.task_handles import Coordinator
from streambench.container.timers import Timers
from streambench.metrics.registry import MetricsRegistry, Timer
from streambench.model import IncomingMessageEnvelope

if TYPE_CHECKING:
    from streambench.container.inputs.partition_buffer import PartitionBuffer
    from streambench.container.tasks.task_instance import TaskInstance


class LoopParts(Struct, frozen=True, kw_only=True):
    """Everything that an event loop works with.

    ``commit_tasks(tasks)`` commits them: ``Commits.commit``. ``idle_ms``: the longest wait for messages.
    ``timing``: the value of ``metrics.timer.enabled``."""

    tasks: Sequence[TaskInstance]
    multiplexer: Multiplexer
    consumers: Consumers
    outbox: Outbox
    commit_tasks: Callable[[Sequence[TaskInstance]], None]
    metrics: MetricsRegistry
    context: LoopContext
    collected: Collected
    requests: list[Coordinator]
    clock: Clock
    idle_ms: int
    timing: str
    failures: Failures
    timers: Timers
    coordination: Coordination
    dispatcher: Dispatcher
    burst_runner: BurstRunner
    choice_watch: ChoiceWatch
    progress: LoopProgress


class ChoiceWatch:
    """Everything that happens with a chosen message before its task gets it.

    ``choices``, if set, gets the last ones that were chosen. ``explain``, if set, is called with each of
    them, last of all. ``resumed``: the message that was held, and is chosen again without all that."""

    def __init__(
        self,
        dead_letters: DeadLetters,
        choices: deque[IncomingMessageEnvelope] | None,
        *,
        observation: Observation,
    ) -> None:
        self.explain: Observe | None = None
        self.resumed: IncomingMessageEnvelope | None = None
        self.choices = choices
        self._dead_letters = dead_letters
        self._observation = observation

    def may_burst(self) -> bool:
        """True where no observer has to see each message before its task does, or each step when it is
        taken."""
        return (
            self._observation.observer is None and self.explain is None and not self._dead_letters.notes_input
        )

    def shown(self) -> Observe | None:
        """The callback that shows a choice and remembers it; None where nothing of that is needed. True: the
        message is to be held."""
        remember = None if self.choices is None else self.choices.append
        trace = None if self._observation.trace is None else self._observation.trace.chosen.append
        observer, explain = self._observation.of("message_chosen"), self.explain
        notify = None if observer is None else observer.message_chosen
        if observer is None and explain is None and self.resumed is None:
            return _both(remember, trace) if remember and trace else remember or trace

        def show(envelope: IncomingMessageEnvelope) -> object:
            is_held = False
            if envelope is self.resumed:
                self.resumed = None
            else:
                if remember is not None:
                    remember(envelope)
                if explain is not None:
                    explain(envelope)
                is_held = notify is not None and bool(notify(envelope))
            if trace is not None and not is_held:
                trace(envelope)
            return is_held

        return show

    def note_batch(self, first: IncomingMessageEnvelope, batch: MessageBatch) -> None:
        """Note a batch, whose first message was shown when it was chosen: show the others, too."""
        if self._observation.trace is not None:
            self._observation.trace.note_batch(first, len(batch))
        observer = self._observation.of("message_chosen")
        if self.choices is None and observer is None:
            return
        count = len(batch) - 1
        if observer is None and self.choices is not None:
            count = min(count, self.choices.maxlen or 0)  # it keeps no more
        last = first
        for last in batch.peek(count):
            if self.choices is not None:
                self.choices.append(last)
            if observer is not None:
                observer.message_chosen(last)
        if self.explain is not None and last is not first:
            self.explain(last)

    def ends_batch(self) -> Observe | None:
        """Return a function that is true of a message before which a batch is to end; None for none."""
        observer = self._observation.of("ends_batch")
        return None if observer is None else observer.ends_batch

    def observer(self) -> Observe | None:
        """As ``shown``, and the dead letters note their input by it where they need to."""
        return noting(self._dead_letters, self.shown()) if self._dead_letters.notes_input else self.shown()

    def remember(self, burst: ChoiceBurst) -> None:
        """Remember the choices of a burst that has stopped."""
        trace = self._observation.trace
        if trace is not None:
            trace.chosen.extend(burst.chosen(sys.maxsize))
            if trace.on_check is not None:
                trace.on_check()
        if self.choices is not None:
            self.choices.extend(burst.chosen(self.choices.maxlen or 0))


class CallSampler:
    """Times the calls of ``process`` for single messages. ``is_due``: the next one is to be timed."""

    def __init__(self, timer: Timer | None) -> None:
        """``timer``: None to sample nothing."""
        self.is_due = False
        self._timer = timer

    def arm(self) -> None:
        """Have the next message timed."""
        self.is_due = self._timer is not None

    def time(self, partition: PartitionBuffer) -> None:
        """Time the calls for the message of this partition that was just chosen."""
        self.is_due = False
        assert self._timer is not None
        for subscription in partition.subscriptions:
            subscription.time_next(self._timer)


class HeadCheck:
    """Finds out whether all inputs are caught up, as seen after a call of ``run`` began."""

    def __init__(self, multiplexer: Multiplexer, consumers: Consumers, outbox: Outbox) -> None:
        self._multiplexer = multiplexer
        self._consumers = consumers
        self._outbox = outbox
        self._refresh_epoch, self._refreshed_after = -1, 0
        self.idle_at = -1
        """After how many messages the loop waited last."""

    def begin(self) -> None:
        """Forget earlier answers."""
        self._refresh_epoch = self.idle_at = -1

    def has_caught_up(self, processed: int) -> bool:
        """True where nothing waits anywhere, as seen after ``run`` began.

        A job that feeds an input of its own looks again after its last message, the ``processed``-th. Not
        after each message: where they trickle in, that would never be so."""
        if not self._multiplexer.caught_up():
            return False
        if self._refresh_epoch < 0 or (
            processed != self._refreshed_after and self._multiplexer.reads_any(self._outbox.streams)
        ):
            self._refresh_epoch, self._refreshed_after = self._consumers.request_refresh(), processed
        return (
            self._consumers.refreshed(self._refresh_epoch, self._multiplexer.systems())
            and not self._consumers.inbox
        )


def _both(one: Observe, other: Observe) -> Observe:
    def both(envelope: IncomingMessageEnvelope) -> None:
        one(envelope)
        other(envelope)

    return both
