"""Values as short literals."""

from __future__ import annotations

import ast
import datetime as dt
import math
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.debug.replay.literals import LONGEST, MOST, literal, plain_list, plain_mapping, plain_value

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
VALUES = st.recursive(
    SCALARS,
    lambda each: st.lists(each) | st.dictionaries(st.text(), each) | st.tuples(each, each),
    max_leaves=30,
)


@given(VALUES)
def test_the_source_text_of_a_value_is_that_value(value: Any) -> None:
    if "inf" not in repr(value):
        assert ast.literal_eval(literal(value)) == value


@given(VALUES)
def test_what_stands_for_a_value_is_a_short_literal(value: Any) -> None:
    found = plain_value(value)
    assert len(repr(found)) <= LONGEST + 2
    assert ast.literal_eval(repr(found)) == found


def test_lines_are_broken_where_they_are_long() -> None:
    value = {"log.out": [(0, None, {"origin": "ORD", "delay": number}) for number in range(3)]}
    assert literal(value).splitlines() == [
        "{",
        '    "log.out": [',
        '        (0, None, {"origin": "ORD", "delay": 0}),',
        '        (0, None, {"origin": "ORD", "delay": 1}),',
        '        (0, None, {"origin": "ORD", "delay": 2}),',
        "    ],",
        "}",
    ]


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (dt.date(2026, 1, 2), "datetime.date(2026, 1, 2)"),
        (math.nan, "nan"),
        (object(), "a object"),
        ("x" * 1000, "sha256 9986c4f1423725ba of 1,002 characters"),
    ],
)
def test_other_values_are_shown_as_text(value: Any, shown: str) -> None:
    assert plain_value(value) == shown


def test_an_address_in_a_string_stands_for_itself() -> None:
    one, other = ({"log": "x" * 250 + f" crash at 0x{place}"} for place in ("dead", "beef"))
    assert plain_value(one).startswith("sha256 ") and plain_value(one) != plain_value(other)
    assert plain_value([dt.date(2026, 1, 2), "at 0xdead"]) != plain_value([dt.date(2026, 1, 2), "at 0xbeef"])
    assert plain_value({"of": [object()], "log": "at 0xdead"}) == "a dict"
    itself: list[Any] = ["at 0xdead", object()]
    itself.append(itself)
    assert plain_value(itself) == "a list"


def test_the_rest_of_much_is_one_digest() -> None:
    numbers = list(range(MOST + 3))
    assert plain_list(numbers)[:-1] == numbers[:MOST]
    assert plain_list(numbers)[-1].startswith("3 more: sha256 ")
    other = [*numbers[:-1], -1]
    assert plain_list(other)[-1] != plain_list(numbers)[-1]
    named = dict.fromkeys(numbers, "x")
    assert plain_mapping(named)["..."].startswith("3 more: sha256 ")
    assert len(plain_mapping(named)) == MOST + 1
    assert plain_list(numbers[:MOST]) == numbers[:MOST]


def test_a_digest_is_the_same_in_each_process() -> None:
    text = (
        "from streambench.debug.replay.literals import plain_value; "
        "print(plain_value([{str(n) for n in range(99)}, 1]))"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", text], env={"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in "12"
    }
    assert len(found) == 1
    assert b"sha256" in found.pop()
