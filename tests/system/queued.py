"""A system of queues in memory, such as a broker has: what is delivered is gone once it is acknowledged, and
comes again if it is not."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from streambench.config import Config
from streambench.errors import OffsetError, StreamExistsError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer


class Queued(NamedTuple):
    key: Any
    message: Any
    timestamp: int | None
    headers: Mapping[str, bytes] | None


class Broker:
    """All queues of this process. ``acknowledged``: what was, in that order, by (stream, partition)."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.clear()

    def clear(self) -> None:
        self.queues: dict[tuple[str, int], deque[Queued]] = {}
        self.acknowledged: dict[tuple[str, int], list[Any]] = {}
        self.within_ms: int | None = None

    def create(self, name: str, partitions: int) -> None:
        for number in range(partitions):
            self.queues[name, number] = deque()
            self.acknowledged[name, number] = []

    def partitions(self, stream: SystemStream) -> int:
        number = sum(name == stream.stream for name, _ in self.queues)
        if not number:
            raise UnknownStreamError(f"there is no stream {stream}")
        return number

    def put(self, name: str, *messages: Any, partition: int = 0) -> None:
        self.put_all(name, partition, [Queued(None, message, None, None) for message in messages])

    def put_all(self, name: str, partition: int, messages: Iterable[Queued]) -> None:
        with self.changed:
            self.queues[name, partition].extend(messages)
            self.changed.notify_all()

    def left(self, name: str, partition: int = 0) -> list[Any]:
        return [each.message for each in self.queues[name, partition]]


broker = Broker()


class QueueConsumer(SystemConsumer):
    def __init__(self) -> None:
        self.acknowledge_within_ms = broker.within_ms
        self.delivered: dict[SystemStreamPartition, int] = {}
        self.unacknowledged: dict[SystemStreamPartition, deque[tuple[int, Queued]]] = {}

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        assert offset == "0"
        self.delivered[ssp] = 0
        self.unacknowledged[ssp] = deque()

    def start(self) -> None:
        for ssp in self.delivered:
            if ssp.partition >= broker.partitions(ssp.system_stream):
                raise UnknownStreamError(f"there is no partition {ssp}")

    def stop(self) -> None:
        with broker.changed:
            for ssp, messages in self.unacknowledged.items():
                if (ssp.stream, ssp.partition) in broker.queues:
                    broker.queues[ssp.stream, ssp.partition].extendleft(
                        message for _, message in reversed(messages)
                    )
                messages.clear()

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        with broker.changed:
            broker.changed.wait_for(
                lambda: any(broker.queues[ssp.stream, ssp.partition] for ssp in wanted), timeout_ms / 1000
            )
            return [envelope for ssp, at_most in wanted.items() for envelope in self._taken(ssp, at_most)]

    def _taken(self, ssp: SystemStreamPartition, at_most: int) -> Iterable[IncomingMessageEnvelope]:
        queue = broker.queues[ssp.stream, ssp.partition]
        for _ in range(min(at_most, len(queue))):
            taken = queue.popleft()
            number = self.delivered[ssp]
            self.delivered[ssp] += 1
            self.unacknowledged[ssp].append((number, taken))
            yield IncomingMessageEnvelope(
                ssp, str(number), taken.key, taken.message, taken.timestamp, taken.headers
            )

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return not broker.queues[ssp.stream, ssp.partition]

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        with broker.changed:
            for ssp, offset in offsets.items():
                messages = self.unacknowledged[ssp]
                while messages and messages[0][0] <= int(offset):
                    broker.acknowledged[ssp.stream, ssp.partition].append(messages.popleft()[1].message)
            broker.changed.notify_all()


class QueueProducer(SystemProducer):
    def __init__(self) -> None:
        self.sent: list[tuple[str, int, Queued]] = []

    def start(self) -> None:
        pass

    def stop(self) -> None:
        self.sent.clear()

    def register(self, source: str) -> None:
        pass

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        stream = envelope.system_stream
        broker.partitions(stream)
        message = Queued(envelope.key, envelope.message, envelope.timestamp, envelope.headers)
        self.sent.append((stream.stream, envelope.partition or 0, message))

    def flush(self, source: str) -> None:
        for name, partition, message in self.sent:
            broker.put_all(name, partition, [message])
        self.sent.clear()


class QueueAdmin(SystemAdmin):
    replayable = False

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        return {
            stream: {
                number: PartitionMetadata(None, None, "0") for number in range(broker.partitions(stream))
            }
            for stream in streams
        }

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        try:
            present = broker.partitions(stream)
        except UnknownStreamError:
            broker.create(stream.stream, partitions)
            return True
        if present != partitions:
            raise StreamExistsError(
                f"{stream} is there already, with {present} partitions and not {partitions}"
            )
        return False

    def compare(self, offset: str, other: str) -> int:
        return (self._number(offset) > self._number(other)) - (self._number(offset) < self._number(other))

    def after(self, offset: str) -> str:
        return str(self._number(offset) + 1)

    @staticmethod
    def _number(offset: str) -> int:
        if not offset.isdecimal():
            raise OffsetError(f"{offset!r} is no offset")
        return int(offset)


class QueueSystem(SystemFactory):
    """What ``systems.<s>.samza.factory`` names."""

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> QueueConsumer:
        return QueueConsumer()

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> QueueProducer:
        return QueueProducer()

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> QueueAdmin:
        return QueueAdmin()
