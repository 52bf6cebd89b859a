"""``streambench runs``: the deployments of a job, as a table and as JSON."""

from __future__ import annotations

from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark.history import Run, note, note_run
from streambench.spark.history_records import FileHistory
from tests.job.project import Project
from tests.spark.test_history import result


def test_the_deployments_of_a_job_are_listed(project: Project) -> None:
    assert project.ok("runs", "job.properties") == "the job was not deployed yet\n"
    directory = checkpoint_manager(project.config, "up-1").directory
    assert directory is not None
    directory.mkdir(parents=True, exist_ok=True)
    for generation in (1, 2, 3):
        note_run(FileHistory(directory), result(generation, 1000 * generation), 1_700_000_000_000)
    header, *lines = project.ok("runs", "job.properties", "--limit", "2").splitlines()
    assert header.split()[:4] == ["generation", "began", "seconds", "messages"]
    began = "2023-11-14T22:13:20.000+00:00"
    assert lines[1].split() == ["3", began, "2.0", "3,000", "1,500", "1", "0", "ended", "local[2]"]
    assert len(lines) == 2
    [last] = project.rows("runs", "--limit", "1")
    assert last["containers"][0]["offsets"] == {"log.in.0": ["0", "3000"]}


def test_a_killed_deployment_and_a_backfill_are_listed(project: Project) -> None:
    directory = checkpoint_manager(project.config, "up-1").directory
    assert directory is not None
    fixed = directory.parent / "up-fixed-1"
    for each in (directory, fixed):
        each.mkdir(parents=True)
    note_run(FileHistory(fixed), result(1, 1000), 1_700_000_000_000, "fixed")
    begun = Run(generation=2, began_ms=1_700_000_001_000, master="local[2]", outcome="running")
    note(FileHistory(directory), begun)
    header, backfill, killed = project.ok("runs", "job.properties").splitlines()
    assert "backfill" in header
    assert backfill.split()[2:4] == ["fixed", "2.0"]
    began = "2023-11-14T22:13:21.000+00:00"
    assert killed.split() == ["2", began, *"-----", "did", "not", "end", "local[2]"]
