"""Rounds whose end is disturbed, on something that stands for Spark and runs containers in this process."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import closing, nullcontext
from typing import Any

import pytest

from streambench import OutgoingMessageEnvelope, StreamTask, SystemStream
from streambench.errors import OffsetError, StreamSystemError
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark import outcome, spark_job
from streambench.spark import round as round_module
from streambench.spark.history import runs
from streambench.spark.result import DeployError, DeployProgress, DeployTaskError, TakenOverError
from streambench.spark.rounds import Deployment
from tests.spark.conftest import Job

pytestmark = pytest.mark.usefixtures("spark_installed")


class DirectSpark:
    """Stands for a session, for what leases it and for its context. ``stuck``: from the round of this number
    on, a job whose containers have ended waits until it is cancelled, and then fails."""

    is_started = keeps_logs = True
    shows_metrics = False
    spark = None
    master = "direct"

    def __init__(self, stuck: int = 100, interrupted: int = 0) -> None:
        """``interrupted``: the request to cancel, by number, at which another Ctrl-C comes."""
        self.is_stuck = threading.Event()
        self.cancels = 0
        self._stuck, self._interrupted = stuck, interrupted
        self._cancelled = threading.Event()
        self._rounds = 0

    @property
    def context(self) -> DirectSpark:
        return self

    def handle(self, config: object) -> DirectSpark:
        return self

    def host(self) -> str:
        return "127.0.0.1"

    def addJobTag(self, tag: str) -> None: ...

    def setJobGroup(self, group: str, description: str) -> None: ...

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancels += 1
        if self.cancels == self._interrupted:
            raise KeyboardInterrupt
        if self.cancels > self._interrupted:
            self._cancelled.set()

    def parallelize(self, rows: object, count: int) -> DirectSpark:
        self._count = count
        return self

    def mapPartitionsWithIndex(self, run: Any) -> DirectSpark:
        self._run = run
        return self

    def collect(self) -> list[bytes]:
        self._rounds += 1
        reports = [each for row in range(self._count) for each in self._run(row)]
        if self._rounds >= self._stuck:
            self.is_stuck.set()
            assert self._cancelled.wait(60)
            raise RuntimeError("cancelled")
        return reports


class Forward(StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))


class FailsAtEight(Forward):
    def process(self, envelope, collector, coordinator):
        if envelope.message >= 8:
            raise ValueError("the real failure")
        coordinator.commit()


class ShutsDown(Forward):
    def process(self, envelope, collector, coordinator):
        if envelope.message >= 4:
            coordinator.shutdown()


class TakenOver(Forward):
    """Has another start of the job begin, as ``streambench run --if-running take-over`` does."""

    def init(self, context):
        self.config = context.config

    def process(self, envelope, collector, coordinator):
        with closing(checkpoint_manager(self.config, "job-1")) as manager:
            manager.open_generation({0: ["Partition 0"], 1: ["Partition 1"]}, now_ms=0)
        coordinator.commit()


@pytest.fixture
def job(job: Job) -> Iterator[Job]:
    job.send(0, 20)
    yield job


def deployment(job: Job, task: Any, spark: Any = None, progress: Any = None) -> Any:
    return closing(Deployment(job.config, task, spark or DirectSpark(), "refuse", {"progress": progress}))


def outcomes(job: Job) -> list[tuple[str, int]]:
    return [(each.outcome, each.messages) for each in runs(job.config, "job-1")]


@pytest.mark.parametrize(
    ("unreadable", "error", "messages"),
    [
        ("count_messages", OffsetError("retention has removed them"), 8),
        ("reached", StreamSystemError("no broker"), 0),
    ],
)
def test_a_failure_is_shown_where_what_is_committed_cannot_be_counted(
    job: Job,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    unreadable: str,
    error: Exception,
    messages: int,
) -> None:
    def raises(*given: object) -> None:
        raise error

    monkeypatch.setattr(outcome, unreadable, raises)
    with (
        deployment(job, FailsAtEight) as rounds,
        pytest.raises(DeployTaskError, match="the real failure") as at,
    ):
        rounds.caught_up()
    assert at.value.result.messages == messages
    assert outcomes(job) == [("failed", messages)]
    assert str(error) in caplog.text


class Foreign:
    """Does harm where it is unpickled."""

    def __reduce__(self) -> Any:
        return HARM.append, ("done",)


HARM: list[str] = []


def test_reports_from_a_foreign_server_run_no_code(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DirectSpark, "collect", lambda self: [pickle.dumps(Foreign())])
    with deployment(job, Forward) as rounds, pytest.raises(DeployError) as refused:
        rounds.caught_up()
    assert "it returned is no report of a container" in str(refused.value)
    assert "install the same version of streambench on driver and executors" in str(refused.value)
    assert HARM == []


@pytest.mark.parametrize(
    ("master", "values", "is_live"),
    [
        ("yarn", {}, True),
        ("yarn", {"job.container.live.counts": False}, False),
        ("local[2]", {}, False),
    ],
)
def test_containers_are_counted_live_on_clusters_unless_a_key_says_no(
    job: Job, monkeypatch: pytest.MonkeyPatch, master: str, values: dict[str, bool], is_live: bool
) -> None:
    asked = []

    def counted(*given: object, is_live: bool) -> Any:
        asked.append(is_live)
        return nullcontext()  # as where the session does not take what counts

    monkeypatch.setattr(spark_job, "counted_reports", counted)
    spark = DirectSpark()
    spark.shows_metrics, spark.master = True, master
    job.config = job.config.with_values(values)
    with deployment(job, Forward, spark) as rounds:
        assert rounds.caught_up().messages == 20
    assert asked == [is_live]


def test_a_round_is_noted_though_its_end_cannot_be_shown(job: Job) -> None:
    def show(progress: DeployProgress) -> None:
        if progress.stage == "ended":
            raise OSError("no terminal")

    with deployment(job, Forward, progress=show) as rounds, pytest.raises(OSError, match="no terminal"):
        rounds.caught_up()
    assert outcomes(job) == [("ended", 20)]


@pytest.mark.parametrize("second", [1, 2])
def test_a_second_interrupt_cancels_once_more_and_leaves_a_true_history(job: Job, second: int) -> None:
    spark = DirectSpark(stuck=1, interrupted=second)

    def show(progress: DeployProgress) -> None:
        if progress.stage == "running" and spark.is_stuck.is_set():
            raise KeyboardInterrupt

    with deployment(job, Forward, spark, show) as rounds, pytest.raises(KeyboardInterrupt):
        rounds.caught_up()
    assert spark.cancels == second + 1
    assert outcomes(job) == [("interrupted", 20)]


@pytest.mark.parametrize(("second", "noted"), [(1, "did not end"), (2, "interrupted")])
def test_a_second_interrupt_does_not_wait_for_checkpoints_out_of_reach(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, second: int, noted: str
) -> None:
    spark, returned, waited = DirectSpark(stuck=1, interrupted=second), threading.Event(), []

    def unreachable(planned: object) -> Any:
        waited.append(returned.wait(20))
        return {}

    def show(progress: DeployProgress) -> None:
        if progress.stage == "running" and spark.is_stuck.is_set():
            monkeypatch.setattr(outcome, "reached", unreachable)
            raise KeyboardInterrupt

    monkeypatch.setattr(round_module, "_AT_ONCE_S", 0.01)
    with deployment(job, Forward, spark, show) as rounds, pytest.raises(KeyboardInterrupt):
        rounds.caught_up()
    assert waited == []
    returned.set()
    assert outcomes(job) == [(noted, 0)]
    assert "not known how far it came: its checkpoints do not answer at once" in caplog.text


def test_an_interrupted_round_is_part_of_the_sum_of_rounds(job: Job) -> None:
    spark = DirectSpark(stuck=2)

    def show(progress: DeployProgress) -> None:
        if progress.stage == "ended":
            job.send(20, 26)
        if progress.stage == "running" and spark.is_stuck.is_set():
            raise KeyboardInterrupt

    with deployment(job, Forward, spark, show) as rounds:
        result = rounds.rounds(0.001)
    assert (result.messages, result.rounds) == (26, 2)
    assert outcomes(job) == [("ended", 20), ("interrupted", 6)]


def test_a_round_that_a_run_takes_over_is_noted_as_interrupted(job: Job) -> None:
    with deployment(job, TakenOver) as rounds, pytest.raises(TakenOverError):
        rounds.caught_up()
    [run] = runs(job.config, "job-1")
    assert (run.outcome, run.failed) == ("interrupted", 0)


def test_containers_that_their_tasks_shut_down_are_not_shown_as_done(job: Job) -> None:
    seen: list[DeployProgress] = []
    with deployment(job, ShutsDown, progress=seen.append) as rounds:
        result = rounds.caught_up()
    assert [each.is_shut_down for each in result.containers] == [True, True] and result.messages < 20
    assert (seen[-1].left, seen[-1].partitions_done) == (20 - result.messages, 0)
    assert [each.is_shut_down for each in seen[-1].each] == [True, True]
