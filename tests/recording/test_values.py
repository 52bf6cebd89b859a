"""Objects as JSON and back."""

from __future__ import annotations

import datetime as dt
from collections import Counter, OrderedDict, defaultdict, deque
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from streambench.recording.values import NotPlainError, packed, unpacked


@pytest.mark.parametrize(
    "value",
    [
        None, True, 1, -(2**70), 1.5, float("inf"), "text", b"\x00\xff", bytearray(b"x"), [1, [2]], (1, (2,)),
        {1, 2}, frozenset({"a"}), {"a": {"b": []}}, {1: "one", (1, 2): None}, {"$bytes": "no tag"},
        {"$tuple": [1], "other": 2}, deque([1, 2], 5), OrderedDict(b=1, a=2),
        Counter("hello"), Decimal("1.10"), UUID(int=7), dt.datetime(2026, 3, 1, tzinfo=dt.UTC),
        dt.date(2026, 3, 1), dt.time(1, 2),
        dt.timedelta(days=-1, microseconds=3), defaultdict(list, {"a": [1]}), "", {}, [],
    ],
    ids=repr,
)  # fmt: skip
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    back = unpacked(packed(value))
    assert back == value
    assert type(back) is type(value)
    assert list(back) == list(value) if isinstance(value, OrderedDict) else True


def test_an_object_in_several_places_stays_one_object() -> None:
    inner = [1]
    back = unpacked(packed({"a": inner, "b": [inner], "c": (inner, {"d": inner})}))
    assert back["a"] is back["b"][0] is back["c"][0] is back["c"][1]["d"]


def test_not_a_number_comes_back() -> None:
    assert str(unpacked(packed([float("nan")]))) == "[nan]"


@pytest.mark.parametrize("value", [object(), lambda: None, type("Own", (), {})(), {"a": [object()]}])
def test_an_object_of_another_class_is_refused(value: Any) -> None:
    with pytest.raises(NotPlainError):
        packed(value)


def test_an_object_that_holds_itself_is_refused_or_stays_so() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises((NotPlainError, KeyError)):
        unpacked(packed(value))
