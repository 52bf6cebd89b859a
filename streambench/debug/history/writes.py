"""The writes to stores of a part of the history, by the column: hundreds of thousands of them are kept."""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from streambench.container.trace import WRITE_FIELDS

StoreWrite = tuple[int, int, bytes, bytes | None, bytes | None]
"""Position, number of the store, key, former value, new value."""

Values = list[dict[bytes, bytes | None]]
"""Per store, by its number, values that differ from the current ones."""
_PER_WRITE = 170


class Writes:
    """Writes in order. ``size``: of all of them, in bytes, roughly."""

    __slots__ = ("_formers", "_keys", "_positions", "_stores", "_values", "size")

    def __init__(self) -> None:
        self.size = 0
        self._positions = array("q")
        self._stores = array("L")
        self._keys: list[bytes] = []
        self._formers: list[bytes | None] = []
        self._values: list[bytes | None] = []

    def add(self, flat: list[Any], where: Mapping[int, int], base: int) -> None:
        """Add writes as a trace has them, one field behind the other. ``where``: the positions of messages by
        their identity, negative for those to be left out; ``base``: that of unknown ones."""
        positions = flat[0::WRITE_FIELDS]
        positions = [
            at if type(at) is int else base if position is None else position
            for at, position in zip(positions, map(where.get, map(id, positions)), strict=True)
        ]
        if positions and min(positions) < 0:
            for number, at in enumerate(positions):
                if at >= 0:
                    self._extend([at], flat[number * WRITE_FIELDS + 1 : (number + 1) * WRITE_FIELDS])
            return
        self._extend(positions, flat, skip=1)

    def _extend(self, positions: list[Any], flat: list[Any], *, skip: int = 0) -> None:
        step = WRITE_FIELDS - 1 + skip
        formers = flat[skip + 2 :: step]
        self._positions.extend(positions)
        self._stores.extend(flat[skip::step])
        self._keys += flat[skip + 1 :: step]
        self._formers += formers
        self._values += flat[skip + 3 :: step]
        self.size += _PER_WRITE * len(positions) + sum(map(len, filter(None, formers)))

    def extend(self, writes: Iterable[StoreWrite]) -> None:
        """Add writes behind the others."""
        for position, *write in writes:
            self._extend([position], write)

    def drop_after(self, position: int) -> None:
        """Drop the writes at positions after this one."""
        first = bisect_right(self._positions, position)
        formers = self._formers[first:]
        self.size -= _PER_WRITE * len(formers) + sum(map(len, filter(None, formers)))
        for column in (self._positions, self._stores, self._keys, self._formers, self._values):
            del column[first:]

    def __len__(self) -> int:
        return len(self._positions)

    def __iter__(self) -> Iterator[StoreWrite]:
        return zip(self._positions, self._stores, self._keys, self._formers, self._values, strict=True)

    def between(self, since: int, to: int | None) -> Iterator[StoreWrite]:
        """The writes at positions after ``since``, and up to ``to``."""
        first = bisect_right(self._positions, since)
        last = len(self._positions) if to is None else bisect_right(self._positions, to)
        return self.part(first, last)

    def part(self, first: int, last: int | None = None) -> Iterator[StoreWrite]:
        """The writes from number ``first`` on, and before ``last``."""
        return zip(
            self._positions[first:last], self._stores[first:last], self._keys[first:last],
            self._formers[first:last], self._values[first:last], strict=True,
        )  # fmt: skip

    def undo(self, values: Values, after: int | None = None, to: int | None = None) -> None:
        """Put into ``values`` what was overwritten at positions after this one (None: from the first on), and
        up to another one."""
        first = 0 if after is None else bisect_right(self._positions, after)
        self.undo_between(values, first, None if to is None else bisect_right(self._positions, to))

    def redo(self, values: Values, after: int, to: int) -> None:
        """Put into ``values`` what was written at positions after this one, and up to another one."""
        for _, store, key, _, value in self.between(after, to):
            values[store][key] = value

    def undo_between(self, values: Values, first: int, to: int | None = None) -> None:
        """Put into ``values`` what the writes from number ``first`` on, and before ``to``, have
        overwritten."""
        stores, keys, formers = self._stores[first:to], self._keys[first:to], self._formers[first:to]
        stores.reverse()
        keys.reverse()
        formers.reverse()
        for store, key, former in zip(stores, keys, formers, strict=True):
            values[store][key] = former
