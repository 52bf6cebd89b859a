"""Kafka: the container and its consumer against bare loops over kafka-python, on a broker of its own, one run
after the other.

What counts is messages per second: the broker works in another process, so that the client is what bounds it.
Both sides pass messages on unchanged, to the partition that they came from, and make sure once a second of
what they have sent. Both have the same settings: those that streambench has by default.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import streambench as sb
from streambench.container.container import Container
from streambench.metrics.registry import MetricsRegistry
from streambench.system.systems import Systems

from .data import PARTITIONS, messages
from .report import Figure
from .tasks import OUT

IN = sb.SystemStream(OUT.system, "in")
_PART = 5  # of the messages that the other benchmarks take: a client of Kafka does less in a second
_SECOND = 1.0
_AT_ONCE = 5_000

_runs = itertools.count()


class SamePartition(sb.StreamTask):
    """Sends on what it gets, to the partition with the number that it came from."""

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        collector.send(
            sb.OutgoingMessageEnvelope(OUT, envelope.message, envelope.key, partition=envelope.ssp.partition)
        )


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of container and bare loop, consumer and bare consumer."""
    from streambench.testing.brokers.kafka import KafkaNodes

    nodes = KafkaNodes(directory, owned=True)
    servers = nodes.start(1, 0).servers
    try:
        number = count // _PART
        config = sb.Config(
            {
                "task.inputs": str(IN),
                "job.default.system": IN.system,
                "task.commit.ms": int(_SECOND * 1000),
                f"systems.{IN.system}.samza.factory": "kafka",
                f"systems.{IN.system}.bootstrap.servers": servers,
                f"systems.{IN.system}.samza.offset.default": "oldest",
            }
        )
        _fill(config, messages(number).partitions)
        once = config.with_values({"task.processing.guarantee": "exactly-once"})
        rates = _in_turns(
            {
                "bare": lambda: _bare_loop(servers, number),
                "container": lambda: _container(config, number),
                "exactly once": lambda: _container(once, number),
                "bare consumer": lambda: _bare_consumer(servers, number),
                "consumer": lambda: _consumer(config, number),
            },
            number,
            rounds,
        )
    finally:
        nodes.stop()
    bare, bare_consumer = rates["bare"], rates["bare consumer"]
    yield Figure("Kafka: bare kafka-python loop, in to out", bare, "messages/s")
    yield Figure(
        "Kafka in to out, checkpoints on / bare loop",
        rates["container"] / bare,
        "x",
        aim=0.7,
        note=_note(rates["container"]),
    )
    yield Figure(
        "Kafka in to out, exactly once / bare loop",
        rates["exactly once"] / bare,
        "x",
        note=_note(rates["exactly once"]),
    )
    yield Figure("Kafka: bare kafka-python consumer", bare_consumer, "messages/s")
    yield Figure(
        "Kafka consumer / bare consumer",
        rates["consumer"] / bare_consumer,
        "x",
        aim=0.9,
        note=_note(rates["consumer"]),
    )


def _note(rate: float) -> str:
    return f"{rate:,.0f} messages/s"


def _in_turns(runs: dict[str, Callable[[], float]], count: int, rounds: int) -> dict[str, float]:
    """Messages per second of the best round of each."""
    best = dict.fromkeys(runs, 0.0)
    for _ in range(rounds):
        for name, run in runs.items():
            best[name] = max(best[name], count / run())
    return best


def _fill(config: sb.Config, partitions: list[list[bytes]]) -> None:
    systems = Systems(config)
    for stream in (IN, OUT):
        systems.create(stream, len(partitions))
    producer = systems.producer(IN.system, MetricsRegistry())
    producer.register("bench")
    producer.start()
    for number, of_partition in enumerate(partitions):
        for message in of_partition:
            producer.send("bench", sb.OutgoingMessageEnvelope(IN, message, b"%d" % number, partition=number))
    producer.flush("bench")
    producer.stop()
    systems.close()


def _container(config: sb.Config, count: int) -> float:
    """Seconds of a job from its first message to its last commit."""
    container = Container(config.with_values({"job.name": f"bench-{next(_runs)}"}), SamePartition)
    container.start()
    began = time.perf_counter()
    processed = container.run(count)
    container.commit()
    seconds = time.perf_counter() - began
    container.stop()
    assert processed == count, processed
    return seconds


def _consumer(config: sb.Config, count: int) -> float:
    """Seconds until all messages are read as envelopes."""
    consumer = Systems(config).consumer(IN.system, MetricsRegistry())
    ssps = [sb.SystemStreamPartition(IN.system, IN.stream, number) for number in range(PARTITIONS)]
    for ssp in ssps:
        consumer.register(ssp, "0")
    consumer.start()
    wanted = dict.fromkeys(ssps, _AT_ONCE)
    read = 0
    began = time.perf_counter()
    while read < count:
        for envelope in consumer.poll(wanted, 1000):
            read += envelope.message is not None
    seconds = time.perf_counter() - began
    consumer.stop()
    return seconds


def _new_consumer(servers: str) -> Any:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(
        bootstrap_servers=servers.split(","),
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        max_poll_records=_AT_ONCE,
        isolation_level="read_committed",
    )
    partitions = [TopicPartition(IN.stream, number) for number in range(PARTITIONS)]
    consumer.assign(partitions)
    for partition in partitions:
        consumer.seek(partition, 0)
    return consumer


def _bare_consumer(servers: str, count: int) -> float:
    consumer = _new_consumer(servers)
    read = 0
    began = time.perf_counter()
    while read < count:
        for records in consumer.poll(1000).values():
            for record in records:
                read += record.value is not None
    seconds = time.perf_counter() - began
    consumer.close()
    return seconds


def _bare_loop(servers: str, count: int) -> float:
    from kafka import KafkaProducer

    from streambench.system.kafka.settings import Settings

    consumer = _new_consumer(servers)
    ours = Settings.from_config(
        OUT.system, sb.Config({f"systems.{OUT.system}.bootstrap.servers": servers})
    ).producer
    settings = {
        name: ours[name] for name in ("batch_size", "linger_ms", "max_request_size", "retry_backoff_ms")
    }
    producer = KafkaProducer(bootstrap_servers=servers.split(","), acks="all", **settings)
    producer.partitions_for(OUT.stream)
    read = 0
    began = flushed = time.perf_counter()
    while read < count:
        for partition, records in consumer.poll(1000).items():
            for record in records:
                producer.send(OUT.stream, record.value, record.key, partition=partition.partition)
            read += len(records)
        if time.perf_counter() - flushed > _SECOND:
            producer.flush()
            flushed = time.perf_counter()
    producer.flush()
    seconds = time.perf_counter() - began
    consumer.close()
    producer.close()
    return seconds
