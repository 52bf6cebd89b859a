"""Messages as plain data and as text."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from uuid import UUID

import msgspec
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.serde.plain import plain, printable


class Click(msgspec.Struct):
    user: bytes


@dataclass
class Place:
    at: dt.date


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (b"a\xff", "a\\xff"), ("\ud800", "\\ud800"), (2**64, str(2**64)), (float("inf"), "inf"), (True, True),
        (Decimal("1.50"), "1.50"),
        (dt.date(2026, 1, 2), "2026-01-02"), (UUID(int=1), "00000000-0000-0000-0000-000000000001"),
        ((1, {2}), [1, [2]]),
        ({b"k": 1, 2: 3, None: 4}, {"k": 1, "2": 3, "None": 4}), (Click(b"a"), {"user": "a"}),
        (Place(dt.date(2026, 1, 2)), {"at": "2026-01-02"}),
        (pa.table({"a": [1, 2]}), [{"a": 1}, {"a": 2}]),
        (pa.RecordBatch.from_pydict({"a": [b"x"]}), [{"a": "x"}]),
    ],
)  # fmt: skip
def test_everything_has_a_plain_form(value: Any, shown: Any) -> None:
    assert plain(value) == shown


def test_of_many_rows_the_first_are_shown() -> None:
    rows = plain(pa.table({"a": range(1005)}))
    assert len(rows) == 1001 and rows[-1] == "... 5 more rows"


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers()
        | st.floats()
        | st.text(st.characters())
        | st.binary()
        | st.datetimes()
        | st.decimals().filter(lambda number: not number.is_snan()),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.binary() | st.integers() | st.text(), inner)
            | st.tuples(inner)
        ),
        max_leaves=8,
    )
)
def test_the_plain_form_is_always_json_and_the_text_always_one_line(value: Any) -> None:
    orjson.dumps(plain(value))
    assert printable(value).isprintable()


def test_what_nests_deeply_is_cut() -> None:
    assert len(orjson.dumps(plain(nested(100_000)))) < 300
    assert printable(nested(100_000)).isprintable()
