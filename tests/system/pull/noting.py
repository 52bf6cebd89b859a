"""A task that notes what it gets."""

from __future__ import annotations

from streambench.model import IncomingMessageEnvelope
from streambench.task import MessageCollector, StreamTask, TaskCoordinator

seen: list[tuple[str, bytes]] = []
"""Stream and message of all that the tasks of a test got."""


class Noting(StreamTask):
    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.append((envelope.ssp.stream, envelope.message))
