"""Values of a notebook as messages."""

from __future__ import annotations

from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streambench.debug.streams.by_hand import messages_in
from streambench.debug.streams.errors import ByHandError
from tests.debug.streams.test_frames import ARROW_TIME, FINE


def test_a_table_of_arrow_is_its_rows_where_no_message_is_a_table() -> None:
    table = pa.table({"x": pa.array([FINE, None], pa.timestamp("ns"))})
    assert messages_in(table, "k", None, whole_tables=False) == [
        ("k", {"x": "2023-11-14T22:13:20.123456789"}),
        ("k", {"x": None}),
    ]
    assert messages_in(table, "k", None) == [("k", table)]


@pytest.mark.parametrize(
    "series",
    [
        pl.Series([FINE], dtype=pl.Int64).cast(pl.Datetime("ns")),
        pd.Series(pd.to_datetime([FINE])),
        pd.to_datetime([FINE]),
        pa.array([FINE], pa.timestamp("ns")),
        pa.chunked_array([pa.array([FINE], pa.timestamp("ns"))]),
    ],
)
def test_a_series_by_itself_keeps_all_its_digits(series: Any) -> None:
    assert messages_in(series, None, None) == [(None, "2023-11-14T22:13:20.123456789")]


def test_a_series_that_would_lose_something_is_refused() -> None:
    with pytest.raises(ByHandError, match="it holds what Python cannot"):
        messages_in(pd.Series(pa.array([5], pa.time64("ns")), dtype=ARROW_TIME), None, None)


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_bytes_of_any_kind_are_one_message(kind: Any) -> None:
    assert messages_in(kind(b"ab"), "k", None) == [("k", b"ab")]
