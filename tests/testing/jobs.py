"""Tasks, and how the tests of ``run_job`` look at a run."""

from __future__ import annotations

from typing import Any

from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import Call, JobRun
from tests.container.jobs import OUT

JSON = {"systems.mem.samza.msg.serde": "json", "systems.mem.samza.key.serde": "string"}


def fails_at_bad(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    collector.send(OutgoingMessageEnvelope(OUT, envelope.message))
    if envelope.message == "bad":
        raise ValueError("that is bad")


class Whole(StreamTask):
    """A task with all the callbacks there are."""

    def init(self, context: TaskContext) -> None:
        self.name = context.task_name

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, envelope.message))

    def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, "window"))

    def close(self) -> None:
        pass


class Counter(StreamTask):
    """Counts its messages by key, in a store."""

    def init(self, context: TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send(OutgoingMessageEnvelope(OUT, count, key=envelope.key))


COUNTS = {"stores.counts.factory": "memory", "stores.counts.changelog": "mem.counts-changelog"}


def places(run: JobRun) -> list[str]:
    return [f"{ssp}@{offset}" for ssp, offset, _, _ in run.processed]


def messages(run: JobRun, stream: str = "mem.out") -> list[Any]:
    """The messages of an output stream, partition by partition."""
    return [message for _, partition in sorted(run.outputs[stream].items()) for _, message in partition]


def events(run: JobRun, *kinds: str) -> list[Call]:
    return [call for call in run.calls if call.event in kinds]
