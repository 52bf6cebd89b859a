"""The producer of a simple plug-in: one StreamProducer for each stream that is written to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streambench.errors import (
    MessageTooLargeError,
    SerdeError,
    StreambenchError,
    do_all,
    no_partition,
    no_tombstone,
)
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.adapters import SenderProducer
from streambench.system.api import Sender
from streambench.system.pull.api import StreamProducer
from streambench.system.pull.failure import named


class PullProducer(SenderProducer):
    """Hands messages to StreamProducers; a flush commits those that were sent to. They have no place for
    timestamps and headers.

    Once one has failed, it is not known what is missing: no flush succeeds any more.
    """

    def __init__(
        self, make: Callable[[SystemStream], StreamProducer], partitions: Callable[[SystemStream], int]
    ) -> None:
        super().__init__()
        self._make = make
        self._partitions = partitions
        self._producers: dict[SystemStream, StreamProducer] = {}
        self._uncommitted: dict[SystemStream, None] = {}
        self._failure: StreambenchError | None = None

    def stop(self) -> None:
        producers, self._producers = self._producers, {}
        super().stop()
        do_all([producer.close for producer in producers.values()])

    def _new_sender(self, stream: SystemStream) -> Sender:
        partitions = self._partitions(stream)
        producer = self._producers.get(stream)
        if producer is None:
            producer = self._producers[stream] = self._called(
                stream, "cannot be written to", self._make, stream
            )
        chooses = type(producer).send_to is not StreamProducer.send_to
        of_one = partitions == 1

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            check_bytes(stream, key, message)
            if not 0 <= partition < partitions:
                raise no_partition(stream, partition, partitions)
            self._uncommitted[stream] = None
            if chooses or not (of_one or (envelope.partition is None and envelope.partition_key is None)):
                self._called(stream, "cannot be written to", producer.send_to, partition, message, key)
            else:
                self._called(stream, "cannot be written to", producer.send, message, key)

        return send

    def flush(self, source: str) -> None:
        if self._failure is not None:
            raise self._failure
        for stream in list(self._uncommitted):
            self._called(stream, "was not written durably", self._producers[stream].commit)
            del self._uncommitted[stream]

    def _called(self, stream: SystemStream, what: str, call: Callable[..., Any], *arguments: Any) -> Any:
        """Return the result of the plug-in's method; an error of it names the stream."""
        try:
            return call(*arguments)
        except Exception as error:
            if isinstance(error, SerdeError):
                raise
            failure = named(stream, what, error)
            if not isinstance(failure, MessageTooLargeError):
                self._failure = failure
            raise failure from failure.__cause__


def check_bytes(stream: SystemStream, key: Any, message: Any) -> None:
    """Raise SerdeError where a key or a message is not bytes; a key may be None."""
    _check(stream, key, "key")
    _check(stream, message, "msg")


def _check(stream: SystemStream, value: Any, part: str) -> None:
    if value is None and part == "msg":
        raise SerdeError(no_tombstone(str(stream), "this kind of system"))
    if type(value) is not bytes and not (part == "key" and value is None):
        raise SerdeError(
            f"{stream}: its {'keys' if part == 'key' else 'messages'} are bytes, and this is a "
            f"{type(value).__name__}: set a serde, for "
            f"example systems.{stream.system}.samza.{part}.serde={'string' if part == 'key' else 'json'}"
        )
