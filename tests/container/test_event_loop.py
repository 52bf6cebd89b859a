"""The event loop: its five steps, its timers, and what tasks may ask of it."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.errors import TaskError
from streambench.model import IncomingMessageEnvelope
from streambench.task import MessageCollector, RequestScope, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, Process, passing, send, windowed

ALL, CURRENT = RequestScope.ALL_TASKS_IN_CONTAINER, RequestScope.CURRENT_TASK


def say_window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    send(collector, "window")


# The five steps


def test_an_iteration_processes_then_windows_then_sends_then_commits() -> None:
    clock = ManualClock()
    task = windowed(say_window, passing(clock, 100))
    run = run_job(
        task, {"task.window.ms": 100, "task.commit.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock
    )
    assert [call.event for call in run.calls] == ["process", "window", "send", "send", "commit"] * 2
    assert [message for _, message in run.outputs["mem.out"][0]] == ["x", "window", "y", "window"]


def test_outputs_of_a_task_are_sent_in_the_order_in_which_it_sent_them() -> None:
    def twice(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        send(collector, f"{envelope.message}1")
        send(collector, f"{envelope.message}2")

    run = run_job(twice, None, {"mem.a": {0: ["a", "b"]}})
    assert [message for _, message in run.outputs["mem.out"][0]] == ["a1", "a2", "b1", "b2"]


def test_nothing_is_sent_while_process_still_runs() -> None:
    there: list[int] = []

    def counts(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        send(collector, envelope.message)
        there.append(len(bench.outputs()))

    bench = Bench(counts, {"mem.a": {0: ["a", "b", "c"]}})
    bench.started().run("caught-up")
    assert there == [0, 1, 2]


# Windows


@pytest.mark.parametrize(
    ("window_ms", "step_ms", "windows_after"),
    [
        (100, 50, [2, 4, 6]),
        (100, 99, [2, 4, 6]),
        (100, 100, [1, 2, 3, 4, 5, 6]),
        (100, 250, [1, 2, 3, 4, 5, 6]),
        (250, 100, [3, 6]),
    ],
)
def test_a_window_is_due_when_its_time_has_passed_and_restarts_from_then(
    window_ms: int, step_ms: int, windows_after: list[int]
) -> None:
    clock = ManualClock(7)
    run = run_job(
        windowed(say_window, passing(clock, step_ms)),
        {"task.window.ms": window_ms},
        {"mem.a": {0: list(range(6))}},
        clock=clock,
    )
    processed, found = 0, []
    for call in run.calls:
        processed += call.event == "process"
        if call.event == "window":
            found.append(processed)
    assert found == windows_after


@pytest.mark.parametrize("window_ms", [0, -1])
def test_a_window_of_no_length_never_comes(window_ms: int) -> None:
    clock = ManualClock()
    run = run_job(
        windowed(say_window, passing(clock, 1000)),
        {"task.window.ms": window_ms},
        {"mem.a": {0: [1, 2]}},
        clock=clock,
    )
    assert "window" not in [call.event for call in run.calls]


def test_windows_come_to_all_tasks_in_natural_order() -> None:
    clock = ManualClock()
    inputs: dict[str, dict[int, list[str]]] = {"mem.a": {number: [] for number in range(12)} | {0: ["x"]}}
    run = run_job(windowed(say_window, passing(clock, 100)), {"task.window.ms": 100}, inputs, clock=clock)
    assert [call.task for call in run.calls if call.event == "window"] == [
        f"Partition {number}" for number in range(12)
    ]


def test_a_window_comes_without_messages_too() -> None:
    clock = ManualClock()
    windows: list[int] = []

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        windows.append(clock.now_ms())

    bench = Bench(
        windowed(window), {"mem.a": {0: []}}, {"task.window.ms": 100, "task.max.idle.ms": 0}, clock=clock
    )

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
    run = run_job(
        passing(clock, 10_000), {"task.commit.ms": commit_ms}, {"mem.a": {0: [1, 2, 3]}}, clock=clock
    )
    assert [call.event for call in run.calls if call.event != "send"] == ["process"] * 3 + ["commit"]


def test_an_interval_commits_only_the_tasks_that_went_on() -> None:
    clock = ManualClock()
    run = run_job(passing(clock, 100), {"task.commit.ms": 100}, {"mem.a": {0: [1], 1: [2]}}, clock=clock)
    assert [(call.event, call.task) for call in run.calls if call.event != "send"] == [
        ("process", "Partition 0"),
        ("commit", "Partition 0"),
        ("process", "Partition 1"),
        ("commit", "Partition 1"),
    ]


def requests(**by_message: Any) -> Process:
    """A task that calls ``coordinator.commit`` or ``shutdown`` with the scopes given for a message."""

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        for what, scope in by_message.get(envelope.message, []):
            getattr(coordinator, what)(scope)

    return process


def commits(run: Any) -> list[str]:
    return [call.task for call in run.calls if call.event == "commit"]


def test_a_task_can_have_itself_committed() -> None:
    run = run_job(
        requests(now=[("commit", CURRENT)]), None, {"mem.a": {0: ["x"], 1: ["now", "y"]}}, max_messages=2
    )
    assert [(call.event, call.task) for call in run.calls] == [
        ("process", "Partition 0"),
        ("process", "Partition 1"),
        ("commit", "Partition 1"),
        ("commit", "Partition 0"),
    ]


def test_a_task_can_have_all_committed() -> None:
    run = run_job(requests(now=[("commit", ALL)]), None, {"mem.a": {0: ["x"], 1: ["now"], 2: ["y"]}})
    assert commits(run) == ["Partition 0", "Partition 1", "Partition 2"]
    assert [call.event for call in run.calls] == [
        "process",
        "process",
        "commit",
        "commit",
        "process",
        "commit",
    ]


def test_the_current_task_is_what_is_meant_where_nothing_is_said() -> None:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        coordinator.commit()

    run = run_job(process, None, {"mem.a": {0: ["x"], 1: ["y"]}})
    assert [(call.event, call.task) for call in run.calls][:2] == [
        ("process", "Partition 0"),
        ("commit", "Partition 0"),
    ]


def test_the_last_request_of_a_kind_counts() -> None:
    run = run_job(
        requests(now=[("commit", ALL), ("commit", CURRENT)]),
        None,
        {"mem.a": {0: ["x"], 1: ["now", "y"]}},
        max_messages=2,
    )
    assert commits(run) == ["Partition 1", "Partition 0"]


def test_requests_of_process_and_window_both_count() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        coordinator.commit(CURRENT)

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(100)
        coordinator.shutdown(ALL)

    run = run_job(windowed(window, process), {"task.window.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock)
    assert [call.event for call in run.calls] == ["process", "window", "commit"]


def test_a_commit_that_was_asked_for_does_not_put_off_the_one_that_is_due() -> None:
    clock = ManualClock()

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(60)
        if envelope.message == 1:
            coordinator.commit()

    run = run_job(process, {"task.commit.ms": 100}, {"mem.a": {0: [1, 2, 3]}}, clock=clock)
    assert [call.event for call in run.calls] == [
        "process",
        "commit",
        "process",
        "commit",
        "process",
        "commit",
    ]


def test_a_commit_that_is_due_covers_the_one_that_is_asked_for() -> None:
    clock = ManualClock()

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
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

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(100)
        send(collector, envelope.message)
        coordinator.shutdown(ALL)

    run = run_job(
        windowed(say_window, process), {"task.window.ms": 100}, {"mem.a": {0: ["x", "y"]}}, clock=clock
    )
    assert [call.event for call in run.calls] == ["process", "window", "send", "send", "commit"]


def test_a_window_can_shut_down() -> None:
    clock = ManualClock()

    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        coordinator.shutdown(ALL)

    run = run_job(
        windowed(window, passing(clock, 50)),
        {"task.window.ms": 100},
        {"mem.a": {0: [1, 2, 3, 4]}},
        clock=clock,
    )
    assert len(run.processed) == 2


def test_a_container_that_was_shut_down_only_commits_at_its_stop() -> None:
    bench = Bench(requests(now=[("shutdown", ALL)]), {"mem.a": {0: ["now", "y"]}})
    container = bench.started()
    assert container.run() == 1
    assert container.shut_down
    assert container.step() == 0
    assert bench.committed() == {}
    container.stop()
    assert bench.committed() == {"mem.a.0": "0"}


# Failures
