"""Systems on a real RabbitMQ, and the ways of tests to look into it."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

import pika

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import SystemConsumer, SystemProducer
from streambench.system.systems import Systems

PATIENCE_S = 60


class Amqp:
    """The system ``q`` of a configuration, with a stream that nobody else has."""

    def __init__(self, url: str, **settings: Any) -> None:
        self.url = url
        self.stream = SystemStream("q", f"s{uuid.uuid4().hex[:8]}")
        named = {
            f"systems.q.{name.replace('STREAM', self.stream.stream)}": value
            for name, value in settings.items()
        }
        self.config = Config(
            {"job.name": "job", "systems.q.samza.factory": "amqp", "systems.q.url": url, **named}
        )
        self.systems = Systems(self.config)
        self._parts: list[SystemConsumer | SystemProducer] = []

    @property
    def ssp(self) -> SystemStreamPartition:
        return SystemStreamPartition("q", self.stream.stream, 0)

    def create(self) -> Amqp:
        self.systems.create(self.stream)
        return self

    def producer(self, metrics: MetricsRegistry | None = None) -> SystemProducer:
        producer = self.systems.producer("q", metrics or MetricsRegistry())
        self._parts.append(producer)
        producer.start()
        return producer

    def send(
        self, *messages: bytes, key: bytes | None = None, headers: Mapping[str, bytes] | None = None
    ) -> None:
        producer = self.producer()
        for message in messages:
            producer.send("test", OutgoingMessageEnvelope(self.stream, message, key, headers=headers))
        producer.flush("test")
        producer.stop()

    def consumer(
        self, *, metrics: MetricsRegistry | None = None, config: Mapping[str, Any] | None = None
    ) -> SystemConsumer:
        systems = Systems(self.config.with_values(config or {}))
        consumer = systems.consumer("q", metrics or MetricsRegistry())
        self._parts.append(consumer)
        consumer.register(self.ssp, "0")
        consumer.start()
        return consumer

    def receive(self, consumer: SystemConsumer, count: int) -> list[IncomingMessageEnvelope]:
        """The next so many messages."""
        found: list[IncomingMessageEnvelope] = []
        until = time.monotonic() + PATIENCE_S
        while len(found) < count:
            found += consumer.poll({self.ssp: count - len(found)}, 100)
            assert time.monotonic() < until, f"{len(found)} of {count} messages came"
        return found

    def left(self, consumer: SystemConsumer) -> list[IncomingMessageEnvelope]:
        """What a consumer gets until it is at the head."""
        found: list[IncomingMessageEnvelope] = []
        wait_for(lambda: found.extend(consumer.poll({self.ssp: 1_000}, 20)) or consumer.at_head(self.ssp))
        return found

    def waiting(self, queue: str | None = None) -> int:
        """How many messages of a queue no consumer has."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        try:
            count: int = (
                connection.channel()
                .queue_declare(queue or self.stream.stream, passive=True)
                .method.message_count
            )
            return count
        finally:
            connection.close()

    def publish(
        self, exchange: str, routing_key: str, body: bytes, properties: pika.BasicProperties | None = None
    ) -> None:
        """As some other program would."""
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        connection.channel().basic_publish(exchange, routing_key, body, properties)
        connection.close()

    def close(self) -> None:
        for part in self._parts:
            part.stop()
        self.systems.close()


def wait_for(condition: Callable[[], object]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
