"""The admin of a simple plug-in: what can be said of streams by what the plug-in knows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from streambench.config import Config
from streambench.errors import StreamExistsError, UnknownStreamError
from streambench.model import OLDEST, PartitionMetadata, StreamsMetadata, SystemStream, SystemStreamPartition
from streambench.system.api import SystemAdmin
from streambench.system.pull.failure import named
from streambench.system.pull.positions import Positions


class Streams(Protocol):
    """The part of a PullSystemFactory that knows its streams."""

    def partitions(self, system: str, stream: str, config: Config) -> int: ...

    def streams(self, system: str, config: Config) -> Iterable[str]: ...

    def create(self, system: str, stream: str, partitions: int, config: Config) -> None: ...

    def bounds(
        self, system: str, stream: str, partition: int, config: Config
    ) -> PartitionMetadata | None: ...


class PullAdmin(SystemAdmin):
    """Asks a PullSystemFactory."""

    def __init__(self, factory: Streams, system: str, config: Config, positions: Positions) -> None:
        self._factory = factory
        self._system = system
        self._config = config
        self._positions = positions

    def partitions(self, stream: SystemStream) -> int:
        """The number of partitions a stream has. Raises UnknownStreamError."""
        try:
            number = self._factory.partitions(stream.system, stream.stream, self._config)
        except Exception as error:
            raise named(stream, "cannot be looked up", error) from error
        if number < 1:
            raise UnknownStreamError(f"there is no stream {stream}")
        return number

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        return {
            stream: {number: self._metadata_of(stream, number) for number in range(self.partitions(stream))}
            for stream in streams
        }

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        try:
            present = self.partitions(stream)
        except UnknownStreamError:
            self._factory.create(stream.system, stream.stream, partitions, self._config)
            return True
        if present != partitions:
            raise StreamExistsError(
                f"{stream} is there already, with {present} partitions and not {partitions}"
            )
        return False

    def compare(self, offset: str, other: str) -> int | None:
        return self._positions.compare(offset, other)

    def after(self, offset: str) -> str:
        return self._positions.after(offset)

    def streams(self) -> list[SystemStream]:
        return sorted(
            SystemStream(self._system, name) for name in self._factory.streams(self._system, self._config)
        )

    def _metadata_of(self, stream: SystemStream, number: int) -> PartitionMetadata:
        try:
            return self._complete(self._factory.bounds(stream.system, stream.stream, number, self._config))
        except Exception as error:
            raise named(
                SystemStreamPartition(stream.system, stream.stream, number), "cannot be looked up", error
            ) from error

    def _complete(self, bounds: PartitionMetadata | None) -> PartitionMetadata:
        if bounds is None:
            return PartitionMetadata(OLDEST, None, None)
        if not self._positions.are_ordered:
            # With an end that nothing can be compared to, everything would count as lying behind it.
            return PartitionMetadata(OLDEST, bounds.newest, None)
        if bounds.upcoming is not None:
            return bounds
        return PartitionMetadata(
            bounds.oldest,
            bounds.newest,
            OLDEST if bounds.newest is None else self._positions.after(bounds.newest),
        )
