"""Offsets that are whole numbers from 0 on, as those of most systems are."""

from __future__ import annotations

from streambench.errors import OffsetError
from streambench.system.api import SystemAdmin


class NumberedAdmin(SystemAdmin):
    """The admin of a system with such offsets."""

    def compare(self, offset: str, other: str) -> int | None:
        if not (_is_number(offset) and _is_number(other)):
            return None
        mine, others = int(offset), int(other)
        return (mine > others) - (mine < others)

    def after(self, offset: str) -> str:
        return str(to_number(offset) + 1)


def to_number(offset: str, where: object = None) -> int:
    """An offset as a number. ``where``: of which partition, for the error. Raises OffsetError where it is
    none."""
    if not _is_number(offset):
        raise OffsetError(
            f"{'' if where is None else f'{where}: '}'{offset}' is no offset of it; they are whole numbers "
            "from 0 on"
        )
    return int(offset)


def _is_number(offset: str) -> bool:
    return offset.isascii() and offset.isdecimal()
