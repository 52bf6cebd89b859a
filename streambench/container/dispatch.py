"""Step 2, the rare cases: broadcast inputs, undecodable messages and batches.

A message of a partition with one task never comes here: the event loop and its bursts call the task at once.
"""

from __future__ import annotations

from collections.abc import Callable

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
    """Delivers chosen messages to all tasks that read their partition. ``batches`` does it for tasks that
    take batches."""

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
        self._collected = collected
        self._dead_letters = dead_letters
        self._failures = failures
        self._compare = compare
        self.batches = BatchDispatcher(
            max_batch,
            multiplexer,
            collected,
            reject=dead_letters.undecodable,
            failed=failures.at_batch,
            begins=self._begins_at,
        )

    def deliver(
        self,
        partition: PartitionBuffer,
        envelope: IncomingMessageEnvelope,
        at_most: int | None,
        watch: BatchWatch,
    ) -> int:
        """Deliver the chosen message of a partition, or the batch that begins with it; how many messages.

        ``at_most``: the longest batch wanted, None for any. ``watch``: sees a batch
        before its task. Raises TaskError, SerdeError."""
        if partition.waiting is not None:
            return self.batches.deliver(partition, envelope, partition.waiting, at_most, watch)
        if type(envelope) is Undecodable:
            self._skip_undecodable(partition, envelope)
            return 1
        for subscription in partition.subscriptions:
            if self._begins_later(subscription, envelope):
                continue
            mark = len(self._collected)
            try:
                # Step 2: dispatch
                subscription.process(envelope, subscription.collector, subscription.coordinator)
            except BaseException as error:
                self._failures.at_message(error, subscription.coordinator, envelope, mark)
            subscription.offset = envelope.offset  # Step 2: offset
        return 1

    def _skip_undecodable(self, partition: PartitionBuffer, envelope: Undecodable) -> None:
        reached = [each for each in partition.subscriptions if not self._begins_later(each, envelope)]
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
