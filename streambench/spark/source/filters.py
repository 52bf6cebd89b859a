"""Filters that are pushed down: which partitions are read, and between which offsets."""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable
from typing import Any

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
)

from streambench.spark.source.ranges import OffsetRange

_LATEST = 1 << 63
_COMPARISONS: dict[type[Filter], Callable[[int, Any], bool]] = {
    EqualTo: operator.eq,
    EqualNullSafe: operator.eq,
    GreaterThan: operator.gt,
    GreaterThanOrEqual: operator.ge,
    LessThan: operator.lt,
    LessThanOrEqual: operator.le,
}


class Pushdown:
    """The conditions on ``partition`` and ``offset`` that a query has. ``columns``: which of the two stand
    for themselves in its schema; offsets only where they are whole numbers."""

    def __init__(self, columns: Collection[str]) -> None:
        self._columns = columns
        self._of_partition: list[Filter] = []
        self._first, self._last = 0, _LATEST

    def take(self, filters: Iterable[Filter]) -> list[Filter]:
        """Take what can be applied here; the filters that are left to Spark."""
        return [each for each in filters if not self._takes(each)]

    def apply(self, ranges: Iterable[OffsetRange]) -> list[OffsetRange]:
        """The ranges, cut to what the conditions leave of them."""
        wanted = [each for each in ranges if all(_holds(one, each.partition) for one in self._of_partition)]
        if (self._first, self._last) == (0, _LATEST):
            return wanted
        return [
            OffsetRange(
                each.partition,
                str(max(int(each.start), self._first)),
                str(min(int(each.end), self._last + 1)),
            )
            for each in wanted
        ]

    def _takes(self, each: Filter) -> bool:
        one = each.child if isinstance(each, Not) else each
        attribute: tuple[str, ...] = getattr(one, "attribute", ())
        if len(attribute) != 1 or attribute[0] not in self._columns:
            return False
        if isinstance(each, IsNotNull):
            return True
        if attribute[0] == "partition":
            if type(one) not in (In, *_COMPARISONS):
                return False
            self._of_partition.append(each)
            return True
        return self._narrows(each)

    def _narrows(self, each: Filter) -> bool:
        value: Any = getattr(each, "value", None)
        if isinstance(each, In):
            numbers = [number for number in each.value if number is not None]
            self._between(min(numbers, default=_LATEST), max(numbers, default=-1))
            return False
        if value is None:
            return False
        if isinstance(each, EqualTo | EqualNullSafe):
            self._between(value, value)
        elif isinstance(each, GreaterThan | GreaterThanOrEqual):
            self._between(value + isinstance(each, GreaterThan), _LATEST)
        elif isinstance(each, LessThan | LessThanOrEqual):
            self._between(0, value - isinstance(each, LessThan))
        else:
            return False
        return True

    def _between(self, first: int, last: int) -> None:
        self._first, self._last = max(self._first, first), min(self._last, last)


def _holds(each: Filter, number: int) -> bool:
    """True where a condition on the partition is true. Comparison with NULL is not, negated or not."""
    if isinstance(each, Not):
        return not _has_null(each.child) and not _holds(each.child, number)
    if isinstance(each, In):
        return number in each.value
    value: Any = getattr(each, "value", None)
    return value is not None and _COMPARISONS[type(each)](number, value)


def _has_null(each: Filter) -> bool:
    if isinstance(each, EqualNullSafe):
        return False
    value: Any = getattr(each, "value", None)
    return None in value if isinstance(each, In) else value is None
