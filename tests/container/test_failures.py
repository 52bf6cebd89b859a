"""Failures of tasks, and messages and outputs that cannot be decoded or encoded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streambench.errors import SerdeError, TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, RequestScope, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, Process, ignore, passing, send, sending, windowed

ALL = RequestScope.ALL_TASKS_IN_CONTAINER


def fails_at(bad: object, error: BaseException) -> Process:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        send(collector, envelope.message)
        if envelope.message == bad:
            coordinator.commit(ALL)
            raise error

    return process


def test_a_failure_names_the_place_and_keeps_the_original() -> None:
    original = KeyError("missing")
    with pytest.raises(
        TaskError, match=r"Partition 1 failed at mem\.a\.1@2, key b'k': KeyError: 'missing'"
    ) as caught:
        run_job(fails_at("bad", original), None, {"mem.a": {1: ["x", "y", (b"k", "bad")]}})
    error = caught.value
    assert (error.task, str(error.ssp), error.offset, error.key) == ("Partition 1", "mem.a.1", "2", b"k")
    assert error.__cause__ is original


@pytest.mark.parametrize(
    ("name", "more"), [("stream", r" \(did you mean envelope\.ssp\.stream\?\)"), ("topic", "")]
)
def test_an_attribute_of_the_ssp_that_is_asked_of_an_envelope_is_named(name: str, more: str) -> None:
    def process(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        getattr(envelope, name)

    with pytest.raises(TaskError, match=f"AttributeError: .* has no attribute '{name}'{more}$"):
        run_job(process, None, {"mem.a": {0: ["x"]}})


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, SystemExit])
def test_what_is_no_exception_is_a_failure_with_its_place(kind: type[BaseException]) -> None:
    with pytest.raises(TaskError, match=r"Partition 0 failed at mem\.a\.0@1: ") as caught:
        run_job(fails_at("bad", kind()), None, {"mem.a": {0: ["x", "bad"]}})
    assert type(caught.value.__cause__) is kind

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise kind

    clock = ManualClock()
    with pytest.raises(TaskError, match=r"Partition 0 failed in window\(\): "):
        run_job(
            windowed(window, passing(clock, 60)),
            {"task.window.ms": 100},
            {"mem.a": {0: ["x", "y"]}},
            clock=clock,
        )


def test_an_init_that_would_end_the_process_is_a_failure_of_its_task() -> None:
    class Leaves(StreamTask):
        def init(self, context: TaskContext) -> None:
            raise SystemExit(3)

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            pass

    with pytest.raises(TaskError, match=r"Partition 0 failed in init\(\): RuntimeError: sys.exit\(3\)"):
        run_job(Leaves, None, {"mem.a": {0: ["x"]}})


def test_outputs_of_a_raising_call_are_not_sent_and_its_requests_dropped() -> None:
    with pytest.raises(TaskError) as caught:
        run_job(fails_at("bad", ValueError()), None, {"mem.a": {0: ["good", "bad"]}})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for _, message in run.outputs["mem.out"][0]] == ["good"]
    assert run.checkpoints == {}
    assert "commit" not in [call.event for call in run.calls]


def test_outputs_of_process_are_not_sent_where_window_raises_right_after() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise ValueError("no window")

    with pytest.raises(TaskError, match=r"Partition 0 failed in window\(\): ValueError: no window") as caught:
        run_job(
            windowed(window, passing(clock, 60)),
            {"task.window.ms": 100},
            {"mem.a": {0: ["x", "y"]}},
            clock=clock,
        )
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for _, message in run.outputs["mem.out"][0]] == ["x"]
    assert (caught.value.task, caught.value.ssp, caught.value.offset) == ("Partition 0", None, None)


def test_a_failure_closes_all_tasks_without_a_commit() -> None:
    class Fails(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            if envelope.message == "bad":
                raise ValueError

        def close(self) -> None:
            pass

    with pytest.raises(TaskError, match="ValueError$") as caught:
        run_job(Fails, None, {"mem.a": {0: ["x"], 1: ["bad"], 2: ["y"]}})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [call.event for call in run.calls] == ["process", "process", "close", "close", "close"]


# Ignored exceptions


class Trouble(ValueError):
    pass


@pytest.mark.parametrize("ignored", ["Trouble", "*", f"{__name__}.Trouble", "KeyError, Trouble"])
def test_an_ignored_exception_is_counted_and_its_message_is_processed(ignored: str) -> None:
    run = run_job(
        fails_at("bad", Trouble()),
        {"task.ignored.exceptions": ignored},
        {"mem.a": {0: ["a", "bad", "b"], 1: ["x"]}},
    )
    assert [message for _, message in run.outputs["mem.out"][0]] == ["a", "x", "b"]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "2"}, "Partition 1": {"mem.a.1": "0"}}
    assert run.metrics["container.exception-ignored-Trouble"] == 1
    assert [call.event for call in run.calls if call.event == "commit"] == ["commit", "commit"]


@pytest.mark.parametrize("ignored", ["ValueError", "Exception", "trouble", "other.Trouble"])
def test_only_the_exact_class_is_ignored(ignored: str) -> None:
    with pytest.raises(TaskError):
        run_job(fails_at("bad", Trouble()), {"task.ignored.exceptions": ignored}, {"mem.a": {0: ["bad"]}})


def test_an_ignored_exception_drops_only_what_that_callback_collected() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, "from the window")
        raise Trouble

    run = run_job(
        windowed(window, passing(clock, 100)),
        {"task.window.ms": 100, "task.ignored.exceptions": "Trouble"},
        {"mem.a": {0: ["x"]}},
        clock=clock,
    )
    assert [message for _, message in run.outputs["mem.out"][0]] == ["x"]
    assert run.metrics["container.exception-ignored-Trouble"] == 1


def test_an_ignored_exception_of_one_task_leaves_a_broadcast_to_the_others() -> None:
    class FirstFails(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.name = context.task_name

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            send(collector, self.name)
            if self.name == "Partition 1":
                raise Trouble

    config = {"task.broadcast.inputs": "mem.rules#0", "task.ignored.exceptions": "Trouble"}
    run = run_job(FirstFails, config, {"mem.rules": {0: ["r"]}, "mem.a": {0: [], 1: [], 2: []}})
    assert [message for _, message in run.outputs["mem.out"][0]] == ["Partition 0", "Partition 2"]
    assert all(offsets == {"mem.rules.0": "0"} for offsets in run.checkpoints.values())
    assert len(run.checkpoints) == 3


def test_what_is_no_exception_is_never_ignored() -> None:
    def interrupted(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(interrupted, {"task.ignored.exceptions": "*"}, {"mem.a": {0: ["x"]}})


def test_an_exception_in_init_is_not_ignored() -> None:
    class Refuses(StreamTask):
        def init(self, context: TaskContext) -> None:
            raise Trouble("not today")

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            pass

    with pytest.raises(TaskError, match=r"in init\(\): Trouble: not today"):
        run_job(Refuses, {"task.ignored.exceptions": "*"}, {"mem.a": {0: ["x"]}})


# Messages that cannot be decoded

JSON = {"systems.mem.samza.msg.serde": "json"}


def test_an_undecodable_message_fails_the_container_at_its_own_turn() -> None:
    with pytest.raises(
        SerdeError, match=r"^mem\.a\.0@2, key b'k': cannot decode this message: JSONDecodeError"
    ) as caught:
        run_job(ignore, JSON, {"mem.a": {0: [1, 2, (b"k", b"{"), 4], 1: [5, 6, 7, 8]}})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for *_, message in run.processed] == [1, 5, 2, 6]
    assert caught.value.__cause__ is not None


def test_the_first_message_may_be_the_bad_one() -> None:
    bench = Bench(ignore, {"mem.a": {0: [b"{"]}}, JSON)
    container = bench.started()
    with pytest.raises(SerdeError, match=r"mem\.a\.0@0"):
        container.run("caught-up")
    assert container.state == "failed"


DROP = JSON | {"task.drop.deserialization.errors": "true"}


def test_undecodable_messages_can_be_passed_over_and_are_counted() -> None:
    run = run_job(ignore, DROP, {"mem.a": {0: [1, b"{", 2, b"{", b"{", 3]}})
    assert [message for *_, message in run.processed] == [1, 2, 3]
    assert run.metrics["consumers.deserialization-errors"] == 3


def test_a_message_that_is_passed_over_counts_as_processed() -> None:
    """Else it would come again with every start, and the partition never be caught up."""
    run = run_job(ignore, DROP, {"mem.a": {0: [1, b"{"], 1: [b"{"]}})
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}, "Partition 1": {"mem.a.1": "0"}}
    assert run_job(ignore, JSON, previous=run).processed == []


def test_a_bootstrap_stream_whose_last_is_undecodable_opens_the_gate() -> None:
    config = DROP | {"systems.mem.streams.boot.samza.bootstrap": "true"}
    run = run_job(ignore, config, {"mem.a": {0: ["x"]}, "mem.boot": {0: ["b", b"{"]}})
    assert [message for *_, message in run.processed] == ["b", "x"]


def test_a_broadcast_message_that_cannot_be_decoded_is_counted_once() -> None:
    run = run_job(
        ignore,
        DROP | {"task.broadcast.inputs": "mem.rules#0"},
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: [b"{", "r"]}},
    )
    assert [message for *_, message in run.processed] == ["r", "r"]
    assert run.metrics["consumers.deserialization-errors"] == 1


def test_a_key_that_cannot_be_decoded_is_a_message_that_cannot() -> None:
    config = {"systems.mem.samza.key.serde": "long"}
    with pytest.raises(SerdeError, match=r"mem\.a\.0@1, key b'no long': cannot decode"):
        run_job(ignore, config, {"mem.a": {0: [(1, b"x"), (b"no long", b"y")]}})
    run = run_job(
        ignore,
        config | {"task.drop.deserialization.errors": "true"},
        {"mem.a": {0: [(1, b"x"), (b"no long", b"y"), (2, b"z")]}},
    )
    assert [key for _, _, key, _ in run.processed] == [1, 2]


def test_none_never_meets_a_serde() -> None:
    config = JSON | {"systems.mem.samza.key.serde": "string"}
    run = run_job(
        ignore, config, {"mem.a": {0: [None, ("k", None), (None, 1), (b"\xff", b"{")]}}, max_messages=3
    )
    assert [(key, message) for _, _, key, message in run.processed] == [(None, None), ("k", None), (None, 1)]


# Messages that cannot be encoded


OUTPUT = SystemStream("mem", "out")


def test_an_output_that_cannot_be_encoded_names_task_stream_place_and_key() -> None:
    with pytest.raises(SerdeError) as caught:
        run_job(sending(OutgoingMessageEnvelope(OUTPUT, object())), JSON, {"mem.a": {2: [("key", 1)]}})
    for part in ("Partition 2", "mem.out", "mem.a.2@0", "'key'", "<object object at"):
        assert part in str(caught.value)
    assert caught.value.job_run.checkpoints == {}  # type: ignore[attr-defined]


def test_outputs_that_cannot_be_encoded_can_be_passed_over_and_are_counted() -> None:
    bad, good = OutgoingMessageEnvelope(OUTPUT, object()), OutgoingMessageEnvelope(OUTPUT, 1)
    config = JSON | {"task.drop.serialization.errors": "true"}
    run = run_job(sending(bad, good), config, {"mem.a": {0: [1, 2]}})
    assert run.outputs == {"mem.out": {0: [(None, 1), (None, 1)]}}
    assert run.metrics["producers.serialization-errors"] == 2
    assert [call.event for call in run.calls] == ["process", "send", "process", "send", "commit"]


@pytest.mark.parametrize(
    "wrong",
    ["text", None, ("mem.out", 1)],
)
def test_what_is_no_message_cannot_be_sent(wrong: Any) -> None:
    with pytest.raises(
        SerdeError, match=r"Partition 0 sent .*; what can be sent is OutgoingMessageEnvelope.*mem\.a\.0@0"
    ):
        run_job(sending(wrong), None, {"mem.a": {0: [1]}})


@pytest.mark.parametrize("partition", [2, -1, "0", 1.0])
def test_a_partition_that_is_not_there_cannot_be_sent_to(partition: Any) -> None:
    with pytest.raises(SerdeError, match=r"partition .* is out of range: mem\.out has 2, numbered from 0"):
        run_job(
            sending(OutgoingMessageEnvelope(OUTPUT, 1, partition=partition)),
            {"systems.mem.streams.out.partitions": 2},
            {"mem.a": {0: [1]}},
        )
