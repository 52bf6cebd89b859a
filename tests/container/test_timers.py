"""Windows count on across runs: their times are kept with the checkpoints."""

from __future__ import annotations

import random
from pathlib import Path

import msgspec
import pytest

from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.checkpoint.stored_checkpoints import (
    StoredCheckpoint,
    decode_checkpoint,
    encode_checkpoint,
)
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.timers import WindowsLeft
from streambench.job.runner import ContainerRunner
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.counting import BEGIN_MS, EVERY, STEP_MS, Counts, Time, counted, job, put, run_and_die
from tests.container.jobs import Bench, ignore, send, windowed
from tests.surroundings import SOAK, figure

MESSAGES = 500 if SOAK else 100
EXPECTED = [EVERY] * (MESSAGES // EVERY)
AT_END = {"task.window.at.end": "true"}


def say(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    send(collector, "window")


def started(config: Config) -> Container:
    container = Container(config, Counts, clock=Time.clock)
    container.start()
    return container


def test_one_run_calls_the_windows_that_are_due(tmp_path: Path) -> None:
    config = job(tmp_path)
    put(config, MESSAGES)
    container = started(config)
    container.run("caught-up")
    container.stop()
    assert counted(config) == EXPECTED


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_ten_bounded_runs_count_the_same_windows_as_one(tmp_path: Path, guarantee: str) -> None:
    config = job(tmp_path, task_processing_guarantee=guarantee)
    put(config, MESSAGES)
    for _ in range(10):
        container = started(config)
        container.run(MESSAGES // 10)
        container.stop()
    assert counted(config) == EXPECTED


@pytest.mark.parametrize("seed", range(20 if SOAK else 4))
def test_after_crashes_windows_count_the_same(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    config = job(tmp_path, task_processing_guarantee="exactly-once")
    put(config, MESSAGES)
    committed_ms = Time.clock.now_ms()
    while (left := MESSAGES - (committed_ms - BEGIN_MS) // STEP_MS) > 0:
        Time.clock = ManualClock(
            committed_ms
        )  # what a crash undoes takes no time, so that messages are at their own times
        container = started(config)
        container.run(min(left, chance.randint(1, 12)))
        container.commit()
        committed_ms = Time.clock.now_ms()
        left = MESSAGES - (committed_ms - BEGIN_MS) // STEP_MS
        container.run(min(left, chance.randint(0, 12)))
        container.abandon()
    assert counted(config) == EXPECTED


def test_after_kill_9_windows_count_the_same(tmp_path: Path) -> None:
    config = job(tmp_path, task_processing_guarantee="exactly-once")
    put(config, MESSAGES)
    for at in figure((17, 48, -1), soak=(3, 17, 27, 34, 62, 98, -1), check=(17, -1)):
        run_and_die(config, at)
    assert counted(config) == EXPECTED


def test_a_window_waits_between_runs_while_time_goes_on() -> None:
    bench = Bench(windowed(say), {"mem.a": {0: [1]}}, {"task.window.ms": 1000})
    bench.started().run("caught-up")
    bench.container.stop()
    later = Bench(
        windowed(say),
        {},
        dict(bench.config),
        streams=bench.streams,
        checkpoints=bench.checkpoints,
        clock=bench.clock,
    )
    bench.clock.advance(999)
    later.started().run("caught-up")
    assert bench.outputs() == []
    bench.clock.advance(1)
    later.container.run("caught-up")
    later.container.stop()
    assert bench.outputs() == ["window"]


def test_windows_that_were_missed_between_runs_come_once() -> None:
    clock = ManualClock(5)
    config = {"task.window.ms": 1000}
    first = run_job(windowed(say), config, {"mem.a": {0: [1]}}, clock=clock)
    clock.advance(10_000)
    second = run_job(windowed(say), config, {"mem.a": {0: [2, 3]}}, previous=first, clock=clock)
    assert [call.event for call in second.calls] == ["process", "window", "send", "process", "commit"]


def test_a_clock_that_was_set_back_delays_a_window_by_one_interval_at_most() -> None:
    config = {"task.window.ms": 1000}
    first = run_job(windowed(say), config, {"mem.a": {0: [1]}}, clock=ManualClock(1_000_000))
    clock = ManualClock(500)

    def passing(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(500)

    second = run_job(windowed(say, passing), config, {"mem.a": {0: [2, 3, 4]}}, previous=first, clock=clock)
    assert [call.event for call in second.calls if call.event in ("process", "window")] == [
        "process",
        "process",
        "window",
        "process",
    ]


def test_another_interval_counts_from_the_same_last_window() -> None:
    clock = ManualClock(1_000_000)
    first = run_job(windowed(say), {"task.window.ms": 60_000}, {"mem.a": {0: [1]}}, clock=clock)
    clock.advance(1000)
    second = run_job(
        windowed(say), {"task.window.ms": 1000}, {"mem.a": {0: [2]}}, previous=first, clock=clock
    )
    assert [call.event for call in second.calls if call.event == "window"] == ["window"]


def test_after_a_rewind_windows_count_from_the_next_start() -> None:
    clock = ManualClock(1_000_000)
    bench = Bench(windowed(say), {"mem.a": {0: [1, 2]}}, {"task.window.ms": 1000}, clock=clock)
    bench.started().run("caught-up")
    bench.container.stop()
    clock.advance(5000)
    at = SystemStreamPartition("mem", "a", 0)
    bench.checkpoints.rewind(
        {"Partition 0": Checkpoint({}, {at: "0"}, time_ms=clock.now_ms(), window_ms=7)}, now_ms=clock.now_ms()
    )
    again = Bench(
        windowed(say),
        {},
        dict(bench.config),
        streams=bench.streams,
        checkpoints=bench.checkpoints,
        clock=clock,
    )
    again.started().run("caught-up")
    again.container.stop()
    assert again.events("process", "window") == ["process", "process"]


def test_tasks_keep_their_own_times_whichever_container_has_them() -> None:
    clock, config = ManualClock(1_000_000), {"task.window.ms": 1000}
    first = run_job(windowed(say), config, {"mem.a": {0: [1]}}, clock=clock)
    clock.advance(600)
    second = run_job(windowed(say), config, {"mem.a": {1: [1]}}, previous=first, clock=clock)
    clock.advance(400)
    third = run_job(windowed(say), config, {"mem.a": {0: [2], 1: [2]}}, previous=second, clock=clock)
    assert [call.task for call in third.calls if call.event == "window"] == ["Partition 0"]
    clock.advance(600)
    fourth = run_job(windowed(say), config, {"mem.a": {0: [3]}}, previous=third, clock=clock)
    assert [call.task for call in fourth.calls if call.event == "window"] == ["Partition 1"]


def test_an_idle_job_with_windows_writes_no_checkpoints() -> None:
    bench = Bench(windowed(lambda collector, coordinator: None), {"mem.a": {0: []}}, {"task.window.ms": 100})
    container = bench.started()
    before = bench.checkpoints.history()
    for _ in range(5):
        bench.clock.advance(100)
        container.step()
        container.commit()
    assert bench.checkpoints.history() == before
    container.stop()
    assert bench.checkpoints.read_last()["Partition 0"].window_ms == 500


def test_exactly_once_commits_a_window_with_its_time() -> None:
    bench = Bench(
        windowed(say),
        {"mem.a": {0: []}},
        {"task.window.ms": 100, "task.processing.guarantee": "exactly-once"},
    )
    container = bench.started()
    bench.clock.advance(100)
    container.step()
    container.commit()
    assert (bench.outputs(), bench.checkpoints.read_last()["Partition 0"].window_ms) == (["window"], 100)
    container.abandon()


def test_records_of_before_have_no_window_and_get_one() -> None:
    stored = StoredCheckpoint({"mem.a.0": "4"}, {}, {}, 1, 1, 5)
    assert b"window" not in msgspec.json.encode(stored)
    old = decode_checkpoint(msgspec.Raw(msgspec.json.encode(stored)), Path("old"))
    assert old.window_ms is None
    assert (
        decode_checkpoint(encode_checkpoint(msgspec.structs.replace(old, window_ms=0)), Path("new")).window_ms
        == 0
    )
    bench = Bench(
        windowed(say),
        {"mem.a": {0: []}},
        {"task.window.ms": 100},
        checkpoints=MemoryCheckpointManager({"Partition 0": old}),
    )
    bench.clock.advance(77)
    bench.started()
    assert bench.checkpoints.read_last()["Partition 0"].window_ms == 77
    bench.container.stop()


# The end of a run


def test_a_run_may_end_with_a_window() -> None:
    run = run_job(windowed(say), {"task.window.ms": 1000, **AT_END}, {"mem.a": {0: [1, 2]}})
    assert [call.event for call in run.calls] == ["process", "process", "window", "send", "commit"]


def test_a_last_window_needs_no_interval() -> None:
    run = run_job(windowed(say), AT_END, {"mem.a": {0: [1, 2], 1: [3]}})
    assert [call.task for call in run.calls if call.event == "window"] == ["Partition 0", "Partition 1"]


def test_what_a_last_window_sends_to_an_input_is_processed_in_the_same_run() -> None:
    sent: list[str] = []

    def once(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        send(collector, "last")
        sent.append("last")

    bench = Bench(windowed(once), {"mem.out": {0: ["first"]}}, AT_END)
    ran = ContainerRunner(bench.container).run("caught-up")
    assert (ran.messages, sent) == (2, ["last"])


@pytest.mark.parametrize("until", [2, "caught-up"])
def test_a_run_with_an_end_tells_of_messages_without_a_window(until: int) -> None:
    bench = Bench(windowed(say), {"mem.a": {0: [1, 2]}}, {"task.window.ms": 1000})
    ran = ContainerRunner(bench.container).run(until)
    assert ran.windows_left == WindowsLeft(2, 1000)
    assert str(ran.windows_left) == (
        "window() has not run after the last 2 messages: it was not due yet (task.window.ms=1000, counted "
        "on from run to run); "
        "task.window.at.end=true runs it at the end of such a run, too"
    )


def test_a_window_that_never_runs_is_told_unless_it_was_turned_off() -> None:
    inputs = {"mem.a": {0: [1]}}
    assert "set task.window.ms" in str(
        ContainerRunner(Bench(windowed(say), inputs).container).run("caught-up").windows_left
    )
    assert (
        not ContainerRunner(Bench(windowed(say), inputs, {"task.window.ms": 0}).container)
        .run("caught-up")
        .windows_left
    )
    assert not ContainerRunner(Bench(ignore, inputs).container).run("caught-up").windows_left
    assert not ContainerRunner(Bench(windowed(say), inputs, AT_END).container).run("caught-up").windows_left


def test_the_time_of_a_window_is_in_the_journal(tmp_path: Path) -> None:
    config = job(tmp_path)
    put(config, EVERY + 2)
    container = started(config)
    container.run("caught-up")
    container.stop()
    manager = checkpoint_manager(config, "counts-1")
    assert manager.read_last()["Partition 0"].window_ms == BEGIN_MS + EVERY * STEP_MS
    manager.close()
