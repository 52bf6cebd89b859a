"""The two ends of a connection, for tests."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.address import Address
from streambench.system.api import SystemConsumer, SystemFactory, SystemProducer

STREAM = SystemStream("t", "lines")
SSP = SystemStreamPartition("t", "lines", 0)
SOURCE = "Partition 0"


def config(kind: str = "tcp", **settings: Any) -> Config:
    """A stream ``t.lines`` at any free port; settings of the system with ``__`` for dots."""
    named = {f"systems.t.{name.replace('__', '.')}": value for name, value in settings.items()}
    return Config({"systems.t.samza.factory": kind, "systems.t.streams.lines.listen": "0", **named})


class Receiver:
    """A consumer at work, and its metrics."""

    def __init__(self, factory: SystemFactory, settings: Config, *ssps: SystemStreamPartition) -> None:
        self.registry = MetricsRegistry()
        self.consumer: SystemConsumer = factory.get_consumer("t", settings, self.registry)
        self.ssps = ssps or (SSP,)
        for ssp in self.ssps:
            self.consumer.register(ssp, "0")
        self.consumer.start()
        self._stopping = threading.Event()

    def address(self, ssp: SystemStreamPartition = SSP) -> Address:
        return self.consumer.addresses[ssp]  # type: ignore[attr-defined, no-any-return]

    def connect(self, ssp: SystemStreamPartition = SSP) -> socket.socket:
        """A plain connection, whose reads do not wait for ever."""
        address = self.address(ssp)
        return socket.create_connection((address.host, address.port), timeout=60)

    def poll(self, timeout_ms: int = 20, at_most: int = 1000) -> list[IncomingMessageEnvelope]:
        return self.consumer.poll(dict.fromkeys(self.ssps, at_most), timeout_ms)

    def until(self, condition: Callable[[], object]) -> list[IncomingMessageEnvelope]:
        """What comes until something is so."""
        found = self.poll(0)
        while not condition():
            found += self.poll()
        return found

    def receive(self, count: int, *, acknowledge: bool = False) -> list[Any]:
        """The next ``count`` messages."""
        found: list[IncomingMessageEnvelope] = []
        while len(found) < count:
            polled = self.poll(at_most=count - len(found))
            found += polled
            if acknowledge and polled:
                self.acknowledge(polled[-1].offset, polled[-1].ssp)
        return [each.message for each in found]

    def acknowledge(self, offset: int | str, ssp: SystemStreamPartition = SSP) -> None:
        self.consumer.acknowledge({ssp: str(offset)})

    def counted(self, name: str) -> float:
        kind = type(self.consumer).__name__.removesuffix("Consumer").lower()
        return self.registry.snapshot().get(f"{kind}.t-{name}", 0)

    @contextmanager
    def at_work(self, *, acknowledge: bool = True) -> Iterator[list[Any]]:
        """Messages are received meanwhile, on another thread."""
        found: list[Any] = []
        stopping = threading.Event()

        def work() -> None:
            while not stopping.is_set():
                polled = self.poll()
                found.extend(each.message for each in polled)
                for each in {each.ssp: each for each in polled}.values() if acknowledge else ():
                    self.acknowledge(each.offset, each.ssp)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            yield found
        finally:
            stopping.set()
            thread.join()

    def stop(self) -> None:
        self.consumer.stop()


@contextmanager
def receiving(factory: SystemFactory, settings: Config, *ssps: SystemStreamPartition) -> Iterator[Receiver]:
    receiver = Receiver(factory, settings, *ssps)
    try:
        yield receiver
    finally:
        receiver.stop()


@contextmanager
def sending(
    factory: SystemFactory, settings: Config, registry: MetricsRegistry | None = None
) -> Iterator[SystemProducer]:
    producer = factory.get_producer("t", settings, registry or MetricsRegistry())
    producer.register(SOURCE)
    producer.start()
    try:
        yield producer
    finally:
        producer.stop()


def to(receiver: Receiver, settings: Config) -> Config:
    """A configuration that sends to where a receiver listens."""
    return settings.with_values(
        {"systems.t.streams.lines.connect": ",".join(str(receiver.address(ssp)) for ssp in receiver.ssps)}
    )


def send(producer: SystemProducer, *messages: Any, partition: int = 0) -> None:
    for message in messages:
        producer.send(SOURCE, OutgoingMessageEnvelope(STREAM, message, partition=partition))


def said(sock: socket.socket) -> bytes:
    """All that the receiver says up to its end."""
    found = b""
    try:
        while data := sock.recv(65_536):
            found += data
    except ConnectionResetError:
        pass
    return found


def line(sock: socket.socket) -> bytes:
    """The next line that the receiver says."""
    found = b""
    while not found.endswith(b"\n"):
        data = sock.recv(1)
        assert data, f"closed after {found!r}"
        found += data
    return found
