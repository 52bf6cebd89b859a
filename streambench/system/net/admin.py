"""The admin of ``tcp`` and ``udp``: their streams are what the configuration says, and hold nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streambench.errors import OffsetError, StreamExistsError
from streambench.model import PartitionMetadata, SystemStream
from streambench.system.api import SystemAdmin
from streambench.system.net.settings import Streams


class NetAdmin(SystemAdmin):
    """Knows the streams of one system. None of them stores a message: offsets count what one consumer received, from 0 on."""

    replayable = False

    def __init__(self, streams: Streams) -> None:
        self._streams = streams

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        empty = PartitionMetadata(None, None, "0")
        return {stream: dict.fromkeys(range(self._streams.partitions(stream)), empty) for stream in streams}

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        present = self._streams.partitions(stream)
        if present != partitions:
            key = self._streams.key(stream, "partitions")
            raise StreamExistsError(f"{stream} is there already, with {present} partitions and not {partitions}: set {key}")
        return False

    def compare(self, offset: str, other: str) -> int | None:
        mine, others = to_number(offset, self._streams.system), to_number(other, self._streams.system)
        return (mine > others) - (mine < others)

    def after(self, offset: str) -> str:
        return str(to_number(offset, self._streams.system) + 1)

    def streams(self) -> list[SystemStream]:
        return [SystemStream(self._streams.system, name) for name in self._streams.names()]


def to_number(offset: str, where: str) -> int:
    """An offset as a number. Raises OffsetError where it is none."""
    if not (offset.isascii() and offset.isdecimal()):
        raise OffsetError(f"{where}: '{offset}' is no offset of it; they are numbers from 0 on")
    return int(offset)
