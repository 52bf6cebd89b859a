"""The layout of a DataFrame: from messages as they were read to Arrow batches with the columns of its schema.

Nothing is done message by message where bytes are only passed on, taken for text, or parsed as JSON objects.
Constants are put into buffers. The first Python object that pyarrow converts makes it import pandas, which
costs a task of Spark more than all its messages.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from inspect import signature
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streambench.batch import MessageBatch
from streambench.chunk import Messages
from streambench.config import Config
from streambench.errors import ConfigError, SerdeError, described, shortened
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.formats import format_of
from streambench.serde.streams import StreamSerdes, undecodable
from streambench.spark.source.options import METADATA
from streambench.suggestions import suggest_or_list

_OF_FORMATS: dict[str, DataType] = {
    "string": StringType(),
    "json": StringType(),
    "integer": IntegerType(),
    "long": LongType(),
    "double": DoubleType(),
}
# Spark has code for NULL, row by row, in columns that may have it.
_NEVER_NULL = frozenset({"partition", "offset"})

TEXT_FORMATS = ("string", "json", "bytes", "")
"""The names of the bytes that STRING stands for as they are."""

# PySpark 4.1 takes no time zone there: it is always UTC.
_IN_UTC: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}


class StreamFormat(Struct, frozen=True):
    """The serdes of keys and of messages, and the names of the bytes that they write; empty without a
    serde."""

    serdes: tuple[Serde | None, Serde | None]
    formats: tuple[str, ...]

    @classmethod
    def of(cls, config: Config, stream: SystemStream) -> StreamFormat:
        """Those of a stream. Raises ConfigError."""
        known = StreamSerdes(config)
        serdes = known.for_stream(stream)
        formats = [
            "" if serde is None or name is None else format_of(config, name, serde).partition(" ")[0]
            for name, serde in zip(known.names_for(stream), serdes, strict=True)
        ]
        return cls(serdes, tuple(formats))


def column_type(format: str) -> DataType:
    """The type of a column of keys or messages whose bytes have this name."""
    return _OF_FORMATS.get(format, BinaryType())


def default_schema(format: StreamFormat, numbers: bool, columns: Sequence[str] | None) -> StructType:
    """The schema of a stream of which none is given: ``columns``, or all. ``numbers``: offsets are whole
    numbers."""
    key, message = map(column_type, format.formats)
    kinds: dict[str, DataType] = {
        "key": key,
        "message": message,
        "partition": IntegerType(),
        "offset": LongType() if numbers else StringType(),
        "timestamp": TimestampType(),
        "headers": MapType(StringType(), BinaryType()),
    }
    names = METADATA if columns is None else columns
    return StructType([StructField(name, kinds[name], name not in _NEVER_NULL) for name in names])


class Layout:
    """The columns of a DataFrame. ``metadata``: those of its schema that are no fields of the message."""

    def __init__(
        self, schema: StructType, metadata: Sequence[str], format: StreamFormat, stream: SystemStream
    ) -> None:
        """Raises ConfigError where the schema lacks a column that is to be metadata."""
        for name in metadata:
            if name not in schema.names:
                hint = suggest_or_list(name, schema.names)
                raise ConfigError(
                    f"option columns: '{name}' is not in the schema of {stream}; {hint}", key="columns"
                )
        self._schema = to_arrow_schema(schema, **_IN_UTC)
        self._metadata = frozenset(metadata)
        self._fields = [field for field in self._schema if field.name not in self._metadata]
        self._format = format
        self._stream = stream

    def batch(self, pieces: Sequence[Messages]) -> pa.RecordBatch:
        """The rows of consecutive messages of one partition. Raises SerdeError that names the offset."""
        messages = MessageBatch(pieces, *self._format.serdes)
        read = messages.to_arrow()
        columns = {name: self._metadata_column(name, messages, read) for name in self._metadata}
        if self._fields:
            fields = messages.table(schema=pa.schema(self._fields)).combine_chunks()
            columns |= {field.name: self._cast(messages, field, fields) for field in self._fields}
        arrays = [_whole(columns[field.name]) for field in self._schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)

    def _metadata_column(self, name: str, messages: MessageBatch, read: pa.RecordBatch) -> Any:
        kind = self._schema.field(name).type
        if name == "partition":
            numbers = array("i", [messages.ssp.partition]) * len(messages)
            column = pa.Array.from_buffers(pa.int32(), len(numbers), [None, pa.py_buffer(numbers)])
            return self._castable(name, column, kind)
        column = read.column(name)
        if name in ("key", "message"):
            at = ("key", "message").index(name)
            return self._decoded(messages, name, column, kind, self._format.serdes[at])
        if name == "timestamp" and pa.types.is_timestamp(kind):
            column = column.cast(pa.timestamp("ms", kind.tz))
        return self._castable(name, column, kind)

    def _decoded(
        self, messages: MessageBatch, name: str, column: pa.Array, kind: pa.DataType, serde: Serde | None
    ) -> pa.Array:
        if column.type == kind:
            return column
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return column.cast(kind)
        formats = dict(zip(("key", "message"), self._format.formats, strict=True))
        if pa.types.is_string(kind) and formats[name] in TEXT_FORMATS and pa.types.is_binary(column.type):
            try:
                return column.cast(kind)
            except pa.ArrowInvalid as error:
                raise self._no_text(messages, name, error) from None
        values = [None if value is None else self._value(serde, value) for value in column.to_pylist()]
        return self._castable(name, pa.array(values), kind)

    @staticmethod
    def _value(serde: Serde | None, value: Any) -> Any:
        return value if serde is None else serde.from_bytes(value)

    def _castable(self, name: str, column: pa.Array, kind: pa.DataType) -> pa.Array:
        if column.type == kind:
            return column
        try:
            return column.cast(kind)
        except pa.ArrowException as error:
            raise SerdeError(
                f"{self._stream}: the column '{name}' is {column.type} and cannot become {kind} ({error}): "
                "leave the schema out, or give the column another type"
            ) from None

    def _cast(self, messages: MessageBatch, field: pa.Field, table: pa.Table) -> Any:
        try:
            return table.column(field.name).cast(field.type)
        except pa.ArrowException as error:
            raise SerdeError(f"{messages}: the field '{field.name}' is no {field.type} ({error})") from None

    def _no_text(self, messages: MessageBatch, name: str, cause: Exception) -> SerdeError:
        """The error for the first message that is not UTF-8."""
        serde = self._format.serdes[("key", "message").index(name)]
        for raw in messages.raw():
            try:
                (raw.key if name == "key" else raw.message or b"").decode()
            except UnicodeDecodeError as error:
                return undecodable(raw, name, serde, error)
        return SerdeError(f"{messages}: {shortened(described(cause))}")


def _whole(column: Any) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
