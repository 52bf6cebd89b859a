"""Tasks with ``process_batch``: what they are given, when a run ends, and what happens where one fails."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from streambench.batch import MessageBatch
from streambench.chooser.api import MessageChooser
from streambench.errors import ConfigError, SerdeError, TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import (
    MessageCollector,
    RequestScope,
    StreamTask,
    TaskContext,
    TaskCoordinator,
    TaskLifecycleListener,
)
from streambench.testing import ManualClock, run_job
from tests.container.inputs.test_consumers import network
from tests.container.jobs import Bench, Choices, send

ProcessBatch = Callable[[MessageBatch, MessageCollector, TaskCoordinator], None]
JSON = {"systems.mem.samza.msg.serde": "json"}


def batched(process_batch: ProcessBatch, **members: Any) -> type[StreamTask]:
    """A task class with nothing but ``process_batch`` and what else is given."""
    return type("Batched", (StreamTask,), {"process_batch": staticmethod(process_batch), **members})


def places(batches: list[MessageBatch]) -> list[str]:
    return [f"{batch.ssp}@{batch.first_offset}..{batch.last_offset}" for batch in batches]


def keep(batches: list[MessageBatch]) -> ProcessBatch:
    return lambda batch, collector, coordinator: batches.append(batch)


def test_a_task_gets_what_waits_of_the_chosen_partition_up_to_the_limit() -> None:
    batches: list[MessageBatch] = []
    run_job(batched(keep(batches)), {"task.batch.messages": 3}, {"mem.in": {0: list("abcdefg"), 1: ["x"]}})
    assert places(batches) == ["mem.in.0@0..2", "mem.in.1@0..0", "mem.in.0@3..5", "mem.in.0@6..6"]


def test_process_batch_wins_where_a_task_has_both() -> None:
    class Both(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            raise AssertionError("one by one")

        def process_batch(
            self, batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            send(collector, len(batch))

    assert run_job(Both, None, {"mem.in": {0: list("abc")}}).outputs["mem.out"] == {0: [(None, 3)]}


def test_a_task_with_process_batch_alone_can_be_called_with_a_message_too() -> None:
    batches: list[MessageBatch] = []
    bench = Bench(batched(keep(batches)), {"mem.in": {0: ["x"]}})
    bench.started().tasks[0].task.process(
        IncomingMessageEnvelope(bench.container.tasks[0].subscriptions[0].ssp, "7", "k", "m"), None, None
    )
    assert [(each.offset, each.key, each.message) for each in batches[0]] == [("7", "k", "m")]


def test_a_class_with_neither_is_no_task() -> None:
    with pytest.raises(ConfigError, match="nor process_batch"):
        run_job(type("Nothing", (), {}), None, {"mem.in": {0: []}})


def test_stepping_hands_over_one_message_at_a_time() -> None:
    batches: list[MessageBatch] = []
    container = Bench(batched(keep(batches)), {"mem.in": {0: list("abcdef")}}).started()
    assert container.step(2) == 2
    assert container.run(3) == 3
    assert container.step() == 1
    assert places(batches) == ["mem.in.0@0..0", "mem.in.0@1..1", "mem.in.0@2..4", "mem.in.0@5..5"]


def test_a_run_until_a_number_of_messages_never_has_more() -> None:
    batches: list[MessageBatch] = []
    bench = Bench(
        batched(keep(batches)), {"mem.in": {0: list("abcdef"), 1: list("xyz")}}, {"task.batch.messages": 4}
    )
    container = bench.started()
    assert [container.run(count) for count in (1, 5, 3)] == [1, 5, 3]
    assert list(map(len, batches)) == [1, 3, 2, 3]
    assert bench.places()[:1] == ["mem.in.0@0"]


def test_until_is_asked_between_runs() -> None:
    batches: list[MessageBatch] = []
    container = Bench(
        batched(keep(batches)), {"mem.in": {0: list("abcdef")}}, {"task.batch.messages": 2}
    ).started()
    assert container.run(lambda: container.processed >= 3) == 4


def test_a_run_ends_where_reading_ends() -> None:
    batches: list[MessageBatch] = []
    bench = Bench(batched(keep(batches)), {"mem.in": {0: list("abcdef")}})
    ssp = bench.started().tasks[0].subscriptions[0].ssp
    bench = Bench(batched(keep(batches)), {"mem.in": {0: list("abcdef")}}, ends={ssp: "4"})
    assert bench.started().run("caught-up") == 4
    assert places(batches) == ["mem.in.0@0..3"]


def test_a_batch_of_the_chooser_bounds_the_run() -> None:
    batches: list[MessageBatch] = []
    run_job(
        batched(keep(batches)), {"task.consumer.batch.size": 2}, {"mem.in": {0: list("abc"), 1: list("xyz")}}
    )
    assert places(batches) == ["mem.in.0@0..1", "mem.in.1@0..1", "mem.in.0@2..2", "mem.in.1@2..2"]


def test_a_growing_bootstrap_stream_does_not_keep_others_waiting() -> None:
    batches: list[MessageBatch] = []
    bench: Bench

    def grow(self: Any, context: TaskContext) -> None:
        bench.put("mem.base.0", "late", "later")

    bench = Bench(
        batched(keep(batches), init=grow), {"mem.base": {0: list("ab")}, "mem.in": {0: list("xy")}},
        {"systems.mem.streams.base.samza.bootstrap": True, "systems.mem.streams.in.samza.priority": 1},
    )  # fmt: skip
    bench.started().run("caught-up")
    assert places(batches) == ["mem.base.0@0..1", "mem.in.0@0..1", "mem.base.0@2..3"]


class Newest(MessageChooser):
    """Decides message by message, and says nothing of runs."""

    def __init__(self) -> None:
        self.inside: list[IncomingMessageEnvelope] = []

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self.inside.append(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        self.inside.sort(key=lambda each: each.message)
        return self.inside.pop() if self.inside else None


def test_a_chooser_that_decides_message_by_message_is_obeyed() -> None:
    batches: list[MessageBatch] = []
    run_job(
        batched(keep(batches)),
        {"task.chooser.class": "tests.container.test_batch_dispatch.Newest"} | JSON,
        {"mem.in": {0: [5, 3], 1: [4, 6]}},
    )
    assert [each.message for batch in batches for each in batch] == [5, 4, 6, 3]


def test_windows_outputs_and_commits_come_between_runs() -> None:
    bench: Bench

    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, len(batch))
        coordinator.commit(RequestScope.CURRENT_TASK)
        bench.clock.advance(1)

    def window(self: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, "window")

    bench = Bench(
        batched(process_batch, window=window),
        {"mem.in": {0: list("abcd")}},
        {"task.batch.messages": 2, "task.window.ms": 1},
    )
    bench.started().run("caught-up")
    events = ["process", "process", "window", "send", "send", "commit"]
    assert bench.events() == events * 2
    assert bench.outputs() == [2, "window", 2, "window"]


def test_a_shutdown_lets_the_run_finish() -> None:
    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)

    run = run_job(batched(process_batch), {"task.batch.messages": 2}, {"mem.in": {0: list("abcd")}})
    assert run.checkpoints == {"Partition 0": {"mem.in.0": "1"}}


def fails(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    send(collector, "lost")
    if batch.first_offset == "2":
        raise ValueError("bad luck")


def test_a_failure_names_both_ends_of_a_run_of_which_nothing_counts() -> None:
    bench = Bench(batched(fails), {"mem.in": {0: list("abcde")}}, {"task.batch.messages": 2})
    container = bench.started()
    with pytest.raises(
        TaskError, match=r"mem\.in\.0@2\.\.3 \(a run of 2 messages\): ValueError: bad luck"
    ) as caught:
        container.run("caught-up")
    assert (caught.value.offset, caught.value.last_offset, caught.value.key) == ("2", "3", None)
    assert bench.outputs() == ["lost"]
    assert (container.processed, container.chosen) == (2, 4)
    [partition] = container.snapshot().partitions
    assert (partition.position, partition.processed, partition.waiting) == ("2", 2, 0)


def test_a_failure_at_a_single_message_names_its_key() -> None:
    bench = Bench(batched(fails), {"mem.in": {0: ["a", "b", ("k", "c")]}})
    with pytest.raises(TaskError, match=r"mem\.in\.0@2, key 'k': ValueError: bad luck") as caught:
        bench.started().step(3)
    assert caught.value.key == "k"


def test_an_ignored_exception_skips_the_whole_run_and_counts_once() -> None:
    config = {"task.batch.messages": 2, "task.ignored.exceptions": "ValueError"}
    run = run_job(batched(fails), config, {"mem.in": {0: list("abcde")}})
    assert len(run.outputs["mem.out"][0]) == 2
    assert [offset for _, offset, _, _ in run.processed] == ["0", "1", "2", "3", "4"]
    assert run.metrics["container.exception-ignored-ValueError"] == 1
    assert run.checkpoints == {"Partition 0": {"mem.in.0": "4"}}


class Told(TaskLifecycleListener):
    """Notes what it is told."""

    told: list[tuple[str, str, Any]]

    def before_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None:
        self.told.append(("before", envelope.offset, envelope.message))

    def after_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None:
        self.told.append(("after", envelope.offset, envelope.message))
        if envelope.message == "stop":
            raise ValueError("heard enough")


LISTENER = {
    "task.lifecycle.listeners": "a",
    "task.lifecycle.listener.a.class": "tests.container.test_batch_dispatch.Told",
}


def test_listeners_are_told_of_each_message_before_and_after_the_run() -> None:
    Told.told = []
    run = run_job(
        batched(lambda *_: Told.told.append(("run", "", None))), LISTENER | JSON, {"mem.in": {0: [1, b"{"]}}
    )
    assert Told.told == [
        ("before", "0", 1),
        ("before", "1", b"{"),
        ("run", "", None),
        ("after", "0", 1),
        ("after", "1", b"{"),
    ]
    assert [(call.event, call.detail) for call in run.calls if call.detail] == [
        (event, f"mem.in.0@{at}") for event in ("before_process", "process", "after_process") for at in (0, 1)
    ]


def test_a_run_at_which_a_listener_fails_afterwards_is_not_processed() -> None:
    Told.told = []
    with pytest.raises(TaskError) as caught:
        run_job(
            batched(keep([])), LISTENER | {"task.batch.messages": 2}, {"mem.in": {0: ["a", "b", "c", "stop"]}}
        )
    assert [offset for _, offset, _, _ in caught.value.job_run.processed] == ["0", "1"]  # type: ignore[attr-defined]


def each_decoded(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    for envelope in batch:
        send(collector, envelope.message)


def test_an_undecodable_message_ends_the_job_where_the_task_reaches_it() -> None:
    bench = Bench(
        batched(each_decoded),
        {"mem.in": {0: [b"1", b"2", b"{", b"4"]}},
        JSON | {"task.ignored.exceptions": "*"},
    )
    with pytest.raises(
        SerdeError, match=r"mem\.in\.0@2, key None: cannot decode this message: JSONDecodeError"
    ):
        bench.started().run("caught-up")
    assert bench.outputs() == []


@pytest.mark.parametrize("read", ["iteration", "messages", "table"])
def test_undecodable_messages_are_dropped_and_counted_once_however_read(
    read: str,
) -> None:
    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for _ in range(2):
            found = {
                "iteration": lambda: [each.message for each in batch],
                "messages": batch.messages,
                "table": lambda: batch.table().to_pylist(),
            }[read]()
        send(collector, found)

    config = JSON | {"task.drop.deserialization.errors": True}
    run = run_job(batched(process_batch), config, {"mem.in": {0: [{"a": 1}, b"{", {"a": 2}]}})
    assert run.outputs["mem.out"][0] == [(None, [{"a": 1}, {"a": 2}])]
    assert run.metrics["consumers.deserialization-errors"] == 1
    assert [offset for _, offset, _, _ in run.processed] == ["0", "2"]
    assert run.checkpoints == {"Partition 0": {"mem.in.0": "2"}}


def test_who_reads_only_the_bytes_deals_with_all_messages() -> None:
    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, [value.decode() for value in batch.to_arrow()["message"].to_pylist()])

    run = run_job(batched(process_batch), JSON, {"mem.in": {0: [b"1", b"{"]}})
    assert run.outputs["mem.out"][0] == [(None, ["1", "{"])]


def test_every_broadcast_message_that_cannot_be_decoded_counts_once() -> None:
    config = JSON | {"task.drop.deserialization.errors": True, "task.broadcast.inputs": "mem.rules#0"}
    inputs = {"mem.in": {0: [1], 1: [2]}, "mem.rules": {0: [0, b"{", b"3"]}}
    for begins_later in ({}, {"Partition 1": {"mem.rules.0": "0"}}):
        run = run_job(batched(each_decoded), config, inputs, checkpoints=begins_later)
        assert run.metrics["consumers.deserialization-errors"] == 1


def test_the_last_choices_are_the_last_messages_of_the_runs() -> None:
    bench = Bench(
        batched(keep([])), {"mem.in": {0: list("abcde")}}, {"task.batch.messages": 4}, remember_choices=3
    )
    bench.started().run("caught-up")
    assert [(each.number, each.offset) for each in bench.container.snapshot().choices] == [
        (3, "2"),
        (4, "3"),
        (5, "4"),
    ]


def test_whoever_watches_choices_sees_every_message() -> None:
    seen: list[str] = []
    bench = Bench(batched(keep([])), {"mem.in": {0: list("abcde")}}, remember_choices=2)
    bench.started().observe(Choices(lambda envelope: seen.append(envelope.offset)))
    bench.container.run("caught-up")
    assert seen == ["0", "1", "2", "3", "4"]


def test_code_may_be_exchanged_for_code_of_the_other_kind() -> None:
    batches: list[MessageBatch] = []
    bench = Bench(batched(keep(batches)), {"mem.in": {0: list("abcd")}})
    container = bench.started()
    container.run(2)

    class Single:
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            collector.send(OutgoingMessageEnvelope(SystemStream("mem", "out"), envelope.message))

    container.tasks[0].bind(Single())
    container.run("caught-up")
    assert (places(batches), bench.outputs()) == (["mem.in.0@0..1"], ["c", "d"])


def test_a_bound_below_one_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"task\.batch\.messages"):
        run_job(batched(keep([])), {"task.batch.messages": 0}, {"mem.in": {0: ["x"]}})


def test_what_a_task_sends_to_its_own_input_is_in_a_later_run() -> None:
    batches: list[MessageBatch] = []

    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        batches.append(batch)
        for envelope in batch:
            if envelope.message < 3:
                collector.send(OutgoingMessageEnvelope(SystemStream("mem", "in"), envelope.message + 1))

    run_job(batched(process_batch), JSON, {"mem.in": {0: [1, 2]}})
    assert places(batches) == ["mem.in.0@0..1", "mem.in.0@2..3", "mem.in.0@4..4"]


def test_messages_that_a_thread_reads_come_in_runs_too() -> None:
    batches: list[MessageBatch] = []
    bench, system = network(
        batched(keep(batches)), {"mem.in": {0: list(range(100))}}, {"systems.mem.samza.fetch.threshold": 20}
    )
    container = bench.started()
    system.wait_for("mem.in.0", 20)
    container.run(100)
    container.stop()
    assert [each.message for batch in batches for each in batch] == list(range(100))
    assert len(batches) < 40


def test_a_thread_reads_on_while_a_run_is_processed() -> None:
    taken = 0

    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        nonlocal taken
        taken += len(batch)
        system.wait_for("mem.in.0", min(100, taken + 19))

    bench, system = network(
        batched(process_batch), {"mem.in": {0: list(range(100))}}, {"systems.mem.samza.fetch.threshold": 20}
    )
    container = bench.started()
    container.run(100)
    container.stop()
    assert taken == 100


DEAD = {"task.dead.letter.stream": "mem.dead", "systems.mem.streams.dead.samza.msg.serde": ""}


def test_undecodable_messages_become_dead_letters_even_in_a_skipped_run() -> None:
    def process_batch(batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, "before")
        send(collector, batch.messages())
        if batch.first_offset == "2":
            raise ValueError("bad luck")

    config = JSON | DEAD | {"task.ignored.exceptions": "ValueError", "task.batch.messages": 2}
    run = run_job(batched(process_batch), config, {"mem.in": {0: [1, b"{", b"[", 4]}})
    assert run.outputs["mem.dead"][0] == [(None, b"{"), (None, b"[")]
    assert run.outputs["mem.out"][0] == [(None, "before"), (None, [1])]
    assert run.metrics["container.dead-letters"] == 2


def test_a_window_failing_over_a_kept_run_drops_no_output_and_no_letter() -> None:
    clock = ManualClock()

    class Late(StreamTask):
        def __init__(self) -> None:
            self.kept: list[MessageBatch] = []

        def process_batch(
            self, batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            self.kept.append(batch)
            send(collector, "of the run")
            clock.advance(1000)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            kept, self.kept = self.kept, []
            for batch in kept:
                send(collector, batch.messages())
                raise ValueError("bad luck")

    config = JSON | DEAD | {"task.ignored.exceptions": "ValueError", "task.window.ms": 1000}
    run = run_job(Late, config, {"mem.in": {0: [1, b"{", 3]}}, clock=clock)
    assert run.outputs["mem.out"][0] == [(None, "of the run")]
    assert run.outputs["mem.dead"][0] == [(None, b"{")]
    assert run.metrics["container.exception-ignored-ValueError"] == 1


def test_whoever_wants_dead_letters_need_not_have_every_message_decoded() -> None:
    """The head of a run is decoded for the chooser, the others are not."""
    run = run_job(batched(keep([])), JSON | DEAD, {"mem.in": {0: [1, b"{"]}})
    assert "mem.dead" not in run.outputs
