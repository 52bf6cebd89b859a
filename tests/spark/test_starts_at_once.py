"""Starts of one job at the same moment, while Spark itself is still starting: one of them is refused."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from streambench.container.container import Container
from streambench.errors import CheckpointError
from streambench.spark import JobRunningError, TakenOverError, deploy, running, shared_session
from streambench.spark.rounds import Deployment
from streambench.spark.running import DeploymentLock
from streambench.spark.shared_session import SharedSession
from tests.job.together import begun_together
from tests.spark.conftest import Job

#: A program that begins to deploy.
STARTS = """
import sys
from streambench import Config
from streambench.job.running import JobRunningError
from streambench.spark.running import DeploymentLock
lock = DeploymentLock(Config.from_text(sys.argv[1]), sys.argv[2], "refuse")
print("ready", flush=True)
sys.stdin.readline()
try:
    lock.acquire()
    print("held", flush=True)
except JobRunningError as error:
    print(error, flush=True)
sys.stdin.readline()
"""


def ignore(envelope: Any, collector: Any, coordinator: Any) -> None:
    pass


def test_of_deployments_that_begin_together_one_goes_on(job: Job) -> None:
    config = job.config.with_values({"systems.log.path": job.directory / "streams"})
    with begun_together(STARTS, config, "job-1", 3) as answers:
        held, *refused = sorted(answers)
        assert held == "held"
        assert [each.startswith("job-1 is being deployed by process ") for each in refused] == [True, True]
    DeploymentLock(config, "job-1", "refuse").check()


@pytest.mark.parametrize(("number", "is_refused"), [(errno.EIO, True), (errno.ENOLCK, False)])
def test_a_deployment_that_cannot_hold_its_job_is_refused_or_warned_of(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, is_refused: bool
) -> None:
    def fails(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(running, "_locked", fails)
    deployment = DeploymentLock(job.config, "job-1", "refuse")
    if is_refused:
        with pytest.raises(CheckpointError, match=r"job-1: .*deployment\.lock, .* Input/output error"):
            deployment.acquire()
    else:
        assert [deployment.acquire() for _ in range(2)] == [False, False]
        [warning] = caplog.records
        assert "No locks available): other starts of the job do not see this deployme" in warning.message


@pytest.mark.usefixtures("spark_installed")
def test_a_deployment_is_refused_while_spark_starts_for_another_one(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send(0, 10)
    starts = []

    def starting(*given: Any) -> None:
        starts.append(given)
        with pytest.raises(JobRunningError, match="job-1 is being deployed by process"):
            deploy(job.config, ignore)
        raise KeyboardInterrupt

    monkeypatch.setattr(shared_session, "session_for", starting)
    with pytest.raises(KeyboardInterrupt):
        deploy(job.config, ignore)
    assert len(starts) == 1
    DeploymentLock(job.config, "job-1", "refuse").check()


@pytest.mark.usefixtures("spark_installed")
def test_a_container_that_is_started_while_spark_starts_is_not_ended(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send(0, 10)
    monkeypatch.setattr("streambench.job.running._PATIENCE_S", 0)
    running = Container(job.config, ignore)

    class Started:
        context, keeps_logs, master = object(), True, "local[2]"

        def host(self) -> str:
            return "127.0.0.1"

        def close(self, *, quickly: bool) -> None:
            assert running.state == "running"

    def starting(*given: Any) -> Started:
        running.start()
        return Started()

    monkeypatch.setattr(shared_session, "session_for", starting)
    with pytest.raises(JobRunningError, match="job-1 is running: process"):
        deploy(job.config, ignore)
    assert running.run("caught-up") == 10
    running.stop()


@contextmanager
def taking_over(former: DeploymentLock, take: Callable[[], Any]) -> Iterator[list[Any]]:
    """Within it ``take`` waits for the end of the former holder; behind it that has ended, and the list has
    the answer."""
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(take()))
    thread.start()
    while not former.taken_over_by():
        assert thread.is_alive()
    try:
        yield answers
    finally:
        former.release()
        thread.join()


def catch_up(job: Job) -> int:
    """Process all that is there, without Spark; how many messages."""
    running = Container(job.config, ignore)
    running.start()
    processed = running.run("caught-up")
    running.stop()
    return processed


def test_a_job_that_is_taken_over_is_held_by_the_taker_at_once(job: Job) -> None:
    former, taker = (DeploymentLock(job.config, "job-1", how) for how in ("refuse", "take-over"))
    assert former.acquire() is False
    assert former.taken_over_by() == ""
    with taking_over(former, taker.acquire) as answers:
        assert former.taken_over_by().startswith("process ")
        with pytest.raises(JobRunningError, match="job-1 is being deployed by process"):
            DeploymentLock(job.config, "job-1", "refuse").acquire()
        assert answers == []
    assert answers == [True]
    with pytest.raises(JobRunningError, match="job-1 is being deployed by process"):
        DeploymentLock(job.config, "job-1", "refuse").acquire()
    taker.release()
    DeploymentLock(job.config, "job-1", "refuse").check()


def test_a_deployment_that_goes_on_holds_its_job_while_it_waits(job: Job) -> None:
    session = SharedSession(None, None)
    with closing(Deployment(job.config, ignore, session, "refuse", {}, goes_on=True)) as service:
        catch_up(job)
        assert service.round(service.plan()).rounds == 0
        with pytest.raises(JobRunningError, match="job-1 is being deployed by process"):
            DeploymentLock(job.config, "job-1", "refuse").acquire()
        taker = DeploymentLock(job.config, "job-1", "take-over")
        thread = threading.Thread(target=taker.acquire)
        thread.start()
        with pytest.raises(TakenOverError, match="job-1 was taken over by process .* on .* since"):
            service.rounds(0.01)
    thread.join()
    taker.release()


def test_a_deployment_that_takes_over_plans_once_the_former_has_ended(job: Job) -> None:
    job.send(0, 10)
    former = DeploymentLock(job.config, "job-1", "refuse")
    former.acquire()
    session = SharedSession(None, None)
    with closing(Deployment(job.config, ignore, session, "take-over", {})) as taker:
        planned = taker.plan()
        assert not planned.idle
        with taking_over(former, lambda: taker.round(planned)) as found:
            assert catch_up(job) == 10
    assert [each.span for result in found for each in result.containers] == [0, 0]
    assert not session.is_started
