"""Messages that the log does not take. One of them must not stop all others, nor be lost silently."""

from __future__ import annotations

import logging

from streambench.config import Config
from streambench.errors import MessageTooLargeError, do_all
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.serde.letters import letter_headers, shorter
from streambench.serde.streams import dead_letter_stream
from streambench.system.api import SystemProducer
from streambench.system.partitioner import partition_for
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_SOURCE = "landing"
_DROP = "task.drop.deserialization.errors"


class DeadLetters:
    """Dead letters of the streams of one system. A message goes to ``task.dead.letter.stream``; where there
    is none and ``task.drop.deserialization.errors`` is set it is dropped and counted. Otherwise it goes to
    the stream ``x.orders.dead-letters`` of the log, beside ``x.orders``, cut to what fits. With
    ``samza.landing.strict`` it ends the receiver instead.

    A message that is too large for that stream, too, is cut: ``dead-letter.size`` says how many bytes it had.
    """

    def __init__(self, system: str, target: str, config: Config, metrics: MetricsRegistry) -> None:
        self.refused = metrics.counter(f"{system}-messages-refused", "landing")
        self._target = target
        self._config = config
        self._metrics = metrics
        self._stream = dead_letter_stream(config)
        self._is_strict = config.boolean(f"systems.{system}.samza.landing.strict")
        self._drops = self._stream is None and config.boolean(_DROP)
        self._systems: Systems | None = None
        self._producers: dict[str, SystemProducer] = {}
        self._partitions: dict[SystemStream, int] = {}
        self._warned: set[SystemStream] = set()

    def put(self, received: IncomingMessageEnvelope, error: MessageTooLargeError) -> None:
        """Put a message that the log did not take elsewhere. Raises ``error`` where that is to end the
        receiver. ``flush`` makes it durable."""
        if self._is_strict:
            raise error
        self.refused.inc()
        source = received.ssp.system_stream
        stream = self._stream or SystemStream(self._target, f"{source}.dead-letters")
        if source not in self._warned:
            self._warned.add(source)
            fate = "is dropped" if self._drops else f"goes to {stream}, cut to what fits"
            log.warning(
                "%s cannot be landed: %s; it %s, as will others of %s, which are only counted",
                received.ssp,
                error,
                fate,
                source,
            )
        if not self._drops:
            self._send(stream, received, error)

    def flush(self) -> None:
        """Return when all of them are durable."""
        for producer in self._producers.values():
            producer.flush(_SOURCE)

    def stop(self) -> None:
        producers, self._producers = self._producers, {}
        systems, self._systems = self._systems, None
        self._partitions.clear()
        do_all(
            [
                *(producer.stop for producer in producers.values()),
                *([] if systems is None else [systems.close]),
            ]
        )

    def _send(
        self, stream: SystemStream, received: IncomingMessageEnvelope, error: MessageTooLargeError
    ) -> None:
        producer, number = self._opened(stream)
        key, message = received.key, received.message
        facts = {"direction": "in", "size": str(len(message or b"") + len(key or b""))}
        headers = letter_headers(error, received.headers, received, facts)
        partition = partition_for(key, number) if isinstance(key, bytes) else 0
        letter = OutgoingMessageEnvelope(stream, message, key, None, partition, headers=headers)
        while True:
            try:
                producer.send(_SOURCE, letter)
                return
            except MessageTooLargeError:
                cut = shorter(letter)
                if cut is None:
                    raise
                letter = cut

    def _opened(self, stream: SystemStream) -> tuple[SystemProducer, int]:
        """The producer for a stream, which is created where it is not there, and its number of partitions."""
        systems = self._systems = self._systems or Systems(self._config)
        if stream not in self._partitions:
            self._partitions[stream] = systems.created(stream)
        if stream.system not in self._producers:
            producer = self._producers[stream.system] = systems.producer(stream.system, self._metrics)
            producer.start()
            producer.register(_SOURCE)
        return self._producers[stream.system], self._partitions[stream]
