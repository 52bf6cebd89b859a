"""Arrow arrays of few values, made without pandas.

The first time pyarrow converts a Python object it imports pandas, if that is installed: a second in which a command line, a Spark worker
or a notebook
does nothing. Few values are therefore put into buffers by hand; for many, pyarrow is several times faster.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Sequence
from itertools import accumulate

import pyarrow as pa

FEW = 256
"""Up to so many values it pays."""


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
    return pa.Array.from_buffers(pa.binary(), len(values), [validity, pa.py_buffer(ends), pa.py_buffer(b"".join(data))], nulls)
