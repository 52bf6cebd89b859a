"""Offsets that are whole numbers from 0 on, as those of most systems are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from streambench.errors import OffsetError, StreamExistsError
from streambench.model import PartitionMetadata, StreamsMetadata, SystemStream
from streambench.system.api import SystemAdmin


class NumberedAdmin(SystemAdmin):
    """The admin of a system with such offsets."""

    def compare(self, offset: str, other: str) -> int | None:
        return compare_numbers(offset, other) if _is_number(offset) and _is_number(other) else None

    def after(self, offset: str) -> str:
        return str(to_number(offset) + 1)


class ConfiguredStreams(Protocol):
    """The streams that a configuration names."""

    def streams(self) -> list[SystemStream]:
        """All of them, sorted."""

    def partitions(self, stream: SystemStream) -> int:
        """The number of partitions of a stream. Raises UnknownStreamError."""


class UnstoredAdmin(NumberedAdmin):
    """The admin of a system that stores no message: its streams are what the configuration says.

    Offsets count what one consumer received, from 0 on."""

    replayable = False

    def __init__(self, configured: ConfiguredStreams) -> None:
        self._configured = configured

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        return {
            stream: dict.fromkeys(range(self._configured.partitions(stream)), numbered_metadata(0, 0))
            for stream in streams
        }

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        present = self._configured.partitions(stream)
        if present != partitions:
            raise StreamExistsError(
                f"{stream} is there already, with {present} partitions and not {partitions}: set "
                f"systems.{stream.system}.streams.{stream.stream}.partitions={partitions}"
            )
        return False

    def streams(self) -> list[SystemStream]:
        return self._configured.streams()


def compare_numbers(offset: str, other: str) -> int:
    """-1, 0 or 1, as one number comes before, is, or comes after another one."""
    mine, others = int(offset), int(other)
    return (mine > others) - (mine < others)


def numbered_metadata(oldest: int, upcoming: int) -> PartitionMetadata:
    """The metadata of a partition that holds the offsets from ``oldest`` up to, but not, ``upcoming``."""
    if upcoming <= oldest:
        return PartitionMetadata(None, None, str(upcoming))
    return PartitionMetadata(str(oldest), str(upcoming - 1), str(upcoming))


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
