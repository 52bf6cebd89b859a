"""What a rewind says of stores: refused where the state cannot be rebuilt, and told where it stays as it is.
"""

from __future__ import annotations

import shutil

import pytest

from streambench.planning.checkpoint_managers import checkpoint_manager
from tests.container.stateful import INPUT, Job
from tests.job.project import Project


def write_down(job: Job) -> None:
    text = "\n".join(f"{key}={value}" for key, value in job.config.items())
    (job.directory / "state.properties").write_text(text + "\ntask.class=tests.container.stateful.Keep\n")


@pytest.mark.parametrize("moved", [False, True])
def test_a_rewind_to_a_state_that_compaction_has_removed_changes_nothing(
    project: Project, moved: bool
) -> None:
    """Also where the task has another partition of the changelog than it would have in a new job."""
    job = Job(
        project.directory, {"stores.s.factory": "memory", "stores.s.changelog.min.compaction.lag.ms": 0}
    )
    if moved:
        job.run()
        job = Job(project.directory, {**job.config, "job.systemstreampartition.grouper.factory": "ssp"})
    job.run(("a", "1"), "commit", ("a", "2"), "commit", ("b", "1"))
    for keep in project.directory.glob("log/job-1-s-changelog/*/keep.json"):
        keep.unlink()
    job.compact()
    write_down(job)
    manager = checkpoint_manager(job.config, "job-1")
    *_, kept = manager.history().values()
    before = manager.last_generation()
    where = next(f"{each.generation}.{each.sequence}" for each in kept if each.changelogs.get("s") == "1")
    error = project.fails("checkpoints", "--rewind", where, "--yes", "-c", "state.properties")
    assert "the state as of offset 1 of this changelog cannot be rebuilt any more" in error
    assert manager.last_generation() == before
    manager.close()
    assert job.run() == {"a": "2", "b": "1"}


def test_a_rewind_of_an_input_alone_says_that_the_stores_stay_as_they_are(project: Project) -> None:
    job = Job(project.directory, {"stores.s.factory": "memory"})
    job.run(("a", "1"), ("b", "1"), "commit")
    write_down(job)

    def said(*places: str) -> tuple[str, str]:
        done = project.run(
            "checkpoints", *(f"--rewind={where}" for where in places), "--yes", "-c", "state.properties"
        )
        assert done.returncode == 0
        return done.stdout, done.stderr

    assert "stores" not in said(f"{INPUT}@0", "oldest")[1]
    job.run(("a", "2"), "commit")
    kept = "the stores stay as they are (s): what is processed again is done to them again"
    assert kept in said(f"{INPUT}@1")[1]
    assert "stores" not in said(f"{INPUT}@1")[1]
    _, err = said(f"{INPUT}@timestamp:2999-01-01")
    assert f"{INPUT}.0: no message is that new" in err
    assert "stores" not in err
    assert "stores" not in said("oldest")[1]


def test_a_rewind_needs_a_changelog_only_where_state_depends_on_it(
    project: Project,
) -> None:
    job = Job(project.directory, {"stores.s.factory": "memory"})
    job.run("commit", ("a", "1"))
    shutil.rmtree(project.directory / "log" / "job-1-s-changelog")
    write_down(job)
    manager = checkpoint_manager(job.config, "job-1")
    [kept] = manager.history().values()
    without, with_state = (
        next(f"{each.generation}.{each.sequence}" for each in kept if each.changelogs["s"] == end)
        for end in "01"
    )
    error = project.fails("checkpoints", "--rewind", with_state, "--yes", "-c", "state.properties")
    assert "log.job-1-s-changelog.0: the checkpoint goes up to offset 1" in error
    assert "there is no such stream. If stores.s.changelog" in error
    project.ok("checkpoints", "--rewind", without, "--yes", "-c", "state.properties")
    manager.close()
    assert job.run() == {"a": "1"}, "processed once more"
