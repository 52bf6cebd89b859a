"""The consumer of an AMQP system: the broker pushes, a poll takes what has come."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any

import pika
from msgspec.structs import replace

from streambench.errors import OffsetError, StreambenchError, StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.system.amqp.broker import (
    NOT_FOUND,
    STREAM_OFFSET,
    Bounds,
    bounds,
    channel_to,
    check,
    topology_of,
)
from streambench.system.amqp.link import Link
from streambench.system.amqp.messages import REDELIVERED, ROUTING_KEY, received
from streambench.system.amqp.settings import MOST_AHEAD, Settings, StreamTopology
from streambench.system.api import SystemConsumer
from streambench.system.numbered import to_number

_LONGEST_ANSWER_S = 1.0


class AmqpConsumer(SystemConsumer):
    """Reads queues, each on a channel of its own, over one connection.

    The broker sends ahead, at most ``prefetch`` messages of each partition that are not acknowledged yet.
    What of them was not returned by a poll is dropped when the connection is lost. The broker sends it again
    to another consumer, with all else that was not acknowledged.
    """

    def __init__(self, settings: Settings, metrics: MetricsRegistry) -> None:
        self._settings = settings
        if not settings.keeps:
            self.acknowledge_within_ms = settings.acknowledge_ms
        self._news = threading.Condition()
        self._readers: dict[SystemStreamPartition, _Reader] = {}
        self._failure: StreambenchError | None = None
        self._read = metrics.counter(f"{settings.system}-messages-read", "amqp")
        self._redelivered = metrics.counter(f"{settings.system}-messages-redelivered", "amqp")
        self._link = Link(
            settings,
            f"AMQP consumer of {settings.system}",
            metrics,
            opened=self._on_opened,
            lost=self._on_lost,
            failed=self._on_failed,
        )
        self._most: int | None = None
        self._is_waiting = False

    def look_only(self, at_most: int | None) -> None:
        if self._settings.keeps:
            return
        if at_most is None:
            raise StreamSystemError(
                f"{self._settings.system}: who follows a queue takes its messages from those who are to "
                "process them. Look at some of them (--limit), or give a group of its own to a reader that "
                "is to see all of them (systems.<s>.streams.<t>.exchange)"
            )
        if at_most > MOST_AHEAD:
            raise StreamSystemError(
                f"{self._settings.system}: of a queue, no more than {MOST_AHEAD} messages can be looked at "
                "in one go"
            )
        self._most = at_most

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        make = _StreamReader if self._settings.keeps else _QueueReader
        self._readers[ssp] = make(ssp, to_number(offset, ssp), self)

    def start(self) -> None:
        with channel_to(self._settings) as open_channel:
            for ssp, reader in self._readers.items():
                topology = topology_of(self._settings, open_channel, ssp.stream)
                check(self._settings, open_channel, topology, reads=True)
                if ssp.partition >= len(topology.queues):
                    raise UnknownStreamError(
                        f"there is no partition {ssp}: {ssp.system_stream} has {len(topology.queues)}"
                    )
                reader.topology = topology if self._most is None else replace(topology, prefetch=self._most)
                if self._settings.keeps:
                    reader.check_start(bounds(open_channel, reader.queue))
        self._link.start()

    def stop(self) -> None:
        self._link.stop()

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        until = time.monotonic() + timeout_ms / 1000
        readers = [(self._readers[ssp], at_most) for ssp, at_most in wanted.items() if at_most > 0]
        for reader, _ in readers:
            reader.ask()
        with self._news:
            while True:
                if self._failure is not None:
                    raise self._failure
                taken = [
                    envelope
                    for reader, at_most in readers
                    if reader.buffer
                    for envelope in reader.take(at_most)
                ]
                if taken:
                    self._read.inc(len(taken))
                    return taken
                self._is_waiting = True
                left = until - time.monotonic()
                if left <= 0 and timeout_ms and any(reader.is_asking for reader, _ in readers):
                    # Were the answer not waited for, polls shorter than a broker takes for it would never
                    # find out about the head.
                    left += _LONGEST_ANSWER_S
                # A message may have come before this poll began to wait for it.
                if left > 0 and not any(reader.buffer for reader, _ in readers):
                    self._news.wait(left)
                self._is_waiting = False
                if left <= 0:
                    return []

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        reader = self._readers.get(ssp)
        return reader is not None and reader.is_at_head

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        for ssp, offset in offsets.items():
            self._readers[ssp].acknowledge(int(offset))

    def call(self, what: Callable[[], None]) -> None:
        """Have the link's thread do something."""
        self._link.call(what)

    def notify(self) -> None:
        """Wake a poll that waits: something is new. Called on the link's thread, with every message."""
        if self._is_waiting:
            with self._news:
                self._news.notify_all()

    def give_up(self, reader: _Reader, error: Exception) -> None:
        """A partition cannot be read any more. For the link's thread."""
        self._link.abort(
            error
            if isinstance(error, StreambenchError)
            else StreamSystemError(f"{reader.ssp} cannot be read: {error}")
        )

    def count_redelivered(self) -> None:
        """Count the redelivered messages among those that came, whether or not a poll has returned them.
        Called on the link's thread."""
        self._redelivered.inc()

    def _on_opened(self, connection: Any) -> None:
        for reader in self._readers.values():
            reader.open(connection)

    def _on_lost(self) -> None:
        with self._news:
            for reader in self._readers.values():
                reader.lose()

    def _on_failed(self, error: StreambenchError) -> None:
        with self._news:
            self._failure = error
            self._news.notify_all()


class _Reader:
    """One partition. What is called ``on_`` runs on the link's thread; ``take`` and ``lose`` with the
    consumer's lock held.

    Messages become envelopes on arrival, on the link's thread. The objects of pika are many and large, and
    while thousands of them wait, the garbage collector walks them over and over.
    """

    topology: StreamTopology

    def __init__(self, ssp: SystemStreamPartition, start: int, consumer: AmqpConsumer) -> None:
        self.ssp = ssp
        self.buffer: deque[IncomingMessageEnvelope] = deque()
        self._next = start
        """The offset of the next message that a poll returns."""
        self._consumer = consumer
        self._channel: Any = None
        self._key_header = self._expected = ""
        self._asked = 0
        self._answered = -1
        self._is_asking = False
        self._is_empty = False

    @property
    def queue(self) -> str:
        return self.topology.queues[self.ssp.partition]

    @property
    def is_at_head(self) -> bool:
        """True if the broker had nothing more when it was asked, after the last poll began."""
        return not self.buffer and self._answered == self._asked and self._is_empty

    @property
    def is_asking(self) -> bool:
        """True if the answer is on its way that the last poll is about."""
        return self._channel is not None and self._answered != self._asked and not self.buffer

    def check_start(self, here: Bounds) -> None:
        """Raise OffsetError where the first offset is not there."""

    def open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._on_channel)

    def lose(self) -> None:
        self._channel = None
        self._is_asking = False
        self._answered = -1
        self.buffer.clear()

    def ask(self) -> None:
        """Begin a poll: what is known of the head is out of date."""
        self._asked += 1
        if not self.buffer:
            self._consumer.call(self._on_ask)

    def take(self, at_most: int) -> list[IncomingMessageEnvelope]:
        """The next messages; there are some."""
        popleft = self.buffer.popleft
        taken = [popleft() for _ in range(min(at_most, len(self.buffer)))]
        self._next = int(taken[-1].offset) + 1
        return taken

    def acknowledge(self, offset: int) -> None:
        """Everything up to this offset is safe."""

    def _on_channel(self, channel: Any) -> None:
        channel.add_on_close_callback(self._on_channel_closed)
        channel.add_on_cancel_callback(self._on_cancelled)
        self._channel = channel
        topology = self.topology
        self._key_header, self._expected = topology.key_header, self.queue
        channel.basic_qos(prefetch_count=topology.prefetch)
        channel.basic_consume(self.queue, self._on_message, arguments=self._arguments())

    def _arguments(self) -> dict[str, Any]:
        return {}

    def _on_message(self, channel: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        raise AssertionError

    def _on_ask(self) -> None:
        channel = self._channel
        if channel is None or self._is_asking or not channel.is_open:
            return
        self._is_asking = True
        self._on_look(channel, self._asked)

    def _on_look(self, channel: Any, asked: int) -> None:
        raise AssertionError

    def _on_answer(self, channel: Any, asked: int, is_empty: bool) -> None:
        if channel is not self._channel:
            return
        self._is_asking = False
        self._is_empty = is_empty
        self._answered = asked
        if asked != self._asked and not self.buffer:
            self._on_ask()
        self._consumer.notify()

    def _on_channel_closed(self, channel: Any, reason: Exception) -> None:
        if channel is self._channel and channel.connection.is_open:
            code, text = getattr(reason, "reply_code", 0), getattr(reason, "reply_text", str(reason))
            if code == NOT_FOUND and "no queue" not in text:
                # It is there, but its broker has only just begun to live: try again.
                channel.connection.close()
                return
            kind = UnknownStreamError if code == NOT_FOUND else StreamSystemError
            self._consumer.give_up(
                self, kind(f"{self.ssp} cannot be read: the broker refuses queue {self.queue}: {code} {text}")
            )

    def _on_cancelled(self, _: Any) -> None:
        text = f"{self.ssp} cannot be read any more: its queue {self.queue} was deleted, or lost its leader"
        self._consumer.give_up(self, UnknownStreamError(text))


class _QueueReader(_Reader):
    """Offsets count what was returned. Those of one connection stand for its delivery tags, which count too:
    ``_base`` is the offset of the first of them. What was returned before belongs to a connection that is
    gone, and can no longer be acknowledged."""

    def __init__(self, ssp: SystemStreamPartition, start: int, consumer: AmqpConsumer) -> None:
        super().__init__(ssp, 0, consumer)
        self._base = 0
        self._acknowledged = 0

    def lose(self) -> None:
        super().lose()
        self._base = self._next
        self._acknowledged = 0

    def acknowledge(self, offset: int) -> None:
        self._consumer.call(lambda: self._on_safe(offset))

    def _on_safe(self, offset: int) -> None:
        tag = offset - self._base + 1
        if tag > self._acknowledged and self._channel is not None and self._channel.is_open:
            self._acknowledged = tag
            self._channel.basic_ack(tag, multiple=True)

    def _on_look(self, channel: Any, asked: int) -> None:
        def counted(frame: Any) -> None:
            if frame.method.message_count:
                self._on_answer(channel, asked, False)
            else:
                # The broker may count before it has passed on what it has taken from the queue. A second
                # answer comes behind that.
                channel.queue_declare(
                    self.queue, passive=True, callback=lambda _: self._on_answer(channel, asked, True)
                )

        channel.queue_declare(self.queue, passive=True, callback=counted)

    def _on_message(self, channel: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        if properties.headers and STREAM_OFFSET in properties.headers:
            text = (
                f"{self.ssp} cannot be read: {self.queue} is a stream queue: set "
                f"systems.{self.ssp.system}.queue.type=stream"
            )
            self._consumer.give_up(self, StreamSystemError(text))
            return
        key, message, timestamp, headers = received(properties, body, self._key_header)
        if method.redelivered:
            headers[REDELIVERED] = b"true"
            self._consumer.count_redelivered()
        if method.routing_key != self._expected and method.routing_key:
            key_text = method.routing_key
            headers[ROUTING_KEY] = key_text.encode() if isinstance(key_text, str) else key_text
        offset = str(self._base + method.delivery_tag - 1)
        self.buffer.append(
            IncomingMessageEnvelope(self.ssp, offset, key, message, timestamp, headers or None)
        )
        self._consumer.notify()


class _StreamReader(_Reader):
    """Offsets are the broker's. What a poll has returned is acknowledged at once: that only lets the broker
    send more.

    ``_tags``: the delivery tags of what is in the buffer. ``_wanted``: the next offset to come.
    """

    def __init__(self, ssp: SystemStreamPartition, start: int, consumer: AmqpConsumer) -> None:
        super().__init__(ssp, start, consumer)
        self._tags: deque[int] = deque()
        self._wanted = start

    def check_start(self, here: Bounds) -> None:
        if not here.oldest <= self._next <= here.upcoming:
            raise OffsetError(
                f"{self.ssp}: {self._next} is outside of what it holds: {here.oldest} to {here.upcoming} "
                "(the next)"
            )

    def take(self, at_most: int) -> list[IncomingMessageEnvelope]:
        taken = super().take(at_most)
        for _ in taken:
            tag = self._tags.popleft()
        channel = self._channel
        self._consumer.call(lambda: self._on_taken(channel, tag))
        return taken

    def lose(self) -> None:
        super().lose()
        self._tags.clear()
        self._wanted = self._next

    def _on_taken(self, channel: Any, tag: int) -> None:
        if channel is self._channel and channel is not None and channel.is_open:
            channel.basic_ack(tag, multiple=True)

    def _arguments(self) -> dict[str, Any]:
        return {STREAM_OFFSET: self._next}

    def _on_message(self, channel: Any, method: Any, properties: pika.BasicProperties, body: bytes) -> None:
        if not properties.headers or STREAM_OFFSET not in properties.headers:
            text = (
                f"{self.ssp} cannot be read: {self.queue} is no stream queue: set "
                f"systems.{self.ssp.system}.queue.type=quorum or classic"
            )
            self._consumer.give_up(self, StreamSystemError(text))
            return
        offset = int(properties.headers.pop(STREAM_OFFSET))
        if offset < self._wanted:
            channel.basic_ack(method.delivery_tag)  # a chunk is read from its beginning
            return
        self._wanted = offset + 1
        key, message, timestamp, headers = received(properties, body, self._key_header)
        self._tags.append(method.delivery_tag)
        self.buffer.append(
            IncomingMessageEnvelope(self.ssp, str(offset), key, message, timestamp, headers or None)
        )
        self._consumer.notify()

    def _on_look(self, channel: Any, asked: int) -> None:
        def answer(newest: int | None) -> None:
            self._on_answer(channel, asked, newest is None or newest < self._next)

        probe_end(channel.connection, self.queue, answer)


def probe_end(connection: Any, queue: str, answer: Callable[[int | None], None]) -> None:
    """Have ``answer`` called with the offset of the last message, None where there is none; ``bounds`` says
    why this is so."""
    newest: list[int] = []
    steps = 2

    def opened(channel: Any) -> None:
        channel.basic_qos(prefetch_count=MOST_AHEAD)
        channel.basic_consume(queue, note, arguments={STREAM_OFFSET: "last"})
        again(channel)

    def note(_: Any, __: Any, properties: pika.BasicProperties, ___: bytes) -> None:
        newest[:] = [int(properties.headers[STREAM_OFFSET])]

    def again(channel: Any) -> None:
        channel.basic_consume(queue, lambda *_: None, arguments={STREAM_OFFSET: "next"})
        channel.queue_declare(queue, passive=True, callback=lambda _: counted(channel))

    def counted(channel: Any) -> None:
        nonlocal steps
        steps -= 1
        if steps:
            again(channel)
            return
        channel.close()
        answer(newest[0] if newest else None)

    connection.channel(on_open_callback=opened)
