"""The batches of a part of the history: which messages a task got at once."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator


class Batches:
    """Batches of more than one message, by the position of their last message; all other messages came alone.

    A position inside of a batch cannot be shown: the task got all of it, or nothing."""

    __slots__ = ("_counts", "_ends")

    def __init__(self, batches: Iterable[tuple[int, int]] = ()) -> None:
        """``batches``: per batch the position of its last message, and the number of its messages."""
        self._ends = array("q")
        self._counts = array("q")
        self.extend(batches)

    def __len__(self) -> int:
        return len(self._ends)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._ends, self._counts, strict=True)

    def extend(self, batches: Iterable[tuple[int, int]]) -> None:
        """Add batches behind the others."""
        for end, count in batches:
            self._ends.append(end)
            self._counts.append(count)

    @property
    def longest(self) -> int:
        """The number of messages of the largest batch; 1 without any."""
        return max(self._counts, default=1)

    def count(self, position: int) -> int:
        """The number of messages of the batch that holds the message of a position."""
        begin, end = self.edges(position)
        return end - begin

    def edges(self, position: int) -> tuple[int, int]:
        """The position before the batch that holds the message of a position, and the one after it."""
        at = bisect_left(self._ends, position)
        if at < len(self._ends):
            begin = self._ends[at] - self._counts[at]
            if begin < position:
                return begin, self._ends[at]
        return position - 1, position
