"""Arrow arrays of few values, made without pandas.

The first time pyarrow converts a Python object it imports pandas, if that is installed, which takes a
second. Few values are therefore put into buffers by hand. Many go through a builder of pyarrow, once there
are enough of them to pay for the import.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa
import pyarrow.compute as pc

FEW = 256
"""Up to so many values it pays."""


_BUILT_AT_MOST = 2_000_000

_built = 0


def binary_column(values: Sequence[bytes | None]) -> pa.Array:
    """An array of binary of any length; None becomes null."""
    global _built
    if len(values) <= FEW:
        return binaries(values)
    if "pandas" in sys.modules or _built >= _BUILT_AT_MOST:
        return pa.array(values, pa.binary())
    _built += len(values)
    builder = pa.lib.StringBuilder()
    builder.append_values(values)
    return builder.finish().view(pa.binary())


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
    known = pa.py_buffer(bytes(each is not None for each in values))
    is_known = pa.Array.from_buffers(pa.uint8(), len(values), [None, known]).cast(pa.bool_())
    return pc.if_else(is_known, numbers, pa.nulls(len(values), pa.int64()))


def int64s(values: Iterable[int]) -> pa.Array:
    """An array of int64."""
    buffer = array("q", values)
    return pa.Array.from_buffers(pa.int64(), len(buffer), [None, pa.py_buffer(buffer)], 0)


def binaries(values: Sequence[bytes | None]) -> pa.Array:
    """An array of binary; None becomes null."""
    validity, nulls = None, 0
    data: Sequence[bytes] = [b"" if value is None else value for value in values]
    if None in values:
        bits = sum(1 << at for at, value in enumerate(values) if value is not None)
        validity = pa.py_buffer(bits.to_bytes((len(values) + 7) // 8, "little"))
        nulls = sum(value is None for value in values)
    ends = array("i", accumulate(map(len, data), initial=0))
    return pa.Array.from_buffers(
        pa.binary(), len(values), [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(data))], nulls
    )
