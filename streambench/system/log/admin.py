"""The admin of a log: what there is, and making and deleting it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from streambench.errors import UnknownStreamError
from streambench.model import PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.system.log.repair import Loss
from streambench.system.log.snapshots import LogSnapshots
from streambench.system.log.streams import Log
from streambench.system.numbered import NumberedAdmin, to_number


class LogAdmin(NumberedAdmin):
    """Answers for one log. ``log`` is the log itself, for what is special to it: fences, sequences, reading
    as Arrow."""

    def __init__(self, system: str, log: Log) -> None:
        self._system = system
        self.log = log

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        found = {}
        for stream in streams:
            opened = self.log.stream(stream.stream)
            found[stream] = {
                number: opened.partition(number).metadata() for number in range(opened.partitions)
            }
        return found

    def metadata_of(
        self, partitions: Iterable[SystemStreamPartition]
    ) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        if type(self).metadata is not LogAdmin.metadata:
            return super().metadata_of(partitions)
        found: dict[SystemStream, dict[int, PartitionMetadata]] = {}
        for ssp in partitions:
            opened = self.log.stream(ssp.stream)
            of_stream = found.setdefault(ssp.system_stream, {})
            if ssp.partition < opened.partitions:
                of_stream[ssp.partition] = opened.partition(ssp.partition).metadata()
        return found

    def partition_count(self, stream: SystemStream) -> int:
        if type(self).metadata is not LogAdmin.metadata:
            return super().partition_count(stream)
        return self.log.stream(stream.stream).partitions

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        return self.log.create(stream.stream, partitions, **settings)

    def identity(self, ssp: SystemStreamPartition, position: str) -> str | None:
        try:
            created_ms = self.log.stream(ssp.stream).created_ms
        except UnknownStreamError:
            return None
        # A stream whose stream.json was written by hand, to repair it, does not know when it was created.
        return str(created_ms) if created_ms else None

    def streams(self) -> list[SystemStream]:
        return [SystemStream(self._system, name) for name in self.log.streams()]

    def grow(self, stream: SystemStream, partitions: int) -> None:
        self.log.grow(stream.stream, partitions)

    def delete(self, stream: SystemStream) -> None:
        self.log.delete(stream.stream)

    def fence(self, ssp: SystemStreamPartition, producer: str, generation: int, epoch: int) -> None:
        """From now on the partition refuses what an older (generation, epoch) of this producer appends."""
        self.log.partition(ssp.stream, ssp.partition).fence(producer, generation, epoch)

    def clean(self, stream: SystemStream) -> None:
        """Delete or compact what is due in all partitions of a stream. It happens by itself whenever a
        segment is sealed."""
        opened = self.log.stream(stream.stream)
        for number in range(opened.partitions):
            opened.partition(number).clean()

    def damage(self, ssp: SystemStreamPartition) -> list[Loss]:
        """The damage in a partition, which cannot be read; nothing is changed."""
        return self.log.partition(ssp.stream, ssp.partition).damage()

    def repair(self, ssp: SystemStreamPartition) -> list[Loss]:
        """Move what cannot be read aside, so that reading and writing go on without it; what was lost by
        that."""
        return self.log.partition(ssp.stream, ssp.partition).repair()

    def compacted_to(self, ssp: SystemStreamPartition) -> str | None:
        offset = self.log.partition(ssp.stream, ssp.partition).compacted_to()
        return None if offset is None else str(offset)

    def keep_from(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        for ssp, offset in offsets.items():
            self.log.partition(ssp.stream, ssp.partition).keep_from(to_number(offset, ssp))

    def snapshots(self, ssp: SystemStreamPartition) -> LogSnapshots | None:
        """The snapshots of state beside a partition."""
        identity = self.identity(ssp, "0")
        if identity is None:
            return None
        return self.log.partition(ssp.stream, ssp.partition).snapshots(identity)

    def bytes_between(self, ssp: SystemStreamPartition, first: str, end: str) -> int:
        partition = self.log.partition(ssp.stream, ssp.partition)
        here = partition.metadata()
        held = to_number(here.upcoming or "0") - to_number(here.oldest or "0")
        wanted = to_number(end, ssp) - to_number(first, ssp)
        return partition.size() * wanted // max(held, wanted, 1)

    def close(self) -> None:
        self.log.close()
