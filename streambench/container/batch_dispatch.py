"""Batches for tasks with ``process_batch``: how many messages make one, and the call of the task.

The event loop treats a batch as it treats a message. The chooser chooses it by its first message. It is given
to its tasks, and followed by windows, outputs and commits. The differences are here, so that they cost jobs
without ``process_batch`` nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from streambench.batch import MessageBatch
from streambench.chooser.fast_paths import take_batch
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope

if TYPE_CHECKING:
    from streambench.container.inputs.multiplexer import Multiplexer
    from streambench.container.inputs.partition_buffer import PartitionBuffer
    from streambench.container.inputs.raw_buffer import RawBuffer
    from streambench.container.outputs.collected import Collected
    from streambench.container.tasks.task_instance import TaskPartition

Reject = Callable[[str, IncomingMessageEnvelope, SerdeError], None]
"""Handles a message, as it was read, that a task cannot decode; raises the error or returns."""


class BatchWatch(Protocol):
    """Everything that happens with a batch before its task gets it."""

    def note_batch(self, first: IncomingMessageEnvelope, batch: MessageBatch) -> None:
        """Note a batch of several messages; ``first`` was chosen."""

    def ends_batch(self) -> Callable[[IncomingMessageEnvelope], object] | None:
        """Return a function that is true of a message before which a batch is to end; None for none."""


Failed = Callable[[BaseException, "TaskPartition", MessageBatch, int], None]
"""Handles an exception of a task at a batch; returns where that is ignored."""


class BatchDispatcher:
    """Gives tasks their batches. ``longest``: ``task.batch.messages``; ``one_by_one``: in steps,
    batches have one message. ``again``: the next batch has so many messages, because it failed with them; 0
    where the chooser is to be asked.

    ``refused``: the error of the last input that could not be decoded and was not passed over.
    """

    def __init__(
        self, longest: int, multiplexer: Multiplexer, collected: Collected, *,
        reject: Reject, failed: Failed, begins: Callable[[TaskPartition, str], bool],
    ) -> None:  # fmt: skip
        """``begins(subscription, offset)``: whether a task that begins later than others has begun at an
        offset."""
        self.longest = longest
        self.one_by_one = False
        self.again = 0
        self._multiplexer = multiplexer
        self._collected = collected
        self._reject = reject
        self._failed = failed
        self._begins = begins
        self._task = ""
        self.refused: SerdeError | None = None

    def deliver(
        self,
        partition: PartitionBuffer,
        envelope: IncomingMessageEnvelope,
        waiting: RawBuffer,
        at_most: int | None,
        watch: BatchWatch,
    ) -> int:
        """Give the tasks of a partition the batch that begins with its chosen message; how many messages it
        had."""
        batch = self._next(partition, waiting, at_most, watch)
        if len(batch) > 1:
            watch.note_batch(envelope, batch)
        for subscription in partition.subscriptions:
            part = batch if subscription.skip_before is None else self._since_start(subscription, batch)
            if part is None:
                continue
            self._task, mark = subscription.task.name, len(self._collected)
            try:
                # Step 2: dispatch
                subscription.task.process_batch(part, subscription.collector, subscription.coordinator)
            except BaseException as error:
                if error is self.refused:
                    raise
                self._failed(error, subscription, part, mark)
            subscription.offset = batch.last_offset  # Step 2: offset
        return len(batch)

    def _next(
        self, partition: PartitionBuffer, waiting: RawBuffer, at_most: int | None, watch: BatchWatch
    ) -> MessageBatch:
        count = 1 if self.one_by_one else self.longest if at_most is None else min(self.longest, at_most)
        if self.again:
            count, self.again = self.again, 0
            self._multiplexer.fill(partition, count)
        elif count > 1:
            self._multiplexer.fill(partition, count)
            offsets = waiting.offsets(count)
            ends = watch.ends_batch()
            if ends is not None:
                others = enumerate(waiting.peek(1, len(offsets)), start=1)
                end = next((at for at, each in others if ends(each)), len(offsets))
                offsets = offsets[:end]
            count = (
                max(1, min(len(offsets), take_batch(self._multiplexer.chooser, offsets)))
                if len(offsets) > 1
                else 1
            )
        batch = waiting.take(count, self._undecodable)
        self._multiplexer.return_credit(partition)
        return batch

    def _undecodable(self, raw: IncomingMessageEnvelope, error: SerdeError) -> None:
        try:
            self._reject(self._task, raw, error)
        except SerdeError as refused:
            self.refused = refused
            raise

    def _since_start(self, subscription: TaskPartition, batch: MessageBatch) -> MessageBatch | None:
        """The part of a batch that is for a task that begins later than the partition does."""
        for at in range(len(batch)):
            if self._begins(subscription, batch.offset(at)):
                subscription.skip_before = None
                subscription.skipped += at
                return batch if at == 0 else batch.part(at, len(batch))
        subscription.skipped += len(batch)
        return None
