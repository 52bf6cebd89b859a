"""The part that the consumers of tcp and udp share: the partitions for which they listen."""

from __future__ import annotations

from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.adapters import ChunkConsumer
from streambench.system.api import nothing_to_look_at
from streambench.system.net.settings import Streams
from streambench.system.numbered import to_number


class ListeningConsumer(ChunkConsumer):
    """A consumer that stores nothing: it counts the messages of each partition from an offset on."""

    def __init__(self, streams: Streams, metrics: MetricsRegistry) -> None:
        self._streams = streams
        self._metrics = metrics
        self._wanted: dict[SystemStreamPartition, int] = {}

    def look_only(self, at_most: int | None) -> None:
        if at_most is not None:
            raise nothing_to_look_at(self._streams.system)

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wanted[ssp] = to_number(offset, ssp)
