"""Parts around a container that note their calls in ``happened``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.chooser.round_robin import RoundRobinChooser
from streambench.config import Config
from streambench.errors import (
    StreamSystemError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.system.memory import (
    MemoryAdmin,
    MemoryConsumer,
    MemoryProducer,
    MemorySystemFactory,
)
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from tests.container.jobs import send

STORE = {"stores.counts.factory": "memory", "stores.counts.changelog": "mem.counts-changelog"}


class Counter(StreamTask):
    """Counts the messages of each key in a store, and sends the counts."""

    def init(self, context: TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        self.counts.put(envelope.message, 1 + (self.counts.get(envelope.message) or 0))
        send(collector, self.counts.get(envelope.message))

    def close(self) -> None:
        happened.append("close")


happened: list[str] = []
"""What the parts below were asked to do, in order."""


class NotingProducer(MemoryProducer):
    fails_at_flush: ClassVar[bool] = False

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        happened.append(f"send {envelope.system_stream.stream}")
        super().send(source, envelope)

    def sender(self, stream: SystemStream) -> Any:
        return super(MemoryProducer, self).sender(stream)

    def flush(self, source: str) -> None:
        if not happened or happened[-1] != "flush":
            happened.append("flush")
        if self.fails_at_flush:
            raise StreamSystemError("the disk is full")

    def stop(self) -> None:
        happened.append("producer stops")


class FailingProducer(NotingProducer):
    fails_at_flush: ClassVar[bool] = True


class NotingConsumer(MemoryConsumer):
    def stop(self) -> None:
        happened.append("consumer stops")


class NotingAdmin(MemoryAdmin):
    def close(self) -> None:
        happened.append("admin closes")


class Noting(MemorySystemFactory):
    """Streams in memory, whose parts tell what they are asked to do."""

    producer: ClassVar[type[MemoryProducer]] = NotingProducer

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryConsumer:
        return NotingConsumer(self._streams(system))

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        return self.producer(self._streams(system))

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> MemoryAdmin:
        return NotingAdmin(self._streams(system))


class Failing(Noting):
    producer: ClassVar[type[MemoryProducer]] = FailingProducer


class NotingCheckpoints(MemoryCheckpointManager):
    def write(self, checkpoints: Mapping[str, Checkpoint]) -> None:
        happened.append(f"checkpoint {', '.join(checkpoints)}")
        super().write(checkpoints)

    def close(self) -> None:
        happened.append("checkpoints close")
        super().close()


class NotingChooser(RoundRobinChooser):
    def start(self) -> None:
        happened.append("chooser starts")

    def stop(self) -> None:
        happened.append("chooser stops")
