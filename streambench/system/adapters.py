"""Bases for consumers that read chunks, and for producers that have a sender for each stream."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping

from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Chunk, Sender, SystemConsumer, SystemProducer


class ChunkConsumer(SystemConsumer):
    """A consumer that reads by the column: ``poll`` gives the messages of ``poll_chunks``."""

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        return [envelope for chunk in self.poll_chunks(wanted, timeout_ms) for envelope in chunk.envelopes()]

    @abstractmethod
    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]: ...


class SenderProducer(SystemProducer):
    """A producer with a sender for each stream, which connects: it is made once, and ``send`` calls it."""

    def __init__(self) -> None:
        self._senders: dict[SystemStream, Sender] = {}

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        send = self.sender(envelope.system_stream)
        send(source, envelope, envelope.key, envelope.message, envelope.partition or 0)

    def stop(self) -> None:
        self._senders.clear()

    def sender(self, stream: SystemStream) -> Sender:
        if stream not in self._senders:
            self._senders[stream] = self._new_sender(stream)
        return self._senders[stream]

    @abstractmethod
    def _new_sender(self, stream: SystemStream) -> Sender:
        """The sender that ``sender`` returns for this stream from now on."""
