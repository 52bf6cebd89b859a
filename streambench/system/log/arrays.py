"""Arrow arrays, made without pandas.

The first time pyarrow converts a Python object it imports pandas, if that is installed, which takes a
second. A number that fills nulls is one, too. Values are therefore put into buffers here: few by hand, many
by numpy.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any, cast

import pyarrow as pa
import pyarrow.compute as pc

FEW = 256
"""Up to so many values it is quicker by hand."""


def binary_column(values: Sequence[bytes | None]) -> pa.Array:
    """An array of binary of any length; None becomes null."""
    if len(values) <= FEW:
        return binaries(values)
    import numpy as np

    data, validity, missing = _without_none(values)
    joined = b"".join(data)
    if len(joined) >= 1 << 31:  # more than one array of binary holds: pyarrow decides
        return pa.array(values, pa.binary())
    ends = np.zeros(len(data) + 1, np.int32)
    np.cumsum(np.fromiter(map(len, data), np.int32, len(data)), out=ends[1:])
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(data), buffers, missing)


def int64_column(values: Sequence[int | None]) -> pa.Array:
    """An array of int64 of any length; None becomes null. Raises what pyarrow raises for other values."""
    if "pandas" in sys.modules:
        return pa.array(values, pa.int64())
    missing = values.count(None)
    if missing == len(values):
        return pa.nulls(missing, pa.int64())
    try:
        numbers = int64s([0 if each is None else each for each in values])
    except (TypeError, OverflowError):
        return pa.array(values, pa.int64())
    if not missing:
        return numbers
    is_known = _known(values)
    return pc.if_else(is_known, numbers, pa.nulls(len(values), pa.int64()))


def int64s(values: Iterable[int]) -> pa.Array:
    """An array of int64."""
    buffer = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(buffer), [None, pa.py_buffer(buffer)], 0)


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """An array of binary of few values; None becomes null."""
    data, validity, missing = _without_none(values)
    ends = array("i", accumulate(map(len, data), initial=0))
    buffers = [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(data))]
    return pa.Array.from_buffers(pa.binary(), len(data), buffers, missing)


def _without_none(values: Sequence[bytes | None]) -> tuple[Sequence[bytes], pa.Buffer | None, int]:
    """The values with nothing for None, the bits of those that are not None, and the number of those that
    are."""
    if None not in values:
        return cast(Sequence[bytes], values), None, 0
    data = [b"" if value is None else value for value in values]
    return data, _known(values).buffers()[1], values.count(None)


def _known(values: Sequence[object]) -> pa.BooleanArray:
    """False where a value is None."""
    known = pa.py_buffer(bytes(each is not None for each in values))
    return pa.Array.from_buffers(pa.uint8(), len(values), [None, known]).cast(pa.bool_())


def slices(columns: pa.RecordBatch | pa.Table, messages: int, size: int) -> Iterator[Any]:
    """The columns in slices of at most so many messages and about so many bytes."""
    rows = max(1, min(messages, size * max(1, columns.num_rows) // max(1, columns.nbytes)))
    return (columns.slice(at, rows) for at in range(0, columns.num_rows, rows))


def as_one(batches: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
    """Batches with the same columns as one."""
    one, *more = batches
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0] if more else one


def longest_message(keys: pa.Array, values: pa.Array, headers: pa.MapArray) -> int:
    """The bytes of the largest message, with its key and its headers."""
    sizes = pc.add(_lengths(keys), _lengths(values))
    if headers.null_count < len(headers):
        sizes = pc.add(sizes, _header_bytes(headers))
    return int(pc.max(sizes).as_py() or 0)


def _lengths(values: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(values).cast(pa.int64()), int64s([0])[0])


def _header_bytes(headers: pa.MapArray) -> pa.Array:
    """The bytes of the names and values of each row."""
    single = pc.add(_lengths(headers.keys), _lengths(headers.items))
    before = pa.concat_arrays([int64s([0]), pc.cumulative_sum(single)])
    offsets = headers.offsets
    return pc.subtract(before.take(offsets[1:]), before.take(offsets[:-1]))
