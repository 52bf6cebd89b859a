"""State stays with its task, whatever becomes of the inputs."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streambench as sb
from streambench.errors import ConfigError, StreamSystemError
from streambench.planning.changelog_partitions import changelog_partitions
from streambench.system.memory import MemoryAdmin
from streambench.testing import JobRun, run_job

CONFIG = {
    "job.systemstreampartition.grouper.factory": "ssp",
    "stores.s.factory": "memory",
    "stores.s.changelog": "mem.changelog",
}


class Counts(sb.StreamTask):
    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("s")

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        self.store.put(str(envelope.ssp), (self.store.get(str(envelope.ssp)) or 0) + 1)


def run(config: Mapping[str, Any], inputs: Mapping[str, Any], previous: JobRun | None = None) -> JobRun:
    return run_job(Counts, {**CONFIG, **config}, inputs, previous=previous)


def state(job: JobRun) -> dict[str, int]:
    """What the changelog says, by key: of every one that there is in only one partition."""
    partitions = [dict(entries) for entries in job.outputs["mem.changelog"].values()]
    merged = {key: value for entries in partitions for key, value in entries.items()}
    assert len(merged) == sum(map(len, partitions))
    return merged


def test_a_task_that_comes_before_others_gets_a_place_behind_them() -> None:
    first = run({}, {"mem.b": {0: [1, 2]}, "mem.c": {0: [1]}})
    second = run({"task.inputs": "mem.a,mem.b,mem.c"}, {"mem.a": {0: [1]}, "mem.c": {0: [2]}}, first)
    assert state(second) == {"mem.a.0": 1, "mem.b.0": 2, "mem.c.0": 2}
    third = run({"task.inputs": "mem.a,mem.b,mem.c"}, {"mem.a": {0: [2, 3]}}, second)
    assert state(third) == {"mem.a.0": 3, "mem.b.0": 2, "mem.c.0": 2}


def test_a_task_that_is_gone_keeps_its_place_until_it_comes_back() -> None:
    first = run({}, {"mem.b": {0: [1, 2]}, "mem.c": {0: [1]}})
    second = run({"task.inputs": "mem.c,mem.d"}, {"mem.c": {0: [2]}, "mem.d": {0: [1]}}, first)
    third = run({"task.inputs": "mem.b,mem.c,mem.d"}, {"mem.b": {0: [3]}}, second)
    assert state(third) == {"mem.b.0": 3, "mem.c.0": 2, "mem.d.0": 1}


def test_tasks_of_new_partitions_get_new_state_and_others_keep_theirs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    grouped = {"job.systemstreampartition.grouper.factory": "partition"}
    first = run(grouped, {"mem.b": {0: [1, 2], 1: [1]}})
    with caplog.at_level(logging.WARNING):
        second = run(grouped, {"mem.b": {0: [3], 3: [1]}}, first)
    assert state(second) == {"mem.b.0": 3, "mem.b.1": 1, "mem.b.3": 1}
    assert "mem.changelog grows from 2 to 4 partitions; new tasks begin with empty state" in caplog.text


def test_where_partitions_cannot_be_added_the_changelog_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def cannot(admin: MemoryAdmin, stream: sb.SystemStream, partitions: int) -> None:
        raise StreamSystemError("no")

    first = run({}, {"mem.b": {0: [1]}})
    monkeypatch.setattr(MemoryAdmin, "grow", cannot)
    with pytest.raises(ConfigError, match="mem.changelog has 1 partitions and the tasks need 2") as told:
        run({"task.inputs": "mem.b,mem.c"}, {"mem.c": {0: [1]}}, first)
    assert told.value.key == "stores.s.changelog"


def test_without_state_tasks_may_come_and_go() -> None:
    first = run({"stores.s.changelog": "none"}, {"mem.b": {0: [1, 2]}})
    second = run({"stores.s.changelog": "none"}, {"mem.a": {0: [1]}}, first)
    assert second.checkpoints == {"mem.a.0": {"mem.a.0": "0"}, "mem.b.0": {"mem.b.0": "1"}}


@given(st.lists(st.sets(st.sampled_from([f"task {n}" for n in range(12)]), min_size=1), max_size=6))
def test_a_place_is_given_once(starts: list[set[str]]) -> None:
    places: dict[str, int] = {}
    for tasks in starts:
        now = changelog_partitions(tasks, places)
        assert now.keys() == tasks
        assert all(now[task] == places[task] for task in tasks & places.keys())
        places |= now
        assert sorted(places.values()) == list(range(len(places)))
