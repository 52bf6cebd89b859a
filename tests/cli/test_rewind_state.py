"""A rewind whose state cannot be rebuilt is refused before anything is stopped or changed."""

from __future__ import annotations

import pytest

from streambench.checkpoint.choice import checkpoint_manager
from tests.container.stateful import Job
from tests.job.project import Project


@pytest.mark.parametrize("moved", [False, True])
def test_a_rewind_to_a_state_that_compaction_has_removed_changes_nothing(project: Project, moved: bool) -> None:
    """Also where the task has another partition of the changelog than it would have in a new job."""
    job = Job(project.directory, {"stores.s.factory": "memory", "stores.s.changelog.min.compaction.lag.ms": 0})
    if moved:
        job.run()
        job = Job(project.directory, {**job.config, "job.systemstreampartition.grouper.factory": "ssp"})
    job.run(("a", "1"), "commit", ("a", "2"), "commit", ("b", "1"))
    for keep in project.directory.glob("log/job-1-s-changelog/*/keep.json"):
        keep.unlink()
    job.compact()
    text = "\n".join(f"{key}={value}" for key, value in job.config.items())
    (project.directory / "state.properties").write_text(text + "\ntask.class=tests.container.stateful.Keep\n")
    manager = checkpoint_manager(job.config, "job-1")
    *_, kept = manager.history().values()
    before = manager.last_generation()
    where = next(f"{each.generation}.{each.sequence}" for each in kept if each.changelogs.get("s") == "1")
    error = project.fails("checkpoints", "--rewind", where, "--yes", "-c", "state.properties")
    assert "the state as of offset 1 of this changelog cannot be rebuilt any more" in error
    assert manager.last_generation() == before
    manager.close()
    assert job.run() == {"a": "2", "b": "1"}
