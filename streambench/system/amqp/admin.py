"""The admin of an AMQP system: what there is, and making and deleting it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streambench.errors import StreamExistsError, StreamSystemError, UnknownStreamError
from streambench.model import PartitionMetadata, StreamsMetadata, SystemStream
from streambench.system.amqp.broker import Open, bounds, channel_to, check, declare, present
from streambench.system.amqp.settings import Settings
from streambench.system.numbered import NumberedAdmin, numbered_metadata


class AmqpAdmin(NumberedAdmin):
    """Asks the broker, each time on a connection of its own: there is none that would have to be kept
    alive."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.replayable = settings.keeps

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        with channel_to(self._settings) as open_channel:
            return {stream: self._metadata_of(open_channel, stream) for stream in streams}

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        configured = self._settings.partitions(stream.stream)
        with channel_to(self._settings) as open_channel:
            there = present(self._settings, open_channel, stream.stream)
            if not self._settings.keeps and partitions != configured:
                kind = StreamExistsError if there else StreamSystemError
                raise kind(
                    f"{stream} is a queue, and has as many partitions as tasks are to compete for it: "
                    f"{configured}, not {partitions} "
                    f"(systems.{stream.system}.streams.{stream.stream}.partitions)"
                )
            if there and there != partitions:
                raise StreamExistsError(
                    f"{stream} is there already, with {there} partitions and not {partitions}"
                )
            declare(self._settings, open_channel, self._settings.topology(stream.stream, partitions))
        return not there

    def streams(self) -> list[SystemStream]:
        """Those that the configuration says something of."""
        return [SystemStream(self._settings.system, name) for name in self._settings.streams()]

    def delete(self, stream: SystemStream) -> None:
        """Delete the queues of a stream. Of one that an exchange passes on, the exchange and the queue of
        this group: those of other groups stay with what they hold."""
        with channel_to(self._settings) as open_channel:
            topology = self._settings.topology(stream.stream, self._present(open_channel, stream))
            channel = open_channel()
            for queue in dict.fromkeys(topology.queues):
                channel.queue_delete(queue)
            if topology.exchange:
                channel.exchange_delete(topology.exchange)

    def _metadata_of(self, open_channel: Open, stream: SystemStream) -> dict[int, PartitionMetadata]:
        topology = self._settings.topology(stream.stream, self._present(open_channel, stream))
        if not self._settings.keeps:
            number = self._settings.partitions(stream.stream)
            return dict.fromkeys(range(number), numbered_metadata(0, 0))
        return {
            number: numbered_metadata(*bounds(open_channel, queue))
            for number, queue in enumerate(topology.queues)
        }

    def _present(self, open_channel: Open, stream: SystemStream) -> int:
        number = present(self._settings, open_channel, stream.stream)
        if not number:
            check(self._settings, open_channel, self._settings.topology(stream.stream))
            raise UnknownStreamError(f"there is no stream {stream}")
        return number
