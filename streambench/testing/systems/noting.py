"""A job that notes what it reads from a system under test."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambench.container.container import Container
from streambench.model import IncomingMessageEnvelope
from streambench.task import MessageCollector, StreamTask, TaskCoordinator
from streambench.testing.systems.harness import SystemUnderTest


def started_job(system: SystemUnderTest, processed: list[Any], settings: Mapping[str, Any]) -> Container:
    """Start a job that appends each message to ``processed``; its checkpoints are kept in a log."""

    class Noting(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            processed.append(envelope.message)

    job = {
        "job.name": "contract",
        "task.inputs": str(system.stream),
        "task.checkpoint.system": "kept",
        "systems.kept.samza.factory": "log",
        "systems.kept.path": system.directory / "kept",
        **settings,
    }
    container = Container.from_config(system.config.with_values(job), Noting)
    container.start()
    return container
