"""DataFrames as messages: one dict per row, with every value as it is."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from streambench.debug.streams.errors import ByHandError


def is_frame(value: Any) -> bool:
    """A DataFrame of pandas or polars."""
    return hasattr(value, "columns") and (hasattr(value, "to_dicts") or hasattr(value, "iterrows"))


def is_series(value: Any) -> bool:
    """A Series or index of pandas, a Series of polars, or an array of Arrow."""
    kind = type(value)
    return isinstance(value, (pa.Array, pa.ChunkedArray)) or (
        kind.__module__.startswith(("pandas.", "polars.")) and hasattr(value, "to_list")
    )


def rows_of(frame: Any) -> list[dict[str, Any]]:
    """The rows of a DataFrame of pandas or polars, or of a table of Arrow: a column's name to the value, in
    Python's own types. An index that has a name is a column; one without is left out.

    Numbers keep all their digits, decimals stay decimals. Times and durations become ISO 8601 text, with as
    many digits as they have, up to nanoseconds. None, null, NaT and NA become None, and so does a NaN in a
    column of pandas, where it stands for what is missing. Another NaN stays, and so do infinities: the
    stream's serde decides (JSON refuses them). A column of whole numbers with gaps that pandas has made
    floats holds floats. Raises ByHandError for names that are no text or stand twice, and for values that
    Python cannot hold.
    """
    if hasattr(frame, "collect"):
        raise ByHandError("a LazyFrame has no rows yet: send frame.collect()")
    frame = _with_index(frame)
    names = list(frame.column_names if isinstance(frame, (pa.Table, pa.RecordBatch)) else frame.columns)
    wrong = next((name for name in names if not isinstance(name, str)), None)
    if wrong is not None:
        to_text = "frame.columns = ['_'.join(map(str, each)) for each in frame.columns]"
        rename = to_text if isinstance(wrong, tuple) else "frame.rename(columns=str)"
        raise ByHandError(f"the column {wrong!r} has a name that is no text; rename it: {rename}")
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ByHandError(f"two columns are named '{twice}': one of them would be lost; rename it")
    columns = [_column(frame, at, name) for at, name in enumerate(names)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def values_of(series: Any) -> list[Any]:
    """The values of a Series or an array, as those of a column. Raises ByHandError for those that Python
    cannot hold."""
    try:
        return _values(series)
    except ValueError as error:
        raise ByHandError(f"it holds what Python cannot ({error}); cast it") from error


def _values(series: Any) -> list[Any]:
    if isinstance(series, (pa.Array, pa.ChunkedArray)):
        return _of_arrow(series)
    if type(series).__module__.startswith("polars."):
        # Polars itself would cut times to microseconds.
        fine = "'ns'" in str(series.dtype) or "Time" in re.findall(r"\w+", str(series.dtype))
        return _of_arrow(series.to_arrow()) if fine else [_plain(each) for each in series.to_list()]
    if "time64[ns]" in str(series.dtype):
        return _of_arrow(pa.array(series))
    return [_missing_to_none(each) for each in series.tolist()]


def _with_index(frame: Any) -> Any:
    """A DataFrame of pandas with its index as columns, if that has a name: then it holds data."""
    if not hasattr(frame, "iterrows") or all(name is None for name in frame.index.names):
        return frame
    try:
        return frame.reset_index()
    except ValueError as error:
        raise ByHandError(f"the index is named as a column is ({error}); rename one of them") from error


def _column(frame: Any, at: int, name: str) -> list[Any]:
    try:
        if isinstance(frame, (pa.Table, pa.RecordBatch)):
            return _values(frame.column(at))
        return _values(frame.get_column(name) if hasattr(frame, "to_dicts") else frame.iloc[:, at])
    except ValueError as error:
        raise ByHandError(f"the column '{name}' holds what Python cannot ({error}); cast it") from error


def _of_arrow(column: Any) -> list[Any]:
    if "time64[ns]" in str(column.type):
        # Python's have microseconds, to which pyarrow would cut them; the cast refuses that.
        if column.type != pa.time64("ns"):
            raise ValueError("times of nanoseconds, nested")
        column = column.cast(pa.time64("us"))
    return [_plain(each) for each in column.to_pylist()]


def _missing_to_none(value: Any) -> Any:
    """A value of pandas, for which NaN and NaT are what is missing."""
    return None if isinstance(value, float) and math.isnan(value) else _plain(value)


def _plain(value: Any) -> Any:
    """A value in Python's own types: numpy's numbers and arrays, and the times of pandas, are others."""
    kind = type(value)
    if kind in (str, int, float, bool, type(None)):
        return value
    if kind.__name__ in ("NaTType", "NAType"):
        return None
    if isinstance(value, dt.timedelta):
        return _duration(value)
    if isinstance(value, (dt.datetime, dt.date, dt.time)):
        return value.isoformat()
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if kind.__module__ == "numpy":
        return _of_numpy(value)
    if kind.__name__ in ("Period", "Interval"):
        return str(value)
    return value


def _duration(value: dt.timedelta) -> str:
    """As ISO 8601, in the form that pandas gives it."""
    minutes, seconds = divmod(value.seconds, 60)
    fraction = f"{value.microseconds:06d}{getattr(value, 'nanoseconds', 0):03d}".rstrip("0")
    return f"P{value.days}DT{minutes // 60}H{minutes % 60}M{seconds}{f'.{fraction}' if fraction else ''}S"


def _of_numpy(value: Any) -> Any:
    name = type(value).__name__
    if name == "datetime64":
        import pandas as pd

        return _plain(pd.Timestamp(value))
    if name == "timedelta64":
        import pandas as pd

        return _plain(pd.Timedelta(value))
    if name == "float32":
        return float(value)
    if hasattr(value, "tolist"):
        plain = value.tolist()
        return plain if type(plain) is type(value) else _plain(plain)
    return value
