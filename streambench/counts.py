"""Things and their numbers in words, sums of numbers of which some may not be known, and sums by key."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

_K = TypeVar("_K")
_N = TypeVar("_N", int, float)


def counted(number: int, what: str) -> str:
    """A number of things: "1 message", "1,000 messages", "2 changes of state"."""
    noun, of, rest = what.partition(" of ")
    return f"{number:,} {noun}{'' if number == 1 else 's'}{of}{rest}"


def first_named(names: Sequence[str], most: int) -> str:
    """The first names of a list, and how many more there are: "a, b and 3 more"."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where a number is None."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total


def sum_by_key(one: Mapping[_K, _N], other: Mapping[_K, _N]) -> dict[_K, _N]:
    """Per key the sum; a key that one of them lacks counts as 0 there."""
    return {key: one.get(key, 0) + other.get(key, 0) for key in {**one, **other}}
