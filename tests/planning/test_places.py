"""State stays with its task, whatever becomes of the inputs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

import streambench as sb
from streambench.errors import ConfigError
from streambench.testing import JobRun, run_job

CONFIG = {"job.systemstreampartition.grouper.factory": "ssp", "stores.s.factory": "memory", "stores.s.changelog": "mem.changelog"}


class Counts(sb.StreamTask):
    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("s")

    def process(self, envelope: sb.IncomingMessageEnvelope, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        self.store.put(str(envelope.ssp), (self.store.get(str(envelope.ssp)) or 0) + 1)


def run(config: Mapping[str, Any], inputs: Mapping[str, Any], previous: JobRun | None = None) -> JobRun:
    return run_job(Counts, {**CONFIG, **config}, inputs, previous=previous)


def test_a_task_that_comes_before_others_cannot_take_their_state() -> None:
    first = run({}, {"mem.b": {0: [1, 2]}, "mem.c": {0: [1]}})
    with pytest.raises(ConfigError, match="mem.a.0 would lose its state or get that of another task") as told:
        run({"task.inputs": "mem.a,mem.b"}, {"mem.a": {0: [1]}}, first)
    assert told.value.key == "task.inputs"


def test_a_task_cannot_move_into_the_place_of_one_that_is_gone() -> None:
    first = run({}, {"mem.b": {0: [1, 2]}, "mem.c": {0: [1]}})
    with pytest.raises(ConfigError, match="mem.c.0 would lose its state"):
        run({"task.inputs": "mem.c"}, {}, first)


def test_tasks_may_come_behind_the_others_and_the_last_ones_may_go() -> None:
    first = run({}, {"mem.b": {0: [1, 2]}, "mem.c": {0: [1]}})
    second = run({"task.inputs": "mem.b"}, {"mem.b": {0: [3]}}, first)
    third = run({"task.inputs": "mem.b,mem.c"}, {"mem.c": {0: [2]}}, second)
    assert third.outputs["mem.changelog"][0][-1] == ("mem.b.0", 3)
    assert third.outputs["mem.changelog"][1][-1] == ("mem.c.0", 2)


def test_without_state_tasks_may_come_and_go() -> None:
    first = run({"stores.s.changelog": "none"}, {"mem.b": {0: [1, 2]}})
    second = run({"stores.s.changelog": "none"}, {"mem.a": {0: [1]}}, first)
    assert second.checkpoints == {"mem.a.0": {"mem.a.0": "0"}, "mem.b.0": {"mem.b.0": "1"}}
