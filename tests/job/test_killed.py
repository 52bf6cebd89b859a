"""A process that was killed is not reported as running."""

from __future__ import annotations

import psutil
import pytest

from tests.job.project import Project


@pytest.mark.parametrize("task", ["Waits", "GivesAway"])
def test_a_killed_process_is_not_said_to_run_elsewhere(project: Project, task: str) -> None:
    project.fill(10)
    project.pipes()
    project.configure({"task.class": f"task.py:{task}"})
    with project.start("run", "job.properties", "--quiet") as first:
        project.await_reached()
        left = psutil.Process(first.pid).children()
        first.kill()
    project.configure()
    try:
        done = project.run("run", "job.properties", "--until", "caught-up")
        assert (done.returncode, done.stderr) == (0, "")
    finally:
        for each in left:
            each.kill()
