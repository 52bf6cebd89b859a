"""What is known of webhook streams: which there are, and how many partitions they have. They hold nothing."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streambench.errors import OffsetError, StreamExistsError
from streambench.model import PartitionMetadata, SystemStream
from streambench.system.api import SystemAdmin
from streambench.system.webhook.settings import WebhookSettings


class WebhookAdmin(SystemAdmin):
    """Knows the streams that the configuration names; with a ``url`` for all of them, any stream can be posted to."""

    replayable = False

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        nothing = PartitionMetadata(None, None, "0")
        return {stream: dict.fromkeys(range(self._settings.partitions(stream)), nothing) for stream in streams}

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        present = self._settings.partitions(stream)
        if present != partitions:
            key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
            raise StreamExistsError(f"{stream} has {present} partitions and not {partitions}: say {key}={partitions}")
        return False

    def compare(self, offset: str, other: str) -> int | None:
        mine, others = _number(offset), _number(other)
        return (mine > others) - (mine < others)

    def after(self, offset: str) -> str:
        return str(_number(offset) + 1)

    def streams(self) -> list[SystemStream]:
        return self._settings.streams()


def _number(offset: str) -> int:
    if not offset.isdecimal():
        raise OffsetError(f"'{offset}' is not an offset of a webhook: those are numbers from 0 on")
    return int(offset)
