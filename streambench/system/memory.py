"""Streams in this process's memory: for tests, and for trying things out in a notebook.

A memory system exists once per process and system name, so that what one job wrote another one (or the next
cell) can read. Messages are kept as they were sent; the offset of a message is its index in its partition.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

from streambench.chunk import numbered
from streambench.config import Config
from streambench.errors import OffsetError, StreamExistsError, UnknownStreamError, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    OutgoingMessageEnvelope,
    StreamsMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.rows import Rows
from streambench.system.adapters import ChunkConsumer
from streambench.system.api import (
    Chunk,
    PartitionAppenders,
    Sender,
    SystemFactory,
    SystemProducer,
    no_limits,
)
from streambench.system.copying import are_immutable, detached, is_immutable
from streambench.system.numbered import NumberedAdmin, numbered_metadata, to_number

_FIELDS = 3


class Partition:
    """One partition: key, message, and what few messages have (timestamp and headers, else None), one after
    the other in one flat list.

    A message is appended in one step, which other threads see whole or not at all. ``identity``: no other
    partition has the same. Objects that can change are kept and returned as copies: of bytes, which is what
    serdes give, none are needed.
    """

    __slots__ = ("_has_extras", "_has_objects", "fields", "identity")

    def __init__(self) -> None:
        self.fields: list[Any] = []
        self.identity = os.urandom(8).hex()
        self._has_extras = self._has_objects = False

    def __len__(self) -> int:
        return len(self.fields) // _FIELDS

    def append(self, envelope: OutgoingMessageEnvelope, key: Any, message: Any) -> None:
        """Append a message; timestamp and headers are those of the envelope. Raises SerdeError where it
        cannot be copied."""
        extra = None
        if envelope.timestamp is not None or envelope.headers is not None:
            extra, self._has_extras = (envelope.timestamp, detached(envelope.headers)), True
        if not (is_immutable(key) and is_immutable(message)):
            key, message, self._has_objects = detached(key), detached(message), True
        # Some encoders (orjson) return bytes from a buffer of 4 kB that lives as long as they do: keep a copy
        # of the right size.
        self.fields.extend((key, b"%b" % message if type(message) is bytes else message, extra))

    def put(self, key: Any, message: Any, extra: tuple[int | None, Any] | None) -> None:
        """Append a message of another partition, as it stands there."""
        self._has_extras = self._has_extras or extra is not None
        self.fields.extend((key, message, extra))

    def extend(self, rows: Rows) -> None:
        """Append messages, all in one step. They are the partition's from now on."""
        fields: list[Any] = []
        if not (are_immutable(rows.keys) and are_immutable(rows.messages)):
            self._has_objects = True
        timestamps = rows.timestamps or [None] * len(rows)
        headers = rows.headers or [None] * len(rows)
        for key, message, timestamp, header in zip(
            rows.keys, rows.messages, timestamps, headers, strict=True
        ):
            extra = None
            if timestamp is not None or header is not None:
                extra, self._has_extras = (timestamp, header), True
            fields += (key, b"%b" % message if type(message) is bytes else message, extra)
        self.fields.extend(fields)

    def copy(self) -> Partition:
        """The same partition, to be continued on its own."""
        other = Partition()
        other.fields, other.identity = list(self.fields), self.identity
        other._has_extras, other._has_objects = self._has_extras, self._has_objects
        return other

    def entries(self) -> list[tuple[Any, Any]]:
        """Key and message of all messages."""
        fields = [detached(each) for each in self.fields] if self._has_objects else list(self.fields)
        return list(zip(fields[0::_FIELDS], fields[1::_FIELDS], strict=True))

    def chunk(self, ssp: SystemStreamPartition, start: int, at_most: int) -> Chunk:
        """The messages from index ``start`` on."""
        fields = self.fields[start * _FIELDS : (start + at_most) * _FIELDS]
        if self._has_objects:
            fields = [detached(each) for each in fields]
        messages = fields[1::_FIELDS]
        chunk = Chunk(ssp, numbered(start, start + len(messages)), fields[0::_FIELDS], messages)
        if self._has_extras:
            extras = [extra or (None, None) for extra in fields[2::_FIELDS]]
            chunk.timestamps = [timestamp for timestamp, _ in extras]
            chunk.headers = [None if headers is None else dict(headers) for _, headers in extras]
        return chunk


class MemoryStreams:
    """The streams of one memory system: per stream, its partitions; per partition, what was sent to it.
    ``kind``: what partitions are."""

    def __init__(self, kind: type[Partition] = Partition) -> None:
        self._kind = kind
        self.partitions: dict[SystemStream, list[Partition]] = {}

    def create(self, stream: SystemStream, partitions: int) -> bool:
        """Create a stream; False where it is there with as many partitions, StreamExistsError where with
        others."""
        made = [self._kind() for _ in range(partitions)]
        present = self.partitions.setdefault(stream, made)
        if present is made:
            return True
        if len(present) != partitions:
            raise StreamExistsError(
                f"{stream} is there already, with {len(present)} partitions and not {partitions}"
            )
        return False

    def grow(self, stream: SystemStream, partitions: int) -> None:
        """Add partitions to a stream until it has so many. Raises UnknownStreamError."""
        present = self.of(stream)
        present.extend(self._kind() for _ in range(partitions - len(present)))

    def of(self, stream: SystemStream) -> list[Partition]:
        """The partitions of a stream. Raises UnknownStreamError."""
        try:
            return self.partitions[stream]
        except KeyError:
            known = ", ".join(sorted(map(str, self.partitions))) or "none at all"
            raise UnknownStreamError(f"there is no stream {stream} in memory; there are: {known}") from None

    def partition(self, stream: SystemStream, number: int) -> Partition:
        """One partition of a stream. Raises UnknownStreamError."""
        partitions = self.of(stream)
        if not 0 <= number < len(partitions):
            raise no_partition(stream, number, len(partitions))
        return partitions[number]


_systems: dict[str, MemoryStreams] = {}


def memory_streams(system: str) -> MemoryStreams:
    """The streams of this process's memory system of that name."""
    return _systems.setdefault(system, MemoryStreams())


class MemoryConsumer(ChunkConsumer):
    """Reads slices of the lists that the producers append to."""

    polled_by_loop: ClassVar[bool] = True
    at_once: ClassVar[int] = 256

    def __init__(self, streams: MemoryStreams) -> None:
        self._streams = streams
        self._positions: dict[SystemStreamPartition, int] = {}
        self._partitions: dict[SystemStreamPartition, Partition] = {}

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        partition = self._streams.partition(ssp.system_stream, ssp.partition)
        position = to_number(offset, ssp)
        if position > len(partition):
            raise OffsetError(f"{ssp}: offset {offset} lies beyond the end, {len(partition)}")
        self._positions[ssp] = position
        self._partitions[ssp] = partition

    def start(self) -> None:
        pass

    def stop(self) -> None:
        pass

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        chunks = []
        for ssp, at_most in wanted.items():
            position, partition = self._positions[ssp], self._partitions[ssp]
            if position < len(partition):
                chunk = partition.chunk(ssp, position, at_most)
                # Of what was compacted away at the end there is no message.
                self._positions[ssp] = int(chunk.offsets[-1]) + 1 if chunk.offsets else len(partition)
                if chunk.offsets:
                    chunks.append(chunk)
        return chunks

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return self._positions[ssp] == len(self._partitions[ssp])


class MemoryProducer(SystemProducer):
    """Appends what it is given; everything is there at once, so that a flush has nothing to do."""

    atomic: str | None = "memory"

    def __init__(self, streams: MemoryStreams) -> None:
        self._streams = streams
        self._held: dict[SystemStreamPartition, Rows] | None = None

    def stop(self) -> None:
        pass

    def hold(self) -> None:
        self._held = {}

    def take(self) -> list[Rows]:
        held, self._held = self._held or {}, {}
        return list(held.values())

    def append_once(self, rows: Rows, producer: str, generation: int, sequence: int) -> None:
        # A process has no crash from which its memory comes back: what was appended here once is never to be
        # appended again.
        self._streams.partition(rows.ssp.system_stream, rows.ssp.partition).extend(rows)

    def last_once(self, ssp: SystemStreamPartition, producer: str) -> tuple[int, int] | None:
        return None

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        partition = self._streams.partition(envelope.system_stream, envelope.partition or 0)
        partition.append(envelope, envelope.key, envelope.message)

    def sender(self, stream: SystemStream) -> Sender:
        partitions = self._streams.of(stream)
        if self._held is not None:
            return self._hold_for(stream)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            partitions[partition].append(envelope, key, message)

        return send

    def _hold_for(self, stream: SystemStream) -> Sender:
        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            assert self._held is not None
            ssp = SystemStreamPartition(stream.system, stream.stream, partition)
            row = Rows(ssp, [detached(key)], [detached(message)])
            if envelope.timestamp is not None:
                row.timestamps = [envelope.timestamp]
            if envelope.headers is not None:
                row.headers = [detached(envelope.headers)]
            self._held.setdefault(ssp, Rows(ssp, [], [])).extend(row)

        return send

    def appends(self, stream: SystemStream) -> PartitionAppenders | None:
        kind = type(self)
        if (
            self._held is not None
            or kind.send is not MemoryProducer.send
            or kind.sender is not MemoryProducer.sender
        ):
            return None  # a subclass that sends in another way gets each message
        return PartitionAppenders(
            [partition.fields.extend for partition in self._streams.of(stream)],
            sys.maxsize,
            no_limits,
        )

    def flush(self, source: str) -> None:
        pass


class MemoryAdmin(NumberedAdmin):
    """Knows all about the streams of a memory system."""

    def __init__(self, streams: MemoryStreams) -> None:
        self._streams = streams

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        return {
            stream: dict(enumerate(numbered_metadata(0, len(each)) for each in self._streams.of(stream)))
            for stream in streams
        }

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        return self._streams.create(stream, partitions)

    def grow(self, stream: SystemStream, partitions: int) -> None:
        self._streams.grow(stream, partitions)

    def identity(self, ssp: SystemStreamPartition, position: str) -> str | None:
        return self._streams.partition(ssp.system_stream, ssp.partition).identity

    def streams(self) -> list[SystemStream]:
        return sorted(self._streams.partitions)

    def delete(self, stream: SystemStream) -> None:
        self._streams.of(stream)
        del self._streams.partitions[stream]


class MemorySystemFactory(SystemFactory):
    """The factory of memory systems. With ``streams`` it serves those instead of the ones this process keeps
    by system name."""

    in_process: ClassVar[bool] = True
    is_local: ClassVar[bool] = True
    portable_settings: ClassVar[bool] = True

    def __init__(self, streams: MemoryStreams | None = None) -> None:
        self._own = streams

    def _streams(self, system: str) -> MemoryStreams:
        return memory_streams(system) if self._own is None else self._own

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryConsumer:
        return MemoryConsumer(self._streams(system))

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        return MemoryProducer(self._streams(system))

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> MemoryAdmin:
        return MemoryAdmin(self._streams(system))

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        partition = Partition()

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, number: int
        ) -> None:
            partition.append(envelope, key, message)
            partition.fields.clear()

        return send
