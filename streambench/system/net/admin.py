"""The admin of ``tcp`` and ``udp``: their streams are what the configuration says, and hold nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streambench.errors import StreamExistsError
from streambench.model import PartitionMetadata, SystemStream
from streambench.system.net.settings import Streams
from streambench.system.numbered import NumberedAdmin


class NetAdmin(NumberedAdmin):
    """Knows the streams of one system. None of them stores a message: offsets count what one consumer
    received, from 0 on."""

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
            raise StreamExistsError(
                f"{stream} is there already, with {present} partitions and not {partitions}: set {key}"
            )
        return False

    def streams(self) -> list[SystemStream]:
        return [SystemStream(self._streams.system, name) for name in self._streams.names()]
