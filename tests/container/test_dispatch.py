"""Messages that several tasks read, and those that cannot be decoded."""

from __future__ import annotations

from streambench.model import (
    IncomingMessageEnvelope,
)
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import run_job


def test_a_task_skips_processed_messages_of_a_broadcast_read_further_back() -> None:
    seen = []

    class Seen(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.name = context.task_name

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            seen.append((self.name, envelope.offset))

    run = run_job(
        Seen,
        {"task.broadcast.inputs": "mem.rules#0"},
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: list("abcd")}},
        checkpoints={"Partition 0": {"mem.rules.0": "0"}, "Partition 1": {"mem.rules.0": "2"}},
    )
    assert seen == [("Partition 0", "1"), ("Partition 0", "2"), ("Partition 0", "3"), ("Partition 1", "3")]
    assert run.metrics["container.processed"] == 3
    assert run.checkpoints == {name: {"mem.rules.0": "3"} for name in ("Partition 0", "Partition 1")}


def test_what_is_skipped_is_not_committed_anew() -> None:
    run = run_job(
        lambda envelope, collector, coordinator: None,
        {"task.broadcast.inputs": "mem.rules#0"},
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: list("abcd")}},
        checkpoints={"Partition 0": {"mem.rules.0": "0"}, "Partition 1": {"mem.rules.0": "2"}},
        max_messages=1,
    )
    assert run.checkpoints == {"Partition 0": {"mem.rules.0": "1"}, "Partition 1": {"mem.rules.0": "2"}}
    assert [call.task for call in run.calls if call.event == "commit"] == ["Partition 0"]
