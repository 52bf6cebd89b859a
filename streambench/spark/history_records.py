"""Records of a history of deployments.

They are lines of ``deployments.jsonl`` in the job's directory. Where its checkpoints are in no directory,
they are messages of a stream beside these."""

from __future__ import annotations

import fnmatch
import os
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from streambench.checkpoint.api import CheckpointManager
from streambench.config import Config
from streambench.errors import StreamSystemError, UnknownStreamError
from streambench.fsync import write_durably
from streambench.job.running import DEPLOYMENT_LOCK, LockRecord
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark.running import is_being_deployed
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems

_NAME = "deployments.jsonl"
_LARGEST = 4 << 20
_KEPT = 3 << 20
_PATIENCE_S = 20.0


class History(ABC):
    """The records of one job, oldest first."""

    @abstractmethod
    def append(self, record: bytes) -> None:
        """Append a record. Raises OSError and StreambenchError."""

    @abstractmethod
    def records(self) -> list[bytes]:
        """All records; empty where nothing was appended yet."""

    @abstractmethod
    def holders(self) -> list[str] | None:
        """The deployments that hold the job now, by names that no others get; None where that is unknown."""

    @abstractmethod
    def beside(self, prefix: str, suffix: str) -> Iterator[tuple[str, History]]:
        """The jobs with names of this kind that are kept in the same place, with their histories."""


class FileHistory(History):
    """A history in the directory of a job."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / _NAME

    def __str__(self) -> str:
        return str(self._path)

    def append(self, record: bytes) -> None:
        self._shorten()
        with self._path.open("a+b") as file:
            if file.tell():
                file.seek(-1, os.SEEK_END)
                if file.read(1) != b"\n":
                    record = b"\n" + record  # its writer was killed within the last line
            file.write(record + b"\n")

    def records(self) -> list[bytes]:
        try:
            return self._path.read_bytes().splitlines()
        except FileNotFoundError:
            return []

    def holders(self) -> list[str]:
        if not is_being_deployed(self._directory):
            return []
        record = LockRecord.read(self._directory / DEPLOYMENT_LOCK)
        return ["" if record is None else str(record)]

    def beside(self, prefix: str, suffix: str) -> Iterator[tuple[str, History]]:
        for path in self._directory.parent.glob(f"{prefix}*{suffix}/{_NAME}"):
            yield path.parent.name, FileHistory(path.parent)

    def _shorten(self) -> None:
        """Leave the last records of a history that has grown large, and at least the very last."""
        if not self._path.exists() or self._path.stat().st_size <= _LARGEST:
            return
        kept: list[bytes] = []
        size = 0
        for line in reversed(self._path.read_bytes().splitlines(keepends=True)):
            size += len(line)
            if kept and size > _KEPT:
                break
            kept.append(line)
        write_durably(self._path, b"".join(reversed(kept)))


class StreamHistory(History):
    """A history in a stream of one partition."""

    def __init__(self, config: Config, stream: SystemStream, job: str) -> None:
        self._config = config
        self._stream = stream
        self._job = job

    def __str__(self) -> str:
        return str(self._stream)

    def append(self, record: bytes) -> None:
        with closing(Systems(self._config)) as systems:
            admin = systems.admin(self._stream.system)
            kept = {"retention_ms": -1, "retention_bytes": _LARGEST, "segment_bytes": _LARGEST // 4}
            admin.create(self._stream, 1, **kept)
            producer = systems.producer(self._stream.system, MetricsRegistry())
            source = "history"
            try:
                producer.register(source)
                producer.start()
                producer.send(source, OutgoingMessageEnvelope(self._stream, record, None, None, 0))
                producer.flush(source)
            finally:
                producer.stop()

    def records(self) -> list[bytes]:
        system, stream = self._stream.system, self._stream
        with closing(Systems(self._config)) as systems:
            try:
                held = systems.metadata([stream])[stream][0]
            except UnknownStreamError:
                return []
            if held.oldest is None:
                return []
            ssp = SystemStreamPartition(system, stream.stream, 0)
            consumer = systems.consumer(system, MetricsRegistry())
            found = read_to_head(consumer, {ssp: held.oldest}, patience_s=_PATIENCE_S)[ssp]
            return [each.message for each in found if each.message is not None]

    def holders(self) -> list[str] | None:
        with closing(checkpoint_manager(self._config, self._job)) as manager:
            try:
                if not manager.lease_s:
                    return None
                return [each.name for each in manager.lease_holders() if each.work == "deploy"]
            except StreamSystemError:
                return None

    def beside(self, prefix: str, suffix: str) -> Iterator[tuple[str, History]]:
        with closing(Systems(self._config)) as systems:
            jobs = systems.jobs(self._stream.system)
        for job in fnmatch.filter(jobs, f"{prefix}*{suffix}"):
            if (history := history_of(self._config, job)) is not None:
                yield job, history


def history_of(config: Config, job: str) -> History | None:
    """The history of a job; None where it has none."""
    with closing(checkpoint_manager(config, job)) as manager:
        return history_beside(config, manager, job)


def history_beside(config: Config, manager: CheckpointManager, job: str) -> History | None:
    """The history beside the checkpoints of a job; None where it has none."""
    if manager.directory is not None:
        return FileHistory(manager.directory)
    return None if manager.deployments is None else StreamHistory(config, manager.deployments, job)
