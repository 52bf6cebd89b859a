"""Bursts, the fast path of round robin: many choices are planned at once, in the order of the chooser.

To choose a message costs as much as everything else that the container does with it. A round robin knows its
next choices in advance, so many are made at once. The tasks then get these messages one after the other. When
something else is due, such as a commit, the messages that were not reached go back to where they came from.

The result is that of single choices: the same order, and the same state of chooser and partitions whenever
something can read them.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import cycle, islice, repeat, starmap
from typing import TYPE_CHECKING, Any

from streambench.clock import Clock
from streambench.container.loop_context import LoopContext
from streambench.container.outputs.collected import Collected, collected_before
from streambench.container.outputs.outbox import Outbox
from streambench.container.tasks.task_handles import Coordinator
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition

if TYPE_CHECKING:
    from streambench.container.inputs.partition_buffer import PartitionBuffer
    from streambench.container.tasks.task_instance import Process
    from streambench.task import MessageCollector

    _Call = tuple[IncomingMessageEnvelope, Process, MessageCollector, Coordinator]

FEWEST = 8
_MOST = 16_384
_LEAST = 4
# Choices that are made one by one after a burst that was cut short almost at once. A job that commits with
# each message cuts all of them short.
_ALONE = 64
_MS = 1_000_000
# With more of them, the buffers of encoders (4 kB each) make the allocator give memory back to the system and
# ask for it again.
_UNSENT = 64


class ChoiceBurst:
    """The next choices, taken out of the queue of a chooser and out of the partitions' buffers.

    ``calls``: the messages in the order of choice, each with the callback that gets it, its collector and
    its coordinator. ``stop`` notes how far each task has come. After it, ``last`` is the message that was
    chosen last, None where there was none. ``served`` is its partition, which has to offer its next message
    to the chooser now, as after any choice. ``done`` is how many were processed."""

    __slots__ = (
        "_chosen",
        "_envelopes",
        "_partitions",
        "_left",
        "_queue",
        "_subscriptions",
        "calls",
        "done",
        "last",
        "served",
    )

    def __init__(
        self, queue: deque[IncomingMessageEnvelope], partitions: list[PartitionBuffer], depth: int
    ) -> None:
        """A burst over partitions with one subscription each, whose candidates are at the front of the queue
        in this order.

        It takes ``depth`` messages of each, and each has at least as many more. More than one only where no
        other partition has a candidate."""
        self._queue = queue
        self._partitions = partitions
        if depth == 1:
            self._envelopes = [queue.popleft() for _ in partitions]
        else:
            # The rows, one behind the other, are the order in which messages are chosen. Each partition fills
            # its column, its candidate first.
            width = len(partitions)
            self._envelopes = [queue[0]] * (depth * width)
            for at, partition in enumerate(partitions):
                self._envelopes[at::width] = [queue.popleft(), *_first(partition.decoded, depth - 1)]
        queue.extend([partition.decoded.popleft() for partition in partitions])
        self._subscriptions = subscriptions = [
            partition.sole_subscription for partition in partitions if partition.sole_subscription is not None
        ]
        self._left = iter(self._envelopes)
        # Each read once for all its messages: code is exchanged between two messages, by what is posted,
        # which ends the burst.
        processes = cycle([each.process for each in subscriptions])
        collectors = cycle([each.collector for each in subscriptions])
        coordinators = cycle([each.coordinator for each in subscriptions])
        self.calls: Iterator[_Call] = zip(self._left, processes, collectors, coordinators, strict=False)
        self.last: IncomingMessageEnvelope | None = None
        self.served: PartitionBuffer | None = None
        self.done = 0

    @property
    def left(self) -> int:
        """The number of messages that were not taken from ``calls`` yet."""
        return operator.length_hint(self._left)

    def stop(self, last: IncomingMessageEnvelope | None, unfinished: int = 0) -> None:
        """Put back the messages behind ``last``; None: all of them. ``unfinished``: 1 if ``last`` itself
        was not processed, else 0."""
        self.last, self._chosen = last, len(self._envelopes)
        if last is self._envelopes[-1]:
            # Nothing to put back but one: the chooser gets the next message of a partition only after the
            # choice, and the queue has that of the last partition already.
            self.served = self._partitions[-1]
            self.served.decoded.appendleft(self._queue.pop())
        else:
            self._chosen = (
                0
                if last is None
                else next(at for at, each in enumerate(self._envelopes, start=1) if each is last)
            )
            self._put_back()
        self.done = done = max(0, self._chosen - unfinished)
        # The last row that was processed has the last message of each partition. It may begin within a row:
        # the subscriptions are turned accordingly.
        start = max(0, done - len(self._partitions))
        at = start % len(self._partitions)
        last_ones = self._envelopes[start:done]
        for subscription, envelope in zip(
            self._subscriptions[at:] + self._subscriptions[:at], last_ones, strict=False
        ):
            subscription.offset = envelope.offset  # Step 2: offset

    def _put_back(self) -> None:
        # The messages lie in rows of one per partition. The last row that was begun has ``within`` messages
        # that were chosen, those of the first partitions.
        at, width = self._chosen, len(self._partitions)
        within = at % width
        if at:
            self.served = self._partitions[within - 1]
        # What became the candidates as the burst was planned, the last partition first.
        following = [self._queue.pop() for _ in self._partitions]
        first: list[IncomingMessageEnvelope] = []
        behind: list[IncomingMessageEnvelope] = []
        for place, partition in enumerate(self._partitions):
            is_through = place < within
            # In each row from there on, the message of this partition, and the candidate behind them.
            left = [
                *self._envelopes[at - within + place + is_through * width :: width],
                following[-1 - place],
            ]
            # The partition chosen last has no candidate: it offers its next message as after any choice.
            # Those that were chosen in this row stand behind those that were not.
            if partition is not self.served:
                (behind if is_through else first).append(left.pop(0))
            partition.decoded.extendleft(reversed(left))
        self._queue.extendleft(reversed(first))
        self._queue.extend(behind)

    def next_size(self, most: int) -> int:
        """The size of the next burst, after ``stop``, where this one had at most ``most`` messages. Less than
        ``FEWEST``: no burst for a while.

        A burst that was cut short may soon be cut short again, and putting messages back costs time."""
        return min(_MOST, 2 * most) if self._chosen == len(self._envelopes) else 2 * self._chosen

    def chosen(self, at_most: int) -> list[IncomingMessageEnvelope]:
        """The last messages that were chosen, after ``stop``."""
        return self._envelopes[max(0, self._chosen - at_most) : self._chosen]


def _first(buffer: deque[IncomingMessageEnvelope], count: int) -> Iterator[IncomingMessageEnvelope]:
    """Take so many messages out of a buffer, which has more."""
    if count == len(buffer) - 1:
        last = buffer.pop()
        taken = list(buffer)
        buffer.clear()
        buffer.append(last)
        return iter(taken)
    return starmap(buffer.popleft, repeat((), count))


class BurstPlanner:
    """Plans bursts. ``size``: messages of the next one, at most or a few more."""

    def __init__(self, partitions: Mapping[SystemStreamPartition, PartitionBuffer]) -> None:
        self.size = FEWEST
        self._partitions = partitions
        self._planned: ChoiceBurst | None = None

    def plan(self, queue: deque[IncomingMessageEnvelope]) -> bool:
        """Plan a burst of the candidates in a queue; False where it would be too short to pay. It ends
        where choices are no longer certain: at the first partition that will run dry, or that must be
        checked with each message."""
        order = []
        partitions, depth, most = self._partitions, self.size, self.size
        for envelope in islice(queue, most):
            partition = partitions[envelope.ssp]
            if partition.sole_subscription is None:
                break
            waiting = len(partition.buffer)
            if waiting < depth:
                if not waiting:
                    break
                depth = waiting
            order.append(partition)
        if len(order) < len(queue):
            depth = 1
        elif order:
            depth = min(depth, -(-most // len(order)))
        if depth * len(order) < _LEAST:
            return False
        self._planned = ChoiceBurst(queue, order, depth)
        return True

    def take_planned(self) -> ChoiceBurst:
        """Take the burst that ``plan`` planned."""
        assert self._planned is not None
        planned, self._planned = self._planned, None
        return planned

    def resize(self, burst: ChoiceBurst | None) -> int:
        """Set ``size`` by the length that a burst reached (None: for the first one). Returns the number of
        messages to choose one by one before the next burst."""
        size = 0 if burst is None else burst.next_size(self.size)
        self.size = max(FEWEST, size)
        return _ALONE if burst is not None and size < FEWEST else 0


class BurstRunner:
    """Processes the messages of bursts. ``planner`` plans them; ``failed`` is the burst that an exception
    ended.

    Where sends may be deferred, they follow after ``_UNSENT`` messages or a millisecond. An output that its
    task could still change is sent as soon as the task returns, behind all that was collected before."""

    def __init__(
        self,
        outbox: Outbox,
        context: LoopContext,
        collected: Collected,
        requests: Sequence[Coordinator],
        inbox: deque[Any],
        clock: Clock,
        planner: BurstPlanner,
        at_message: Callable[[BaseException, Coordinator, IncomingMessageEnvelope], None],
    ) -> None:
        """``at_message`` handles an exception of a task: it raises or not."""
        self._outbox = outbox
        self._context = context
        self._collected = collected
        self._requests = requests
        self._inbox = inbox
        self._clock = clock
        self.planner = planner
        self.failed: ChoiceBurst | None = None
        self._at_message = at_message
        self._unsent: IncomingMessageEnvelope | None = None

    def run(self, burst: ChoiceBurst, due: int) -> None:
        """Process the messages of a burst until all are processed, ``due`` is reached, a task has a request,
        or the inbox has something.

        Stops the burst; after an output that could not be sent, at its message."""
        collected, requests, inbox = self._collected, self._requests, self._inbox
        context, outbox, calls = self._context, self._outbox, burst.calls
        read_clock, failed, can_defer = self._clock.monotonic_ns, self._at_message, outbox.can_defer
        envelope: IncomingMessageEnvelope | None = None
        unfinished = 0
        goes_on = True
        try:
            now = read_clock()
            while goes_on:
                goes_on = False
                context.until = min(due, now + _MS) if can_defer else due
                to_send = () if can_defer else collected
                try:
                    for envelope, process, collector, coordinator in (
                        islice(calls, _UNSENT) if can_defer else calls
                    ):
                        context.input = envelope
                        try:
                            process(envelope, collector, coordinator)  # Step 2: dispatch
                        except BaseException as error:
                            failed(error, coordinator, envelope)
                        now = read_clock()
                        if now >= context.until or requests or inbox or to_send:
                            goes_on = True
                            break
                except BaseException as error:
                    unfinished = 1
                    self._send_before(envelope, error)
                    raise
                if now >= due:
                    self._send_earlier(envelope)
                    break
                if collected:
                    self._send()
                    collected.clear()
                if requests or inbox:
                    break
                if can_defer:
                    goes_on, can_defer = burst.left > 0, outbox.can_defer
        finally:
            unsent, self._unsent = self._unsent, None
            if unsent is None:
                burst.stop(envelope, unfinished)
            else:
                burst.stop(unsent)

    def _send_earlier(self, envelope: IncomingMessageEnvelope | None) -> None:
        """Send what the messages before this one collected. What it collected itself is sent in its
        iteration, behind what window() collects there."""
        collected = self._collected
        at = collected_before(collected, envelope)
        own = collected[at:]
        del collected[at:]
        self._send()
        collected[:] = own

    def _send_before(self, envelope: IncomingMessageEnvelope | None, error: BaseException) -> None:
        """Send what the messages before this one collected. There is an error at this one; the outputs
        before it leave as if each had been sent by itself."""
        del self._collected[collected_before(self._collected, envelope) :]
        try:
            self._send()
        except Exception:
            if isinstance(error, Exception):
                raise
            self._unsent = None
        self._collected.clear()

    def _send(self) -> None:
        try:
            self._outbox.send(self._collected)  # Step 4: send
        except BaseException:
            self._unsent = None
            if self._collected:
                failed = min(self._outbox.failed_index, len(self._collected) - 1)
                _, _, self._unsent, _, _ = self._collected[failed]
            raise
