"""A second start of a job that runs is refused, or takes it over; a killed process is no obstacle."""

from __future__ import annotations

import errno
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import psutil
import pytest

import streambench as sb
from streambench.errors import ConfigError, FencedError
from streambench.job.run import container_of
from streambench.job.running import JobRunningError
from tests.job.project import Project
from tests.job.together import RUNS, begun_together


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.job.running._PATIENCE_S", 0)


@pytest.fixture
def waiting(project: Project) -> Project:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": "task.py:Waits"})
    return project


@contextmanager
def started(project: Project) -> Iterator[subprocess.Popen[str]]:
    """The job in a process, which ends with the block."""
    with project.start("run", "job.properties", "--quiet") as process:
        try:
            yield process
        finally:
            process.kill()


def test_a_start_on_a_full_disk_names_the_file_and_leaves_no_lock(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(2)
    with monkeypatch.context() as full:
        full.setattr("streambench.locks.os.pwrite", mock.Mock(side_effect=OSError(errno.ENOSPC, "Full")))
        error = project.fails("run", "job.properties", "--until", "caught-up")
    assert error.endswith("/streams/_jobs/up-1/start.lock: full")
    assert "2 messages" in project.ok("run", "job.properties", "--until", "caught-up")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["run", "job.properties", "--messages", "1"], "run"),
        (["run", "job.properties", "--join"], "run"),
        (["checkpoints", "job.properties", "--rewind", "oldest", "--yes"], "rewind"),
    ],
    ids=["run", "join", "rewind"],
)
def test_a_command_does_not_end_a_job_that_runs(
    waiting: Project, arguments: list[str], command: str
) -> None:
    with started(waiting) as first:
        process = waiting.await_reached()
        done = waiting.run(*arguments)
        assert done.returncode == 1
        said = rf"error: up-1 is running: process {process} on \S+ has container 0: stop that first, or "
        assert re.match(said + f"{command} with --if-running take-over", done.stderr)
        first.send_signal(signal.SIGINT)
        (waiting.directory / "gate").write_text("")
        first.communicate()
    assert first.returncode == 0


def test_a_command_takes_over_a_job_that_runs_where_it_is_asked_to(waiting: Project) -> None:
    with started(waiting) as first:
        waiting.await_reached()
        waiting.configure()
        ended = waiting.run("run", "job.properties", "--until", "caught-up", "--if-running", "take-over")
        assert (ended.returncode, "caught up" in ended.stdout) == (0, True)
        (waiting.directory / "gate").write_text("")
        _, errors = first.communicate()
    assert (first.returncode, "has taken over" in errors) == (1, True)


def test_a_call_takes_over_a_job_that_runs_unless_it_is_to_refuse(project: Project) -> None:
    project.fill(10)
    running = sb.Container(project.config)
    running.start()
    with pytest.raises(JobRunningError, match="up-1 is running: process"):
        sb.run(project.config, if_running="refuse")
    with pytest.raises(ConfigError, match="if_running='ask': give refuse or take-over"):
        sb.run(project.config, if_running="ask")  # type: ignore[arg-type]
    assert sb.run(project.config).messages == 10
    with pytest.raises(FencedError):
        running.run("caught-up")
        running.stop()
    assert sb.run(project.config, if_running="refuse").messages == 0


@pytest.mark.parametrize("containers", [1, 2])
def test_of_runs_that_begin_together_one_goes_on(project: Project, containers: int) -> None:
    project.fill(10)
    given = {"job.container.count": containers, "systems.log.path": project.directory / "streams"}
    config = project.config.with_values(given)
    with begun_together(RUNS, config, "up-1") as answers:
        held, refused = sorted(answers, key=lambda each: each != "held")
        assert held == "held"
        assert refused.startswith("up-1 is running: process ")
    assert sb.run(project.config, if_running="refuse").messages == 0


def test_a_container_starts_beside_the_others_of_its_job(project: Project) -> None:
    project.fill(10)
    project.configure({"job.container.count": 2})
    first = container_of(project.config, None, 1)
    first.start()
    assert sb.run(project.config, container=0, if_running="refuse").messages == 5
    with pytest.raises(JobRunningError, match="has container 1"):
        sb.run(project.config, container=1, if_running="refuse")
    assert first.run("caught-up") == 5
    first.stop()


@pytest.mark.parametrize("task", ["Waits", "GivesAway"])
def test_a_killed_process_never_blocks_the_next_start(waiting: Project, task: str) -> None:
    waiting.configure({"task.class": f"task.py:{task}"})
    with started(waiting) as first:
        waiting.await_reached()
        left = psutil.Process(first.pid).children()
        first.kill()
    waiting.configure()
    try:
        done = waiting.run("run", "job.properties", "--until", "caught-up")
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        for each in left:
            each.kill()


def test_a_stopped_process_is_replaced_by_the_next_start(waiting: Project) -> None:
    with started(waiting) as first:
        waiting.await_reached()
        first.send_signal(signal.SIGSTOP)
        os.waitpid(first.pid, os.WUNTRACED)
        waiting.configure()
        done = waiting.run("run", "job.properties", "--until", "caught-up")
        assert (done.returncode, "is still running elsewhere" in done.stderr) == (0, True)
