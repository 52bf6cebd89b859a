"""Batches: several messages in a row from one partition."""

from __future__ import annotations

from collections.abc import Mapping

from streambench.chooser.api import MessageChooser
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition


class BatchingChooser(MessageChooser):
    """Stays with the partition that ``wrapped`` chose until it has given ``batch_size`` messages in a row, or has none waiting.

    Exactly ``batch_size``: 1 means no batches (Samza's treats 1 as 2). A batch goes on although ``wrapped`` may hold messages of higher
    priority.
    Raises ConfigError for a size below 1.
    """

    def __init__(self, wrapped: MessageChooser, batch_size: int) -> None:
        if batch_size < 1:
            raise ConfigError(f"a batch of {batch_size} messages is none: give 1 or more", key="task.consumer.batch.size")
        self._wrapped = wrapped
        self._size = batch_size
        self._ssp: SystemStreamPartition | None = None
        self._next: IncomingMessageEnvelope | None = None
        self._count = 0

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wrapped.register(ssp, offset)

    def start(self) -> None:
        self._wrapped.start()

    def stop(self) -> None:
        self._wrapped.stop()

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        if envelope.ssp == self._ssp:
            self._next = envelope
        else:
            self._wrapped.update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        envelope = self._next
        if envelope is None:
            envelope = self._wrapped.choose()
            self._count = 0
            self._ssp = None if envelope is None else envelope.ssp
        self._next = None
        self._count += 1
        if self._count >= self._size:
            self._ssp = None
        return envelope

    def rule(self) -> str:
        if self._size == 1 or self._count <= 1:
            return self._wrapped.rule()
        return f"batch: message {self._count} of {self._size} from this partition"

    def held(self) -> Mapping[SystemStreamPartition, str]:
        return self._wrapped.held()
