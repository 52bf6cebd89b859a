"""Tasks on Spark that take long: at one message, or at all of a partition."""

from __future__ import annotations

import re
import threading
import time
from contextlib import closing
from functools import partial
from typing import Any

import pytest

from streambench import StreamTask
from streambench.container.container import Container
from streambench.spark import DeployError, DeployProgress, DeployResult, TakenOverError, deploy
from streambench.spark.history import runs
from streambench.spark.progress_view import busy_texts
from streambench.spark.quiet import quiet
from streambench.spark.rounds import Deployment
from streambench.spark.shared_session import SharedSession
from tests.spark.conftest import Job
from tests.spark.test_deploy import stuck_at

# With a message of any other partition, and of partition 0.
PAUSE_S = 0.015, 0.15


class SlowInOnePartition(StreamTask):
    """Takes ten times as long for a message of partition 0."""

    def process(self, envelope, collector, coordinator):
        time.sleep(PAUSE_S[envelope.ssp.partition == 0])


def test_a_task_that_hangs_is_named_while_it_does(spark: Any, job: Job) -> None:
    job.send(0, 40)
    cancel, seen = threading.Event(), set()

    def look(progress: DeployProgress) -> None:
        seen.update(busy_texts(progress))
        if seen:
            cancel.set()

    with pytest.raises(DeployError, match="cancelled"):
        deploy(job.config, stuck_at(21, job.directory), spark=spark, progress=look, cancel=cancel)
    where = r"Partition 1 at log\.in\.1@10 key k0, test_deploy\.py line \d+: threading\.Event\(\)\.wait\(\)"
    assert all(re.fullmatch(rf"container 1 busy \d+ s: {where}", each) for each in seen), seen


class Paced(StreamTask):
    """Commits often, and not with each message."""

    def process(self, envelope, collector, coordinator):
        time.sleep(0.005)
        if envelope.message % 5 == 0:
            coordinator.commit()


def test_what_an_interrupted_round_has_committed_is_shown_and_noted(spark: Any, job: Job) -> None:
    job.send(0, 20_000)
    seen: list[DeployProgress] = []

    def interrupt(progress: DeployProgress) -> None:
        seen.append(progress)
        if progress.stage == "running" and progress.messages:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        deploy(job.config, Paced, spark=spark, progress=interrupt)
    committed = sum(int(each) + 1 for task in job.checkpoints().values() for each in task.values())
    last, [run] = seen[-1], runs(job.config)
    assert (last.stage, last.messages, last.left) == ("stopped", committed, 20_000 - committed)
    assert last.failed == 0
    assert (run.outcome, run.messages, run.failed) == ("interrupted", committed, 0)
    assert run.seconds > 0


def test_a_deployment_goes_on_no_more_after_a_newer_start(spark: Any, job: Job) -> None:
    job.send(0, 10)
    with (
        SharedSession(spark, None) as session,
        closing(Deployment(job.config, Paced, session, "refuse", {}, goes_on=True)) as service,
    ):
        assert service.caught_up().messages == 10
        newer = Container(job.config, Paced)
        newer.start()
        newer.stop()
        job.send(10, 20)
        with pytest.raises(TakenOverError, match="job-1 was taken over by a newer start of the job"):
            service.rounds(1)
    assert job.generation() == 2


def uneven(result: DeployResult) -> float:
    """The time by which the pauses of the slowest container are longer than those of the quickest."""
    pauses = [sum(PAUSE_S[ssp.partition == 0] for ssp in each.offsets) for each in result.containers]
    return max(pauses) / min(pauses)


def test_containers_take_about_as_long_where_one_partition_is_slow(spark: Any, job: Job) -> None:
    def send() -> None:
        job.write_objects("many", [0] * 220, partitions=11)

    config = job.config.with_values(
        {"task.inputs": "log.many", "job.container.balance": "lag", "task.commit.ms": 1000}
    )
    send()
    first = deploy(config, SlowInOnePartition, spark=spark)
    send()
    planned = deploy(config, SlowInOnePartition, dry_run=True)
    assert planned.balance == "by time, as measured in 1 round"
    second = deploy(config, SlowInOnePartition, spark=spark)
    assert min(each.messages for each in second.containers) < min(each.messages for each in first.containers)
    assert uneven(second) < uneven(first)


def test_deployments_that_overlap_leave_a_session_as_loud_as_it_was(spark: Any) -> None:
    context = spark.sparkContext
    root = context._jvm.org.apache.logging.log4j.LogManager.getRootLogger
    context.setLogLevel("WARN")
    first, second = quiet(context), quiet(context)
    levels = []
    for step in (first.__enter__, second.__enter__, partial(first.__exit__, None, None, None)):
        step()
        levels.append(str(root().getLevel()))
    second.__exit__(None, None, None)
    assert (levels, str(root().getLevel())) == (["ERROR"] * 3, "WARN")
    context.setLogLevel("ERROR")
