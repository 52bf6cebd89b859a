"""Deep copies of plain data."""

from __future__ import annotations

import gc
import logging
import sys
from collections import OrderedDict, defaultdict
from copy import deepcopy
from typing import Any

import pytest

from streambench.debug.history.copies import deep_copy
from tests.debug.control.test_time_travel import Counter, session_of, shown


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
    monkeypatch.setattr("streambench.debug.past.past._SLOW_S", 0.0)
    session, _ = session_of(Keeping)
    seen = {0: shown(session)}
    for position in range(1, 15):
        session.step()
        seen[position] = shown(session)
    with caplog.at_level(logging.WARNING):
        for position in (13, 2, 9, 0, 14, 5):
            session.goto(position)
            assert (position, shown(session)) == (position, seen[position])
    assert caplog.text.count("a look at attributes in the past copies ") == 1


class Slotted:
    """An object with slots, one of which is empty, and a ``__dict__``."""

    __slots__ = ("__dict__", "held", "missing")

    def __init__(self, held: Any) -> None:
        self.held, self.more = held, [held]


class Stated(Thing):
    """An object that says itself what is copied of it."""

    def __getstate__(self) -> dict[str, Any]:
        return {"held": "another"}


class Made(Thing):
    """An object that is made with an argument."""

    def __new__(cls, *held: Any) -> Made:
        made = super().__new__(cls)
        made.first = held[0]
        return made

    def __getnewargs__(self) -> tuple[Any, ...]:
        return ("first",)


class Single:
    """An object of which there is one."""

    def __deepcopy__(self, memo: Any) -> Single:
        return self


@pytest.mark.parametrize(
    "value", [Thing([1], {"a": 2}), Slotted([1]), Stated(1), Made(1)], ids=lambda value: type(value).__name__
)
def test_an_object_is_copied_as_deepcopy_does(value: Any) -> None:
    copy, expected = deep_copy(value, {}), deepcopy(value)
    assert type(copy) is type(expected)
    assert vars(copy) == vars(expected)
    assert getattr(copy, "held", None) == getattr(expected, "held", None)
    assert copy is not value


def test_an_object_of_which_there_is_one_is_not_copied() -> None:
    single = Single()
    assert deep_copy([single], {})[0] is single


def test_an_object_in_a_circle_is_copied_once() -> None:
    thing = Thing([])
    thing.held[0].append(thing)
    copy = deep_copy({"one": thing, "two": thing}, {})
    assert copy["one"] is copy["two"] is copy["one"].held[0][0]
    assert copy["one"] is not thing


def test_copies_of_much_memory_are_made_without_the_collector() -> None:
    class Remembers(Counter):
        def init(self, context: Any) -> None:
            super().init(context)
            self.rows = [{"n": [number]} for number in range(2_000)]

    session, _ = session_of(Remembers)
    session.step(5)
    session.goto(3)
    collected_in = set()

    def note(phase: str, info: dict[str, int]) -> None:
        collected_in.add(sys._getframe(1).f_code.co_name)

    thresholds = gc.get_threshold()
    gc.set_threshold(50)
    gc.callbacks.append(note)
    try:
        session.attributes()
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*thresholds)
    assert collected_in.isdisjoint({"deep_copy", "_keep", "_in_dict", "<listcomp>"})
    assert gc.isenabled()
    session.abandon()
