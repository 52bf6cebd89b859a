"""A writer from outside of a container, for ``send``: encodes and partitions as a task's output is."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from streambench.container.outputs.stream_writers import StreamWriters, stream_writer
from streambench.errors import MessageTooLargeError, SerdeError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.system.api import SystemProducer
from streambench.system.systems import Systems


class Writer:
    """Sends messages to one stream. ``sent``: how many it has taken; ``durable``: how many of those are
    certain to stay."""

    def __init__(self, producer: SystemProducer, source: str, writers: StreamWriters) -> None:
        self.sent = self.durable = 0
        self._producer = producer
        self._source = source
        self._stream_writers = writers

    def send(self, messages: Iterable[OutgoingMessageEnvelope], *, flush_every: int | None = None) -> None:
        """Send messages in order, and return when all of them are durable; with ``flush_every`` also whenever
        so many more are sent.

        Raises SerdeError where one cannot be encoded or names a partition that is not there, and what the
        producer or ``messages`` raise. Those before it were sent then, and a ``flush`` may yet make them
        durable.
        """
        send, source, sent = self._stream_writers.send, self._source, self.sent
        every = sys.maxsize if flush_every is None else flush_every
        due = self.durable + every
        try:
            for message in messages:
                send([(source, message, None, None, None)])
                sent += 1
                if sent >= due:
                    self.sent = sent
                    self.flush()
                    due = sent + every
        finally:
            self.sent = sent
        self.flush()

    def flush(self) -> None:
        """Return when all that was sent is durable; raise what the producer raises."""
        self._stream_writers.apply_limits()
        self._producer.flush(self._source)
        self.durable = self.sent


@contextmanager
def writing(
    systems: Systems,
    stream: SystemStream,
    partitions: int,
    source: str,
    serdes: tuple[Serde | None, Serde | None] = (None, None),
) -> Iterator[Writer]:
    """A writer to a stream of so many partitions, with a producer of its own that is stopped at the end.

    ``serdes``: those of keys and of messages; without one, they go through as they are. A message that names
    no partition goes where its key says, without a key to each partition in turn. Raises what the producer's
    start raises.
    """
    producer = systems.producer(stream.system, MetricsRegistry())
    try:
        producer.register(source)
        producer.start()
        made = stream_writer(
            stream, producer.sender(stream), producer.appends(stream), partitions, *serdes, _refuse
        )
        yield Writer(producer, source, StreamWriters(lambda source, envelope: made))
    finally:
        producer.stop()


def _refuse(source: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
    if isinstance(error, MessageTooLargeError):
        raise error
    raise SerdeError(f"cannot be sent to {envelope.system_stream}: {error}") from error.__cause__
