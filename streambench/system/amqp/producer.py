"""The producer of an AMQP system: publishes without waiting, and counts what the broker confirms."""

from __future__ import annotations

import threading
import time
from collections import deque
from itertools import takewhile
from typing import Any

from msgspec import Struct

from streambench.errors import StreambenchError, StreamSystemError, UnknownStreamError, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.adapters import SenderProducer
from streambench.system.amqp.broker import channel_to, check, topology_of
from streambench.system.amqp.link import Link
from streambench.system.amqp.messages import RESENT
from streambench.system.amqp.outgoing import Routing, encoder
from streambench.system.amqp.settings import Settings, StreamTopology
from streambench.system.api import Sender

_MOST_UNCONFIRMED = 10_000
_AT_ONCE = 200


class _Message(Struct, eq=False):
    """A message that the broker has not confirmed yet."""

    stream: SystemStream
    exchange: str
    routing_key: str
    mandatory: bool
    properties: Any
    body: bytes
    size: int


class AmqpProducer(SenderProducer):
    """Publishes persistent messages over one connection, in the order in which they were sent.

    What the broker has not confirmed when a connection is lost is sent again, with the header
    ``amqp.resent``: the broker may have it already. A message that it refuses, or that no queue takes, is an
    error of the next ``send`` or ``flush``, and of all that follow. A producer that has lost a message must
    never seem to have written everything. ``send`` waits once 10,000 messages, or as much as
    ``send.buffer.bytes``, are not confirmed.
    """

    def __init__(self, settings: Settings, metrics: MetricsRegistry) -> None:
        super().__init__()
        self._settings = settings
        self._resent = metrics.counter(f"{settings.system}-messages-sent-again", "amqp")
        self._changed = threading.Condition()
        self._outgoing: deque[_Message] = deque()
        self._is_pushing = False
        self._unconfirmed: dict[int, _Message] = {}
        self._number = 0
        self._returned: dict[SystemStream, str] = {}
        self._channel: Any = None
        self._failure: StreambenchError | None = None
        # Of all messages that were put, and of all that the broker has answered: one thread writes each.
        self._put_bytes = self._answered_bytes = 0
        self._link = Link(
            settings,
            f"AMQP producer of {settings.system}",
            metrics,
            opened=self._on_opened,
            lost=self._on_lost,
            failed=self._on_failed,
        )

    def start(self) -> None:
        self._link.start()

    def stop(self) -> None:
        super().stop()
        self._link.stop()

    def _new_sender(self, stream: SystemStream) -> Sender:
        with channel_to(self._settings) as open_channel:
            topology = topology_of(self._settings, open_channel, stream.stream)
            check(self._settings, open_channel, topology)
        return self._sender_to(stream, topology)

    def flush(self, source: str) -> None:
        until = time.monotonic() + self._settings.patience_s
        with self._changed:
            while (self._outgoing or self._unconfirmed) and self._failure is None:
                self._wait(until)
            self._raise_failure()

    def _sender_to(self, stream: SystemStream, topology: StreamTopology) -> Sender:
        queues, exchange, mandatory = topology.queues, topology.exchange, topology.mandatory
        routing = Routing(exchange, topology.routing_key, topology.key_header)
        encode = encoder(stream, routing, self._settings.max_bytes, self._link.frame_bytes)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            routing_key, properties, body, size = encode(envelope, key, message)
            if not exchange:
                if partition >= len(queues):
                    raise no_partition(stream, partition, len(queues))
                routing_key = queues[partition]
            self._put(_Message(stream, exchange, routing_key, mandatory, properties, body, size))

        return send

    def _put(self, message: _Message) -> None:
        if self._failure is not None or self._is_full():
            self._wait_for_room()
        self._put_bytes += message.size
        self._outgoing.append(message)
        if not self._is_pushing:
            self._is_pushing = True
            self._link.call(self._on_push)

    def _is_full(self) -> bool:
        if len(self._outgoing) + len(self._unconfirmed) >= _MOST_UNCONFIRMED:
            return True
        return self._put_bytes - self._answered_bytes >= self._settings.send_buffer_bytes

    def _wait_for_room(self) -> None:
        until = time.monotonic() + self._settings.patience_s
        with self._changed:
            while self._is_full() and self._failure is None:
                self._wait(until)
            self._raise_failure()

    def _wait(self, until: float) -> None:
        left = until - time.monotonic()
        if left <= 0:
            why = "it has not confirmed what was sent"
            if self._link.is_blocked:
                why = "it lacks memory or disk and takes nothing"
            limit = f"{self._settings.patience_s:g} seconds (systems.{self._settings.system}.patience.ms)"
            raise StreamSystemError(
                f"the AMQP broker at {self._settings.name}: {why} within {limit}; "
                f"{len(self._unconfirmed) + len(self._outgoing)} messages wait"
            )
        self._changed.wait(left)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    # On the link's thread

    def _on_opened(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def _on_channel(self, channel: Any) -> None:
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_return_callback(self._on_return)
        channel.confirm_delivery(self._on_confirmed, callback=lambda _: self._on_ready(channel))

    def _on_ready(self, channel: Any) -> None:
        self._channel = channel
        self._number = 0
        self._is_pushing = True
        self._on_push()

    def _on_push(self) -> None:
        """Publish all messages that wait, in portions between which confirmations are read."""
        channel = self._channel
        if channel is None or not channel.is_open:
            return
        for _ in range(_AT_ONCE):
            if not self._outgoing:
                self._is_pushing = False
                # The sender may have added one before it could see that.
                if not self._outgoing:
                    return
                self._is_pushing = True
            message = self._outgoing[0]
            self._number += 1
            self._unconfirmed[self._number] = message
            # Only now: a flush that saw it nowhere would return.
            self._outgoing.popleft()
            channel.basic_publish(
                message.exchange,
                message.routing_key,
                message.body,
                message.properties,
                mandatory=message.mandatory,
            )
        channel.connection.ioloop.add_callback_threadsafe(self._on_push)

    def _on_confirmed(self, frame: Any) -> None:
        method = frame.method
        tag, is_refused = method.delivery_tag, method.NAME == "Basic.Nack"
        first = takewhile(lambda number: number <= tag, self._unconfirmed) if method.multiple else (tag,)
        with self._changed:
            for number in list(first):
                message = self._unconfirmed.pop(number)
                self._answered_bytes += message.size
                if is_refused:
                    self._fail(
                        StreamSystemError(
                            f"{message.stream}: the broker refuses a message: its queue is full, or was lost"
                        )
                    )
                elif self._returned and message.stream in self._returned:
                    self._fail(UnknownStreamError(f"{message.stream}: {self._returned.pop(message.stream)}"))
            self._changed.notify_all()

    def _on_return(self, _: Any, method: Any, __: Any, ___: bytes) -> None:
        """No queue takes a message. Its confirmation follows."""
        message = next(
            each
            for each in self._unconfirmed.values()
            if (each.exchange, each.routing_key) == (method.exchange, method.routing_key)
        )
        if message.exchange:
            what = (
                f"no queue is bound to the exchange {method.exchange} for the routing key "
                f"{method.routing_key!r}"
            )
            key = f"systems.{message.stream.system}.streams.{message.stream.stream}.mandatory"
            self._returned[message.stream] = f"{what}; with {key}=false, such messages are dropped"
        else:
            self._returned[message.stream] = f"there is no queue {method.routing_key} any more"

    def _on_channel_closed(self, channel: Any, reason: Exception) -> None:
        if channel.connection.is_open:
            code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
            self._link.abort(
                StreamSystemError(f"{self._settings.system}: the broker refuses what is sent: {code} {text}")
            )

    def _on_lost(self) -> None:
        with self._changed:
            self._channel = None
            again = list(self._unconfirmed.values())
            self._unconfirmed.clear()
            for message in again:
                message.properties.headers = {**(message.properties.headers or {}), RESENT: b"true"}
            self._outgoing.extendleft(reversed(again))
            self._resent.inc(len(again))
            self._is_pushing = True

    def _on_failed(self, error: StreambenchError) -> None:
        with self._changed:
            self._fail(error)
            self._changed.notify_all()

    def _fail(self, error: StreambenchError) -> None:
        if self._failure is None:
            self._failure = error
