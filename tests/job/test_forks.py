"""Jobs whose tasks, or who runs them, have processes of their own: these outlive the dead, and have open what
the dead had open."""

from __future__ import annotations

import os
import signal
import sys

import psutil
import pytest

from streambench.job.signals import StopSignals
from tests.job.project import Project, await_ends

# It runs the job, and has forked a process when it has shown both containers.
FORKING = """\
import os, signal
import streambench as sb

def fork(snapshots):
    forked = os.fork()
    if forked:
        print(forked, flush=True)
    signal.pause()

sb.run("job.properties", None, on_snapshots=fork, every_s=0)
"""


@pytest.mark.parametrize("task", ["Forks", "GivesAway"])
def test_a_killed_container_restarts_though_processes_of_its_task_live_on(
    project: Project, task: str
) -> None:
    project.fill(20)
    project.pipes()
    project.configure(
        {
            "task.class": f"task.py:{task}",
            "job.container.count": 2,
            "cluster-manager.container.retry.delay.ms": 1,
        }
    )
    left: list[psutil.Process] = []
    with project.start("run", "job.properties", "--until", "caught-up") as job:
        try:
            first = project.await_reached()
            left += psutil.Process(first).children()
            os.kill(first, signal.SIGKILL)
            second = project.await_reached()
            assert left
            assert all(process.is_running() for process in left)
            left += psutil.Process(second).children()
        except BaseException:
            job.kill()
            raise
        finally:
            for process in left:
                process.kill()
        (project.directory / "gate").write_text("")
        _, errors = job.communicate()
    assert job.returncode == 0, errors
    assert "container 1: was killed (SIGKILL); it is started again" in errors
    assert sorted(set(project.outputs())) == list(range(1, 21))


def test_no_container_outlives_its_runner_though_a_fork_of_that_lives_on(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.fill(20)
    project.configure({"job.container.count": 2})
    monkeypatch.setattr(project, "command", lambda: [sys.executable, "-c", FORKING])
    with project.start() as job:
        assert job.stdout is not None
        forked = psutil.Process(int(job.stdout.readline()))
        try:
            containers = [child for child in psutil.Process(job.pid).children() if child != forked]
            assert len(containers) == 2
            job.kill()
            await_ends(containers)
            assert forked.is_running()
        finally:
            forked.kill()
            job.kill()


def test_a_signal_to_a_process_forked_by_a_task_ends_that_one_alone() -> None:
    stopped: list[bool] = []
    reading, writing = os.pipe()
    with StopSignals(lambda: stopped.append(True)):
        forked = os.fork()
        if not forked:
            os.write(writing, b"!")
            signal.pause()
            os._exit(0)
        assert os.read(reading, 1) == b"!"
        os.kill(forked, signal.SIGTERM)
        assert os.waitstatus_to_exitcode(os.waitpid(forked, 0)[1]) == -signal.SIGTERM
    assert not stopped
    os.close(reading)
    os.close(writing)


def test_a_run_comes_to_its_end_though_something_has_all_that_it_had_open() -> None:
    """As what is forked behind Python's back has, by a library in C."""
    held = StopSignals(lambda: None)
    with held:
        copy = os.dup(held._writing)
    os.close(copy)
