"""Starts of one job at the same moment, while Spark itself is still starting: one of them is refused."""

from __future__ import annotations

from typing import Any

import pytest

from streambench.container.container import Container
from streambench.spark import JobRunningError, deploy, shared_session
from streambench.spark.running import DeploymentLock
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

    monkeypatch.setattr(shared_session, "lease", starting)
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

    monkeypatch.setattr(shared_session, "lease", starting)
    with pytest.raises(JobRunningError, match="job-1 is running: process"):
        deploy(job.config, ignore)
    assert running.run("caught-up") == 10
    running.stop()
