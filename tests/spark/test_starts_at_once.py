"""Starts of one job at the same moment, while Spark itself is still starting: one of them is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from streambench import Config
from streambench.container.container import Container
from streambench.spark import JobRunningError, deploy, shared_session
from streambench.spark.running import DeploymentLock
from tests.spark.conftest import Job

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


@contextmanager
def begun_together(config: Config, job: str, processes: int = 2) -> Iterator[list[str]]:
    """The answers of processes that begin to deploy a job at one moment."""
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with ExitStack() as stack:
        begun = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", STARTS, text, job], **pipes))
            for _ in range(processes)
        ]
        stack.callback(lambda: [each.stdin.close() for each in begun if each.stdin is not None])
        answers = [each.stdout for each in begun if each.stdout is not None]
        assert [each.readline() for each in answers] == ["ready\n"] * processes
        for each in begun:
            assert each.stdin is not None
            each.stdin.write("\n")
            each.stdin.flush()
        yield [each.readline().strip() for each in answers]


def ignore(envelope: Any, collector: Any, coordinator: Any) -> None:
    pass


def test_of_deployments_that_begin_together_one_goes_on(job: Job) -> None:
    config = job.config.with_values({"systems.log.path": job.directory / "streams"})
    with begun_together(config, "job-1", 3) as answers:
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
