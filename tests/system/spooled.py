"""A queue in a directory, for several processes: who sends puts files there, and a file is gone once its
message is acknowledged.

``spool/<stream>/<partition>/<number>`` is a message that nobody has acknowledged; its name is kept in
``acked`` when it is.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.errors import StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory, SystemProducer


class Spool:
    """All queues below a directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def create(self, stream: str, partitions: int = 1) -> None:
        for number in range(partitions):
            (self.directory / stream / str(number)).mkdir(parents=True)

    def put(self, stream: str, numbers: Iterable[int], partition: int = 0) -> None:
        """Messages that are their numbers."""
        for number in numbers:
            written = self.directory / stream / f".{number}"
            written.write_text(str(number))
            written.rename(self.directory / stream / str(partition) / f"{number:09}")

    def left(self, stream: str) -> list[int]:
        """The messages that nobody has acknowledged."""
        return sorted(int(each.name) for each in (self.directory / stream).glob("*/*"))

    def acknowledged(self, stream: str) -> list[int]:
        """The messages that were, in that order; one that was sent again may be there again."""
        file = self.directory / f"{stream}.acked"
        return [int(line) for line in file.read_text().split()] if file.exists() else []


class SpoolConsumer(SystemConsumer):
    def __init__(self, spool: Spool) -> None:
        self.spool = spool
        self.lanes: dict[SystemStreamPartition, deque[tuple[int, Path]]] = {}
        self.counts: dict[SystemStreamPartition, int] = {}
        self.heads: set[SystemStreamPartition] = set()

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self.lanes[ssp] = deque()
        self.counts[ssp] = 0

    def start(self) -> None:
        """There is nothing to connect to."""

    def stop(self) -> None:
        self.lanes.clear()

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        found = []
        for ssp, at_most in wanted.items():
            delivered = {path.name for _, path in self.lanes[ssp]}
            present = sorted((self.spool.directory / ssp.stream / str(ssp.partition)).iterdir())
            there = [each for each in present if each.name not in delivered]
            for path in there[:at_most]:
                number = self.counts[ssp]
                self.counts[ssp] += 1
                self.lanes[ssp].append((number, path))
                found.append(IncomingMessageEnvelope(ssp, str(number), None, path.read_bytes()))
            (self.heads.discard if len(there) > at_most else self.heads.add)(ssp)
        if not found and timeout_ms:
            time.sleep(min(timeout_ms, 5) / 1000)
        return found

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return ssp in self.heads

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        for ssp, offset in offsets.items():
            lane = self.lanes[ssp]
            with open(self.spool.directory / f"{ssp.stream}.acked", "a") as acked:
                while lane and lane[0][0] <= int(offset):
                    _, path = lane.popleft()
                    acked.write(f"{path.name}\n")
                    acked.flush()
                    path.unlink()


class SpoolProducer(SystemProducer):
    def start(self) -> None:
        """Nothing to do."""

    def stop(self) -> None:
        """Nothing to do."""

    def register(self, source: str) -> None:
        """Everyone may send."""

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        raise StreamSystemError("a spool is written by Spool.put")

    def flush(self, source: str) -> None:
        """Nothing to do."""


class SpoolAdmin(SystemAdmin):
    replayable = False

    def __init__(self, spool: Spool) -> None:
        self.spool = spool

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        return {
            stream: dict.fromkeys(range(self._partitions(stream)), PartitionMetadata(None, None, "0"))
            for stream in streams
        }

    def _partitions(self, stream: SystemStream) -> int:
        directory = self.spool.directory / stream.stream
        if not directory.is_dir():
            raise UnknownStreamError(f"there is no stream {stream}")
        return sum(name.isdecimal() for name in os.listdir(directory) if (directory / name).is_dir())

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        self.spool.create(stream.stream, partitions)
        return True

    def compare(self, offset: str, other: str) -> int:
        return (int(offset) > int(other)) - (int(offset) < int(other))

    def after(self, offset: str) -> str:
        return str(int(offset) + 1)


class SpoolSystem(SystemFactory):
    """What ``systems.<s>.samza.factory`` names; ``systems.<s>.path`` is the directory."""

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SpoolConsumer:
        return SpoolConsumer(Spool(config.path(f"systems.{system}.path")))

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SpoolProducer:
        return SpoolProducer()

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> SpoolAdmin:
        return SpoolAdmin(Spool(config.path(f"systems.{system}.path")))
