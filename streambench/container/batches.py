"""Runs of messages for tasks that take batches: how they wait, how long a run is, and how tasks are given one.

The event loop treats a run as it treats a message: it is chosen (by its first message), given to its tasks, followed by windows, outputs
and commits. What is different is here, so that jobs without ``process_batch`` have nothing of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, overload

from streambench.batch import MessageBatch, offset_in
from streambench.chunk import Messages
from streambench.errors import SerdeError, shortened
from streambench.model import IncomingMessageEnvelope

if TYPE_CHECKING:
    from streambench.container.handles import Outgoing
    from streambench.container.multiplexer import Lane, Multiplexer
    from streambench.container.task_instance import Subscription

Reject = Callable[[str, IncomingMessageEnvelope, SerdeError], None]
"""Sees to a message, as it was read, that a task cannot decode; raises the error or returns."""

Failed = Callable[[Exception, "Subscription", MessageBatch, int], None]
"""Sees to what a task raised at a run; returns where that is ignored."""


class Waiting(deque[IncomingMessageEnvelope]):
    """The buffer of a lane whose tasks take batches. For the loop it is a queue like others; but its messages stay as they were read, and
    the one that is inside the chooser stays here, too, since the run begins with it.

    ``taken`` is the last run, until the next message goes into the chooser.
    """

    def __init__(self, lane: Lane) -> None:
        super().__init__()
        self.taken: MessageBatch | None = None
        self._lane = lane
        self._pieces: deque[Messages] = deque()
        self._count = 0
        self._inside = 0

    def __len__(self) -> int:
        return self._count - self._inside

    def __bool__(self) -> bool:
        return self._count > self._inside

    def add(self, piece: Messages) -> None:
        """Messages as they were read, behind those that wait."""
        if len(piece):
            self._pieces.append(piece)
            self._count += len(piece)

    def popleft(self) -> IncomingMessageEnvelope:
        """The next message, decoded if that is possible: the chooser may look at it."""
        self._inside, self.taken = 1, None
        return MessageBatch([self._pieces[0].part(0, 1)], self._lane.key_serde, self._lane.message_serde).peek()[0]

    def offsets(self, at_most: int) -> Offsets:
        """Those of the message inside the chooser and of what waits behind it."""
        return Offsets(self._pieces, 0, min(at_most, self._count))

    def take(self, count: int, undecodable: Callable[[IncomingMessageEnvelope, SerdeError], None]) -> MessageBatch:
        """A run: the message that was inside the chooser and those behind it, ``count`` in all."""
        taken: list[Messages] = []
        self._count -= count
        self._inside = 0
        while count:
            piece = self._pieces.popleft()
            if len(piece) > count:
                self._pieces.appendleft(piece.part(count, len(piece)))
                piece = piece.part(0, count)
            taken.append(piece)
            count -= len(piece)
        batch = self.taken = MessageBatch(taken, self._lane.key_serde, self._lane.message_serde, undecodable, self._lane.serdes)
        return batch


class Offsets(Sequence[str]):
    """Offsets of messages that wait; one is made only when it is looked at."""

    def __init__(self, pieces: Sequence[Messages], start: int, stop: int) -> None:
        self._pieces = pieces
        self._places = range(start, stop)

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, at: int) -> str: ...
    @overload
    def __getitem__(self, at: slice) -> Offsets: ...
    def __getitem__(self, at: int | slice) -> str | Offsets:
        if isinstance(at, int):
            return offset_in(self._pieces, self._places[at])
        places = self._places[at]
        if places.step != 1:
            raise IndexError("only slices of offsets one after the other")
        return Offsets(self._pieces, places.start, max(places.start, places.stop))


class Runs:
    """Gives tasks their runs. ``longest``: ``task.batch.messages``; ``one_by_one``: while somebody steps, runs are of one message.

    ``refused``: the error of the last input that could not be decoded and was not passed over.
    ``shown``: of how many messages at the end of a run ``on_choice`` is told (its first is shown in any case); None: of all.
    """

    def __init__(
        self, longest: int, multiplexer: Multiplexer, outgoing: Outgoing, *,
        reject: Reject, failed: Failed, begins: Callable[[Subscription, str], bool],
    ) -> None:  # fmt: skip
        """``begins(subscription, offset)``: whether a task that begins later than others has begun at an offset."""
        self.longest = longest
        self.one_by_one = False
        self.shown: int | None = None
        self._multiplexer = multiplexer
        self._outgoing = outgoing
        self._reject = reject
        self._failed = failed
        self._begins = begins
        self._task = ""
        self.refused: SerdeError | None = None

    def deliver(
        self, lane: Lane, waiting: Waiting, at_most: int | None, on_choice: Callable[[IncomingMessageEnvelope], object] | None
    ) -> int:
        """Give the tasks of a lane the run that begins with its chosen message; how many messages it had."""
        batch = self._next(lane, waiting, at_most)
        if on_choice is not None and len(batch) > 1:
            for envelope in batch.peek(len(batch) - 1 if self.shown is None else min(len(batch) - 1, self.shown)):
                on_choice(envelope)
        for subscription in lane.subscriptions:
            part = batch if subscription.skip_before is None else self._since_start(subscription, batch)
            if part is None:
                continue
            self._task, mark = subscription.task.name, len(self._outgoing)
            try:
                subscription.task.process_batch(part, subscription.collector, subscription.coordinator)
            except Exception as error:
                if error is self.refused:
                    raise
                self._failed(error, subscription, part, mark)
            subscription.offset = batch.last_offset
        return len(batch)

    def _next(self, lane: Lane, waiting: Waiting, at_most: int | None) -> MessageBatch:
        count = 1 if self.one_by_one else self.longest if at_most is None else min(self.longest, at_most)
        if count > 1:
            self._multiplexer.gather(lane, count)
            offsets = waiting.offsets(count)
            count = max(1, min(len(offsets), self._multiplexer.chooser.take_run(offsets))) if len(offsets) > 1 else 1
        batch = waiting.take(count, self._undecodable)
        self._multiplexer.make_room(lane)
        return batch

    def _undecodable(self, raw: IncomingMessageEnvelope, error: SerdeError) -> None:
        try:
            self._reject(self._task, raw, error)
        except SerdeError as refused:
            self.refused = refused
            raise

    def _since_start(self, subscription: Subscription, batch: MessageBatch) -> MessageBatch | None:
        """The part of a run that is for a task that begins later than the lane does."""
        for at in range(len(batch)):
            if self._begins(subscription, batch.offset(at)):
                subscription.skip_before = None
                subscription.skipped += at
                return batch if at == 0 else batch.part(at, len(batch))
        subscription.skipped += len(batch)
        return None


def place_of(batch: MessageBatch) -> str:
    """Which messages of which partition, in words; of a single one with its key."""
    if len(batch) > 1:
        return f"{batch.ssp}@{batch.first_offset}..{batch.last_offset} (a run of {len(batch)} messages)"
    keys = [each.key for each in batch.peek()]
    key = keys[0] if keys else None
    return f"{batch.ssp}@{batch.first_offset}" + ("" if key is None else f", key {shortened(key)}")
