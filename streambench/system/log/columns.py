"""Step 5: the columns of messages as a record batch that has no offsets yet."""

from __future__ import annotations

import time
from array import array
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streambench.errors import SerdeError
from streambench.system.log.arrays import binary_column, int64_column, int64s
from streambench.system.log.frame import SCHEMA
from streambench.system.timestamps import as_milliseconds

Bytes: TypeAlias = Sequence[bytes | None] | pa.Array
"""A column of keys or values: bytes or None, as a list or as an Arrow array of binary."""

_HEADERS = SCHEMA.field("headers").type
_BYTES_OR_NONE = {bytes, type(None)}


def as_columns(
    keys: Bytes | None,
    values: Bytes,
    timestamps: Sequence[int | None] | pa.Array | None = None,
    headers: Sequence[Mapping[str, bytes] | None] | pa.Array | None = None,
    *,
    checked: bool = False,
) -> tuple[pa.RecordBatch, int]:
    """Columns of one length as a batch without offsets, and the largest timestamp. Raises SerdeError for what
    is no such column.

    ``checked``: keys and values are known to be bytes or None."""
    count = len(values)
    given: tuple[tuple[str, Any], ...] = (("keys", keys), ("timestamps", timestamps), ("headers", headers))
    for what, column in given:
        if column is not None and len(column) != count:
            raise SerdeError(f"{count} values cannot be appended with {len(column)} {what}")
    times, newest = _times(timestamps, count)
    columns = [
        times,
        pa.nulls(count, pa.binary()) if keys is None else _binary(keys, "key", checked),
        _binary(values, "value", checked),
        pa.nulls(count, _HEADERS) if headers is None else _headers(headers),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["timestamp", "key", "value", "headers"]), newest


def _times(timestamps: Any, count: int) -> tuple[pa.Array, int]:
    """The timestamps, where there are none the present time; and the largest of them."""
    now = time.time_ns() // 1_000_000
    if timestamps is None:
        return int64s(array("q", [now]) * count), now
    try:
        times = as_milliseconds(timestamps) if isinstance(timestamps, pa.Array) else int64_column(timestamps)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SerdeError(
            f"the timestamp of a message must be a whole number of milliseconds ({error})"
        ) from None
    if times.null_count:
        times = times.fill_null(int64s([now])[0])
    return times, pc.max(times).as_py() or 0


def _binary(column: Any, what: str, checked: bool) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        return column if column.type == pa.binary() else column.cast(pa.binary())
    if not checked:
        # Arrow would take str and others for bytes without a word; the set of types is small and quickly
        # made.
        wrong = set(map(type, column)) - _BYTES_OR_NONE
        if wrong:
            raise SerdeError(f"a {what} of a log must be bytes or None, not {wrong.pop().__name__}")
    return binary_column(column)


def _headers(headers: Sequence[Mapping[str, bytes] | None] | pa.Array) -> pa.Array:
    if isinstance(headers, pa.Array):
        return headers if headers.type == _HEADERS else headers.cast(_HEADERS)
    wrong = {type(value) for header in headers if header for value in header.values()} - {bytes}
    if wrong:
        raise SerdeError(f"the headers of a message must map names to bytes, not to {wrong.pop().__name__}")
    return pa.array([None if header is None else list(header.items()) for header in headers], _HEADERS)
