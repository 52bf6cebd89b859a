"""The admin of a landed system: what its streams hold is what was landed of them."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any

from streambench.config import Config
from streambench.errors import StreamExistsError, StreamSystemError, UnknownStreamError, do_all
from streambench.model import PartitionMetadata, StreamsMetadata, SystemStream
from streambench.system.api import SystemAdmin
from streambench.system.log.admin import LogAdmin
from streambench.system.log.streams import Log, LogStream

log = logging.getLogger(__name__)


class LandedAdmin(LogAdmin):
    """Answers for what was landed. A stream of which nothing was landed yet is as empty as one that has been
    created.

    It begins at the oldest message by default: its sender has the answer that it is safe."""

    offset_default = "oldest"

    def __init__(self, system: str, target: Log, source: SystemAdmin, config: Config) -> None:
        """``source``: the admin of the system itself."""
        self._landed = LandedLog(target, system)
        super().__init__(system, self._landed)
        self._target = target
        self._source = source
        self._config = config

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        return {stream: self._metadata_of(stream) for stream in streams}

    def prepare(self, stream: SystemStream) -> tuple[int, int]:
        """Have a stream to land in, with as many partitions as are configured for it, else as the source has.
        Returns how many the source has, and how many there are to land in. Raises what the source's admin
        raises."""
        sent = len(self._source.metadata([stream])[stream])
        wanted = self._configured(stream) or sent
        name = self._landed.landed_name(stream.stream)
        try:
            self._target.create(name, wanted)
        except StreamExistsError:
            if self._landed.stream(stream.stream).partitions < wanted:
                self._target.grow(name, wanted)
                log.warning(
                    "%s.%s has %d partitions now, since %s has so many",
                    self._target.name,
                    name,
                    wanted,
                    stream,
                )
        return sent, self._landed.stream(stream.stream).partitions

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        return self._source.create(stream, partitions, **settings)

    def grow(self, stream: SystemStream, partitions: int) -> None:
        self._landed.stream(stream.stream)
        self._target.grow(self._landed.landed_name(stream.stream), partitions)

    def delete(self, stream: SystemStream) -> None:
        where = f"{self._target.name}.{self._landed.landed_name(stream.stream)}"
        raise StreamSystemError(
            f"{stream} is landed in {where}: delete that stream instead, with all that was received"
        )

    def streams(self) -> list[SystemStream]:
        return sorted({*super().streams(), *self._source.streams()})

    def close(self) -> None:
        do_all([super().close, self._target.close, self._source.close])

    def _metadata_of(self, stream: SystemStream) -> dict[int, PartitionMetadata]:
        try:
            return super().metadata([stream])[stream]
        except UnknownStreamError:
            number = self._configured(stream) or len(self._source.metadata([stream])[stream])
            return dict.fromkeys(range(number), PartitionMetadata(None, None, "0"))

    def _configured(self, stream: SystemStream) -> int | None:
        key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
        return self._config.integer(key) if self._config.get(key, "").strip() else None


class LandedLog(Log):
    """A log of which only the streams of one landed system are seen: its ``orders`` is the stream
    ``x.orders`` of the log."""

    def __init__(self, log: Log, system: str) -> None:
        super().__init__(log.path, log.name, log.settings, log.streams_settings)
        self.system = system

    def landed_name(self, name: str) -> str:
        """The name in the log of a stream of the system."""
        return f"{self.system}.{name}"

    def stream(self, name: str) -> LogStream:
        """A stream of which something was landed. Raises UnknownStreamError."""
        try:
            return super().stream(self.landed_name(name))
        except UnknownStreamError:
            raise UnknownStreamError(
                f"nothing of {self.system}.{name} has been landed yet in the log '{self.name}' "
                f"({self.path}): a job that reads it, or 'streambench land', receives it"
            ) from None

    def streams(self) -> list[str]:
        """The names in the system of what was landed, sorted."""
        prefix = self.landed_name("")
        return [name.removeprefix(prefix) for name in super().streams() if name.startswith(prefix)]
