"""AMQP against bare pika loops of the same guarantees, on a real RabbitMQ: messages of 100 bytes, persistent,
quorum queues.

The bare loops are as good as pika allows: asynchronous, with many messages on their way, and acknowledgements
of many at once. In -> task -> out acknowledges a message once the broker has confirmed what was made of it.
"""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import pika

import streambench as sb
from streambench.metrics.registry import MetricsRegistry
from streambench.system.systems import Systems
from streambench.testing.brokers.rabbitmq import RabbitServer, find_server

from .report import Figure

_PREFETCH = 10_000
_ACKNOWLEDGED_AT_ONCE = 500
_SHARE = 10
_FIND = Path(__file__).parent.parent / "tools" / "rabbitmq.sh"


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """Messages per second of the best round, and what part of the bare loop's that is."""
    count //= _SHARE
    server = RabbitServer(_program(), directory / "rabbitmq")
    server.start()
    try:
        bench = _Bench(server, count, directory)
        best: dict[str, float] = {}
        for _ in range(rounds):
            for name in ("bare_consume", "consume", "bare_pipe", "pipe"):
                best[name] = max(best.get(name, 0.0), getattr(bench, name)())
    finally:
        server.stop()
    yield Figure(
        "AMQP: consumer alone", best["consume"], "messages/s", note=f"bare pika {best['bare_consume']:,.0f}"
    )
    yield Figure(
        "AMQP: consumer alone, of a bare pika loop", best["consume"] / best["bare_consume"], "x", aim=0.9
    )
    yield Figure(
        "AMQP: in -> task -> out", best["pipe"], "messages/s", note=f"bare pika {best['bare_pipe']:,.0f}"
    )
    yield Figure(
        "AMQP: in -> task -> out, of a bare pika loop", best["pipe"] / best["bare_pipe"], "x", aim=0.7
    )


def _program() -> str:
    """The installed RabbitMQ; in a checkout, else the one that is unpacked there. Raises StreambenchError
    where there is none."""
    if not _FIND.is_file():
        return find_server()
    return subprocess.run([_FIND, "get"], capture_output=True, text=True, check=True).stdout.strip()


class _Forward(sb.StreamTask):
    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        collector.send(sb.OutgoingMessageEnvelope(_OUT, envelope.message))


_IN, _OUT = sb.SystemStream("bench", "in"), sb.SystemStream("bench", "out")


class _Bench:
    def __init__(self, server: RabbitServer, count: int, directory: Path) -> None:
        self.url = server.url
        self.count = count
        self.runs = 0
        self.config = sb.Config(
            {
                "job.name": "bench",
                "task.inputs": _IN,
                "task.checkpoint.system": "file",
                "task.checkpoint.path": directory / "checkpoints",
                "systems.bench.samza.factory": "amqp",
                "systems.bench.url": server.url,
                "systems.bench.prefetch": _PREFETCH,
            }
        )
        self.systems = Systems(self.config)

    def consume(self) -> float:
        self._fill()
        consumer = self.systems.consumer("bench", MetricsRegistry())
        ssp = sb.SystemStreamPartition("bench", "in", 0)
        consumer.register(ssp, "0")
        began = time.perf_counter()
        consumer.start()
        left = self.count
        while left:
            polled = consumer.poll({ssp: 1000}, 100)
            left -= len(polled)
            if polled:
                consumer.acknowledge({ssp: polled[-1].offset})
        consumer.stop()
        return self.count / (time.perf_counter() - began)

    def pipe(self) -> float:
        self._fill()
        self.runs += 1
        container = sb.Container.from_config(self.config.with_values({"job.id": self.runs}), _Forward)
        began = time.perf_counter()
        container.start()
        container.run(self.count)
        container.commit()
        seconds = time.perf_counter() - began
        container.stop()
        self._check_out()
        return self.count / seconds

    def bare_consume(self) -> float:
        self._fill()
        return self.count / _Bare(self.url, self.count, forward=False).run()

    def bare_pipe(self) -> float:
        self._fill()
        rate = self.count / _Bare(self.url, self.count, forward=True).run()
        self._check_out()
        return rate

    def _fill(self) -> None:
        admin = self.systems.admin("bench")
        for stream in (_IN, _OUT):
            if not admin.create(stream, 1):
                admin.delete(stream)
                admin.create(stream, 1)
        producer = self.systems.producer("bench", MetricsRegistry())
        producer.start()
        send = producer.sender(_IN)
        envelope = sb.OutgoingMessageEnvelope(_IN, None)
        for number in range(self.count):
            send("bench", envelope, None, b"%0100d" % number, 0)
        producer.flush("bench")
        producer.stop()

    def _check_out(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self.url))
        found = connection.channel().queue_declare("out", passive=True).method.message_count
        connection.close()
        assert found == self.count, found


class _Bare:
    """A loop as one would write it for speed, with pika alone."""

    def __init__(self, url: str, count: int, *, forward: bool) -> None:
        self._left = count
        self._forward = forward
        self._connection = pika.SelectConnection(pika.URLParameters(url), on_open_callback=self._open)
        self._channel: Any = None
        self._published = self._acknowledged = 0
        self._waiting: dict[int, None] = {}
        self._persistent = pika.BasicProperties(delivery_mode=2)

    def run(self) -> float:
        began = time.perf_counter()
        self._connection.ioloop.start()
        return time.perf_counter() - began

    def _open(self, connection: Any) -> None:
        connection.channel(on_open_callback=self._begin)

    def _begin(self, channel: Any) -> None:
        self._channel = channel
        channel.basic_qos(prefetch_count=_PREFETCH)
        if self._forward:
            channel.confirm_delivery(self._confirmed)
        channel.basic_consume("in", self._message)

    def _message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if self._forward:
            self._published += 1
            self._waiting[self._published] = None
            channel.basic_publish("", "out", body, self._persistent, mandatory=True)
        else:
            self._done(method.delivery_tag)

    def _confirmed(self, frame: Any) -> None:
        tag = frame.method.delivery_tag
        assert frame.method.NAME == "Basic.Ack"
        if frame.method.multiple:
            for number in list(takewhile(lambda each: each <= tag, self._waiting)):
                del self._waiting[number]
        else:
            self._waiting.pop(tag, None)
        self._done(next(iter(self._waiting), self._published + 1) - 1)

    def _done(self, tag: int) -> None:
        if tag == self._left or tag - self._acknowledged >= _ACKNOWLEDGED_AT_ONCE:
            self._channel.basic_ack(tag, multiple=True)
            self._acknowledged = tag
        if tag == self._left:
            self._connection.add_on_close_callback(lambda *_: self._connection.ioloop.stop())
            self._connection.close()
