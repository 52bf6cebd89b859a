"""Batches: several messages in a row from one partition."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Candidate, Explanation, all_held
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition


class BatchingChooser(MessageChooser):
    """Stays with the partition that ``wrapped`` chose until ``batch_size`` messages of it have gone in a row.

    The batch ends early as soon as its partition has nothing at a ``choose``: a batch never waits to
    fill. While it lasts, what waits inside ``wrapped`` waits whatever its priority. With 1 every message is
    chosen by ``wrapped``.

    Raises ConfigError for a batch size below 1.
    """

    def __init__(self, wrapped: MessageChooser, batch_size: int) -> None:
        if batch_size < 1:
            raise ConfigError(
                f"task.consumer.batch.size: {batch_size} is less than 1 message",
                key="task.consumer.batch.size",
            )
        self._wrapped = wrapped
        self._wrapped_update = wrapped.update
        self._wrapped_choose = wrapped.choose
        self._size = batch_size
        self._ssp: SystemStreamPartition | None = None
        self._next: IncomingMessageEnvelope | None = None
        self._count = 0
        self._partitions: set[SystemStreamPartition] = set()

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._partitions.add(ssp)
        self._wrapped.register(ssp, offset)

    def start(self) -> None:
        self._wrapped.start()

    def stop(self) -> None:
        self._wrapped.stop()

    def at_head(self, ssp: SystemStreamPartition) -> None:
        self._wrapped.at_head(ssp)

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        if envelope.ssp == self._ssp:
            self._next = envelope
        else:
            self._wrapped_update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        envelope = self._next
        if envelope is not None:
            self._next = None
            self._count += 1
        else:
            envelope = self._wrapped_choose()
            if envelope is None:
                self._ssp = None
                return None
            self._ssp = envelope.ssp
            self._count = 1
        if self._count == self._size:
            self._ssp = None
        return envelope

    def take_batch(self, offsets: Sequence[str]) -> int:
        """A run counts by its messages: at most what is left of the batch."""
        if self._ssp is None:
            return 1
        count = min(len(offsets), self._size - self._count + 1)
        self._count += count - 1
        if self._count == self._size:
            self._ssp = None
        return count

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        inner = self._wrapped.explain(chosen)
        if self._next is not None:
            inner = replace(inner, waiting=(Candidate.of(self._next), *inner.waiting))
        ssp = self._ssp if chosen is None else chosen.ssp
        if ssp is None or (chosen is not None and self._count == 1):
            return inner
        if chosen is not None:
            reason = f"batch: message {self._count} of {self._size} from {ssp}"
            rule = f"batch: message {self._count} of {self._size} from this partition"
        else:
            rule = reason = f"batch: after up to {self._size - self._count} more of {ssp}"
        return replace(inner, rule=rule, held={**inner.held, **all_held(self._partitions, [ssp], reason)})
