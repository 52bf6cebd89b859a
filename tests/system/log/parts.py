"""The parts of one log, as tests of its system use them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.log import LogAdmin, LogConsumer, LogProducer, LogSystemFactory

CLICKS = SystemStream("log", "clicks")
P0, P1 = SystemStreamPartition("log", "clicks", 0), SystemStreamPartition("log", "clicks", 1)


class Parts:
    """The parts of one log, made from a configuration."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        values = {f"systems.log.{key.replace('_', '.')}": value for key, value in settings.items()}
        self.config = Config({"systems.log.samza.factory": "log", "systems.log.path": directory, **values})
        self.metrics = MetricsRegistry()
        self.admin: LogAdmin = LogSystemFactory().get_admin("log", self.config)
        self.admin.create(CLICKS, 2)

    def producer(self) -> LogProducer:
        made = LogSystemFactory().get_producer("log", self.config, self.metrics)
        made.start()
        made.register("task")
        return made

    def consumer(self, starts: dict[SystemStreamPartition, str]) -> LogConsumer:
        made = LogSystemFactory().get_consumer("log", self.config, self.metrics)
        for ssp, offset in starts.items():
            made.register(ssp, offset)
        made.start()
        return made

    def upcoming(self, partition: int = 0) -> str | None:
        return self.admin.metadata([CLICKS])[CLICKS][partition].upcoming


def outgoing(
    message: Any, key: Any = None, partition: int | None = 0, **more: Any
) -> OutgoingMessageEnvelope:
    return OutgoingMessageEnvelope(CLICKS, message, key, None, partition, **more)
