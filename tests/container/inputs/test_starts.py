"""The first offsets of whole jobs: resets, defaults, broadcast inputs, lost messages, new partitions."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench.job.run import run
from streambench.model import (
    IncomingMessageEnvelope,
    SystemStreamPartition,
)
from streambench.system.log import open_log
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import JobRun, run_job
from tests.container.jobs import ignore


def places(run: JobRun) -> list[str]:
    return [f"{ssp.removeprefix('mem.')}@{offset}" for ssp, offset, _, _ in run.processed]


def nothing(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    pass


def test_a_reset_stream_is_read_from_its_start_each_time_the_others_go_on() -> None:
    config = {
        "systems.mem.streams.a.samza.reset.offset": "true",
        "systems.mem.streams.a.samza.offset.default": "oldest",
    }
    first = run_job(nothing, config, {"mem.a": {0: ["x"]}, "mem.b": {0: ["y"]}})
    second = run_job(nothing, config, {"mem.b": {0: ["z"]}}, previous=first)
    assert places(second) == ["a.0@0", "b.0@1"]
    assert second.checkpoints == {"Partition 0": {"mem.a.0": "0", "mem.b.0": "1"}}


def test_the_default_of_the_stream_goes_before_that_of_the_system() -> None:
    config = {
        "systems.mem.samza.offset.default": "newest",
        "systems.mem.streams.a.samza.offset.default": "oldest",
    }
    assert places(run_job(nothing, config, {"mem.a": {0: list("xy")}, "mem.b": {0: list("xy")}})) == [
        "a.0@0",
        "b.0@1",
        "a.0@1",
    ]


def test_each_task_has_its_own_offset_of_a_broadcast_partition() -> None:
    config = {"task.broadcast.inputs": "mem.rules#0"}
    inputs = {"mem.a": {0: [], 1: []}, "mem.rules": {0: list("abc")}}

    class StartsLater(StreamTask):
        def init(self, context: TaskContext) -> None:
            if context.task_name == "Partition 1":
                context.set_starting_offset(SystemStreamPartition("mem", "rules", 0), "2")

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            pass

    run = run_job(StartsLater, config, inputs)
    told = [(call.task[-1], call.detail) for call in run.calls if call.event == "process"]
    assert told == [
        ("0", "mem.rules.0@0"),
        ("0", "mem.rules.0@1"),
        ("0", "mem.rules.0@2"),
        ("1", "mem.rules.0@2"),
    ]


def test_what_retention_took_from_a_sleeping_job_is_reported_and_defaulted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = {
        "job.name": "slept",
        "task.inputs": "log.a",
        "systems.log.samza.factory": "log",
        "systems.log.path": str(tmp_path),
        "systems.log.samza.offset.default": "oldest",
    }
    with open_log(tmp_path) as log:
        log.create("a", 1, **{"retention.ms": 1000})
        partition = log.partition("a", 0)
        partition.append([None], [b"x"], [0])
        partition.roll()
        run(config, task=nothing)
        for _ in range(3):
            partition.append([None], [b"x"], [0])
            partition.roll()
        partition.append([None], [b"x"])
        partition.clean(10_000)
        assert partition.bounds()[0] == 4
        assert run(config, task=nothing).messages == 1
    assert [each for each in caplog.messages if "goes on at" in each] == [
        "log.a.0: the checkpoint of Partition 0 goes on at 1, but the partition holds 4 to 5; reading "
        "begins at 4 "
        "(samza.offset.default=oldest)"
    ]


def test_a_partition_that_is_new_to_a_job_is_read_from_its_beginning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    upcoming = {"systems.mem.samza.offset.default": "upcoming"}
    first = run_job(ignore, upcoming, {"mem.a": {0: ["before the first start"]}})
    second = run_job(ignore, upcoming, {"mem.a": {0: ["x"], 1: ["y", "z"]}}, previous=first)
    assert {message for *_, message in second.processed} == {"x", "y", "z"}
    assert "mem.a.1 is new since the job was last started; it is read from its beginning, 0" in caplog.text


def test_a_stream_that_is_new_to_a_job_begins_where_its_configuration_says() -> None:
    upcoming = {"systems.mem.samza.offset.default": "upcoming"}
    first = run_job(ignore, upcoming, {"mem.a": {0: []}})
    second = run_job(ignore, upcoming, {"mem.b": {0: ["before its first start"]}}, previous=first)
    assert second.processed == []


def test_another_grouper_goes_on_where_the_first_has_left_off(caplog: pytest.LogCaptureFixture) -> None:
    by_ssp = {"job.systemstreampartition.grouper.factory": "ssp"}
    first = run_job(ignore, None, {"mem.a": {0: ["one", "two"], 1: ["one"]}})
    second = run_job(ignore, by_ssp, {"mem.a": {0: ["three"]}}, previous=first)
    assert [message for *_, message in second.processed] == ["three"]
    assert (
        "mem.a.0 continues mem.a.0 where Partition 0 stopped, without the state of Partition 0"
        in caplog.text
    )
    caplog.clear()
    third = run_job(ignore, None, {"mem.a": {0: ["four"]}}, previous=second)
    assert {message for *_, message in third.processed} == {"three", "four"}
    assert [record.getMessage() for record in caplog.records] == [
        "Partition 0 continues mem.a.0 behind its own last message, because its state ends there; messages "
        "that mem.a.0 has processed since are processed again"
    ]
    caplog.clear()
    run_job(ignore, None, {"mem.a": {0: ["five"]}}, previous=third)
    assert not caplog.records
