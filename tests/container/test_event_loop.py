"""The event loop: its five steps and its timers."""

from __future__ import annotations

import pytest

from streambench.model import IncomingMessageEnvelope
from streambench.task import MessageCollector, RequestScope, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, passing, send, windowed

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


@pytest.mark.parametrize("serde", [None, "json"])
def test_a_message_is_sent_as_process_leaves_it(serde: str | None) -> None:
    def changing(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        message = {"hits": envelope.message, "sent": "before"}
        collector.send("mem.out", message)
        message["sent"] = "after"
        collector.send("mem.out", dict(message))
        message["sent"] = "last"

    config = {} if serde is None else {"systems.mem.samza.msg.serde": serde}
    run = run_job(changing, config, {"mem.a": {0: [1]}})
    assert [message["sent"] for _, message in run.outputs["mem.out"][0]] == ["last", "after"]


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
