"""What the tests of state share: a job with one store, and everything it has on a disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import streambench as sb
from streambench.clock import Clock
from streambench.metrics.registry import MetricsRegistry
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.systems import Systems

INPUT = sb.SystemStream("log", "in")
CHANGELOG = sb.SystemStream("log", "job-1-s-changelog")


class Keep(sb.StreamTask):
    """Keeps the last message of each key; an empty one removes it, ``commit`` commits."""

    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("s")

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        if envelope.message == "commit":
            coordinator.commit(sb.RequestScope.ALL_TASKS_IN_CONTAINER)
        elif envelope.message:
            self.store.put(envelope.key, envelope.message)
        else:
            self.store.delete(envelope.key)


class Counts(sb.StreamTask):
    """Counts in all stores that the configuration names."""

    def init(self, context: sb.TaskContext) -> None:
        self.stores = [context.store(name) for name in context.config.names_below("stores.")]

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        for store in self.stores:
            store["n"] = store.get("n", 0) + 1


class Job:
    """A job with one store, whose streams, checkpoints and files are below one directory."""

    def __init__(self, directory: Path, values: Mapping[str, Any], clock: Clock | None = None) -> None:
        self.directory = directory
        self.clock = clock
        self.config = sb.Config(
            {
                "job.name": "job",
                "task.inputs": INPUT,
                "task.commit.ms": -1,
                "systems.log.samza.factory": "log",
                "systems.log.path": directory / "log",
                "systems.log.samza.offset.default": "oldest",
                "systems.log.samza.key.serde": "string",
                "systems.log.samza.msg.serde": "string",
                "stores.s.factory": "rocksdb",
                "stores.s.msg.serde": "string",
                **values,
            }
        )
        with_systems(self.config, lambda systems: systems.create(INPUT, 1))

    def send(self, *entries: tuple[str, str] | str) -> None:
        """Messages with their keys; a text alone is a message without one."""

        def send(systems: Systems) -> None:
            producer = systems.producer("log", MetricsRegistry())
            producer.register("test")
            producer.start()
            for entry in entries:
                key, message = entry if isinstance(entry, tuple) else ("", entry)
                producer.send(
                    "test", sb.OutgoingMessageEnvelope(INPUT, message.encode(), key.encode(), partition=0)
                )
            producer.flush("test")
            producer.stop()

        with_systems(self.config, send)

    def container(self, values: Mapping[str, Any] | None = None) -> sb.Container:
        """A container of the job, started."""
        container = sb.Container(self.config.with_values(values or {}), Keep, clock=self.clock)
        container.start()
        return container

    def run(
        self, *entries: tuple[str, str] | str, crash: bool = False, values: Mapping[str, Any] | None = None
    ) -> dict[str, str]:
        """Process messages in one start of the job; the state at the end."""
        self.send(*entries)
        container = self.container(values)
        container.run("caught-up")
        state = held(container)
        if crash:
            container.abandon()
        else:
            container.stop()
        return state

    def rewind(self, back: int) -> None:
        """Go back to the checkpoint so many commits ago."""
        manager = checkpoint_manager(self.config, "job-1")
        [(task, kept)] = manager.history().items()
        manager.rewind({task: kept[-1 - back]}, now_ms=0)
        manager.close()

    def changelog(self) -> list[tuple[bytes, bytes | None]]:
        """The keys and values of all that the changelog holds."""
        return [(key, value) for _, _, key, value in self.changelog_rows()]

    def changelog_rows(self) -> list[tuple[int, int, bytes, bytes | None]]:
        """All that the changelog holds: offset, timestamp, key and value."""
        found: list[tuple[int, int, bytes, bytes | None]] = []

        def read(systems: Systems) -> None:
            for batch in systems.admin("log").log.partition(CHANGELOG.stream, 0).read(0):  # type: ignore[attr-defined]
                columns = (batch[name].to_pylist() for name in ("offset", "timestamp", "key", "value"))
                found.extend(zip(*columns, strict=True))

        with_systems(self.config, read)
        return found

    def compact(self) -> None:
        """Compact the changelog as far as its settings let it."""

        def compact(systems: Systems) -> None:
            changelog = systems.admin("log").log.stream(CHANGELOG.stream)  # type: ignore[attr-defined]
            for number in range(changelog.partitions):
                changelog.partition(number).roll()
                changelog.partition(number).clean()

        with_systems(self.config, compact)


def with_systems(config: sb.Config, use: Callable[[Systems], object]) -> None:
    systems = Systems(config)
    try:
        use(systems)
    finally:
        systems.close()


def held(container: sb.Container) -> dict[str, str]:
    """The state of the only task."""
    return dict(container.tasks[0].context.store("s").all())


def restored(container: sb.Container) -> float:
    """How many entries of the changelog a start has read."""
    return container.metrics.snapshot()["store-s.entries-restored"]


def snapshots(directory: Path) -> list[Path]:
    """The snapshots of the job's store, oldest first."""
    return sorted((directory / "log" / CHANGELOG.stream / "0").glob("snapshot-*"))
