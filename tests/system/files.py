"""A file system for tests."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.system.api import SystemAdmin, SystemConsumer, SystemProducer
from streambench.system.file import FileSystemFactory

STREAM = SystemStream("files", "flights")
SSP = SystemStreamPartition("files", "flights", 0)


class Files:
    """A file system in a directory."""

    def __init__(self, path: Path, **settings: str) -> None:
        named = {name.replace("__", "."): value for name, value in settings.items()}
        self.config = Config({"systems.files.samza.factory": "file", "systems.files.path": path})
        self.config = self.config.with_values(
            {f"systems.files.{name}": value for name, value in named.items()}
        )

    def consumer(self, offset: str = "0", ssp: SystemStreamPartition = SSP) -> SystemConsumer:
        consumer = FileSystemFactory().get_consumer("files", self.config, MetricsRegistry())
        consumer.register(ssp, offset)
        consumer.start()
        return consumer

    def admin(self) -> SystemAdmin:
        return FileSystemFactory().get_admin("files", self.config)

    def producer(self) -> SystemProducer:
        producer = FileSystemFactory().get_producer("files", self.config, MetricsRegistry())
        producer.start()
        return producer

    def metadata(self, stream: SystemStream = STREAM) -> dict[int, PartitionMetadata]:
        return self.admin().metadata([stream])[stream]

    def read(
        self, offset: str = "0", at_most: int = 1000, ssp: SystemStreamPartition = SSP
    ) -> list[IncomingMessageEnvelope]:
        """All messages from an offset on, so many at a time."""
        consumer = self.consumer(offset, ssp)
        read = []
        while more := consumer.poll({ssp: at_most}, 0):
            assert len(more) <= at_most
            read += more
        assert consumer.at_head(ssp)
        consumer.stop()
        return read

    def messages(self, offset: str = "0", **options: Any) -> list[Any]:
        return [envelope.message for envelope in self.read(offset, **options)]


def written(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path
