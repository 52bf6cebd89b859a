"""Messages that several tasks read, and those that cannot be decoded."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.errors import TaskError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import run_job
from tests.container.jobs import Bench, ignore


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


RULES: dict[str, Any] = {"task.broadcast.inputs": "mem.rules#0"}
THREE: dict[str, Any] = {"mem.a": {0: [], 1: [], 2: []}}


class Sends(StreamTask):
    """Sends its name with each message, and fails afterwards at a message that names it."""

    def init(self, context: TaskContext) -> None:
        self.name = context.task_name[-1]

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send("mem.out", f"{envelope.message} of {self.name}")
        if envelope.message == f"fail {self.name}":
            raise ValueError(self.name)


def test_a_broadcast_message_goes_to_all_tasks_before_the_next_one() -> None:
    run = run_job(Sends, RULES, THREE | {"mem.rules": {0: ["x", "y"]}})
    sent = [message for _, message in run.outputs["mem.out"][0]]
    assert sent == ["x of 0", "x of 1", "x of 2", "y of 0", "y of 1", "y of 2"]
    assert run.metrics["container.processed"] == 2


def test_a_failure_at_a_broadcast_leaves_the_offsets_of_later_tasks() -> None:
    bench = Bench(Sends, THREE | {"mem.rules": {0: ["x", "fail 1"]}}, RULES)
    container = bench.started()
    with pytest.raises(TaskError, match=r"Partition 1 failed at mem\.rules\.0@1: ValueError: 1"):
        container.run("caught-up")
    ssp = SystemStreamPartition("mem", "rules", 0)
    assert [task.offsets()[ssp] for task in container.status.tasks] == ["1", "0", "0"]


def test_an_ignored_failure_at_a_broadcast_drops_only_its_own_outputs() -> None:
    config = RULES | {"task.ignored.exceptions": "ValueError"}
    run = run_job(Sends, config, THREE | {"mem.rules": {0: ["fail 1"]}})
    assert [message for _, message in run.outputs["mem.out"][0]] == ["fail 1 of 0", "fail 1 of 2"]
    assert run.checkpoints == {f"Partition {each}": {"mem.rules.0": "0"} for each in range(3)}


def test_an_undecodable_broadcast_message_passes_by_tasks_that_begin_later() -> None:
    run = run_job(
        ignore,
        RULES | {"systems.mem.samza.msg.serde": "json", "task.drop.deserialization.errors": "true"},
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: [b"0", b"{", b"2", b"3"]}},
        checkpoints={"Partition 0": {"mem.rules.0": "0"}, "Partition 1": {"mem.rules.0": "2"}},
        max_messages=1,
    )
    assert run.checkpoints == {"Partition 0": {"mem.rules.0": "1"}, "Partition 1": {"mem.rules.0": "2"}}
    assert run.metrics["consumers.deserialization-errors"] == 1


def test_messages_before_the_start_of_a_task_are_counted_as_skipped() -> None:
    bench = Bench(ignore, {"mem.a": {0: [], 1: []}, "mem.rules": {0: list("abcd")}}, RULES)
    container = bench.started()
    later = container.status.tasks[1].subscriptions[-1]
    later.skip_before = "2"
    container.run("caught-up")
    assert (later.skipped, later.skip_before, later.offset) == (2, None, "3")
