"""``run_job``: going on from a previous run, or from given checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.errors import TaskError
from streambench.model import IncomingMessageEnvelope
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import JobRun, run_job
from tests.container.jobs import echo, ignore
from tests.testing.jobs import COUNTS, JSON, Counter, messages, places


def test_previous_goes_on_where_it_ended() -> None:
    first = run_job(echo, None, {"mem.a": {0: [1, 2, 3]}}, max_messages=2)
    second = run_job(echo, None, previous=first)
    assert places(second) == ["mem.a.0@2"]
    assert messages(second) == [1, 2, 3]


def test_new_inputs_are_added_to_the_streams_of_the_previous_run() -> None:
    first = run_job(echo, None, {"mem.a": {0: [1]}})
    second = run_job(echo, None, {"mem.a": {0: [2], 1: [3]}, "mem.b": {0: [4]}}, previous=first)
    assert second.processed == [
        ("mem.a.0", "1", None, 2),
        ("mem.a.1", "0", None, 3),
        ("mem.b.0", "0", None, 4),
    ]
    assert messages(second) == [1, 2, 3, 4]


def test_the_inputs_of_the_previous_run_stay_inputs() -> None:
    first = run_job(ignore, {"task.inputs": "mem.a"}, {"mem.a": {0: [1, 2]}}, max_messages=1)
    second = run_job(ignore, None, {"mem.b": {0: [3]}}, previous=first)
    assert sorted(places(second)) == ["mem.a.0@1", "mem.b.0@0"]


def test_the_configuration_of_the_previous_run_is_not_carried_over() -> None:
    first = run_job(echo, JSON, {"mem.a": {0: [1]}})
    assert run_job(ignore, None, {"mem.a": {0: ["plain"]}}, previous=first).processed == [
        ("mem.a.0", "1", None, "plain")
    ]


def test_a_previous_run_can_be_continued_in_several_ways_and_stays_as_is() -> None:
    first = run_job(echo, None, {"mem.a": {0: [1]}})
    for message in ("left", "right"):
        assert messages(run_job(echo, None, {"mem.a": {0: [message]}}, previous=first)) == [1, message]
    assert messages(first) == [1]
    assert first.checkpoints == {"Partition 0": {"mem.a.0": "0"}}


def test_stores_come_back_from_their_changelogs() -> None:
    first = run_job(Counter, COUNTS, {"mem.a": {0: [("x", 0), ("x", 0)], 1: [("y", 0)]}})
    second = run_job(Counter, COUNTS, {"mem.a": {0: [("x", 0)], 1: [("y", 0)]}}, previous=first)
    assert run_outputs(second)[len(run_outputs(first)) :] == [("x", 3), ("y", 2)]


def run_outputs(run: JobRun) -> list[tuple[Any, Any]]:
    return run.outputs["mem.out"][0]


def test_a_store_comes_back_as_it_was_at_the_last_commit() -> None:
    class FailsAtThird(Counter):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            if envelope.message == "commit":
                coordinator.commit()
            if envelope.message == "fail":
                raise ValueError("now")

    with pytest.raises(TaskError) as caught:
        run_job(FailsAtThird, COUNTS, {"mem.a": {0: [("x", "commit"), ("x", "go on"), ("x", "fail")]}})
    after = run_job(Counter, COUNTS, previous=caught.value.job_run)  # type: ignore[attr-defined]
    assert places(after) == ["mem.a.0@1", "mem.a.0@2"]
    assert run_outputs(after)[-2:] == [("x", 2), ("x", 3)]


def test_a_run_that_failed_goes_on_from_its_last_commit() -> None:
    def commits(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == "bad":
            raise ValueError("no")
        coordinator.commit()

    with pytest.raises(TaskError) as caught:
        run_job(commits, None, {"mem.a": {0: [1, "bad", 3]}})
    assert places(run_job(ignore, None, previous=caught.value.job_run)) == ["mem.a.0@1", "mem.a.0@2"]  # type: ignore[attr-defined]


def test_what_arrives_before_a_tasks_first_commit_is_not_skipped_later() -> None:
    config = {"systems.mem.samza.offset.default": "upcoming"}
    first = run_job(ignore, config, {"mem.a": {0: ["before"]}})
    assert first.processed == []
    second = run_job(ignore, config, {"mem.a": {0: ["after"]}}, previous=first)
    assert places(second) == ["mem.a.0@1"]
    assert first.checkpoints == {}


def test_a_run_can_start_from_given_checkpoints() -> None:
    inputs = {"mem.a": {0: [1, 2, 3], 1: [4, 5]}}
    run = run_job(ignore, None, inputs, checkpoints={"Partition 0": {"mem.a.0": "1"}})
    assert sorted(places(run)) == ["mem.a.0@2", "mem.a.1@0", "mem.a.1@1"]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "2"}, "Partition 1": {"mem.a.1": "1"}}


def test_given_checkpoints_go_before_those_of_the_previous_run() -> None:
    first = run_job(ignore, None, {"mem.a": {0: [1, 2, 3]}})
    assert places(run_job(ignore, None, previous=first, checkpoints={"Partition 0": {"mem.a.0": "0"}})) == [
        "mem.a.0@1",
        "mem.a.0@2",
    ]
    assert len(run_job(ignore, None, previous=first, checkpoints={}).processed) == 3
