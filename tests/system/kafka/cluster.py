"""What the tests of the Kafka system share: systems on the real broker, and messages in and out."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes


def config(nodes: KafkaNodes, **more: Any) -> Config:
    """``more``: settings of the system, with __ for dots."""
    assert nodes.cluster is not None
    given = {"samza.factory": "kafka", "bootstrap.servers": nodes.cluster.servers}
    given.update({key.replace("__", "."): str(value) for key, value in more.items()})
    return Config({f"systems.k.{key}": value for key, value in given.items()})


def new_stream() -> SystemStream:
    return SystemStream("k", f"t-{uuid.uuid4().hex[:12]}")


def sent(
    systems: Systems, stream: SystemStream, messages: Iterable[tuple[int, bytes | None, bytes | None]]
) -> None:
    """Write messages, each as (partition, key, message), durably."""
    producer = systems.producer("k", MetricsRegistry())
    try:
        producer.register("test")
        producer.start()
        for partition, key, message in messages:
            producer.send("test", OutgoingMessageEnvelope(stream, message, key, None, partition))
        producer.flush("test")
    finally:
        producer.stop()


def all_of(
    systems: Systems, stream: SystemStream, starts: Mapping[int, str] | None = None
) -> dict[int, list[IncomingMessageEnvelope]]:
    """Everything that is in a stream, by partition."""
    there = systems.admin("k").metadata([stream])[stream]
    begin = starts or {number: here.oldest or here.upcoming or "0" for number, here in there.items()}
    wanted = {SystemStreamPartition("k", stream.stream, number): offset for number, offset in begin.items()}
    found = read_to_head(systems.consumer("k", MetricsRegistry()), wanted, patience_s=60)
    return {ssp.partition: envelopes for ssp, envelopes in found.items()}
