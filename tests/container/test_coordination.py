"""Requests of tasks for commits and shutdowns."""

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
