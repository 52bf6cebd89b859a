"""Admin of webhook streams: their names and numbers of partitions. They hold no messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from streambench.errors import StreamExistsError
from streambench.model import PartitionMetadata, SystemStream
from streambench.system.numbered import NumberedAdmin
from streambench.system.webhook.settings import WebhookSettings


class WebhookAdmin(NumberedAdmin):
    """Knows the streams that the configuration names; with a ``url`` for all of them, any stream can be
    posted to."""

    replayable = False

    def __init__(self, settings: WebhookSettings) -> None:
        self._settings = settings

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        nothing = PartitionMetadata(None, None, "0")
        return {
            stream: dict.fromkeys(range(self._settings.partitions(stream)), nothing) for stream in streams
        }

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        present = self._settings.partitions(stream)
        if present != partitions:
            key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
            raise StreamExistsError(
                f"{stream} has {present} partitions and not {partitions}: say {key}={partitions}"
            )
        return False

    def streams(self) -> list[SystemStream]:
        return self._settings.streams()
