"""The producer of a log: gathers messages per partition and appends them as batches."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

import pyarrow as pa

from streambench.errors import MessageTooLargeError, SerdeError, StreambenchError, StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.api import SystemProducer
from streambench.system.log.partition import Bytes, Partition, as_columns
from streambench.system.log.streams import Log

# Messages held as objects, in all: what serialisers return may keep far more memory than its length, so it is copied out soon.
_LOOSE = 16_384


class _Identity:
    """Who a source writes as, where the partitions may be fenced against it."""

    __slots__ = ("epoch", "generation", "producer")

    def __init__(self, producer: str, generation: int, epoch: int) -> None:
        self.producer = producer
        self.generation = generation
        self.epoch = epoch


class _Pending:
    """What waits to be appended to one partition."""

    __slots__ = ("bytes", "columns", "headers", "identity", "keys", "newest", "partition", "rows", "timestamps", "values", "with_headers")

    def __init__(self, partition: Partition, identity: _Identity | None) -> None:
        self.partition = partition
        self.identity = identity
        self.keys: list[bytes | None] = []
        self.values: list[bytes | None] = []
        self.timestamps: list[int | None] = []
        self.headers: list[Mapping[str, bytes] | None] = []
        self.with_headers = False
        self.columns: list[pa.RecordBatch] = []
        self.newest = 0
        self.rows = 0
        self.bytes = 0

    def pack(self) -> None:
        """Copy the loose messages into columns."""
        if self.values:
            columns, newest = as_columns(self.keys, self.values, self.timestamps, self.headers if self.with_headers else None)
            self.keys, self.values, self.timestamps, self.headers = [], [], [], []
            self.with_headers = False
            self.columns.append(columns)
            self.newest = max(self.newest, newest)
            self.rows += columns.num_rows

    def append(self) -> None:
        """Append everything as one batch. What cannot be appended is gone; the error says so to whoever sent it."""
        self.pack()
        columns, newest, identity = self.columns, self.newest, self.identity
        self.columns, self.newest, self.rows, self.bytes = [], 0, 0, 0
        if columns:
            batch = columns[0] if len(columns) == 1 else pa.concat_batches(columns)
            if identity is None:
                self.partition.append_columns(batch, newest)
            else:
                self.partition.append_columns(
                    batch, newest, producer=identity.producer, generation=identity.generation, epoch=identity.epoch
                )


class LogProducer(SystemProducer):
    """Writes to the streams of one log.

    A message is kept back until its partition has ``batch.messages`` or ``batch.bytes`` of them, until ``linger.ms`` are over
    (noticed at the next ``send``), or until ``flush``. What could not be appended raises there, and every later ``flush`` raises again: a
    failed producer must not be taken for one that has written everything.
    """

    def __init__(self, system: str, log: Log, metrics: MetricsRegistry) -> None:
        self._system = system
        self._log = log
        self._settings = log.settings
        self._pending: dict[tuple[SystemStream, int | None, str | None], _Pending] = {}
        self._waiting: dict[_Pending, None] = {}
        self._unforced: dict[Partition, None] = {}
        self._identities: dict[tuple[str, SystemStream, int], _Identity] = {}
        self._loose = 0
        self._linger = self._settings.linger_ms / 1000
        self._due = float("inf")
        self._failed: StreambenchError | None = None
        self._batches = metrics.counter(f"{system}-batches-written", "log")

    def start(self) -> None:
        """Nothing to connect to: a stream is looked for when something is sent to it."""

    def stop(self) -> None:
        self._pending.clear()
        self._waiting.clear()
        self._log.close()

    def register(self, source: str) -> None:
        """Every source is welcome."""

    def fence(self, source: str, partitions: Collection[SystemStreamPartition], generation: int, epoch: int) -> None:
        self._append_all()
        for ssp in partitions:
            self._log.partition(ssp.stream, ssp.partition).fence(source, generation, epoch)
            self._identities[source, ssp.system_stream, ssp.partition] = _Identity(source, generation, epoch)
            self._pending.pop((ssp.system_stream, ssp.partition, source), None)

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        key, value = envelope.key, envelope.message
        place = (envelope.system_stream, envelope.partition, source if self._identities else None)
        pending = self._pending.get(place) or self._open(place)
        if type(key) is bytes:
            size = len(key)
        elif key is None:
            size = 0
        else:
            raise self._not_bytes(envelope.system_stream, "key", key)
        if type(value) is bytes:
            size += len(value)
        elif value is not None:
            raise self._not_bytes(envelope.system_stream, "message", value)
        if envelope.headers:
            size += self._headers_size(envelope)
            pending.with_headers = True
        if size > self._settings.max_message_bytes:
            raise MessageTooLargeError(
                f"{pending.partition.name}: a message of {size} bytes is larger than systems.{self._system}.max.message.bytes="
                f"{self._settings.max_message_bytes}; nothing of it was written. Raise the limit, or send less at once"
            )
        pending.keys.append(key)
        pending.values.append(value)
        pending.timestamps.append(envelope.timestamp)
        pending.headers.append(envelope.headers)
        pending.bytes += size
        self._loose += 1
        now = time.monotonic()
        if len(pending.values) == 1:
            self._waiting[pending] = None
            if now + self._linger < self._due:
                self._due = now + self._linger
        if pending.bytes >= self._settings.batch_bytes or pending.rows + len(pending.values) >= self._settings.batch_messages:
            self._append(pending)
        elif now >= self._due:
            self._append_all()
        elif self._loose >= _LOOSE:
            self._pack_all()

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
        rows = max(1, min(columns.num_rows, self._settings.batch_bytes * max(1, columns.num_rows) // max(1, columns.nbytes)))
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
        self._loose -= len(pending.values)
        try:
            pending.append()
        except StreambenchError as error:
            self._failed = error
            raise
        self._unforced[pending.partition] = None
        self._batches.inc()

    def _pack_all(self) -> None:
        for pending in self._waiting:
            pending.pack()
        self._loose = 0

    def _open(self, place: tuple[SystemStream, int | None, str | None]) -> _Pending:
        stream, number, source = place
        opened = self._log.stream(stream.stream)
        if number is None and opened.partitions > 1:
            raise StreamSystemError(f"{stream}: a message must say which of the {opened.partitions} partitions it goes to")
        identity = self._identities.get((source, stream, number)) if source is not None and number is not None else None
        if source is not None and identity is None:
            # Who is not known here by name, writes together with all others.
            pending = self._pending.get((stream, number, None)) or self._open((stream, number, None))
        else:
            pending = _Pending(opened.partition(number or 0), identity)
        self._pending[place] = pending
        return pending

    def _not_bytes(self, stream: SystemStream, what: str, value: object) -> SerdeError:
        setting = "samza.key.serde" if what == "key" else "samza.msg.serde"
        return SerdeError(
            f"{stream}: a {what} that goes to a log must be bytes, not {type(value).__name__}; set systems.{stream.system}.{setting} "
            f"or systems.{stream.system}.streams.{stream.stream}.{setting}, to json for example"
        )

    def _headers_size(self, envelope: OutgoingMessageEnvelope) -> int:
        size = 0
        for name, value in (envelope.headers or {}).items():
            if type(name) is not str or type(value) is not bytes:
                raise SerdeError(f"{envelope.system_stream}: the header '{name}' must map a name to bytes, not to {type(value).__name__}")
            size += len(name) + len(value)
        return size

    def _check_sizes(self, partition: Partition, columns: pa.RecordBatch) -> None:
        limit = self._settings.max_message_bytes
        if columns.nbytes > limit:
            import pyarrow.compute as pc

            lengths = pc.add(pc.fill_null(pc.binary_length(columns["key"]), 0), pc.fill_null(pc.binary_length(columns["value"]), 0))
            largest = pc.max(lengths).as_py() or 0
            if largest > limit:
                raise MessageTooLargeError(
                    f"{partition.name}: a message of {largest} bytes is larger than systems.{self._system}.max.message.bytes={limit}; "
                    "nothing was written. Raise the limit, or send less at once"
                )
