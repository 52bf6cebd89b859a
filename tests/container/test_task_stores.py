"""The state of a job over its restarts: after stops and crashes, on this disk and elsewhere, as old as it may
be."""

from __future__ import annotations

import logging
import shutil
import tempfile
from pathlib import Path

import pytest

import streambench as sb
from streambench.container.restore import RestoreProgress
from streambench.container.task_stores import TaskStores
from streambench.errors import ConfigError, FencedError, MessageTooLargeError, StoreError
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.store import rocksdb
from streambench.system import producers_applier
from streambench.testing import ManualClock, run_job
from tests.container.stateful import Job, Keep, held, restored, with_systems


@pytest.fixture(params=["memory", "rocksdb"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_crash_takes_state_back_to_the_last_commit(engine: str, guarantee: str, tmp_path: Path) -> None:
    batch = {"stores.s.write.batch.size": 1, "task.processing.guarantee": guarantee}
    job = Job(tmp_path, {"stores.s.factory": engine, **batch})
    job.send(("a", "1"), ("b", "1"), "commit", ("a", "2"), ("b", ""), ("c", "1"))
    container = job.container()
    container.step(5)
    assert held(container) == {"a": "2"}
    container.abandon()
    again = job.container()
    assert held(again) == {"a": "1", "b": "1"}
    again.run("caught-up")
    assert held(again) == {"a": "2", "c": "1"}
    again.stop()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_replaced_container_that_commits_late_changes_no_state(
    engine: str, guarantee: str, tmp_path: Path
) -> None:
    settings = {
        "stores.s.factory": engine,
        "stores.s.write.batch.size": 1,
        "task.processing.guarantee": guarantee,
    }
    job = Job(tmp_path, {**settings, "job.logged.store.base.dir": tmp_path / "one"})
    job.send(("a", "1"), ("b", "1"))
    replaced = job.container()
    replaced.run("caught-up")
    present = job.container({"job.logged.store.base.dir": tmp_path / "two"})
    with pytest.raises(FencedError):
        replaced.commit()
    present.step()
    present.commit()
    present.abandon()
    last = job.container({"job.logged.store.base.dir": tmp_path / "three"})
    assert held(last) == {"a": "1"}
    last.stop()


@pytest.mark.parametrize("crash", [False, True])
def test_files_of_the_last_commit_make_a_start_that_reads_nothing(crash: bool, tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    assert job.run(("a", "1"), ("b", "1"), "commit", crash=crash) == {"a": "1", "b": "1"}
    again = job.container()
    assert held(again) == {"a": "1", "b": "1"}
    assert restored(again) == 0
    again.stop()


def test_the_files_lie_beside_the_checkpoints_unless_configured_otherwise(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run(("a", "1"))
    assert (tmp_path / "log" / "_jobs" / "job-1" / "stores" / "s" / "Partition 0" / "CURRENT").is_file()
    job.run(("a", "2"), values={"job.logged.store.base.dir": tmp_path / "elsewhere"})
    assert (tmp_path / "elsewhere" / "job-1" / "s" / "Partition 0" / "CURRENT").is_file()


def test_a_file_where_the_files_of_stores_are_to_be_is_told_by_its_key(tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    with pytest.raises(
        ConfigError, match=r"^job\.logged\.store\.base\.dir: .*taken is a file, and this takes a directory"
    ):
        Job(tmp_path, {"job.logged.store.base.dir": tmp_path / "taken"}).container()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_start_with_a_renamed_changelog_is_refused_and_changes_nothing(
    engine: str, guarantee: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, {"stores.s.factory": engine, "task.processing.guarantee": guarantee})
    job.run(("a", "1"), ("b", "1"))
    renamed = {
        "stores.s.changelog": "log.renamed",
        "stores.first.factory": "memory",
        "stores.first.changelog": "log.first",
    }
    with pytest.raises(StoreError) as caught:
        job.container(renamed)
    remedy, otherwise = str(caught.value).split(" If not, ")
    assert remedy.startswith(
        "log.renamed.0: the checkpoint goes up to offset 2 of the changelog of the store 's', but there is "
        "no such"
    )
    assert "stores.s.changelog" in remedy and "rewind" not in remedy
    assert "rewind" in otherwise
    assert not (tmp_path / "log" / "renamed").exists()
    assert not (tmp_path / "log" / "first").exists(), "of a new store, whose changelog stands before"
    assert job.run(("c", "1")) == {"a": "1", "b": "1", "c": "1"}


def test_a_renamed_changelog_is_noticed_where_an_empty_stream_has_its_name(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run(("a", "1"))
    with_systems(job.config, lambda systems: systems.create(sb.SystemStream("log", "renamed"), 1))
    with pytest.raises(
        StoreError, match=r"but it is empty\. If stores\.s\.changelog .*set it as it was then"
    ):
        job.container({"stores.s.changelog": "log.renamed"})
    assert job.run() == {"a": "1"}


def test_the_changelog_of_a_store_that_was_never_written_to_may_be_renamed(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    assert job.run("commit") == {}
    assert job.run(("a", "1"), values={"stores.s.changelog": "log.renamed"}) == {"a": "1"}


def test_where_checkpoints_have_no_directory_files_go_with_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = {
        "stores.s.factory": "rocksdb",
        "stores.s.msg.serde": "string",
        "stores.s.changelog": "mem.changelog",
    }
    first = run_job(Keep, config, {"mem.in": {0: [("a", "1"), ("b", "1")]}})
    second = run_job(Keep, config, {"mem.in": {0: [("a", "")]}}, previous=first)
    assert second.outputs["mem.changelog"][0] == [("a", "1"), ("b", "1"), ("a", None)]
    assert not list(tmp_path.iterdir())


def test_stores_in_memory_leave_nothing_on_disk_not_even_unclosed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    config = {"task.inputs": "mem.in", "systems.mem.samza.factory": "memory", "stores.s.factory": "memory"}
    container = sb.Container.from_config(config, Keep)
    with_systems(container.config, lambda systems: systems.create(sb.SystemStream("mem", "in"), 1))
    container.start()
    assert not list(tmp_path.iterdir())
    container.abandon()


def test_files_that_are_older_than_the_checkpoint_are_made_anew(tmp_path: Path) -> None:
    """The job has run on another machine meanwhile."""
    job = Job(tmp_path, {})
    elsewhere = {"job.logged.store.base.dir": tmp_path / "elsewhere"}
    job.run(("a", "1"), ("b", "1"))
    job.run(("a", "2"), ("b", ""), values=elsewhere)
    again = job.container()
    assert held(again) == {"a": "2"}
    assert restored(again) > 0
    again.stop()
    assert job.run(("c", "1"), values=elsewhere) == {"a": "2", "c": "1"}


def test_files_that_are_newer_than_the_checkpoint_are_made_anew(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run(("a", "1"), "commit", ("a", "2"), ("b", "1"))
    job.rewind(1)
    again = job.container()
    assert held(again) == {"a": "1"}
    again.run("caught-up")
    assert held(again) == {"a": "2", "b": "1"}
    again.stop()


def test_files_of_another_job_of_the_same_name_are_made_anew(tmp_path: Path) -> None:
    values = {"job.logged.store.base.dir": tmp_path / "files"}
    Job(tmp_path, values).run(("a", "1"))
    shutil.rmtree(tmp_path / "log")
    assert Job(tmp_path, values).run(("b", "1")) == {"b": "1"}


def test_files_of_a_store_that_expired_are_none_of_one_that_does_not(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.run(("a", "1"), values={"stores.s.ttl.ms": 1_000_000_000})
    assert job.run(("b", "1")) == {"a": "1", "b": "1"}
    assert job.run(("c", "1"), values={"stores.s.ttl.ms": 1_000_000_000}) == {"a": "1", "b": "1", "c": "1"}


def test_a_commit_that_the_files_have_missed_comes_from_the_changelog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = Job(tmp_path, {})
    job.run(("a", "1"))
    with monkeypatch.context() as patched:
        patched.setattr(
            TaskStores, "committed", lambda *arguments: (_ for _ in ()).throw(OSError("killed here"))
        )
        with pytest.raises(OSError, match="killed here"):
            job.run(("a", "2"), ("b", "1"), "commit")
    assert job.run() == {"a": "2", "b": "1"}


def test_files_that_are_damaged_are_made_anew(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    job = Job(tmp_path, {})
    job.run(("a", "1"))
    for manifest in tmp_path.glob("log/_jobs/job-1/stores/s/*/MANIFEST-*"):
        manifest.write_bytes(b"nonsense")
    with caplog.at_level(logging.WARNING):
        assert job.run() == {"a": "1"}
    assert "store 's' of Partition 0: the files in" in caplog.text


def test_a_directory_of_stores_that_cannot_be_made_names_its_key(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("gone")
    job = Job(tmp_path, {"job.logged.store.base.dir": tmp_path / "link" / "log"})
    with pytest.raises(StoreError, match=r"^job\.logged\.store\.base\.dir: store 's' .*: cannot keep files"):
        job.container()


def test_clean_on_container_start_does_without_the_files(tmp_path: Path) -> None:
    job = Job(tmp_path, {"stores.s.clean.on.container.start": True})
    job.run(("a", "1"))
    again = job.container()
    assert held(again) == {"a": "1"}
    assert restored(again) == 1
    again.stop()


def test_a_store_without_a_changelog_is_empty_at_every_start(tmp_path: Path) -> None:
    job = Job(tmp_path, {"stores.s.changelog": "none", "job.non-logged.store.base.dir": tmp_path / "files"})
    assert job.run(("a", "1"), "commit") == {"a": "1"}
    assert (tmp_path / "files" / "job-1" / "s").is_dir()
    assert job.run(("b", "1"), "commit", crash=True) == {"b": "1"}
    assert job.run(("c", "1")) == {"c": "1"}


def test_files_in_use_are_an_error_that_names_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rocksdb, "_OWN_PATIENCE_S", 0.0)
    job = Job(tmp_path, {"job.logged.store.base.dir": tmp_path / "files"})
    first = job.container()
    with pytest.raises(
        StoreError, match=r"store 's' of Partition 0: .*files.* is in use by another container.*stop it first"
    ):
        job.container()
    first.abandon()
    assert job.run(("a", "1")) == {"a": "1"}


def test_a_start_that_fails_lets_go_of_the_files(tmp_path: Path) -> None:
    job = Job(tmp_path, {"job.logged.store.base.dir": tmp_path / "files"})
    with pytest.raises(ConfigError):
        job.container({"stores.t.factory": "memory", "stores.t.changelog": "nowhere.changelog"})
    assert job.run(("a", "1")) == {"a": "1"}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_an_entry_expires_also_over_restarts(engine: str, guarantee: str, tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    values = {
        "stores.s.factory": engine,
        "stores.s.ttl.ms": 100,
        "job.logged.store.base.dir": tmp_path / "files",
    }
    job = Job(tmp_path, {**values, "task.processing.guarantee": guarantee}, clock)
    job.run(("old", "1"), ("rewritten", "1"))
    clock.advance(60)
    assert job.run(("young", "1"), ("rewritten", "2"), crash=True) == {
        "old": "1",
        "young": "1",
        "rewritten": "2",
    }
    clock.advance(39)
    assert job.run() == {"old": "1", "young": "1", "rewritten": "2"}
    clock.advance(1)
    shutil.rmtree(tmp_path / "files", ignore_errors=True)
    assert job.run() == {"young": "1", "rewritten": "2"}
    clock.advance(98)
    assert job.run() == {"young": "1", "rewritten": "2"}
    clock.advance(1)
    assert job.run() == {}


def test_what_has_expired_leaves_the_changelog(engine: str, tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    job = Job(tmp_path, {"stores.s.factory": engine, "stores.s.ttl.ms": 100}, clock)
    job.run(("a", "1"))
    clock.advance(100)
    job.run(("b", "1"))
    assert job.changelog() == [(b"a", b"1"), (b"b", b"1"), (b"a", None)]


def test_what_has_expired_is_removed_also_where_there_is_no_changelog(engine: str, tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    job = Job(
        tmp_path, {"stores.s.factory": engine, "stores.s.ttl.ms": 100, "stores.s.changelog": "none"}, clock
    )
    job.send(("a", "1"))
    container = job.container()
    container.run("caught-up")
    clock.advance(100)
    container.commit()
    below = container.tasks[0].stores["s"].engine.engine
    assert len(below) == 0
    container.stop()


def test_state_is_as_at_any_kept_checkpoint_whatever_is_compacted(
    engine: str, tmp_path: Path
) -> None:
    clock = ManualClock(1_000_000_000_000)
    values = {
        "stores.s.factory": engine,
        "stores.s.changelog.min.compaction.lag.ms": 0,
        "task.checkpoint.history": 3,
    }
    job = Job(tmp_path, values, clock)
    states = []
    for at in range(6):
        states.append(job.run(("hot", str(at)), (f"key{at}", "1"), "commit"))
        job.compact()
        clock.advance(60_001)
    hot = [value for key, value in job.changelog() if key == b"hot"]
    assert len(hot) < 6, "it is compacted"
    manager = checkpoint_manager(job.config, "job-1")
    [(task, kept)] = manager.history().items()
    manager.close()
    assert len(kept) < 6
    for checkpoint in kept[:3]:
        manager = checkpoint_manager(job.config, "job-1")
        manager.rewind({task: checkpoint}, now_ms=0)
        manager.close()
        container = job.container()
        assert held(container) in states
        assert held(container)["hot"] == str(len(held(container)) - 2)
        container.run("caught-up")
        assert held(container) == states[-1]
        container.stop()


def test_a_state_that_cannot_be_rebuilt_is_an_error_and_not_another_state(tmp_path: Path) -> None:
    job = Job(tmp_path, {"stores.s.factory": "memory", "stores.s.changelog.min.compaction.lag.ms": 0})
    job.run(("a", "1"), "commit", ("a", "2"), "commit", ("b", "1"))
    [keep] = tmp_path.glob("log/job-1-s-changelog/0/keep.json")
    keep.unlink()
    job.compact()
    assert job.run() == {"a": "2", "b": "1"}
    job.rewind(2)
    with pytest.raises(
        StoreError,
        match=r"job-1-s-changelog\.0: the state as of offset 1 .* cannot be rebuilt any more.*rewind oldest",
    ):
        job.container()


def test_a_restore_tells_how_far_it_is(tmp_path: Path) -> None:
    job = Job(tmp_path, {"stores.s.factory": "memory"})
    job.run(*((f"k{at}", "1") for at in range(100)))
    container = sb.Container(job.config, Keep)
    told: list[RestoreProgress | None] = []
    container.on_start = lambda: told.append(container.snapshot().restoring)
    container.start()
    *_, last = filter(None, told)
    assert last == RestoreProgress(100, 100)
    assert container.snapshot().restoring is None
    container.stop()


def test_calls_are_counted(tmp_path: Path) -> None:
    job = Job(tmp_path, {})
    job.send(("a", "1"), ("a", "2"), ("a", ""))
    container = job.container()
    container.run("caught-up")
    held(container)
    counts = {
        name.partition(".")[2]: count
        for name, count in container.metrics.snapshot().items()
        if name.startswith("stores.")
    }
    assert (counts["s-puts"], counts["s-deletes"], counts["s-alls"], counts["s-gets"]) == (2, 1, 1, 0)
    container.commit()
    assert container.metrics.snapshot()["stores.s-flushes"] == counts["s-flushes"] + 1
    container.stop()


def test_a_large_value_is_refused_or_dropped_as_the_configuration_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    limit = {"stores.s.factory": "memory", "stores.s.changelog.max.message.size.bytes": 10}
    job = Job(tmp_path, limit)
    assert job.run(("a", "x" * 11)) == {"a": "x" * 11}
    with pytest.raises(
        sb.StreambenchError, match=r"store 's': the value of the key 'b' has 11 bytes, more than .*=10"
    ):
        job.run(("b", "x" * 11), values={"stores.s.disallow.large.messages": True})
    dropping = {"stores.s.drop.large.messages": True}
    assert job.run(("c", "x" * 11), ("c", "y" * 10), ("c", "x" * 12), values=dropping) == {
        "a": "x" * 11,
        "c": "y" * 10,
    }
    assert caplog.text.count("it was not put") == 1


def test_a_value_the_changelog_refuses_has_one_text_under_both_guarantees(
    engine: str, tmp_path: Path
) -> None:
    told = set()
    for guarantee in ("at-least-once", "exactly-once"):
        job = Job(tmp_path / guarantee, {"task.processing.guarantee": guarantee, "stores.s.factory": engine})
        job.send(("a", "y"), ("b", "x" * 401), ("big", "x" * 500), ("c", "z"))
        with pytest.raises(MessageTooLargeError) as caught:
            job.run(values={"systems.log.max.message.bytes": 400, "task.capture": "off"})
        told.add(str(caught.value))
    [text] = told
    for part in (
        "Partition 0, store 's', key b'big'",
        "500 bytes",
        "log.job-1-s-changelog.0",
        "systems.log.max.message.bytes=400",
        "stores.s.disallow.large.messages",
        "stores.s.drop.large.messages",
    ):
        assert part in text


def test_an_exactly_once_commit_with_a_refused_value_writes_nothing(
    engine: str, tmp_path: Path
) -> None:
    job = Job(tmp_path, {"task.processing.guarantee": "exactly-once", "stores.s.factory": engine})
    job.run(("a", "1"))
    before = job.changelog()
    small = {"systems.log.max.message.bytes": 400}
    with pytest.raises(MessageTooLargeError):
        job.run(("a", "2"), ("b", "x" * 400), values=small)
    assert job.changelog() == before
    again = job.container(small)
    assert held(again) == {"a": "1"}
    again.abandon()
    assert job.run() == {"a": "2", "b": "x" * 400}, "the limit was all that was in the way"


def test_a_value_that_just_fits_with_its_key_is_taken_exactly_once(engine: str, tmp_path: Path) -> None:
    limit = {
        "task.processing.guarantee": "exactly-once",
        "stores.s.factory": engine,
        "systems.log.max.message.bytes": 400,
    }
    # The longest key and the longest value are too much only where they belong together.
    assert Job(tmp_path, limit).run(("a", "x" * 399), ("k" * 390, "y" * 10)) == {
        "a": "x" * 399,
        "k" * 390: "y" * 10,
    }


def test_too_many_changes_for_a_commit_are_shown_with_task_store_and_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(producers_applier, "_LARGEST", 400)
    job = Job(tmp_path, {"task.processing.guarantee": "exactly-once"})
    with pytest.raises(
        MessageTooLargeError,
        match=r"Partition 0, store 's', key b'big': .* 500 bytes .*task\.commit\.max\.output\.mb",
    ):
        job.run(("a", "y"), ("big", "x" * 500))


@pytest.mark.parametrize(
    ("key", "value", "why"),
    [
        ("object.cache.size", 10, "the cache must hold a full batch"),
        ("object.cache.size", -1, "give 0 or more"),
        ("write.batch.size", 0, "give 1 or more"), ("container.cache.size.bytes", 1, "give 1048576"),
        ("rocksdb.ttl.ms", "soon", "not a whole number"),
    ],
)  # fmt: skip
def test_settings_that_make_no_sense_are_errors(key: str, value: object, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why) as raised:
        Job(tmp_path, {f"stores.s.{key}": value}).container()
    assert raised.value.key == f"stores.s.{key}"
