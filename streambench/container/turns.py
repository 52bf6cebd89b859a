"""Turns taken ahead: many choices at once, where the chooser does nothing but let partitions take turns.

To choose one message costs as much as all else that the container does with it. Where each choice follows from the one before, they are
made in one go, the messages are given to their tasks one after the other, and those that were not reached when something else is due are
put back where they came from. Their order, and the state of chooser and lanes whenever somebody can look, are those of single choices.
"""

from __future__ import annotations

import operator
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, cycle, islice, repeat, starmap
from typing import TYPE_CHECKING, Any

from streambench.clock import Clock
from streambench.container.handles import Coordinator, Outgoing, Owner
from streambench.container.outbox import Outbox
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition

if TYPE_CHECKING:
    from streambench.container.multiplexer import Lane
    from streambench.container.task_instance import Process
    from streambench.task import MessageCollector

    _Call = tuple[IncomingMessageEnvelope, Process, MessageCollector, Coordinator]

FEWEST = 8
_MOST = 16_384
_LEAST = 4
_MS = 1_000_000
# More of them, and what encoders return (buffers of 4 kB) makes the allocator give memory back to the system and ask for it again.
_UNSENT = 64


class Turns:
    """The next choices, taken out of the queue of a chooser and out of the lanes' buffers.

    ``calls``: the messages in the order of choice, each with the callback of who gets it, its collector and its coordinator. ``stop`` notes
    how far each task has come. After it, ``last`` is the message that was chosen last, and ``served`` its lane, which has to offer its next
    message to the chooser now, as after any choice; None where there was none. ``done`` is how many were processed.
    """

    __slots__ = ("_chosen", "_envelopes", "_lanes", "_left", "_queue", "_subscriptions", "calls", "done", "last", "served")

    def __init__(self, queue: deque[IncomingMessageEnvelope], lanes: list[Lane], depth: int) -> None:
        """``depth`` messages of each of these lanes, which have one subscription, whose candidates stand in front in the queue in this
        order, and of which each has at least as many more. More than one only where no other lane has a candidate."""
        self._queue = queue
        self._lanes = lanes
        if depth == 1:
            self._envelopes = [queue.popleft() for _ in lanes]
        else:
            columns = [[queue.popleft(), *_first(lane.buffer, depth - 1)] for lane in lanes]
            self._envelopes = list(chain.from_iterable(zip(*columns, strict=True)))
        queue.extend([lane.buffer.popleft() for lane in lanes])
        self._subscriptions = subscriptions = [lane.single for lane in lanes if lane.single is not None]
        self._left = iter(self._envelopes)
        # Each read once for all its messages: code is exchanged between two messages, by what is posted, which ends the turns.
        processes = cycle([each.process for each in subscriptions])
        collectors = cycle([each.collector for each in subscriptions])
        coordinators = cycle([each.coordinator for each in subscriptions])
        self.calls: Iterator[_Call] = zip(self._left, processes, collectors, coordinators, strict=False)
        self.last: IncomingMessageEnvelope | None = None
        self.served: Lane | None = None
        self.done = 0

    @property
    def left(self) -> int:
        """How many messages were not taken from ``calls`` yet."""
        return operator.length_hint(self._left)

    def stop(self, last: IncomingMessageEnvelope | None, unfinished: int = 0) -> None:
        """Put back the messages behind ``last``; None: all. ``unfinished``: whether (1) or not (0) that one was not processed."""
        self.last, self._chosen = last, len(self._envelopes)
        if last is self._envelopes[-1]:
            self.served = self._lanes[-1]
            self.served.buffer.appendleft(self._queue.pop())
        else:
            self._chosen = 0 if last is None else next(at for at, each in enumerate(self._envelopes, start=1) if each is last)
            self._put_back()
        self.done = done = max(0, self._chosen - unfinished)
        start = max(0, done - len(self._lanes))
        at = start % len(self._lanes)
        last_ones = self._envelopes[start:done]
        for subscription, envelope in zip(self._subscriptions[at:] + self._subscriptions[:at], last_ones, strict=False):
            subscription.offset = envelope.offset

    def _put_back(self) -> None:
        at, width = self._chosen, len(self._lanes)
        within = at % width
        if at:
            self.served = self._lanes[within - 1]
        following = [self._queue.pop() for _ in self._lanes]
        first: list[IncomingMessageEnvelope] = []
        behind: list[IncomingMessageEnvelope] = []
        for place, lane in enumerate(self._lanes):
            is_through = place < within
            left = [*self._envelopes[at - within + place + is_through * width :: width], following[-1 - place]]
            if lane is not self.served:
                (behind if is_through else first).append(left.pop(0))
            lane.buffer.extendleft(reversed(left))
        self._queue.extendleft(reversed(first))
        self._queue.extend(behind)

    def how_many_next(self, most: int) -> int:
        """How many turns to take at most the next time, after ``stop``, where these were ``most``; less than ``FEWEST``: none for a while.
        Where something was due in the middle of them it may soon be again, and there is no use in what is only put back."""
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


def take_turns(queue: deque[IncomingMessageEnvelope], lanes: Mapping[SystemStreamPartition, Lane], most: int) -> Turns | None:
    """The next turns of the candidates in a queue, as far as they are certain: to the first lane that will run dry, or has to be looked at
    with each message; ``most`` or a few more. None where that is not worth while."""
    order = []
    depth = most
    for envelope in islice(queue, most):
        lane = lanes[envelope.ssp]
        if lane.single is None:
            break
        waiting = len(lane.buffer)
        if waiting < depth:
            if not waiting:
                break
            depth = waiting
        order.append(lane)
    if len(order) < len(queue):
        depth = 1
    elif order:
        depth = min(depth, -(-most // len(order)))
    return Turns(queue, order, depth) if depth * len(order) >= _LEAST else None


class Turning:
    """Processes the messages of turns.

    Where the outbox may wait, what they collect is sent after ``_UNSENT`` messages, or behind the one at which a millisecond is over. What
    is not plain is sent as soon as its task returns, and so is all that was collected before it."""

    def __init__(
        self, outbox: Outbox, owner: Owner, outgoing: Outgoing, requests: Sequence[Coordinator], inbox: deque[Any], clock: Clock,
        failed: Callable[[Exception, Coordinator, IncomingMessageEnvelope, int], None],
    ) -> None:  # fmt: skip
        """``failed`` sees to an exception of a task, whose message collected what stands in ``outgoing`` from a place on; it raises or
        not."""
        self._outbox = outbox
        self._owner = owner
        self._outgoing = outgoing
        self._requests = requests
        self._inbox = inbox
        self._clock = clock
        self._failed = failed
        self._unsent: IncomingMessageEnvelope | None = None

    def run(self, turns: Turns, due: int) -> None:
        """Process messages until all are, or something else is due: at ``due``, or because of what they asked for or others brought. Stops
        the turns, at the message whose output could not be sent if that is why it raises."""
        outgoing, requests, inbox, owner, outbox = self._outgoing, self._requests, self._inbox, self._owner, self._outbox
        read_clock, failed = self._clock.monotonic_ns, self._failed
        may_wait = outbox.may_wait
        calls = turns.calls
        envelope: IncomingMessageEnvelope | None = None
        unfinished = 0
        goes_on = True
        try:
            now = read_clock()
            while goes_on:
                goes_on = False
                owner.until = min(due, now + _MS) if may_wait else due
                to_send = () if may_wait else outgoing
                try:
                    for envelope, process, collector, coordinator in islice(calls, _UNSENT) if may_wait else calls:
                        owner.input = envelope
                        try:
                            process(envelope, collector, coordinator)
                        except Exception as error:
                            failed(error, coordinator, envelope, self._collected_before(envelope))
                        now = read_clock()
                        if now >= owner.until or requests or inbox or to_send:
                            goes_on = True
                            break
                except BaseException as error:
                    unfinished = 1
                    self._send_before(envelope, error)
                    raise
                if now >= due:
                    # What belongs to the iteration of the last message is sent behind what window() collects in it.
                    at = self._collected_before(envelope)
                    late = outgoing[at:]
                    del outgoing[at:]
                    self._send()
                    outgoing[:] = late
                    break
                if outgoing:
                    self._send()
                    outgoing.clear()
                if requests or inbox:
                    break
                if may_wait:
                    goes_on, may_wait = turns.left > 0, outbox.may_wait
        finally:
            unsent, self._unsent = self._unsent, None
            if unsent is None:
                turns.stop(envelope, unfinished)
            else:
                turns.stop(unsent)

    def _collected_before(self, envelope: IncomingMessageEnvelope | None) -> int:
        """How much of what was collected is of the messages before this one."""
        return next((at for at, item in enumerate(self._outgoing) if item[2] is envelope), len(self._outgoing))

    def _send_before(self, envelope: IncomingMessageEnvelope | None, error: BaseException) -> None:
        """Send what the messages before this one collected, at which there is an error: it is on its way, as if each had been sent by
        itself."""
        del self._outgoing[self._collected_before(envelope) :]
        try:
            self._send()
        except Exception:
            if isinstance(error, Exception):
                raise
            self._unsent = None
        self._outgoing.clear()

    def _send(self) -> None:
        try:
            self._outbox.send(self._outgoing)
        except BaseException:
            self._unsent = self._outgoing[min(self._outbox.failed_at, len(self._outgoing) - 1)][2] if self._outgoing else None
            raise
