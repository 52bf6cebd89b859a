"""Snapshots of stores: a start restores from one, and finds what it would find without."""

from __future__ import annotations

import logging
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.clock import Clock
from streambench.container import task_stores as task_stores_module
from streambench.container.restore import RestoreProgress, restore_all
from streambench.container.snapshots import Snapshots
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.log.snapshots import LogSnapshots
from streambench.testing import ManualClock
from tests.container.stateful import CHANGELOG, Counts, Job, Keep, held, restored, snapshots, with_systems
from tests.surroundings import figure

STATE = sb.SystemStreamPartition(CHANGELOG.system, CHANGELOG.stream, 0)


@pytest.fixture(params=["memory", "rocksdb"])
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def a_job(directory: Path, engine: str = "memory", *, clock: Clock | None = None, **values: Any) -> Job:
    """A job whose stores write snapshots soon, and lose their files with each start."""
    return Job(
        directory,
        {
            "stores.s.factory": engine,
            "stores.s.snapshot.changes": 4,
            "stores.s.clean.on.container.start": True,
            **values,
        },
        clock,
    )


def numbered(first: int, last: int, value: str = "1") -> list[tuple[str, str]]:
    return [(f"k{at}", value) for at in range(first, last)]


def offsets(directory: Path) -> list[int]:
    return [int(path.name.split("-")[1]) for path in snapshots(directory)]


def test_a_start_reads_only_what_follows_the_snapshot(engine: str, tmp_path: Path) -> None:
    job = a_job(tmp_path, engine)
    job.run(*numbered(0, 10))
    assert offsets(tmp_path) == [10]
    job.run(("k0", "2"), ("k1", ""), crash=False)
    again = job.container()
    assert held(again) == {"k0": "2", **{f"k{at}": "1" for at in range(2, 10)}}
    assert restored(again) == 2
    again.stop()


def test_a_commit_writes_one_after_as_many_changes_as_entries(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    container = job.container()
    for at in range(24):
        job.send((f"k{at}", "1"))
        container.run("caught-up")
        container.commit()
    container.abandon()
    # At 4, then at twice as many each time.
    assert offsets(tmp_path) == [8, 16]


def test_a_clean_stop_writes_one_after_a_quarter_of_that(tmp_path: Path) -> None:
    job = a_job(tmp_path, **{"stores.s.snapshot.changes": 20})
    job.run(*numbered(0, 4))
    assert offsets(tmp_path) == []
    job.run(*numbered(4, 5))
    assert offsets(tmp_path) == [5]
    job.run(*numbered(5, 9))
    assert offsets(tmp_path) == [5]
    job.run(*numbered(9, 10))
    assert offsets(tmp_path) == [5, 10]


def test_a_stop_without_a_change_writes_what_is_due(tmp_path: Path) -> None:
    job = a_job(tmp_path, **{"stores.s.snapshot.changes": 8})
    job.run(*numbered(0, 4), "commit", crash=True)
    assert offsets(tmp_path) == []
    job.run()
    assert offsets(tmp_path) == [4]


def test_zero_changes_mean_that_none_is_written_or_used(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    job.run(*numbered(0, 10))
    again = job.container({"stores.s.snapshot.changes": 0})
    assert restored(again) == 10
    again.step()
    again.stop()
    assert offsets(tmp_path) == [10]


def test_a_store_without_a_changelog_has_no_snapshots(tmp_path: Path) -> None:
    a_job(tmp_path, **{"stores.s.changelog": "none"}).run(*numbered(0, 10))
    assert not list(tmp_path.rglob("snapshot-*"))


def test_changelogs_beside_file_checkpoints_have_snapshots(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text("".join(f'{{"n": {at}}}\n' for at in range(5)))
    config = {
        "task.inputs": "f.in",
        "systems.f.samza.factory": "file",
        "systems.f.path": tmp_path,
        "systems.f.samza.offset.default": "oldest",
        "task.checkpoint.system": "file",
        "task.checkpoint.path": tmp_path / "checkpoints",
        "stores.s.factory": "memory",
        "stores.s.snapshot.changes": 1,
    }
    with sb.Container({"job.name": "job", **config}, Counts) as container:
        container.run("caught-up")
    assert list((tmp_path / "checkpoints").rglob("snapshot-*"))
    with sb.Container({"job.name": "job", **config}, Counts) as container:
        assert held(container) == {"n": 5}
        assert restored(container) == 0


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_changes_without_a_commit_are_in_no_snapshot(guarantee: str, engine: str, tmp_path: Path) -> None:
    job = a_job(tmp_path, engine, **{"task.processing.guarantee": guarantee})
    job.run(*numbered(0, 6), "commit", *numbered(0, 9, "2"), crash=True)
    again = job.container()
    assert held(again) == dict(numbered(0, 6))
    again.run("caught-up")
    again.stop()
    assert job.run() == dict(numbered(0, 9, "2"))


@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_rewind_goes_back_behind_the_newest_snapshot(back: int, engine: str, tmp_path: Path) -> None:
    job = a_job(tmp_path, engine)
    for value in "1234":
        job.run(*numbered(0, 5, value))
    assert offsets(tmp_path) == [15, 20]
    job.rewind(back)
    again = job.container()
    assert held(again) == dict(numbered(0, 5, "4321"[back]))
    again.run("caught-up")
    assert held(again) == dict(numbered(0, 5, "4"))
    again.stop()
    assert job.run() == dict(numbered(0, 5, "4"))


@pytest.mark.parametrize("newest_only", [True, False])
def test_a_damaged_snapshot_is_named_once_and_never_used(
    engine: str, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, newest_only: bool
) -> None:
    job = a_job(tmp_path, engine)
    job.run(*numbered(0, 5))
    job.run(*numbered(5, 10))
    for path in snapshots(tmp_path)[1 if newest_only else 0 :]:
        data = bytearray(path.read_bytes())
        data[-40] ^= 1
        path.write_bytes(data)
    again = job.container()
    assert held(again) == dict(numbered(0, 10))
    assert restored(again) == (5 if newest_only else 10)
    named = [each.message for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each for each in named if str(snapshots(tmp_path)[-1]) in each and "cannot be used" in each]
    assert len(named) == (1 if newest_only else 2)
    again.stop()


def test_a_damaged_snapshot_goes_when_the_next_one_is_written(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    job.run(*numbered(0, 5))
    snapshots(tmp_path)[0].write_bytes(b"nonsense")
    job.run(*numbered(5, 10))
    assert offsets(tmp_path) == [10]


def test_a_snapshot_without_times_is_none_of_a_store_that_expires(tmp_path: Path) -> None:
    job, expires = a_job(tmp_path), {"stores.s.ttl.ms": 1_000_000_000}
    assert job.run(*numbered(0, 5)) == dict(numbered(0, 5))
    assert job.run(*numbered(5, 9), values=expires) == dict(numbered(0, 9))
    assert job.run(values=expires) == dict(numbered(0, 9))
    assert job.run() == dict(numbered(0, 9))


def test_entries_of_a_snapshot_expire_when_they_would_without(engine: str, tmp_path: Path) -> None:
    clock = ManualClock(1_000)
    job = a_job(tmp_path, engine, clock=clock, **{"stores.s.ttl.ms": 100})
    job.run(*numbered(0, 5))
    clock.advance(60)
    job.run(*numbered(5, 10))
    assert offsets(tmp_path) == [5, 10]
    clock.advance(39)
    assert job.run() == dict(numbered(0, 10))
    clock.advance(1)
    assert job.run() == dict(numbered(5, 10))
    clock.advance(60)
    assert job.run() == {}


def test_another_serde_reads_the_bytes_of_a_snapshot(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    job.run(*numbered(0, 5))
    again = job.container({"stores.s.msg.serde": "bytes", "stores.s.serde.check": False})
    assert held(again) == {f"k{at}": b"1" for at in range(5)}
    assert restored(again) == 0
    again.stop()
    with pytest.raises(sb.ConfigError, match="was written with the serde"):
        job.container({"stores.s.msg.serde": "bytes"})


def test_compaction_leaves_what_follows_the_newest_snapshot(tmp_path: Path) -> None:
    values = {
        "task.checkpoint.history": 1,
        "stores.s.changelog.min.compaction.lag.ms": 0,
        "stores.s.changelog.delete.retention.ms": 0,
    }
    job = a_job(tmp_path, **values)
    job.run(*numbered(0, 12))
    container = job.container()
    job.send(("k0", ""), ("k1", ""))
    container.run("caught-up")
    container.commit()
    container.abandon()
    job.compact()
    again = job.container()
    assert held(again) == dict(numbered(2, 12))
    assert restored(again) == 2
    again.stop()


def test_a_snapshot_that_compaction_overtakes_during_a_start_is_dropped(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "stores.s.changelog.min.compaction.lag.ms": 0,
        "stores.s.changelog.delete.retention.ms": 0,
        "stores.s.snapshot.changes": 12,
    }
    job = a_job(tmp_path, engine, **values)
    job.run(*numbered(0, 12))
    job.run(("k0", ""), ("k1", ""))
    restores = []

    def compact_first(*arguments: Any) -> None:
        if not restores:
            with_systems(job.config, lambda systems: systems.admin("log").keep_from({STATE: "14"}))  # type: ignore[attr-defined]
            job.compact()
        restores.append(arguments)
        restore_all(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(task_stores_module, "restore_all", compact_first)
        again = job.container()
    assert len(restores) == 2
    assert held(again) == dict(numbered(2, 12))
    again.stop()


def test_a_snapshot_that_cannot_be_written_ends_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = a_job(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(
            LogSnapshots, "_remove_left", lambda *arguments: (_ for _ in ()).throw(OSError("full"))
        )
        job.run(*numbered(0, 6), "commit", *numbered(6, 20), "commit")
    warnings = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert ["no snapshot of a store was written" in each and "full" in each for each in warnings] == [True]
    assert job.run() == dict(numbered(0, 20))


def test_a_snapshot_is_said_to_be_written_though_an_older_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    job = a_job(tmp_path)
    job.run(*numbered(0, 5))
    snapshots(tmp_path)[0].write_bytes(b"nonsense")

    def refuse(self: LogSnapshots, name: object) -> None:
        raise PermissionError(f"{self.path(name)} stays")  # type: ignore[arg-type]

    with monkeypatch.context() as patched:
        patched.setattr(LogSnapshots, "remove", refuse)
        container = job.container()
        caplog.clear()
        for last in (15, 40):
            job.send(*numbered(5, last))
            container.run("caught-up")
            container.commit()
        container.abandon()
    old, new, newest = map(str, snapshots(tmp_path))
    assert offsets(tmp_path) == [5, 15, 50]
    [warning] = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert f"{new} was written, but" in warning and f"{old} stays" in warning
    assert job.run() == dict(numbered(0, 40))
    assert [str(each) for each in snapshots(tmp_path)] == [old, new, newest]


def test_a_snapshot_that_turns_out_damaged_gives_way_to_an_older_one(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    job.run(*numbered(0, 5))
    job.run(*numbered(5, 10))
    newest = snapshots(tmp_path)[-1]
    data = bytearray(newest.read_bytes())
    data[-40] ^= 1  # the header and the frames are as they were
    newest.write_bytes(data)
    container = sb.Container(job.config, Keep)
    shown: list[RestoreProgress | None] = []
    container.on_start = lambda: shown.append(container.snapshot().restoring)
    container.start()
    *_, last = filter(None, shown)
    assert last == RestoreProgress(10, 10)
    assert (held(container), restored(container)) == (dict(numbered(0, 10)), 5)
    container.stop()


def test_a_store_that_is_closed_meanwhile_has_no_snapshot(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.store.engine.BATCH", 2)
    monkeypatch.setattr("streambench.store.memory.BATCH", 2)
    job = a_job(tmp_path, engine)
    job.send(*numbered(0, 10))
    container = job.container()
    container.run("caught-up")
    store = container.tasks[0].stores["s"]
    batches = store.batches()
    assert next(batches)
    store.close()
    with pytest.raises(sb.StreambenchError, match="closed"):
        list(batches)
    container.abandon()


def test_a_large_store_is_written_only_at_the_end_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.container.snapshots._FILE_NS", 2_000_000_000)
    job = a_job(tmp_path)
    job.run(*numbered(0, 6), "commit", crash=True)
    assert offsets(tmp_path) == []
    job.run()
    assert offsets(tmp_path) == [6]


def test_writing_takes_no_more_than_its_share_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[int] = []

    def slow_write(self: Snapshots, store: object, offset: int, checkpoint: object) -> int:
        written.append(offset)
        return 400_000_000

    monkeypatch.setattr("streambench.container.snapshots._FILE_NS", 400_000_000)
    monkeypatch.setattr(Snapshots, "_write", slow_write)
    job = a_job(tmp_path)
    container = job.container()
    for at in range(0, 40, 8):
        job.send(*numbered(at, at + 8))
        container.run("caught-up")
        container.commit()
    container.abandon()
    assert len(written) == 2


def test_a_snapshot_that_another_process_wrote_late_changes_nothing(tmp_path: Path) -> None:
    job = a_job(tmp_path)
    late = job.container()
    job.send(*numbered(0, 5))
    late.run("caught-up")
    late.commit()
    job.run(*numbered(5, 30))
    for store in late.runtime.task_stores._snapshots._stores.values():
        store._newest = None
    late.runtime.task_stores.write_last_snapshots()
    late.abandon()
    assert offsets(tmp_path) == [5, 30]
    again = job.container()
    assert held(again) == dict(numbered(0, 30))
    assert restored(again) == 0
    again.stop()


def test_files_of_a_store_that_are_there_go_before_a_snapshot(tmp_path: Path) -> None:
    job = a_job(tmp_path, "rocksdb", **{"stores.s.clean.on.container.start": False})
    job.run(*numbered(0, 10))
    for path in snapshots(tmp_path):
        path.write_bytes(path.read_bytes()[:-100])
    assert job.run() == dict(numbered(0, 10))
    shutil.rmtree(tmp_path / "log" / "_jobs" / "job-1" / "stores")
    assert job.run() == dict(numbered(0, 10))


_VICTIM = """
import sys
from pathlib import Path
from tests.container.stateful import Keep, Job
import streambench as sb

job = Job(Path(sys.argv[1]), {"stores.s.factory": sys.argv[2], "task.processing.guarantee": sys.argv[3],
                              "stores.s.snapshot.changes": 50, "stores.s.clean.on.container.start": True})
container = sb.Container(job.config, Keep)
container.start()
print("started", flush=True)
while container.step(40):
    container.commit()
container.stop()
print("done", flush=True)
"""


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_job_that_is_killed_at_any_time_ends_with_the_same_state(
    guarantee: str, engine: str, tmp_path: Path
) -> None:
    chance = random.Random(f"{guarantee} {engine}")
    job = a_job(tmp_path, engine, **{"task.processing.guarantee": guarantee, "stores.s.snapshot.changes": 50})
    expected: dict[str, str] = {}
    for _ in range(figure(2, soak=40, check=2)):
        messages = [
            (f"k{chance.randrange(200)}", chance.choice(["", str(at)]))
            for at in range(figure(2_000, soak=5_000, check=800))
        ]
        job.send(*messages)
        for key, message in messages:
            expected.update({key: message}) if message else expected.pop(key, None)
        victim = subprocess.Popen(
            [sys.executable, "-c", _VICTIM, str(tmp_path), engine, guarantee], stdout=subprocess.PIPE
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"started\n"
        time.sleep(chance.random() * 0.4)
        victim.send_signal(signal.SIGKILL)
        victim.communicate()
        [last] = checkpoint_manager(job.config, "job-1").read_last().values()
        again = job.container()
        done = int(last.offsets.get(sb.SystemStreamPartition("log", "in", 0), -1)) + 1
        assert held(again) == state_after(job, done)
        again.abandon()
    assert job.run() == expected
    assert snapshots(tmp_path)


def state_after(job: Job, count: int) -> dict[str, str]:
    """The state that the first messages of the input lead to."""
    state: dict[str, str] = {}

    def read(systems: Any) -> None:
        left = count
        for batch in systems.admin("log").log.partition("in", 0).read(0, count):
            for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                if left <= 0:
                    return
                left -= 1
                state.update({key.decode(): value.decode()}) if value else state.pop(key.decode(), None)

    with_systems(job.config, read)
    return state
