"""Time of a message from its send in one process to its task in another, while the stream between them
grows.

A producer in a process of its own fills a log up to a size, waits until the container has come after, and
then sends messages one by one, a few milliseconds apart. What is measured includes the sleep of an idle event
loop (task.max.idle.ms).
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import streambench as sb
from streambench.container.container import Container
from streambench.metrics.registry import Histogram, MetricsRegistry
from streambench.system.log import LogSystemFactory
from streambench.system.systems import Systems

from .report import Figure

_IN = sb.SystemStream("log", "in")
_MB = 1_000_000
_SIZES = (1, 10)
_FULL = (*_SIZES, 100, 1000)
_SAMPLES = 1000
_APART_S = 0.003
_FILLER = b"f" * 1000
_AT_ONCE = 1000
_TIMED, _FULL_SO_FAR, _SENT = b"t", b"u", b"s"


def measure(count: int, rounds: int, directory: Path, *, full: bool = False) -> Iterator[Figure]:
    """The median and the 99th percentile at each size, and their growth from the first to the last."""
    sizes = _FULL if full else _SIZES
    config = sb.Config(
        {
            "task.inputs": str(_IN),
            "systems.log.samza.factory": "log",
            "systems.log.path": directory / "latency",
            "systems.log.samza.offset.default": "oldest",
            "task.commit.ms": 1000,
        }
    )
    systems = Systems(config)
    systems.create(_IN, 1)
    systems.close()
    spawning = multiprocessing.get_context("spawn")
    ours, theirs = spawning.Pipe()
    producer = spawning.Process(target=_produce, args=(config, sizes, theirs), daemon=True)
    producer.start()
    theirs.close()
    measured = _follow(config, sizes, ours)
    producer.join()
    for size, (p50, p99) in zip(sizes, measured, strict=True):
        yield Figure(f"log: from send to process, {size:,} MB in the stream, median", p50, "ms")
        yield Figure(
            f"log: from send to process, {size:,} MB in the stream, 99%", p99, "ms", aim=50, below=True
        )
    yield Figure(
        f"log: median latency at {sizes[-1]:,} MB / at {sizes[0]} MB",
        measured[-1][0] / measured[0][0],
        "x",
        aim=1.5,
        below=True,
    )


def _follow(
    config: sb.Config, sizes: tuple[int, ...], producer: Connection[Any, Any]
) -> list[tuple[float, float]]:
    """Median and 99th percentile, in milliseconds, at each size."""
    measured: list[tuple[float, float]] = []

    class Follows(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.latencies = Histogram()

        def process(
            self,
            envelope: sb.IncomingMessageEnvelope,
            collector: sb.MessageCollector,
            coordinator: sb.TaskCoordinator,
        ) -> None:
            message = envelope.message
            if message.startswith(_TIMED):
                self.latencies.update(time.monotonic_ns() - int(message[1:]))
            elif message == _FULL_SO_FAR:
                producer.send(None)
            elif message == _SENT:
                spread = self.latencies.spread()
                measured.append((spread.p50 / 1e6, spread.p99 / 1e6))
                self.latencies = Histogram()

    container = Container(config, Follows)
    container.start()
    container.run(lambda: len(measured) == len(sizes))
    container.stop()
    return measured


def _produce(config: sb.Config, sizes: tuple[int, ...], follower: Connection[Any, Any]) -> None:
    """The other process: fill up to a size, then send what is timed; to the end of the sizes."""
    producer = LogSystemFactory().get_producer(_IN.system, config, MetricsRegistry())
    producer.register("bench")
    producer.start()
    filled = 0
    for size in sizes:
        while filled < size * _MB:
            producer.send_columns(_IN, 0, None, [_FILLER] * _AT_ONCE)
            filled += _AT_ONCE * len(_FILLER)
        _send(producer, _FULL_SO_FAR)
        follower.recv()
        for _ in range(_SAMPLES):
            time.sleep(_APART_S)
            _send(producer, _TIMED + str(time.monotonic_ns()).encode())
        _send(producer, _SENT)
    producer.stop()


def _send(producer: sb.SystemProducer, message: bytes) -> None:
    producer.send("bench", sb.OutgoingMessageEnvelope(_IN, message, partition=0))
    producer.flush("bench")
