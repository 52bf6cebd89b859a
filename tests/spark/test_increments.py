"""Rounds that are bounded by ``job.container.max.messages``: where they end, and that none is forgotten."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench import ConfigError, StreamTask
from streambench.model import SystemStreamPartition
from streambench.spark import deploy
from streambench.spark.plan import make_plan
from streambench.spark.result import DeployError, DeployProgress
from streambench.system.systems import Systems
from tests.container.stateful import with_systems
from tests.spark.conftest import Job
from tests.spark.test_deploy import FailsAt, Forward

IN = [SystemStreamPartition("log", "in", number) for number in (0, 1)]
MOST = "job.container.max.messages"


class Ignore(StreamTask):
    def process(self, envelope, collector, coordinator):
        pass


def test_a_round_ends_after_so_many_messages_of_each_container(tmp_path: Path) -> None:
    job = Job(tmp_path, **{MOST: 6, "job.container.count": 1})
    job.send(0, 20)
    planned = make_plan(job.config, Ignore)
    assert (planned.ends, planned.is_last) == ({IN[0]: "3", IN[1]: "3"}, False)
    assert planned.last_ends == {IN[0]: "10", IN[1]: "10"}
    stretched = make_plan(job.config, Ignore, stretch=4)
    assert (stretched.ends, stretched.is_last) == (stretched.last_ends, True)
    before = make_plan(job.config, Ignore, until={IN[0]: "2", IN[1]: "1"})
    assert (before.ends, before.is_last) == ({IN[0]: "2", IN[1]: "1"}, True)


def test_inputs_that_others_wait_for_are_read_whole(tmp_path: Path) -> None:
    bootstrap = {"systems.log.streams.rules.samza.bootstrap": "true"}
    job = Job(tmp_path, **bootstrap, **{MOST: 4, "task.inputs": "log.in,log.rules"})
    job.send(0, 20)
    job.write_objects("rules", list(range(9)), partitions=2)
    rules = [SystemStreamPartition("log", "rules", number) for number in (0, 1)]
    ends = make_plan(job.config, Ignore).ends
    assert ends == {IN[0]: "4", IN[1]: "4", rules[0]: "5", rules[1]: "4"}


def test_no_bound_is_no_number_of_messages(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=MOST):
        make_plan(Job(tmp_path, **{MOST: 0}).config, Ignore)


def test_rounds_follow_until_what_was_there_is_processed(spark: Any, job: Job) -> None:
    job.send(0, 20)
    rounds = set()

    def look(progress: DeployProgress) -> None:
        if progress.round == 2 and not rounds & {2}:
            job.send(20, 24)
        rounds.add(progress.round)

    result = deploy(job.config.with_values({MOST: 4}), Forward, spark=spark, progress=look)
    assert (result.messages, result.rounds, result.generation) == (20, 3, 3)
    assert result.containers[0].offsets == {IN[0]: ("0", "10")}
    assert job.numbers() == list(range(20))
    assert deploy(job.config, Forward, spark=spark).messages == 4


def test_a_round_that_fails_tells_of_those_before_it(spark: Any, job: Job) -> None:
    job.send(0, 20)
    with pytest.raises(DeployError) as caught:
        deploy(job.config.with_values({MOST: 4}), FailsAt, spark=spark)
    assert caught.value.result.rounds == 2
    assert caught.value.result.containers[1].offsets == {IN[1]: ("0", "5")}
    assert job.numbers() == [number for number in range(16) if number % 2 == 0 or number < 11]


def test_offsets_without_messages_are_got_past(spark: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, **{"systems.log.streams.in.cleanup.policy": "compact", MOST: 2})
    job.send(0, 400)
    with_systems(job.config, compact)
    job.send(400, 402)
    result = deploy(job.config, Forward, spark=spark)
    assert result.containers[0].offsets == {IN[0]: ("0", "201")}
    assert 2 < result.messages < 20
    assert result.rounds < 12


def compact(systems: Systems) -> None:
    """Compact the input; of each key its last message stays."""
    stream = systems.admin("log").log.stream("in")  # type: ignore[attr-defined]
    for number in range(stream.partitions):
        stream.partition(number).roll()
        stream.partition(number).clean()
