"""Rows of a DataFrame as messages of a stream: encoded columns, and the partition of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from streambench.container.outputs.outgoing_batch import OutgoingBatch
from streambench.errors import ConfigError, SerdeError, described
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.spark.source.layout import TEXT_FORMATS, StreamFormat
from streambench.spark.source.options import METADATA
from streambench.suggestions import suggest_or_list


class Encoding:
    """The roles of a DataFrame's columns in the messages of a stream.

    ``columns``: those that are no fields of the message. Not given, they are all columns where one of them is
    ``message``, else none. ``offset`` is left out: the stream gives offsets."""

    def __init__(
        self, schema: StructType, columns: Sequence[str] | None, format: StreamFormat, stream: SystemStream
    ) -> None:
        """Raises ConfigError where a column has no role."""
        names = schema.names
        metadata = (names if "message" in names else ()) if columns is None else columns
        wrong = next((name for name in metadata if name not in METADATA or name not in names), None)
        if wrong is not None:
            hint = suggest_or_list(wrong, METADATA if wrong in names else names)
            raise ConfigError(
                f"{stream}: the column '{wrong}' is no part of a message; {hint}. Fields of the message are "
                "those that are not in the option columns, where there is no column 'message'",
                key="columns",
            )
        self._fields = [name for name in names if name not in metadata]
        self._metadata = frozenset(metadata)
        self._format = format
        self._stream = stream
        if "message" in self._metadata and self._fields:
            raise ConfigError(
                f"{stream}: '{self._fields[0]}' would be a field of the message, and there is a column "
                "'message' as well: leave one of them out",
                key="columns",
            )
        if not self._fields and "message" not in self._metadata:
            raise ConfigError(f"{stream}: there is nothing to write: no field and no column 'message'")

    def batch(self, rows: pa.RecordBatch) -> OutgoingBatch:
        """The messages of some rows, encoded. Raises SerdeError that names the column."""
        given = {name: rows.column(name) for name in self._metadata}
        if self._fields:
            objects = rows.select(self._fields).to_pylist()
            messages = self._encoded("message", objects)
        else:
            messages = self._bytes("message", given["message"])
        return OutgoingBatch(
            self._stream,
            messages,
            self._bytes("key", given["key"]) if "key" in given else None,
            partitions=given.get("partition"),
            timestamps=given.get("timestamp"),
            headers=given.get("headers"),
        )

    def _bytes(self, what: str, column: pa.Array) -> pa.Array:
        kind = column.type
        if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
            return column.cast(pa.binary())
        at = ("key", "message").index(what)
        is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
        if is_text and self._format.formats[at] in TEXT_FORMATS:
            return column.cast(pa.binary())
        return self._encoded(what, column.to_pylist())

    def _encoded(self, what: str, values: list[Any]) -> pa.Array:
        at = ("key", "message").index(what)
        serde: Serde | None = self._format.serdes[at]
        if serde is None:
            setting = f"systems.{self._stream.system}.samza.{('key', 'msg')[at]}.serde"
            raise SerdeError(
                f"{self._stream}: a {what} must be BINARY or STRING where the stream has no serde: give it "
                f"one ({setting}=json)"
            )
        encode, found = serde.to_bytes, []
        for value in values:
            try:
                found.append(None if value is None else bytes(encode(value)))
            except Exception as error:
                raise SerdeError(
                    f"{self._stream}: cannot encode this {what}: {described(error)} ({type(serde).__name__} "
                    f"was given {value!r:.200})"
                ) from error
        return pa.array(found, pa.binary())
