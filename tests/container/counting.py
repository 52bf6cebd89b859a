"""A job that counts the messages between two windows, on log files, with time in hand: what the tests of
windows share."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.container.container import Container
from streambench.container.outputs.direct_writer import writing
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.serde.builtin import JsonSerde
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import ManualClock

IN, OUT = SystemStream("log", "in"), SystemStream("log", "out")
BEGIN_MS, STEP_MS, EVERY = 1_000_000, 100, 7


class Time:
    """The clock of all containers: each message takes ``STEP_MS``."""

    clock = ManualClock()


class Counts(StreamTask):
    """Counts the messages between two windows, in a store."""

    def init(self, context: TaskContext) -> None:
        self.store = context.store("counts")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        Time.clock.advance(STEP_MS)
        self.store.put("now", 1 + (self.store.get("now") or 0))

    def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, self.store.get("now") or 0))
        self.store.delete("now")


class CountsAndDies(Counts):
    """The same; commits after every fifth message, and its process is killed at message ``at``."""

    at = -1

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        super().process(envelope, collector, coordinator)
        if envelope.message == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        if envelope.message % 5 == 4:
            coordinator.commit()


def run_and_die(config: Config, at: int) -> None:
    """Run the job in a process of its own until it has caught up, or is killed at message ``at``; what a
    crash undoes takes no time."""
    script = (
        "import sys; from tests.container import counting; counting.run_here(sys.argv[1], int(sys.argv[2]))"
    )
    subprocess.run(
        [sys.executable, "-c", script, config["systems.log.path"], str(at)], check=at < 0, timeout=60
    )


def run_here(directory: str, at: int) -> None:
    """The body of that process."""
    config = settings(Path(directory)).with_values({"task.processing.guarantee": "exactly-once"})
    manager = checkpoint_manager(config, "counts-1")
    last = manager.read_last().get("Partition 0")
    manager.close()
    done = 1 + int(last.offsets.get(SystemStreamPartition("log", "in", 0), -1)) if last is not None else 0
    Time.clock = ManualClock(BEGIN_MS + done * STEP_MS)
    CountsAndDies.at = at
    container = Container(config, CountsAndDies, clock=Time.clock)
    container.start()
    container.run("caught-up")
    container.stop()


def settings(directory: Path) -> Config:
    """The job's configuration."""
    return Config(
        {
            "job.name": "counts",
            "task.inputs": "log.in",
            "task.window.ms": EVERY * STEP_MS,
            "systems.log.samza.factory": "log",
            "systems.log.path": str(directory),
            "systems.log.samza.offset.default": "oldest",
            "systems.log.samza.msg.serde": "json",
            "stores.counts.factory": "memory",
        }
    )


def job(directory: Path, **values: Any) -> Config:
    """The job, with an empty input of one partition; time begins."""
    Time.clock = ManualClock(BEGIN_MS)
    config = settings(directory).with_values({key.replace("_", "."): value for key, value in values.items()})
    systems = Systems(config)
    systems.create(IN)
    systems.close()
    return config


def put(config: Config, count: int) -> None:
    """Send so many messages."""
    systems = Systems(config)
    with writing(systems, IN, 1, "test", (None, JsonSerde())) as writer:
        writer.send(OutgoingMessageEnvelope(IN, number) for number in range(count))
    systems.close()


def counted(config: Config) -> list[int]:
    """The counts that windows have sent."""
    systems = Systems(config)
    try:
        found = read_to_head(
            systems.consumer("log", MetricsRegistry()),
            {SystemStreamPartition("log", "out", 0): "0"},
            at_most=10_000,
        )
        return [JsonSerde().from_bytes(each.message) for records in found.values() for each in records]
    finally:
        systems.close()
