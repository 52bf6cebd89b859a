"""The event loop: its five steps, its timers, and what tasks may ask of it."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.errors import SerdeError, TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, RequestScope, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, Process, ignore, send, windowed

ALL, CURRENT = RequestScope.ALL_TASKS_IN_CONTAINER, RequestScope.CURRENT_TASK


def passing(clock: ManualClock, ms: int) -> Process:
    """A task that lets so much time pass with every message, and sends it on."""

    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        clock.advance(ms)
        send(collector, envelope.message)

    return process


def say_window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    send(collector, "window")


# The five steps


def test_an_iteration_processes_then_windows_then_sends_then_commits() -> None:
    clock = ManualClock()
    task = windowed(say_window, passing(clock, 100))
    run = run_job(task, {"task.window.ms": 100, "task.commit.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock)
    assert [call.event for call in run.calls] == ["process", "window", "send", "send", "commit"] * 2
    assert [message for _, message in run.outputs["mem.out"][0]] == ["x", "window", "y", "window"]


def test_outputs_of_a_task_are_sent_in_the_order_in_which_it_sent_them() -> None:
    def twice(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, f"{envelope.message}1")
        send(collector, f"{envelope.message}2")

    run = run_job(twice, None, {"mem.a": {0: ["a", "b"]}})
    assert [message for _, message in run.outputs["mem.out"][0]] == ["a1", "a2", "b1", "b2"]


def test_nothing_is_sent_while_process_still_runs() -> None:
    there: list[int] = []

    def counts(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, envelope.message)
        there.append(len(bench.outputs()))

    bench = Bench(counts, {"mem.a": {0: ["a", "b", "c"]}})
    bench.started().run("caught-up")
    assert there == [0, 1, 2]


# Windows


@pytest.mark.parametrize(
    ("window_ms", "step_ms", "windows_after"),
    [(100, 50, [2, 4, 6]), (100, 99, [2, 4, 6]), (100, 100, [1, 2, 3, 4, 5, 6]), (100, 250, [1, 2, 3, 4, 5, 6]), (250, 100, [3, 6])],
)
def test_a_window_is_due_when_its_time_has_passed_and_begins_anew_from_then(window_ms: int, step_ms: int, windows_after: list[int]) -> None:
    clock = ManualClock(7)
    run = run_job(windowed(say_window, passing(clock, step_ms)), {"task.window.ms": window_ms}, {"mem.a": {0: list(range(6))}}, clock=clock)
    processed, found = 0, []
    for call in run.calls:
        processed += call.event == "process"
        if call.event == "window":
            found.append(processed)
    assert found == windows_after


@pytest.mark.parametrize("window_ms", [0, -1])
def test_a_window_of_no_length_never_comes(window_ms: int) -> None:
    clock = ManualClock()
    run = run_job(windowed(say_window, passing(clock, 1000)), {"task.window.ms": window_ms}, {"mem.a": {0: [1, 2]}}, clock=clock)
    assert "window" not in [call.event for call in run.calls]


def test_windows_come_to_all_tasks_in_natural_order() -> None:
    clock = ManualClock()
    inputs: dict[str, dict[int, list[str]]] = {"mem.a": {number: [] for number in range(12)} | {0: ["x"]}}
    run = run_job(windowed(say_window, passing(clock, 100)), {"task.window.ms": 100}, inputs, clock=clock)
    assert [call.task for call in run.calls if call.event == "window"] == [f"Partition {number}" for number in range(12)]


def test_a_window_comes_without_messages_too() -> None:
    clock = ManualClock()
    windows: list[int] = []

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        windows.append(clock.now_ms())

    bench = Bench(windowed(window), {"mem.a": {0: []}}, {"task.window.ms": 100, "task.max.idle.ms": 0}, clock=clock)

    def later() -> bool:
        clock.advance(60)
        return len(windows) == 2

    assert bench.started().run(later) == 0
    assert windows == [120, 240]


# Commits


def test_a_commit_is_due_when_its_time_has_passed() -> None:
    clock = ManualClock()
    run = run_job(passing(clock, 40), {"task.commit.ms": 100}, {"mem.a": {0: list(range(6))}}, clock=clock)
    assert "".join(call.event[0] for call in run.calls if call.event != "send") == "pppcpppc"


@pytest.mark.parametrize("commit_ms", [0, -1])
def test_without_an_interval_only_the_end_commits(commit_ms: int) -> None:
    clock = ManualClock()
    run = run_job(passing(clock, 10_000), {"task.commit.ms": commit_ms}, {"mem.a": {0: [1, 2, 3]}}, clock=clock)
    assert [call.event for call in run.calls if call.event != "send"] == ["process"] * 3 + ["commit"]


def test_an_interval_commits_only_the_tasks_that_went_on() -> None:
    clock = ManualClock()
    run = run_job(passing(clock, 100), {"task.commit.ms": 100}, {"mem.a": {0: [1], 1: [2]}}, clock=clock)
    assert [(call.event, call.task) for call in run.calls if call.event != "send"] == [
        ("process", "Partition 0"), ("commit", "Partition 0"), ("process", "Partition 1"), ("commit", "Partition 1"),
    ]  # fmt: skip


def requests(**by_message: Any) -> Process:
    """A task that calls ``coordinator.commit`` or ``shutdown`` with the scopes given for a message."""

    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for what, scope in by_message.get(envelope.message, []):
            getattr(coordinator, what)(scope)

    return process


def commits(run: Any) -> list[str]:
    return [call.task for call in run.calls if call.event == "commit"]


def test_a_task_can_have_itself_committed() -> None:
    run = run_job(requests(now=[("commit", CURRENT)]), None, {"mem.a": {0: ["x"], 1: ["now", "y"]}}, max_messages=2)
    assert [(call.event, call.task) for call in run.calls] == [
        ("process", "Partition 0"), ("process", "Partition 1"), ("commit", "Partition 1"), ("commit", "Partition 0"),
    ]  # fmt: skip


def test_a_task_can_have_all_committed() -> None:
    run = run_job(requests(now=[("commit", ALL)]), None, {"mem.a": {0: ["x"], 1: ["now"], 2: ["y"]}})
    assert commits(run) == ["Partition 0", "Partition 1", "Partition 2"]
    assert [call.event for call in run.calls] == ["process", "process", "commit", "commit", "process", "commit"]


def test_the_current_task_is_what_is_meant_where_nothing_is_said() -> None:
    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        coordinator.commit()

    run = run_job(process, None, {"mem.a": {0: ["x"], 1: ["y"]}})
    assert [(call.event, call.task) for call in run.calls][:2] == [("process", "Partition 0"), ("commit", "Partition 0")]


def test_the_last_request_of_a_kind_counts() -> None:
    run = run_job(requests(now=[("commit", ALL), ("commit", CURRENT)]), None, {"mem.a": {0: ["x"], 1: ["now", "y"]}}, max_messages=2)
    assert commits(run) == ["Partition 1", "Partition 0"]


def test_requests_of_process_and_window_both_count() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        coordinator.commit(CURRENT)

    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        clock.advance(100)
        coordinator.shutdown(ALL)

    run = run_job(windowed(window, process), {"task.window.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock)
    assert [call.event for call in run.calls] == ["process", "window", "commit"]


def test_a_commit_that_was_asked_for_does_not_put_off_the_one_that_is_due() -> None:
    clock = ManualClock()

    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        clock.advance(60)
        if envelope.message == 1:
            coordinator.commit()

    run = run_job(process, {"task.commit.ms": 100}, {"mem.a": {0: [1, 2, 3]}}, clock=clock)
    assert [call.event for call in run.calls] == ["process", "commit", "process", "commit", "process", "commit"]


def test_a_commit_that_is_due_covers_the_one_that_is_asked_for() -> None:
    clock = ManualClock()

    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        clock.advance(100)
        coordinator.commit(ALL)

    run = run_job(process, {"task.commit.ms": 100}, {"mem.a": {0: [1]}}, clock=clock)
    assert [call.event for call in run.calls] == ["process", "commit"]


def test_what_is_no_scope_is_an_error() -> None:
    with pytest.raises(TaskError, match="'everything' is not a valid RequestScope"):
        run_job(requests(now=[("commit", "everything")]), None, {"mem.a": {0: ["now"]}})


# Shutdown


def test_one_task_can_shut_all_down_after_its_iteration() -> None:
    run = run_job(requests(now=[("shutdown", ALL)]), None, {"mem.a": {0: ["x", "now", "y"], 1: ["a", "b"]}})
    assert [message for *_, message in run.processed] == ["x", "a", "now"]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}, "Partition 1": {"mem.a.1": "0"}}


def test_tasks_that_shut_themselves_down_go_on_until_all_have_asked() -> None:
    inputs = {"mem.a": {0: ["now", "a", "b", "c"], 1: ["x", "y", "now", "z"]}}
    run = run_job(requests(now=[("shutdown", CURRENT)]), None, inputs)
    assert [message for *_, message in run.processed] == ["now", "x", "a", "y", "b", "now"]


def test_asking_twice_is_asking_once() -> None:
    inputs = {"mem.a": {0: ["now", "now", "b"], 1: ["x", "y"]}}
    run = run_job(requests(now=[("shutdown", CURRENT)]), None, inputs)
    assert len(run.processed) == 5


def test_a_shutdown_lets_the_iteration_finish() -> None:
    clock = ManualClock()

    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        clock.advance(100)
        send(collector, envelope.message)
        coordinator.shutdown(ALL)

    run = run_job(windowed(say_window, process), {"task.window.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock)
    assert [call.event for call in run.calls] == ["process", "window", "send", "send", "commit"]


def test_a_window_can_shut_down() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        coordinator.shutdown(ALL)

    run = run_job(windowed(window, passing(clock, 50)), {"task.window.ms": 100}, {"mem.a": {0: [1, 2, 3, 4]}}, clock=clock)
    assert len(run.processed) == 2


def test_a_container_that_was_shut_down_processes_nothing_more_and_commits_at_its_stop() -> None:
    bench = Bench(requests(now=[("shutdown", ALL)]), {"mem.a": {0: ["now", "y"]}})
    container = bench.started()
    assert container.run() == 1
    assert container.shut_down
    assert container.step() == 0
    assert bench.committed() == {}
    container.stop()
    assert bench.committed() == {"mem.a.0": "0"}


# Failures


def fails_at(bad: object, error: Exception) -> Process:
    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, envelope.message)
        if envelope.message == bad:
            coordinator.commit(ALL)
            raise error

    return process


def test_a_failure_names_the_place_and_keeps_the_original() -> None:
    original = KeyError("missing")
    with pytest.raises(TaskError, match=r"Partition 1 failed at mem\.a\.1@2, key b'k': KeyError: 'missing'") as caught:
        run_job(fails_at("bad", original), None, {"mem.a": {1: ["x", "y", (b"k", "bad")]}})
    error = caught.value
    assert (error.task, str(error.ssp), error.offset, error.key) == ("Partition 1", "mem.a.1", "2", b"k")
    assert error.__cause__ is original


def test_the_outputs_of_a_call_that_raises_are_not_sent_and_its_requests_forgotten() -> None:
    with pytest.raises(TaskError) as caught:
        run_job(fails_at("bad", ValueError()), None, {"mem.a": {0: ["good", "bad"]}})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for _, message in run.outputs["mem.out"][0]] == ["good"]
    assert run.checkpoints == {}
    assert "commit" not in [call.event for call in run.calls]


def test_the_outputs_of_process_are_not_sent_where_window_raises_in_the_same_iteration() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise ValueError("no window")

    with pytest.raises(TaskError, match=r"Partition 0 failed in window\(\): ValueError: no window") as caught:
        run_job(windowed(window, passing(clock, 60)), {"task.window.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock)
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for _, message in run.outputs["mem.out"][0]] == ["x"]
    assert (caught.value.task, caught.value.ssp, caught.value.offset) == ("Partition 0", None, None)


def test_a_failure_closes_all_tasks_without_a_commit() -> None:
    class Fails(StreamTask):
        def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
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
def test_an_ignored_exception_is_counted_and_its_message_counts_as_processed(ignored: str) -> None:
    run = run_job(fails_at("bad", Trouble()), {"task.ignored.exceptions": ignored}, {"mem.a": {0: ["a", "bad", "b"], 1: ["x"]}})
    assert [message for _, message in run.outputs["mem.out"][0]] == ["a", "x", "b"]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "2"}, "Partition 1": {"mem.a.1": "0"}}
    assert run.metrics["container.exception-ignored-Trouble"] == 1
    assert [call.event for call in run.calls if call.event == "commit"] == ["commit", "commit"]


@pytest.mark.parametrize("ignored", ["ValueError", "Exception", "trouble", "other.Trouble"])
def test_only_the_exact_class_is_ignored(ignored: str) -> None:
    with pytest.raises(TaskError):
        run_job(fails_at("bad", Trouble()), {"task.ignored.exceptions": ignored}, {"mem.a": {0: ["bad"]}})


def test_of_an_ignored_exception_only_what_that_callback_collected_is_dropped() -> None:
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


def test_an_ignored_exception_of_one_task_does_not_keep_a_broadcast_message_from_the_others() -> None:
    class FirstFails(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.name = context.task_name

        def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            send(collector, self.name)
            if self.name == "Partition 1":
                raise Trouble

    config = {"task.broadcast.inputs": "mem.rules#0", "task.ignored.exceptions": "Trouble"}
    run = run_job(FirstFails, config, {"mem.rules": {0: ["r"]}, "mem.a": {0: [], 1: [], 2: []}})
    assert [message for _, message in run.outputs["mem.out"][0]] == ["Partition 0", "Partition 2"]
    assert all(offsets == {"mem.rules.0": "0"} for offsets in run.checkpoints.values())
    assert len(run.checkpoints) == 3


def test_what_is_no_exception_is_never_ignored() -> None:
    def interrupted(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_job(interrupted, {"task.ignored.exceptions": "*"}, {"mem.a": {0: ["x"]}})


def test_an_exception_in_init_is_not_ignored() -> None:
    class Refuses(StreamTask):
        def init(self, context: TaskContext) -> None:
            raise Trouble("not today")

        def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            pass

    with pytest.raises(TaskError, match=r"in init\(\): Trouble: not today"):
        run_job(Refuses, {"task.ignored.exceptions": "*"}, {"mem.a": {0: ["x"]}})


# Messages that cannot be decoded

JSON = {"systems.mem.samza.msg.serde": "json"}


def test_a_message_that_cannot_be_decoded_fails_the_container_at_its_own_turn() -> None:
    with pytest.raises(SerdeError, match=r"^mem\.a\.0@2, key b'k': cannot decode this message: JSONDecodeError") as caught:
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


def test_messages_that_cannot_be_decoded_can_be_passed_over_and_are_counted() -> None:
    run = run_job(ignore, DROP, {"mem.a": {0: [1, b"{", 2, b"{", b"{", 3]}})
    assert [message for *_, message in run.processed] == [1, 2, 3]
    assert run.metrics["consumers.deserialization-errors"] == 3


def test_a_message_that_is_passed_over_counts_as_processed() -> None:
    """Else it would come again with every start, and the partition never be caught up."""
    run = run_job(ignore, DROP, {"mem.a": {0: [1, b"{"], 1: [b"{"]}})
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}, "Partition 1": {"mem.a.1": "0"}}
    assert run_job(ignore, JSON, previous=run).processed == []


def test_a_bootstrap_stream_whose_last_message_cannot_be_decoded_opens_the_gate() -> None:
    config = DROP | {"systems.mem.streams.boot.samza.bootstrap": "true"}
    run = run_job(ignore, config, {"mem.a": {0: ["x"]}, "mem.boot": {0: ["b", b"{"]}})
    assert [message for *_, message in run.processed] == ["b", "x"]


def test_a_broadcast_message_that_cannot_be_decoded_is_counted_once() -> None:
    run = run_job(ignore, DROP | {"task.broadcast.inputs": "mem.rules#0"}, {"mem.a": {0: [], 1: []}, "mem.rules": {0: [b"{", "r"]}})
    assert [message for *_, message in run.processed] == ["r", "r"]
    assert run.metrics["consumers.deserialization-errors"] == 1


def test_a_key_that_cannot_be_decoded_is_a_message_that_cannot() -> None:
    config = {"systems.mem.samza.key.serde": "long"}
    with pytest.raises(SerdeError, match=r"mem\.a\.0@1, key b'no long': cannot decode"):
        run_job(ignore, config, {"mem.a": {0: [(1, b"x"), (b"no long", b"y")]}})
    run = run_job(ignore, config | {"task.drop.deserialization.errors": "true"}, {"mem.a": {0: [(1, b"x"), (b"no long", b"y"), (2, b"z")]}})
    assert [key for _, _, key, _ in run.processed] == [1, 2]


def test_none_never_meets_a_serde() -> None:
    config = JSON | {"systems.mem.samza.key.serde": "string"}
    run = run_job(ignore, config, {"mem.a": {0: [None, ("k", None), (None, 1), (b"\xff", b"{")]}}, max_messages=3)
    assert [(key, message) for _, _, key, message in run.processed] == [(None, None), ("k", None), (None, 1)]


# Messages that cannot be encoded


def sends(*envelopes: Any) -> Process:
    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for each in envelopes:
            collector.send(each)

    return process


OUTPUT = SystemStream("mem", "out")


def test_an_output_that_cannot_be_encoded_names_task_stream_place_and_key() -> None:
    with pytest.raises(SerdeError) as caught:
        run_job(sends(OutgoingMessageEnvelope(OUTPUT, object())), JSON, {"mem.a": {2: [("key", 1)]}})
    for part in ("Partition 2", "mem.out", "mem.a.2@0", "'key'", "<object object at"):
        assert part in str(caught.value)
    assert caught.value.job_run.checkpoints == {}  # type: ignore[attr-defined]


def test_outputs_that_cannot_be_encoded_can_be_passed_over_and_are_counted() -> None:
    bad, good = OutgoingMessageEnvelope(OUTPUT, object()), OutgoingMessageEnvelope(OUTPUT, 1)
    run = run_job(sends(bad, good), JSON | {"task.drop.serialization.errors": "true"}, {"mem.a": {0: [1, 2]}})
    assert run.outputs == {"mem.out": {0: [(None, 1), (None, 1)]}}
    assert run.metrics["producers.serialization-errors"] == 2
    assert [call.event for call in run.calls] == ["process", "send", "process", "send", "commit"]


@pytest.mark.parametrize(
    "wrong",
    ["text", None, ("mem.out", 1)],
)
def test_what_is_no_message_cannot_be_sent(wrong: Any) -> None:
    with pytest.raises(SerdeError, match=r"Partition 0 sent .*; what can be sent is OutgoingMessageEnvelope.*mem\.a\.0@0"):
        run_job(sends(wrong), None, {"mem.a": {0: [1]}})


@pytest.mark.parametrize("partition", [2, -1, "0", 1.0])
def test_a_partition_that_is_not_there_cannot_be_sent_to(partition: Any) -> None:
    with pytest.raises(SerdeError, match=r"partition .* is out of range: mem\.out has 2, numbered from 0"):
        run_job(
            sends(OutgoingMessageEnvelope(OUTPUT, 1, partition=partition)), {"systems.mem.streams.out.partitions": 2}, {"mem.a": {0: [1]}}
        )
