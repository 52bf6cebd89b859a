"""Steps 4 and 5: the producer of a log keeps messages per partition, and appends them as batches."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa

from streambench.errors import StreambenchError, StreamSystemError, described
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.rows import Rows, check_headers
from streambench.system.api import Append, PartitionAppenders, SendColumns, Sender, SystemProducer, row_by_row
from streambench.system.log.arrays import as_one, binary_column, int64_column, longest_message, slices
from streambench.system.log.columns import Bytes, as_columns
from streambench.system.log.frame import SCHEMA
from streambench.system.log.message_check import MessageCheck
from streambench.system.log.partition import Partition
from streambench.system.log.streams import Log


class _Identity(NamedTuple):
    """The producer that a source writes as, where the partitions may be fenced against it."""

    producer: str
    generation: int
    epoch: int


_FIELDS = 3
_LIMITS_APPLIED_WITHIN_S = 0.1

_Extras = tuple[int | None, Mapping[str, bytes] | None]
"""Timestamp and headers."""


class _Pending:
    """The messages that wait to be appended to one partition. Single messages stand in one flat list
    (``fields``): key, value, and None or a pair of timestamp and headers. What came by the column stands in
    ``pieces``, before the single messages.

    ``measured``: of how many fields it is known how large they are; ``size``: those, and the pieces, in
    bytes."""

    __slots__ = (
        "_has_extras",
        "_header_bytes",
        "_largest",
        "_producer",
        "_stream",
        "fields",
        "identity",
        "measured",
        "partition",
        "pieces",
        "size",
    )

    def __init__(
        self, producer: LogProducer, stream: SystemStream, partition: Partition, identity: _Identity | None
    ) -> None:
        self._producer = producer
        self._header_bytes, self._largest = producer.check.header_bytes, producer.check.largest
        self._stream = stream
        self.partition = partition
        self.identity = identity
        self.fields: list[Any] = []
        self.pieces: list[pa.RecordBatch] = []
        self.size = self.measured = 0
        self._has_extras = False

    def add(self, key: Any, value: Any, extras: _Extras | None) -> None:
        """Take a message of any kind. Raises SerdeError and MessageTooLargeError."""
        headers = None if extras is None else extras[1]
        # The check costs a call: without headers, it is made only for what it can refuse.
        if (
            headers
            or type(value) is not bytes
            or (key is not None and type(key) is not bytes)
            or len(value) + len(key or b"") > self._largest
        ):
            self.size += self._header_bytes(self._stream, self.partition.name, key, value, headers)
        if extras is not None:
            self._has_extras = True
        self.fields.extend((key, value, extras))
        self.append_if_full()

    def append_if_full(self) -> None:
        """Add the size of the fields that are new since the last call, which starts the linger where nothing
        waited. Append everything where that makes a batch."""
        fields, producer = self.fields, self._producer
        if len(fields) > self.measured:
            new = fields[self.measured :] if self.measured else fields
            self.size += sum(map(len, filter(None, new[0::_FIELDS]))) + sum(
                map(len, filter(None, new[1::_FIELDS]))
            )
            self.measured = len(fields)
            producer.start_linger(self)
            if self.size >= producer.batch_bytes or self.measured >= producer.batch_messages * _FIELDS:
                producer.append_pending(self)

    def add_columns(self, columns: pa.RecordBatch) -> None:
        """Take messages by the column: key, message, timestamp, headers."""
        self.append_if_full()
        if self.fields:
            self.pieces.append(_piece(*self._rows()))
            self._clear_fields()
        self.pieces.append(columns)
        self.size += columns.nbytes
        producer = self._producer
        producer.start_linger(self)
        if (
            self.size >= producer.batch_bytes
            or sum(piece.num_rows for piece in self.pieces) >= producer.batch_messages
        ):
            producer.append_pending(self)

    def append_everything(self) -> int:
        """Append everything, and return the number of batches.

        What was sent by the column is one batch. Single messages are several, since more than a batch may
        have arrived before they were measured. What cannot be appended is gone; the error of the send says
        so."""
        if not self.fields and not self.pieces:
            return 0
        columns = self._columns()
        count = len(columns[1])
        each = self._per_batch(count)
        self._clear()
        producer, generation, epoch = self.identity or (None, 0, 0)
        for start in range(0, count, each):
            part = [column if column is None else column[start : start + each] for column in columns]
            batch, newest = as_columns(*part, checked=True)
            self.partition.append_columns(
                batch, newest, producer=producer, generation=generation, epoch=epoch
            )
        return len(range(0, count, each))

    def _per_batch(self, count: int) -> int:
        """The number of messages per batch, where ``count`` of them wait."""
        if self.pieces:
            return max(1, count)
        limits = self._producer
        batches = max(1, -(-count // limits.batch_messages), self.size // limits.batch_bytes)
        return max(1, -(-count // batches))

    def take(self) -> Rows:
        """Everything, as rows; nothing waits any more."""
        rows = Rows(SystemStreamPartition.parse(self.partition.name), *self._columns())
        self._clear()
        return rows

    def _clear(self) -> None:
        self._clear_fields()
        self.pieces = []
        self.size = 0

    def _clear_fields(self) -> None:
        # The list stays the same: ``appends`` has handed out its method.
        self.fields.clear()
        self.measured = 0
        self._has_extras = False

    def _columns(self) -> tuple[Any, Any, Any, Any]:
        """Keys, values, timestamps, headers; None for one of the latter that no message has."""
        return self._joined() if self.pieces else self._rows()

    def _rows(self) -> tuple[Any, Any, Any, Any]:
        """The same of the single messages."""
        keys, values = self.fields[0::_FIELDS], self.fields[1::_FIELDS]
        timestamps, headers = self._extras() if self._has_extras else (None, None)
        return keys, values, timestamps, headers

    def _extras(self) -> tuple[Any, Any]:
        """The timestamps and headers of the single messages."""
        extras = [each or (None, None) for each in self.fields[2::_FIELDS]]
        timestamps = [timestamp for timestamp, _ in extras]
        headers = [named or None for _, named in extras]
        has_times = any(each is not None for each in timestamps)
        return timestamps if has_times else None, headers if any(headers) else None

    def _joined(self) -> tuple[Any, Any, Any, Any]:
        """The columns of what came by the column, and of the single messages behind it."""
        pieces = [*self.pieces, _piece(*self._rows())] if self.fields else self.pieces
        keys, values, timestamps, headers = as_one(pieces).columns
        has_times, has_headers = (column.null_count < len(column) for column in (timestamps, headers))
        return keys, values, timestamps if has_times else None, headers if has_headers else None


class LogProducer(SystemProducer):
    """Writes to the streams of one log.

    A message is kept back until its partition has ``batch.messages`` or ``batch.bytes`` of them, until
    ``linger.ms`` are over, or until ``flush``. The end of ``linger.ms`` is noticed at the next ``send`` or
    ``apply_limits``. What could not be appended raises there, and every later ``flush`` raises again. A
    failed producer must not be taken for one that has written everything. After ``hold`` it keeps
    everything back.
    """

    atomic: str | None = "log"

    def __init__(self, system: str, log: Log, metrics: MetricsRegistry) -> None:
        self._system = system
        self._log = log
        self.check = MessageCheck(system, log.settings.max_message_bytes)
        self.batch_bytes = log.settings.batch_bytes
        self.batch_messages = log.settings.batch_messages
        self._senders: dict[SystemStream, Sender] = {}
        self._caches: list[dict[tuple[str, int] | int, _Pending]] = []
        self._pendings: dict[tuple[Partition, _Identity | None], _Pending] = {}
        self._waiting: dict[_Pending, None] = {}
        self._handed_out: dict[_Pending, None] = {}
        self._unforced: dict[Partition, None] = {}
        self._fenced: dict[tuple[str, Partition], _Identity] = {}
        self._linger = log.settings.linger_ms / 1000
        self.due = float("inf")
        self._failed: BaseException | None = None
        self._batches = metrics.counter(f"{system}-batches-written", "log")

    def stop(self) -> None:
        self._senders.clear()
        for known in self._caches:
            known.clear()
        self._pendings.clear()
        self._waiting.clear()
        self._handed_out.clear()
        self._log.close()

    def fence(
        self, source: str, partitions: Collection[SystemStreamPartition], generation: int, epoch: int
    ) -> None:
        self.append_all()
        for ssp in partitions:
            partition = self._log.partition(ssp.stream, ssp.partition)
            partition.fence(source, generation, epoch)
            self._fenced[source, partition] = _Identity(source, generation, epoch)
        for known in self._caches:
            known.clear()

    def hold(self) -> None:
        self.batch_messages = self.batch_bytes = sys.maxsize
        self._linger = float("inf")

    def take(self) -> list[Rows]:
        self._append_full()
        taken: dict[Partition, Rows] = {}
        for pending in self._waiting:
            rows = pending.take()
            of_partition = taken.setdefault(pending.partition, rows)
            if of_partition is not rows:
                of_partition.extend(rows)
        self._waiting.clear()
        return list(taken.values())

    def check_sizes(self, rows: Rows) -> None:
        keys, values, limit = rows.keys, rows.messages, self.check.largest
        if (
            rows.headers is None
            and sum(max(map(len, filter(None, column)), default=0) for column in (keys, values)) <= limit
        ):
            return
        ssp = rows.ssp
        for key, value, headers in zip(keys, values, rows.headers or itertools.repeat(None), strict=False):
            size = len(key or b"") + len(value or b"") + check_headers(ssp, headers)
            if size > limit:
                raise self.check.too_large(str(ssp), size)

    def append_once(self, rows: Rows, producer: str, generation: int, sequence: int) -> None:
        partition = self._log.partition(rows.ssp.stream, rows.ssp.partition)
        offsets = partition.append(
            rows.keys,
            rows.messages,
            rows.timestamps,
            rows.headers,
            producer=producer,
            generation=generation,
            sequence=sequence,
        )
        self._unforced[partition] = None
        if offsets is None:
            return
        self._batches.inc()
        if rows.base is not None and offsets and offsets.start != rows.base:
            raise StreamSystemError(
                f"{rows.ssp}: the first of {len(rows)} messages was to get the offset {rows.base} and got "
                f"{offsets.start}: something "
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
                raise StreamSystemError(
                    f"{stream}: a message must say which of the {count} partitions it goes to"
                )
            partition = 0
        send(source, envelope, envelope.key, envelope.message, partition)

    def sender(self, stream: SystemStream) -> Sender:
        pendings: dict[tuple[str, int] | int, _Pending] = {}
        self._caches.append(pendings)
        fenced = self._fenced

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            target = (source, partition) if fenced else partition
            pending = pendings.get(target)
            if pending is None:
                pending = pendings[target] = self._pending(source, stream, partition)
            if type(message) is bytes:
                # Some encoders (orjson) return bytes from a buffer of 4 kB that lives as long as they do. A
                # copy costs little; to go through so much memory with every batch costs more than all else
                # here.
                message = b"%b" % message
            plain = envelope.timestamp is None and not envelope.headers
            pending.add(key, message, None if plain else (envelope.timestamp, envelope.headers))
            if monotonic() >= self.due:
                self.append_all()

        self._senders[stream] = send
        return send

    def appends(self, stream: SystemStream) -> PartitionAppenders | None:
        # Messages that come this way are held against linger.ms at ``apply_limits`` only, which is too rare
        # for a linger below a tenth of a second. Fenced partitions need the source of each message.
        if self._linger < _LIMITS_APPLIED_WITHIN_S or any(
            partition.stream == stream.stream for _, partition in self._fenced
        ):
            return None
        partitions = self._log.stream(stream.stream).partitions
        extends: list[Append] = []

        def first_extend(number: int, fields: Any) -> None:
            # A container sends to few of a thousand partitions: each is opened with its first message.
            pending = self._pending("", stream, number)
            self._handed_out[pending] = None
            extends[number] = pending.fields.extend
            pending.fields.extend(fields)

        extends += [partial(first_extend, number) for number in range(partitions)]
        return PartitionAppenders(extends, self.check.largest, self._apply_limits)

    def _apply_limits(self) -> None:
        self._append_full()
        if monotonic() >= self.due:
            self.append_all()

    def _append_full(self) -> None:
        for pending in self._handed_out:
            pending.append_if_full()

    def sender_of_columns(self, stream: SystemStream) -> SendColumns:
        if self.batch_messages == sys.maxsize:
            return row_by_row(stream, self.sender(stream))  # what is held back is kept as rows

        def send(source: str, partition: int, columns: pa.RecordBatch) -> None:
            pending = self._pending(source, stream, partition)
            self._check_sizes(
                pending.partition, columns.nbytes, columns["key"], columns["message"], columns["headers"]
            )
            # One append takes at most so much; a column may be of any length.
            for each in slices(columns, columns.num_rows, self.batch_bytes):
                pending.add_columns(each)
            if monotonic() >= self.due:
                self.append_all()

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
        """Append many messages at once, behind what was sent before: the fast way to load data. Returns their
        offsets.

        ``flush`` makes them durable. Raises MessageTooLargeError where one of them is too large; nothing is
        written then."""
        self.append_all()
        target = self._log.partition(stream.stream, partition)
        columns, newest = as_columns(keys, values, timestamps, headers)
        self._check_sizes(target, columns.nbytes, columns["key"], columns["value"], columns["headers"])
        begin = end = None
        for each in slices(columns, columns.num_rows, self.batch_bytes):
            offsets = target.append_columns(each, newest)
            assert offsets is not None
            begin, end = offsets.start if begin is None else begin, offsets.stop
            self._batches.inc()
        self._unforced[target] = None
        return range(begin or 0, end or 0)

    def flush(self, source: str) -> None:
        self.append_all()
        for partition in list(self._unforced):
            try:
                partition.flush()
            except StreambenchError as error:
                self._failed = error
                raise
            del self._unforced[partition]

    def append_all(self) -> None:
        """Append what waits for any partition, and what was handed over by ``appends``."""
        self._require_intact()
        self._append_full()
        for pending in list(self._waiting):
            self.append_pending(pending)
        self.due = float("inf")

    def start_linger(self, pending: _Pending) -> None:
        """Note that messages wait for a partition; ``linger.ms`` begin now, unless they have begun."""
        if pending not in self._waiting:
            self._waiting[pending] = None
            self.due = min(self.due, monotonic() + self._linger)

    def append_pending(self, pending: _Pending) -> None:
        """Append what waits for one partition."""
        self._waiting.pop(pending, None)
        try:
            batches = pending.append_everything()
        except BaseException as error:
            self._failed = error
            raise
        self._unforced[pending.partition] = None
        self._batches.inc(batches)

    def _require_intact(self) -> None:
        """Raise StreamSystemError where an earlier write failed."""
        if self._failed is not None:
            what = described(self._failed)
            raise StreamSystemError(
                f"{self._system}: an earlier write failed, not all is there: {what}"
            ) from self._failed

    def _pending(self, source: str, stream: SystemStream, number: int) -> _Pending:
        """The buffer of a source's messages for a partition: with all others, unless the partition is
        fenced for the source."""
        partition = self._log.partition(stream.stream, number)
        identity = self._fenced.get((source, partition))
        key = (partition, identity)
        if key not in self._pendings:
            self._pendings[key] = _Pending(self, stream, partition, identity)
        return self._pendings[key]

    def _check_sizes(
        self, partition: Partition, size: int, keys: pa.Array, values: pa.Array, headers: pa.MapArray
    ) -> None:
        limit = self.check.largest
        if size > limit and (largest := longest_message(keys, values, headers)) > limit:
            raise self.check.too_large(partition.name, largest)


def _piece(keys: Any, values: Any, timestamps: Any, headers: Any) -> pa.RecordBatch:
    """Single messages by the column."""
    times = pa.nulls(len(values), pa.int64()) if timestamps is None else int64_column(timestamps)
    kind = SCHEMA.field("headers").type
    named = pa.nulls(len(values), kind)
    if headers is not None:
        named = pa.array([None if each is None else list(each.items()) for each in headers], kind)
    arrays = [binary_column(keys), binary_column(values), times, named]
    return pa.RecordBatch.from_arrays(arrays, names=["key", "message", "timestamp", "headers"])
