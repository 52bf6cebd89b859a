"""DataFrames as messages: no digit is lost, or they are refused."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.debug.streams.errors import ByHandError
from streambench.debug.streams.frames import rows_of

ARROW_TIME = pd.ArrowDtype(pa.time64("ns"))
FINE = 1_700_000_000_123_456_789


def column(frame: Any) -> list[Any]:
    return [row["x"] for row in rows_of(frame)]


@pytest.mark.parametrize(
    ("series", "values"),
    [
        (pd.Series([1e-12, 1 / 3, np.nan]), [1e-12, 1 / 3, None]),
        (pd.Series([1, None, 3]), [1.0, None, 3.0]),
        (pd.Series([2**63 - 1, None], dtype="Int64"), [2**63 - 1, None]),
        (pd.Series([2**64 - 1, 0], dtype="uint64"), [2**64 - 1, 0]),
        (pd.Series([True, None], dtype="boolean"), [True, None]),
        (pd.Series(pd.to_datetime([1, FINE, None])),
         ["1970-01-01T00:00:00.000000001", "2023-11-14T22:13:20.123456789", None]),
        (pd.Series(pd.to_datetime([FINE], utc=True)).dt.tz_convert("Asia/Kolkata"),
         ["2023-11-15T03:43:20.123456789+05:30"]),
        (pd.Series(pd.to_timedelta([5, None, -1])),
         ["P0DT0H0M0.000000005S", None, "P-1DT23H59M59.999999999S"]),
        (pd.Series(pd.Categorical(["a", None])), ["a", None]),
        (pd.Series([Decimal("1.10"), pd.NaT, pd.NA, {"n": np.int64(5)}, np.array([1, 2]),
                    dt.date(2026, 1, 2)]),
         [Decimal("1.10"), None, None, {"n": 5}, [1, 2], "2026-01-02"]),
        (pd.Series([1, None], dtype=pd.ArrowDtype(pa.int64())), [1, None]),
        (pd.Series(pd.period_range("2026-01", periods=1, freq="M")), ["2026-01"]),
        (pl.Series([1, FINE, None], dtype=pl.Int64).cast(pl.Datetime("ns")),
         ["1970-01-01T00:00:00.000000001", "2023-11-14T22:13:20.123456789", None]),
        (pl.Series([[FINE]], dtype=pl.List(pl.Int64)).cast(pl.List(pl.Datetime("ns"))),
         [["2023-11-14T22:13:20.123456789"]]),
        (pl.Series([5], dtype=pl.Int64).cast(pl.Duration("ns")), ["P0DT0H0M0.000000005S"]),
        (pl.Series([dt.timedelta(microseconds=5), None]), ["P0DT0H0M0.000005S", None]),
        (pl.Series([dt.time(1, 2, 3, 4), None]), ["01:02:03.000004", None]),
        (pl.Series([1, None, 2**63 - 1]), [1, None, 2**63 - 1]),
        (pl.Series([2**100], dtype=pl.Int128), [2**100]),
        (pl.Series([Decimal("1.10"), None]), [Decimal("1.10"), None]),
        (pl.Series([{"a": [1, None]}, None]), [{"a": [1, None]}, None]),
        (pl.Series(["a", None], dtype=pl.Categorical), ["a", None]),
    ],
)  # fmt: skip
def test_a_column_keeps_all_its_digits(series: Any, values: list[Any]) -> None:
    frame = pd.DataFrame({"x": series}) if isinstance(series, pd.Series) else pl.DataFrame({"x": series})
    found = column(frame)
    assert found == values
    assert list(map(type, found)) == list(map(type, values))


@given(st.lists(st.floats(allow_nan=False) | st.integers(-(2**53), 2**53) | st.text()))
def test_values_of_python_come_back_as_they_were(values: list[Any]) -> None:
    assert list(map(repr, column(pd.DataFrame({"x": pd.Series(values, dtype=object)})))) == list(
        map(repr, values)
    )
    floats = [float(each) for each in values if not isinstance(each, str)]
    assert list(map(repr, column(pl.DataFrame({"x": pl.Series(floats, dtype=pl.Float64)})))) == list(
        map(repr, floats)
    )


def test_a_nan_of_polars_is_no_null() -> None:
    nan, null = column(pl.DataFrame({"x": [math.nan, None]}))
    assert math.isnan(nan) and null is None


@pytest.mark.parametrize(
    ("frame", "what"),
    [
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "two columns are named 'a'"),
        (pd.DataFrame([[1]]), "the column 0 has a name that is no text"),
        (
            pl.DataFrame({"x": pl.Series([5], dtype=pl.Int64).cast(pl.Time)}),
            "the column 'x' holds what Python cannot",
        ),
        (pa.table({"x": pa.array([5], pa.time64("ns"))}), "the column 'x' holds what Python cannot"),
        (
            pd.DataFrame({"x": pd.Series(pa.array([5], pa.time64("ns")), dtype=ARROW_TIME)}),
            "the column 'x' holds what Python cannot",
        ),
        (pl.LazyFrame({"x": [1]}), r"send frame\.collect\(\)"),
        (
            pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")])),
            r"frame\.columns = \['_'\.join",
        ),
        (pd.DataFrame({"x": [1]}, index=pd.Index([2], name="x")), "the index is named as a column is"),
    ],
)
def test_what_would_be_lost_is_refused(frame: Any, what: str) -> None:
    with pytest.raises(ByHandError, match=what):
        rows_of(frame)


def test_the_remedy_for_names_of_several_parts_works() -> None:
    frame = pd.DataFrame([[1]], columns=pd.MultiIndex.from_tuples([("a", "b")]))
    frame.columns = ["_".join(map(str, each)) for each in frame.columns]
    assert rows_of(frame) == [{"a_b": 1}]


def test_an_index_with_a_name_is_a_column() -> None:
    flights = pd.DataFrame({"origin": ["DTW", "DTW", "LAS"], "delay": [1, 2, 3]})
    assert rows_of(flights.groupby("origin").sum()) == [
        {"origin": "DTW", "delay": 3},
        {"origin": "LAS", "delay": 3},
    ]
    assert rows_of(flights[flights["delay"] > 2]) == [{"origin": "LAS", "delay": 3}]
