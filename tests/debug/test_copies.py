"""Deep copies of plain data."""

from __future__ import annotations

import logging
from collections import OrderedDict, defaultdict
from copy import deepcopy
from typing import Any

import pytest

from streambench.debug.copies import deep_copy
from tests.debug.test_time_travel import Counter, session_of, shown


class Thing:
    """An object that holds others."""

    def __init__(self, *held: Any) -> None:
        self.held = held


def values() -> list[Any]:
    """Values with others in them, some of which stand in several places."""
    inner, numbers = {"a": [1, 2]}, [1, "two", 3.0, None, b"4"]
    circle: list[Any] = [1]
    circle.append(circle)
    return [
        1, "text", numbers, inner, {"x": inner, "y": inner, "z": [inner, numbers]}, {1, 2, 3}, circle,
        {(1, "key"): {2, 3}}, (inner, numbers), OrderedDict(a=inner), defaultdict(list, {"k": numbers}),
        Thing(inner, numbers), {"thing": Thing(inner)}, [{"n": number} for number in range(5)],
        {frozenset({1})},
    ]  # fmt: skip


def drawn(value: Any, seen: dict[int, int]) -> Any:
    """A value as text, in which an object that was there before stands as its number."""
    if isinstance(value, int | float | str | bytes | None):
        return repr(value)
    if id(value) in seen:
        return f"#{seen[id(value)]}"
    seen[id(value)] = len(seen)
    if isinstance(value, dict):
        parts: Any = [(drawn(key, seen), drawn(each, seen)) for key, each in value.items()]
    elif isinstance(value, Thing):
        parts = drawn(value.held, seen)
    else:
        parts = [drawn(each, seen) for each in value]
    return type(value).__name__, parts


def mutable_ids(value: Any, seen: set[int]) -> set[int]:
    if isinstance(value, list | dict | set | Thing) and id(value) not in seen:
        seen.add(id(value))
    if isinstance(value, dict):
        for each in value.values():
            mutable_ids(each, seen)
    elif isinstance(value, list) and value[-1:] != [value]:
        for each in value:
            mutable_ids(each, seen)
    return seen


def test_a_copy_is_that_of_deepcopy_with_nothing_shared() -> None:
    original = values()
    copy = deep_copy(original, {})
    assert drawn(copy, {}) == drawn(deepcopy(original), {}) == drawn(original, {})
    assert not mutable_ids(copy, set()) & mutable_ids(original, set())


def test_what_the_memo_knows_is_not_copied() -> None:
    handle = [1]
    copy = deep_copy({"handle": handle, "deep": {"in": (handle,)}}, {id(handle): handle})
    assert copy["handle"] is handle
    assert copy["deep"]["in"][0] is handle


class Keeping(Counter):
    """Changes large attributes in place, each in another way."""

    def init(self, context: Any) -> None:
        super().init(context)
        self.flat = {f"key {number}": number for number in range(100)}
        self.rows = [{"n": number} for number in range(100)]
        self.same = self.rows[0]

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        self.flat["key 7"] += 1
        self.same["n"] += 1
        self.rows.append({"n": self.seen})


def test_positions_keep_attributes_that_change_in_place(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("streambench.debug.past._SLOW_S", 0.0)
    session, _ = session_of(Keeping)
    seen = {0: shown(session)}
    for position in range(1, 15):
        session.step()
        seen[position] = shown(session)
    with caplog.at_level(logging.WARNING):
        for position in (13, 2, 9, 0, 14, 5):
            session.goto(position)
            assert (position, shown(session)) == (position, seen[position])
    assert caplog.text.count("each step back copies ") == 1
