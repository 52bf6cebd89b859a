"""Numbers of things in words, and sums of numbers of which some may not be known."""

from __future__ import annotations

from collections.abc import Iterable


def counted(number: int, what: str) -> str:
    """A number of things: "1 message", "1,000 messages"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where a number is None."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
