"""Changes of objects, taken back in place."""

from __future__ import annotations

import itertools
import random
import threading
from array import array
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest
from msgspec import Struct

from streambench.debug.history.changes import Contents


class Thing:
    """An object with attributes."""

    def __init__(self, held: Any = None) -> None:
        self.held = held

    def hold(self) -> Any:
        return self.held


class Slotted:
    """An object with slots, one of which is empty."""

    __slots__ = ("held", "later")

    def __init__(self, held: Any) -> None:
        self.held = held


@dataclass
class Row:
    """A row of data."""

    number: int
    cells: list[int] = field(default_factory=list)


class Fields(Struct):
    """A struct that may change."""

    held: Any


class Pair(NamedTuple):
    """A tuple with names."""

    one: Any
    two: Any


def renewed(value: Any) -> None:
    value.held = "new"


def later(value: Slotted) -> None:
    del value.held
    value.later = 2


CASES: list[tuple[Any, Any]] = [
    ({"a": 1, "b": [2]}, lambda value: value.update(a=2, c=3)),
    ({"a": 1, "b": 2}, lambda value: value.update(a=value.pop("a"))),
    ({"a": {"b": {1, 2}}}, lambda value: value["a"]["b"].add(3)),
    ([1, 2, [3]], lambda value: value.insert(0, value.pop())),
    ({1, 2}, lambda value: value.discard(1)),
    (([1], frozenset({2})), lambda value: value[0].append(2)),
    (OrderedDict(a=1, b=2), lambda value: value.move_to_end("a")),
    (Counter("aab"), lambda value: value.update("c")),
    (defaultdict(list, a=[1]), lambda value: value["b"].append(1)),
    (deque([1, 2], maxlen=2), lambda value: value.append(3)),
    (bytearray(b"abc"), lambda value: value.extend(b"d")),
    (array("q", [1, 2]), lambda value: value.append(3)),
    (random.Random(7), lambda value: value.random()),
    (Thing([1]), renewed),
    (Thing([1]), lambda value: value.held.append(2)),
    (Thing([1]), lambda value: setattr(value, "more", 1)),
    (Slotted([1]), later),
    (Row(1, [2]), lambda value: value.cells.append(3)),
    (Fields([1]), renewed),
    (SimpleNamespace(a=1), lambda value: setattr(value, "a", 2)),
    (Pair([1], 2), lambda value: value.one.append(2)),
    (Thing([1]).hold, lambda value: renewed(value.__self__)),
    (partial(len, [1]), lambda value: value.args[0].append(2)),
]


def drawn(value: Any, seen: dict[int, int]) -> Any:
    """A value as text, with the identity of each object in it."""
    if isinstance(value, int | float | str | bytes | None):
        return repr(value)
    if id(value) in seen:
        return f"#{seen[id(value)]}"
    seen[id(value)] = len(seen)
    if isinstance(value, set | frozenset):
        parts: Any = sorted(value)
    elif isinstance(value, dict):
        parts = [(drawn(key, seen), drawn(each, seen)) for key, each in value.items()]
    elif isinstance(value, random.Random):
        parts = hash(value.getstate())
    elif isinstance(value, partial):
        parts = drawn(value.args, seen)
    elif hasattr(value, "__self__"):
        parts = drawn(value.__self__, seen)
    elif isinstance(value, Struct | Slotted):
        parts = [drawn(getattr(value, name, "none"), seen) for name in ("held", "later")]
    elif hasattr(value, "__dict__") and not isinstance(value, Counter | OrderedDict):
        parts = drawn(vars(value), seen)
    else:
        parts = [drawn(each, seen) for each in value]
    return type(value).__name__, id(value), parts


@pytest.mark.parametrize("number", range(len(CASES)))
def test_what_was_changed_is_as_it_was(number: int) -> None:
    value, change = CASES[number]
    before = drawn(value, {})
    contents = Contents([value])
    assert contents.is_known
    change(value)
    assert drawn(value, {}) != before
    contents.keep_changed()
    for _ in range(2):  # once more, after other changes
        contents.restore()
        assert drawn(value, {}) == before
        change(value)
    contents.restore()


def test_nothing_is_kept_of_what_has_not_changed() -> None:
    value = {"rows": [Thing({number: [number]}) for number in range(100)]}
    contents = Contents([value])
    value["rows"][7].held[7].append(1)
    before = contents.size
    contents.keep_changed()
    assert contents.size < before / 50
    contents.restore()
    assert value["rows"][7].held == {7: [7]}


@pytest.mark.parametrize(
    "value",
    [itertools.count(), iter([1]), threading.Lock(), (each for each in "ab"), ValueError("a"), Counter],
    ids=lambda value: type(value).__name__,
)
def test_objects_with_a_state_of_their_own_are_not_known(value: Any) -> None:
    assert Contents([{"a": [Thing(value)]}]).is_known == isinstance(value, type)


def test_what_is_outside_is_left_as_it_is() -> None:
    outside: list[int] = []
    value = {"outside": outside}
    contents = Contents([value], [outside])
    outside.append(1)
    contents.keep_changed()
    contents.restore()
    assert outside == [1]
    assert not Contents([value], forbidden=[outside]).is_known


def test_contents_that_follow_others_know_what_is_new_and_not_known() -> None:
    value: dict[str, Any] = {"a": []}
    value["b"] = iter([1])
    assert not Contents([value]).is_known
    del value["b"]
    contents = Contents([value])
    value["b"] = iter([1])
    assert not contents.following([value]).is_known
    contents = Contents([{"a": [outside := [1]]}])
    assert contents.following([outside]).is_known
    assert not contents.following([[outside, new := [2]]], forbidden=[new]).is_known


@pytest.mark.parametrize("follows", [False, True])
@pytest.mark.parametrize("seed", range(20))
def test_random_changes_are_taken_back_step_by_step(seed: int, follows: bool) -> None:
    chance = random.Random(seed)
    root: list[Any] = [{}, [], Thing({}), set()]

    def change() -> None:
        reached = [root[0], root[1], root[2].held, *(each for each in root[1] if isinstance(each, dict))]
        value = chance.choice(reached)
        new: Any = chance.choice([chance.randrange(3), {}, root[0], Thing(value)])
        if isinstance(value, list):
            value.insert(0, new) if chance.random() < 0.6 or not value else value.pop()
        elif chance.random() < 0.6 or not value:
            value[chance.randrange(4)] = new
        else:
            value.pop(next(iter(value)))
        root[2].held = chance.choice([root[2].held, {}])
        root[3] ^= {chance.randrange(5)}

    marks: list[tuple[Any, Contents]] = []
    for _ in range(12 if follows else 6):
        if marks and not follows:
            marks[-1][1].keep_changed()
        contents = marks[-1][1].following([root]) if marks and follows else Contents([root])
        marks.append((drawn(root, {}), contents))
        for _ in range(chance.randrange(4)):
            change()
    marks[-1][1].keep_changed()
    for before, contents in reversed(marks):
        contents.restore()
        assert drawn(root, {}) == before
