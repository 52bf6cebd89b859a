"""Positions: offsets whose meaning only a plug-in knows, and where reading goes on behind one of them.

A position is the id of a message, or ``oldest``, the beginning. Where it is not known which id comes next, it
is ``after:`` and an id.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from streambench.errors import OffsetError
from streambench.model import OLDEST

AFTER = "after:"


class Positions(Struct, frozen=True, kw_only=True):
    """The order of the positions of one system. ``compare_ids`` and ``next_id`` are the plug-in's;
    ``numbered``: all ids are whole numbers; ``rewind``: the command that rewinds the job, for errors."""

    compare_ids: Callable[[str, str], int | None]
    next_id: Callable[[str], str | None]
    numbered: bool
    are_ordered: bool
    rewind: str

    def parsed(self, position: str) -> tuple[str | None, bool]:
        """The id that a position names (None: the beginning), and whether it is the place behind it. Raises
        OffsetError."""
        if position == OLDEST:
            return None, False
        id = position.removeprefix(AFTER)
        if not self.is_id(id):
            raise OffsetError(
                f"'{position}' is no offset of this "
                f"system{': those are whole numbers from 0 on' if self.numbered else ''}"
            )
        return id, id != position

    def is_id(self, id: object) -> bool:
        """True if a plug-in may give a message this id."""
        if not isinstance(id, str) or not id or id == OLDEST or id.startswith(AFTER):
            return False
        return not self.numbered or (id.isascii() and id.isdecimal())

    def compare(self, position: str, other: str) -> int | None:
        """Compare a position with another one; None where that is unknown."""
        (mine, is_behind), (others, is_other_behind) = self.parsed(position), self.parsed(other)
        if mine is None or others is None:
            return (mine is not None) - (others is not None)
        order = 0 if mine == others else self.compare_ids(mine, others)
        return is_behind - is_other_behind if order == 0 else order

    def after(self, position: str) -> str:
        """The position behind a message."""
        id, is_behind = self.parsed(position)
        if id is None or is_behind:
            raise OffsetError(f"'{position}' is no message, and nothing follows it")
        return self.next_id(id) or AFTER + id
