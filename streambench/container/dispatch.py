"""Step 2, the rare cases: broadcast inputs, undecodable messages and batches.

A message of a partition with one task never comes here: the event loop and its bursts know that task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from streambench.chunk import Undecodable
from streambench.container.batch_dispatch import BatchDispatcher, BatchWatch
from streambench.container.failures import Failures
from streambench.container.inputs.multiplexer import Multiplexer
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.outputs.collected import Collected
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.container.tasks.task_instance import TaskPartition
from streambench.model import IncomingMessageEnvelope

Compare = Callable[[str, str, str], int | None]
"""Compares two offsets of a system: ``compare(system, offset, other)``."""


class Dispatcher:
    """Finds the tasks of chosen messages. ``batches`` delivers to tasks that take batches."""

    def __init__(
        self,
        multiplexer: Multiplexer,
        collected: Collected,
        dead_letters: DeadLetters,
        failures: Failures,
        compare: Compare,
        *,
        max_batch: int,
    ) -> None:
        self._dead_letters = dead_letters
        self._compare = compare
        self.batches = BatchDispatcher(
            max_batch,
            multiplexer,
            collected,
            reject=dead_letters.undecodable,
            failed=failures.at_batch,
            begins=self._begins_at,
        )

    def receivers(
        self,
        partition: PartitionBuffer,
        envelope: IncomingMessageEnvelope,
        at_most: int | None,
        watch: BatchWatch,
    ) -> tuple[int, Iterable[TaskPartition]]:
        """The tasks that the chosen message of a partition is for, after the number of messages that this
        processes.

        There are none where the message began a batch, which is delivered here, or cannot be decoded, which
        is noted here. ``at_most``: the longest batch wanted, None for any. ``watch``: sees a batch before its
        task. Raises TaskError, SerdeError."""
        if partition.waiting is not None:
            return self.batches.deliver(partition, envelope, partition.waiting, at_most, watch), ()
        if type(envelope) is Undecodable:
            self._skip_undecodable(partition, envelope)
            return 1, ()
        return 1, self._reached(partition, envelope)

    def _reached(
        self, partition: PartitionBuffer, envelope: IncomingMessageEnvelope
    ) -> Iterator[TaskPartition]:
        """Yield the tasks that begin at this message or before it."""
        for subscription in partition.subscriptions:
            if not self._begins_later(subscription, envelope):
                yield subscription

    def _skip_undecodable(self, partition: PartitionBuffer, envelope: Undecodable) -> None:
        reached = list(self._reached(partition, envelope))
        self._dead_letters.undecodable(reached[0].task.name, envelope, envelope.error)
        for subscription in reached:
            subscription.offset = envelope.offset  # Step 2: offset
        partition.undecodable -= 1
        partition.find_sole_subscription()

    def _begins_later(self, subscription: TaskPartition, envelope: IncomingMessageEnvelope) -> bool:
        if subscription.skip_before is None:
            return False
        if not self._begins_at(subscription, envelope.offset):
            subscription.skipped += 1
            return True
        subscription.skip_before = None
        return False

    def _begins_at(self, subscription: TaskPartition, offset: str) -> bool:
        system = subscription.ssp.system
        return (
            subscription.skip_before is None
            or (self._compare(system, offset, subscription.skip_before) or 0) >= 0
        )
