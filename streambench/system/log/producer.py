"""The producer of a log: gathers messages per partition and appends them as batches."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from time import monotonic
from typing import Any, ClassVar, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from streambench.errors import MessageTooLargeError, SerdeError, StreambenchError, StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.api import Sender, SystemProducer
from streambench.system.log.partition import Bytes, Partition, as_columns
from streambench.system.log.streams import Log
from streambench.system.rows import Rows


class _Identity(NamedTuple):
    """Who a source writes as, where the partitions may be fenced against it."""

    producer: str
    generation: int
    epoch: int


class _Pending:
    """What waits to be appended to one partition.

    ``timestamps`` and ``headers`` stay empty as long as no message has any.
    """

    __slots__ = ("bytes", "headers", "identity", "keys", "partition", "timestamps", "values")

    def __init__(self, partition: Partition, identity: _Identity | None) -> None:
        self.partition = partition
        self.identity = identity
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int | None] = []
        self.headers: list[Mapping[str, bytes] | None] = []
        self.bytes = 0

    def append(self) -> None:
        """Append everything as one batch. What cannot be appended is gone; the error says so to whoever sent it."""
        keys, values, timestamps, headers = self.keys, self.values, self.timestamps, self.headers
        self.keys, self.values, self.timestamps, self.headers, self.bytes = [], [], [], [], 0
        if values:
            batch, newest = as_columns(keys, values, timestamps or None, headers or None, checked=True)
            producer, generation, epoch = self.identity or (None, 0, 0)
            self.partition.append_columns(batch, newest, producer=producer, generation=generation, epoch=epoch)

    def take(self) -> Rows:
        """Everything, as rows; nothing waits any more."""
        rows = Rows(SystemStreamPartition.parse(self.partition.name), [], [])
        rows.extend(Rows(rows.ssp, self.keys, self.values, self.timestamps or None, self.headers or None))
        self.keys, self.values, self.timestamps, self.headers, self.bytes = [], [], [], [], 0
        return rows


class LogProducer(SystemProducer):
    """Writes to the streams of one log.

    A message is kept back until its partition has ``batch.messages`` or ``batch.bytes`` of them, until ``linger.ms`` are over
    (noticed at the next ``send``), or until ``flush``. What could not be appended raises there, and every later ``flush`` raises again: a
    failed producer must not be taken for one that has written everything. One that was told to ``hold`` keeps everything back.
    """

    atomic: ClassVar[str | None] = "log"

    def __init__(self, system: str, log: Log, metrics: MetricsRegistry) -> None:
        self._system = system
        self._log = log
        self._largest = log.settings.max_message_bytes
        self._batch_bytes = log.settings.batch_bytes
        self._batch_messages = log.settings.batch_messages
        self._senders: dict[SystemStream, Sender] = {}
        self._caches: list[dict[tuple[str, int] | int, _Pending]] = []
        self._pendings: dict[tuple[Partition, _Identity | None], _Pending] = {}
        self._waiting: dict[_Pending, None] = {}
        self._unforced: dict[Partition, None] = {}
        self._fenced: dict[tuple[str, Partition], _Identity] = {}
        self._linger = log.settings.linger_ms / 1000
        self._due = float("inf")
        self._failed: StreambenchError | None = None
        self._batches = metrics.counter(f"{system}-batches-written", "log")

    def start(self) -> None:
        """Nothing to connect to: a stream is looked for when something is sent to it."""

    def stop(self) -> None:
        self._senders.clear()
        for known in self._caches:
            known.clear()
        self._pendings.clear()
        self._waiting.clear()
        self._log.close()

    def register(self, source: str) -> None:
        """Every source is welcome."""

    def fence(self, source: str, partitions: Collection[SystemStreamPartition], generation: int, epoch: int) -> None:
        self._append_all()
        for ssp in partitions:
            partition = self._log.partition(ssp.stream, ssp.partition)
            partition.fence(source, generation, epoch)
            self._fenced[source, partition] = _Identity(source, generation, epoch)
        for known in self._caches:
            known.clear()

    def hold(self) -> None:
        self._batch_messages = self._batch_bytes = sys.maxsize
        self._linger = float("inf")

    def take(self) -> list[Rows]:
        taken: dict[Partition, Rows] = {}
        for pending in self._waiting:
            rows = pending.take()
            of_partition = taken.setdefault(pending.partition, rows)
            if of_partition is not rows:
                of_partition.extend(rows)
        self._waiting.clear()
        return list(taken.values())

    def append_once(self, rows: Rows, producer: str, generation: int, sequence: int) -> None:
        partition = self._log.partition(rows.ssp.stream, rows.ssp.partition)
        offsets = partition.append(
            rows.keys, rows.messages, rows.timestamps, rows.headers, producer=producer, generation=generation, sequence=sequence
        )
        self._unforced[partition] = None
        if offsets is None:
            return
        self._batches.inc()
        if rows.base is not None and offsets and offsets.start != rows.base:
            raise StreamSystemError(
                f"{rows.ssp}: the first of {len(rows)} messages was to get the offset {rows.base} and got {offsets.start}: something "
                "else writes to this partition, which belongs to one task of one job alone"
            )

    def last_once(self, ssp: SystemStreamPartition, producer: str) -> tuple[int, int] | None:
        return self._log.partition(ssp.stream, ssp.partition).last_of(producer)

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        stream, partition = envelope.system_stream, envelope.partition
        send = self._senders.get(stream) or self.sender(stream)
        if partition is None:
            count = self._log.stream(stream.stream).partitions
            if count > 1:
                raise StreamSystemError(f"{stream}: a message must say which of the {count} partitions it goes to")
            partition = 0
        send(source, envelope, envelope.key, envelope.message, partition)

    def sender(self, stream: SystemStream) -> Sender:
        # One closure with all that happens per message: each look-up and call that is spared here is spared a million times.
        pendings: dict[tuple[str, int] | int, _Pending] = {}
        self._caches.append(pendings)
        fenced = self._fenced
        waiting = self._waiting
        largest, batch_bytes, batch_messages, linger = self._largest, self._batch_bytes, self._batch_messages, self._linger

        def send(source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int) -> None:
            place = (source, partition) if fenced else partition
            pending = pendings.get(place)
            if pending is None:
                pending = pendings[place] = self._pending(source, stream, partition)
            if type(key) is bytes:
                size = len(key)
            elif key is None:
                size = 0
            else:
                raise self._not_bytes(stream, "key", key)
            if type(message) is bytes:
                size += len(message)
                # Some encoders (orjson) return bytes from a buffer of 4 kB that lives as long as they do. A copy costs little; to go
                # through so much memory with every batch costs more than all else here.
                message = b"%b" % message
            elif message is not None:
                raise self._not_bytes(stream, "message", message)
            timestamp, headers = envelope.timestamp, envelope.headers
            if headers:
                size += _headers_size(stream, headers)
            if size > largest:
                raise self._too_large(pending.partition, size)
            values = pending.values
            count = len(values)
            if timestamp is not None or pending.timestamps:
                pending.timestamps.extend([None] * (count - len(pending.timestamps)))
                pending.timestamps.append(timestamp)
            if headers or pending.headers:
                pending.headers.extend([None] * (count - len(pending.headers)))
                pending.headers.append(headers)
            pending.keys.append(key)
            values.append(message)
            pending.bytes = size = pending.bytes + size
            now = monotonic()
            if not count:
                waiting[pending] = None
                if now + linger < self._due:
                    self._due = now + linger
            if size >= batch_bytes or count + 1 >= batch_messages:
                self._append(pending)
            elif now >= self._due:
                self._append_all()

        self._senders[stream] = send
        return send

    def send_columns(
        self,
        stream: SystemStream,
        partition: int,
        keys: Bytes | None,
        values: Bytes,
        timestamps: Sequence[int | None] | pa.Array | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
    ) -> range:
        """Append many messages at once, behind what was sent before: the fast way to load data. Returns their offsets.

        ``flush`` makes them durable. Raises MessageTooLargeError where one of them is too large; nothing is written then."""
        self._append_all()
        target = self._log.partition(stream.stream, partition)
        columns, newest = as_columns(keys, values, timestamps, headers)
        self._check_sizes(target, columns)
        begin = end = None
        rows = max(1, min(columns.num_rows, self._batch_bytes * max(1, columns.num_rows) // max(1, columns.nbytes)))
        for at in range(0, columns.num_rows, rows):
            offsets = target.append_columns(columns.slice(at, rows), newest)
            assert offsets is not None
            begin, end = offsets.start if begin is None else begin, offsets.stop
            self._batches.inc()
        self._unforced[target] = None
        return range(begin or 0, end or 0)

    def flush(self, source: str) -> None:
        self._append_all()
        for partition in list(self._unforced):
            try:
                partition.flush()
            except StreambenchError as error:
                self._failed = error
                raise
            del self._unforced[partition]

    def _append_all(self) -> None:
        if self._failed is not None:
            raise StreamSystemError(f"{self._system}: an earlier write failed, not all is there: {self._failed}") from self._failed
        for pending in list(self._waiting):
            self._append(pending)
        self._due = float("inf")

    def _append(self, pending: _Pending) -> None:
        self._waiting.pop(pending, None)
        try:
            pending.append()
        except StreambenchError as error:
            self._failed = error
            raise
        self._unforced[pending.partition] = None
        self._batches.inc()

    def _pending(self, source: str, stream: SystemStream, number: int) -> _Pending:
        """Where the messages of a source for a partition wait: with all others, unless the partition is fenced for the source."""
        partition = self._log.partition(stream.stream, number)
        identity = self._fenced.get((source, partition))
        place = (partition, identity)
        if place not in self._pendings:
            self._pendings[place] = _Pending(partition, identity)
        return self._pendings[place]

    def _too_large(self, partition: Partition, size: int) -> MessageTooLargeError:
        return MessageTooLargeError(
            f"{partition.name}: a message of {size} bytes is larger than systems.{self._system}.max.message.bytes={self._largest}; "
            "nothing of it was written. Raise the limit, or send less at once"
        )

    def _not_bytes(self, stream: SystemStream, what: str, value: object) -> SerdeError:
        setting = "samza.key.serde" if what == "key" else "samza.msg.serde"
        return SerdeError(
            f"{stream}: a {what} that goes to a log must be bytes, not {type(value).__name__}; set systems.{stream.system}.{setting} "
            f"or systems.{stream.system}.streams.{stream.stream}.{setting}, to json for example"
        )

    def _check_sizes(self, partition: Partition, columns: pa.RecordBatch) -> None:
        limit = self._largest
        if columns.nbytes > limit:
            lengths = pc.add(pc.fill_null(pc.binary_length(columns["key"]), 0), pc.fill_null(pc.binary_length(columns["value"]), 0))
            largest = pc.max(lengths).as_py() or 0
            if largest > limit:
                raise self._too_large(partition, largest)


def _headers_size(stream: SystemStream, headers: Mapping[str, bytes]) -> int:
    size = 0
    for name, value in headers.items():
        if type(name) is not str or type(value) is not bytes:
            raise SerdeError(f"{stream}: the header '{name}' must map a name to bytes, not to {type(value).__name__}")
        size += len(name) + len(value)
    return size
