"""The writers of a stream: tasks encode their rows, and what becomes visible is decided on the driver.

To a system that stages (``capabilities.StagedWrites``: a log), tasks write nothing that a reader could see.
They stage their messages, and the commit appends those of the attempts that succeeded. Of a streaming query
each micro-batch is a step under the query's id, so that one which Spark repeats is appended once. To a system
with transactions (``capabilities.NamedWrites``) tasks pass their messages to the driver. Its commit writes
them and the number of the step in one transaction. To other systems tasks send at once, and flush before they
end. What a task had sent when it failed is sent again by the next attempt.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, suppress
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from streambench.container.outputs.outgoing_batch import ColumnarWriter, OutgoingBatch, RowReport
from streambench.errors import (
    ConfigError,
    MessageTooLargeError,
    SerdeError,
    StreamSystemError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.process_identity import ancestor
from streambench.spark.source.encoding import Encoding
from streambench.spark.source.handed_rows import HandedRows, unpacked
from streambench.spark.source.layout import StreamFormat
from streambench.spark.source.options import StreamOptions
from streambench.spark.source.ranges import check_reachable
from streambench.system.api import SendColumns, row_by_row
from streambench.system.capabilities import Columnar, NamedWrite, NamedWrites, StagedWrite, StagedWrites
from streambench.system.systems import Systems, kind_name

_QUERY, _BATCH = "sql.streaming.queryId", "streaming.sql.batchId"
_SOURCE = "spark"


class Written(WriterCommitMessage):
    """The outcome of one task.

    It is what it staged, under the name of the write; what it passes to the driver, by partition; or how much
    it sent."""

    def __init__(
        self,
        write: str,
        files: Sequence[Any],
        messages: int,
        handed: Mapping[int, bytes] | None = None,
    ) -> None:
        self.write = write
        self.files = files
        self.messages = messages
        self.handed = handed or {}


Messages = Sequence[WriterCommitMessage | None]


class StreamWriting:
    """Writing rows to a stream, and committing what was staged of them."""

    def __init__(self, options: StreamOptions, schema: StructType, *, overwrite: bool) -> None:
        """Raises ConfigError and UnknownStreamError: on the driver, before a task starts."""
        self._options = options
        self._stream = stream = options.required_stream()
        self._schema = schema
        if overwrite:
            raise ConfigError(f'{stream}: a stream is only appended to: use mode("append")')
        check_reachable(options.config, stream)
        self._encoding()
        with closing(Systems(options.config)) as systems:
            factory = systems.factory(stream.system)
            self._is_staged = isinstance(factory, StagedWrites)
            self._is_transactional = isinstance(factory, NamedWrites)
            self._check_guarantee()
            self._partitions = systems.created(stream)

    def run(self, rows: Iterator[pa.RecordBatch], write: str, step: int, task: int) -> Written:
        """Write the rows of one task: stage them for a step of a write, or send them."""
        if self._is_staged:
            with self._staged(write) as staged:
                files = staged.stage(step)
                try:
                    messages = self._send(
                        rows, lambda source, number, columns: files.write(number, columns), task
                    )
                except BaseException:
                    if not write.startswith(_ANONYMOUS):  # such a one is removed as a whole
                        with suppress(OSError, StreamSystemError):
                            staged.discard(step, files.close())
                    raise
                return Written(write, files.close(), messages)
        if self._is_handed(write):
            handed = HandedRows()
            messages = self._send(rows, handed.send, task)
            return Written(write, (), messages, handed.packed())
        systems = Systems(self._options.config)
        producer = systems.producer(self._stream.system, MetricsRegistry())
        try:
            producer.register(_SOURCE)
            producer.start()
            send = (
                producer.sender_of_columns(self._stream)
                if isinstance(producer, Columnar)
                else row_by_row(self._stream, producer.sender(self._stream))
            )
            messages = self._send(rows, send, task)
            producer.flush(_SOURCE)
        finally:
            producer.stop()
            systems.close()
        return Written(write, (), messages)

    def commit(self, messages: Messages, step: int) -> None:
        """Append what the tasks staged for a step, in the order of the tasks."""
        done = [each for each in messages if isinstance(each, Written)]
        if self._is_staged and done:
            with self._staged(done[0].write) as staged:
                staged.commit(step, _files(messages))
        elif done and self._is_handed(done[0].write):
            with closing(self._named_write(done[0].write)) as named:
                named.commit(step, unpacked(self._stream, [each.handed for each in done]))

    def begin(self, write: str) -> None:
        """Have a place for what tasks stage. Raises ConfigError where a write without a name, as this one,
        is not made exactly once."""
        if self._is_transactional and self._options.guarantee == _EXACTLY_ONCE and not self._is_handed(write):
            raise ConfigError(
                f"option guarantee: without a name {self._stream} is written at least once, since tasks send "
                f"at once: name the write, with the option writeId, or set {_AT_LEAST_ONCE}",
                key="guarantee",
            )
        if self._is_staged:
            with self._staged(write) as staged:
                # This process itself lives no longer than the call.
                staged.begin(ancestor("java"))

    def abort(self, write: str, step: int, messages: Messages) -> None:
        """Remove what these tasks staged for a step, unless its commit is decided."""
        if self._is_staged:
            with self._staged(write) as staged:
                staged.discard(step, _files(messages))

    def _is_handed(self, write: str) -> bool:
        """True where the driver writes what tasks hand to it."""
        is_named = not write.startswith(_ANONYMOUS)
        return self._is_transactional and is_named and self._options.guarantee != _AT_LEAST_ONCE

    def _named_write(self, name: str) -> NamedWrite:
        """The write of a query, for one commit: Spark makes a writer for each."""
        factory = Systems(self._options.config).factory(self._stream.system)
        assert isinstance(factory, NamedWrites)
        # Two streams that are written under one name are two writes.
        whole = f"{self._stream.stream} {name}"
        return factory.get_named_write(self._stream.system, self._options.config, whole)

    def _check_guarantee(self) -> None:
        wanted, kind = self._options.guarantee, kind_name(self._options.config, self._stream.system)
        if wanted == _EXACTLY_ONCE and not (self._is_staged or self._is_transactional):
            raise ConfigError(
                f"option guarantee: a system of the kind {kind} has no transactions, and {self._stream} is "
                f"written at least once: leave the option out, or set {_AT_LEAST_ONCE}",
                key="guarantee",
            )
        if wanted == _AT_LEAST_ONCE and self._is_staged:
            raise ConfigError(
                f"option guarantee: a log is always written exactly once: leave the option out for "
                f"{self._stream}",
                key="guarantee",
            )

    def _staged(self, write: str) -> AbstractContextManager[StagedWrite]:
        system, once = self._stream.system, not write.startswith(_ANONYMOUS)
        factory = Systems(self._options.config).factory(system)
        assert isinstance(factory, StagedWrites)
        return factory.staged_write(system, self._options.config, self._stream.stream, write, once=once)

    def _send(self, rows: Iterator[pa.RecordBatch], send: SendColumns, task: int) -> int:
        encoding, count, partitions = self._encoding(), 0, self._partitions

        def shifted(source: str, number: int, columns: pa.RecordBatch) -> None:
            """Have each task begin with another partition, where neither key nor partition decides."""
            send(source, (number + task) % partitions, columns)

        put = _writer(self._stream, send, partitions)
        put_shifted = _writer(self._stream, shifted, partitions)
        for batch in rows:
            if batch.num_rows:
                messages = encoding.batch(batch)
                is_keyless = messages.keys is None and messages.partitions is None
                (put_shifted if is_keyless else put)(_SOURCE, messages)
                count += batch.num_rows
        return count

    def _encoding(self) -> Encoding:
        format = StreamFormat.of(self._options.config, self._stream)
        return Encoding(self._schema, self._options.columns, format, self._stream)


_ANONYMOUS = "unnamed-"
_AT_LEAST_ONCE, _EXACTLY_ONCE = "at-least-once", "exactly-once"


class BatchWriter(DataSourceArrowWriter):
    """``df.write``: all of it, or nothing. With the option ``writeId`` also only once, however often it is
    repeated."""

    def __init__(self, options: StreamOptions, schema: StructType, overwrite: bool) -> None:
        self._writing = StreamWriting(options, schema, overwrite=overwrite)
        self._write = options.write_id or f"{_ANONYMOUS}{uuid.uuid4().hex}"
        if not options.write_id:
            self._writing.begin(self._write)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._writing.run(iterator, self._write, 0, _task().partitionId())

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        if messages:
            self._writing.commit(messages, 0)
        else:
            self._writing.abort(self._write, 0, messages)  # a frame without partitions

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        self._writing.abort(self._write, 0, messages)


class StreamingWriter(DataSourceStreamArrowWriter):
    """``df.writeStream``: each micro-batch once, under the id of the query, which Spark keeps with its
    checkpoint."""

    def __init__(self, options: StreamOptions, schema: StructType, overwrite: bool) -> None:
        self._writing = StreamWriting(options, schema, overwrite=overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        query, batch = task.getLocalProperty(_QUERY), task.getLocalProperty(_BATCH)
        if not query or not batch:
            raise StreamSystemError(f"Spark names no query and no batch in its tasks ({_QUERY}, {_BATCH})")
        return self._writing.run(iterator, query, int(batch), task.partitionId())

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self._writing.commit(messages, batchId)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        # The name of the query is in what its tasks return alone.
        for write in {each.write for each in messages if isinstance(each, Written)}:
            self._writing.abort(write, batchId, messages)


def _files(messages: Messages) -> list[Any]:
    """The files that tasks staged, in the order of the tasks."""
    return [file for each in messages if isinstance(each, Written) for file in each.files]


def _task() -> Any:
    from pyspark import TaskContext

    return TaskContext.get()


def _writer(stream: SystemStream, send: SendColumns, partitions: int) -> Callable[[str, OutgoingBatch], None]:
    return ColumnarWriter(stream, send, _no_single, partitions, None, None, RowReport(_refuse)).put


def _no_single(source: str, envelope: Any) -> None:
    raise AssertionError("messages are encoded before they are sent")


def _refuse(source: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
    if isinstance(error, MessageTooLargeError):
        raise error
    raise SerdeError(f"cannot be written to {envelope.system_stream}: {error}") from error.__cause__
