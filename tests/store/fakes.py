"""What the tests of stores share: a store with a memory engine, and a changelog in memory."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.serde.builtin import JsonSerde, StringSerde
from streambench.store.memory import MemoryEngine
from streambench.store.task_store import TaskStore
from streambench.system.memory import MemoryConsumer, MemoryStreams, MemorySystemFactory

CHANGELOG = SystemStream("mem", "counts-changelog")


class Owner:
    """Whose thread a store belongs to."""

    def __init__(self) -> None:
        self.ident = threading.get_ident()


def store(*, changelog: bool = True) -> TaskStore:
    return TaskStore("counts", MemoryEngine(), StringSerde(), JsonSerde(), changelog=changelog, owner=Owner())


class Changelog:
    """A changelog of several partitions, and what reads it."""

    def __init__(self, partitions: int = 1) -> None:
        self.streams = MemoryStreams()
        self.streams.create(CHANGELOG, partitions)
        self.factory = MemorySystemFactory(self.streams)

    def write(self, entries: Sequence[tuple[bytes | None, object]], partition: int = 0) -> None:
        for key, value in entries:
            envelope = OutgoingMessageEnvelope(CHANGELOG, value, key, partition=partition)
            self.streams.of(CHANGELOG)[partition].append(envelope, key, value)

    def consumer(self) -> MemoryConsumer:
        return self.factory.get_consumer("mem", None, MetricsRegistry())  # type: ignore[arg-type]

    @staticmethod
    def ssp(partition: int = 0) -> SystemStreamPartition:
        return SystemStreamPartition("mem", CHANGELOG.stream, partition)
