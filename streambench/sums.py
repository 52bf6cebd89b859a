"""Sums of numbers of which some may not be known."""

from __future__ import annotations

from collections.abc import Iterable


def sum_known(numbers: Iterable[int | None]) -> int | None:
    """The sum; None where a number is None."""
    total = 0
    for number in numbers:
        if number is None:
            return None
        total += number
    return total
