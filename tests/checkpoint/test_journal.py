"""What only the journal can suffer: damaged and deleted files, full disks, and its own age."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.checkpoint import record_log
from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.checkpoint.record_log import RecordLog
from streambench.checkpoint.records import Start, decoded
from streambench.errors import CheckpointError, ConfigError, FencedError, SupersededError
from streambench.model import SystemStreamPartition
from tests.checkpoint.job import Job
from tests.checkpoint.samples import at


def cut(data: bytes) -> bytes:
    return data[: len(data) // 2]


def changed(data: bytes) -> bytes:
    """Another offset than the one that was written."""
    assert b'"2"' in data
    return data.replace(b'"2"', b'"3"')


def emptied(data: bytes) -> bytes:
    return b""


def zeroed(data: bytes) -> bytes:
    return b"\0" * len(data)


@pytest.mark.parametrize("damage", [cut, changed, emptied, zeroed])
def test_a_damaged_last_record_stops_every_reader_and_is_named(job: Job, damage: Any) -> None:
    holder = job.started()
    for offset in range(3):
        holder.write({"a": at(offset)})
    last = job.records()[-1]
    last.write_bytes(damage(last.read_bytes()))
    for read in (
        job.manager().read_last,
        job.manager().history,
        lambda: job.manager().claim(1, 0, now_ms=0),
        lambda: job.manager().open_generation({0: ["a"]}, now_ms=0),
        lambda: job.manager().rewind({"a": at(0)}, now_ms=0),
    ):
        with pytest.raises(
            CheckpointError, match=r"is damaged.*delete this one file, to go back.*or rewind a, b \(all"
        ) as raised:
            read()
        assert str(last) in str(raised.value)


def test_a_container_reads_no_records_of_other_containers(job: Job) -> None:
    manager, other = job.manager(), job.manager()
    number = manager.open_generation({0: ["a"], 1: ["b"]}, now_ms=0).number
    other.claim(number, 1, now_ms=0)
    for record in (job.directory / "g1" / "c1").glob("*.json"):
        record.write_bytes(b"damaged")
    manager.claim(number, 0, now_ms=0)
    assert manager.inherited().last == {}


def test_deleting_a_damaged_last_record_goes_back_to_the_commit_before(job: Job) -> None:
    holder = job.started()
    for offset in range(3):
        holder.write({"a": at(offset)})
    holder.close()
    last = job.records()[-1]
    last.write_bytes(b"")
    last.unlink()
    assert job.manager().read_last() == {"a": at(1)}
    holder.claim(1, 0, now_ms=0)
    holder.write({"a": at(2)})
    assert job.manager().history() == {"a": [at(0), at(1), at(2)]}


def test_of_two_holders_one_is_fenced_where_a_record_is_deleted_under_it(job: Job) -> None:
    holder, successor = job.started(), job.manager()
    holder.write({"a": at(0)})
    job.records()[-1].unlink()
    successor.claim(1, 0, now_ms=0)
    holder.write({"a": at(1)})
    with pytest.raises(FencedError):
        successor.write({"a": at(9)})
    assert job.manager().read_last() == {"a": at(1)}


def test_a_dead_process_holds_nothing_though_its_fork_lives_on(job: Job) -> None:
    forked, has_forked = os.pipe()
    ended, end = os.pipe()
    holder = os.fork()
    if not holder:
        try:
            os.close(end)
            job.started()
            if os.fork():
                signal.pause()
            os.write(has_forked, b"!")
            os.read(ended, 1)
        finally:
            os._exit(0)
    os.close(has_forked)
    try:
        assert os.read(forked, 1) == b"!"
        assert list(job.manager().holders()) == [0]
        os.kill(holder, signal.SIGKILL)
        os.waitpid(holder, 0)
        assert job.manager().holders() == {}
    finally:
        for each in (forked, ended, end):
            os.close(each)


def test_rewinding_all_tasks_of_the_container_passes_over_a_damaged_record(job: Job) -> None:
    holder = job.started()
    for offset in range(3):
        holder.write({"a": at(offset), "b": at(offset)})
    damaged = job.records()[-1]
    damaged.write_bytes(b"")
    job.manager().rewind({"a": at(1), "b": at(0)}, now_ms=0)
    assert job.manager().read_last() == {"a": at(1), "b": at(0)}
    with pytest.raises(CheckpointError, match="No later commit needs it: delete this one file"):
        job.manager().history()
    damaged.unlink()
    assert job.manager().history() == {"a": [at(0), at(1)], "b": [at(0), at(1), at(0)]}


def test_a_damaged_record_that_nothing_good_precedes_is_not_to_be_deleted(job: Job) -> None:
    job.started()
    only = job.records()[0]
    only.write_bytes(b"")
    with pytest.raises(CheckpointError) as raised:
        job.manager().read_last()
    assert "No earlier commit is left: rewind a, b (all of them)" in str(raised.value)
    assert "delete" not in str(raised.value)


def test_two_damaged_records_are_not_to_be_deleted_one_by_one(job: Job) -> None:
    holder = job.started()
    holder.write({"a": at(0)})
    for record in job.records():
        record.write_bytes(b"")
    with pytest.raises(CheckpointError, match="Nor can the one before it be read: rewind") as raised:
        job.manager().read_last()
    assert "delete" not in str(raised.value)


def test_a_damaged_generation_says_how_to_go_on(job: Job) -> None:
    job.started()
    path = job.directory / "generations" / f"{1:020d}.json"
    path.write_bytes(cut(path.read_bytes()))
    for read in (
        job.manager().read_last,
        job.manager().last_generation,
        lambda: job.manager().open_generation({}, now_ms=0),
    ):
        with pytest.raises(
            CheckpointError, match="is damaged.*put it back from a copy, or move .* away"
        ) as raised:
            read()
        assert str(path) in str(raised.value)


def test_a_damaged_record_is_not_taken_for_one_of_a_later_version(job: Job) -> None:
    job.started()
    path = job.records()[0]
    data = path.read_bytes().replace(b'"version":1,', b'"version":2,')
    path.write_bytes(data.replace(b'"body":{', b'"body":['))
    with pytest.raises(CheckpointError, match="is damaged: its contents do not match their checksum"):
        job.manager().read_last()


def test_a_record_of_a_later_version_is_not_guessed_at(job: Job) -> None:
    job.started()
    path = job.records()[0]
    path.write_bytes(path.read_bytes().replace(b'"version":1,', b'"version":2,'))
    with pytest.raises(CheckpointError, match="has version 2; this streambench reads version 1"):
        job.manager().read_last()


def test_a_generation_is_not_opened_over_the_remains_of_a_deleted_one(job: Job) -> None:
    job.started().write({"a": at(0)})
    job.started().write({"a": at(1)})
    (job.directory / "generations" / f"{2:020d}.json").unlink()
    with pytest.raises(
        CheckpointError, match=r"g2 holds checkpoints, but the record of their generation.*is missing"
    ):
        job.manager().open_generation({0: ["a"]}, now_ms=0)


def test_a_job_whose_directory_was_deleted_under_it_is_told(job: Job) -> None:
    holder = job.started()
    for path in sorted(job.directory.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(CheckpointError, match="was deleted while the job runs"):
        holder.write({"a": at(0)})


def test_a_job_that_runs_for_long_takes_no_more_space(job: Job) -> None:
    holder = job.started()
    for offset in range(100):
        holder.write({"a": at(offset)})
    assert len(job.records()) == job.keep
    for start in range(30):
        job.started().write({"a": at(100 + start)})
    # One commit each: as many starts as commits are to be kept, and the last.
    assert len(list((job.directory / "generations").iterdir())) == job.keep + 1
    assert len(list(job.directory.glob("g[0-9]*"))) == job.keep + 1
    assert job.manager().history()["a"][-job.keep :] == [at(offset) for offset in range(130 - job.keep, 130)]


def test_claims_without_commits_push_no_commit_out(job: Job) -> None:
    job.started().write({"a": at(0)})
    for _ in range(3 * job.keep):
        job.manager().claim(1, 0, now_ms=0)
    holder = job.manager()
    holder.claim(1, 0, now_ms=0)
    holder.write({"a": at(1)})
    assert job.manager().history() == {"a": [at(0), at(1)]}


def test_a_start_that_slept_through_many_others_opens_the_one_after_them(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number that it was about to take was taken, closed, and pruned: it is free again."""
    job.keep = 1
    job.started("a").write({"a": at(0)})
    link = os.link

    def late(source: Path, target: Path) -> None:
        if target.parent.name == "generations":
            monkeypatch.setattr(record_log.os, "link", link)
            for offset in range(1, 6):
                job.started("a").write({"a": at(offset)})
            assert not target.exists()
        link(source, target)

    monkeypatch.setattr(record_log.os, "link", late)
    assert job.started("a").read_last() == {"a": at(5)}
    last = job.manager().last_generation()
    assert last is not None
    assert last.number == 7


def test_a_zombie_finds_out_that_its_generation_was_forgotten(job: Job) -> None:
    job.keep = 1
    zombie = job.started("a")
    zombie.write({"a": at(0)})
    assert not zombie.is_replaced()
    zombie.check()
    for offset in range(1, 6):
        job.started("a").write({"a": at(offset)})
    assert not (job.directory / "g1").exists()
    assert zombie.is_replaced()
    with pytest.raises(SupersededError, match="newer start of the job"):
        zombie.check()


def test_a_generation_left_behind_late_is_no_part_of_the_history(job: Job) -> None:
    job.keep = 2
    for offset in range(8):
        job.started("a").write({"a": at(offset)})
    generations = job.directory / "generations"
    oldest = min(generations.iterdir())
    left = generations / f"{2:020d}.json"
    left.write_bytes(oldest.read_bytes())
    assert int(oldest.stem) > 3
    assert job.manager().history() == {"a": [at(offset) for offset in range(4, 8)]}
    job.started("a")
    assert not left.exists()


def test_who_took_over_and_when_stands_in_the_error(job: Job) -> None:
    zombie, other = job.started(), job.started()
    with pytest.raises(
        FencedError,
        match=rf"container 0: a newer start .*process {os.getpid()}, at 1970-01-01 00:00:00 UTC.*must stop",
    ):
        zombie.write({"a": at(0)})
    job.manager().claim(2, 0, now_ms=86_400_000)
    with pytest.raises(
        FencedError, match=rf"started again .*process {os.getpid()}, at 1970-01-02 00:00:00 UTC.*must stop"
    ):
        other.write({"a": at(0)})


def test_at_least_one_commit_must_be_kept(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"task\.checkpoint\.history"):
        JournalCheckpointManager(tmp_path, "job-1", keep=0)


def test_equal_checkpoints_are_equal_files(tmp_path: Path) -> None:
    """Nothing depends on the order in which a dict was filled."""
    ssps = [SystemStreamPartition("log", "clicks", partition) for partition in range(12)]
    bodies = []
    for order in (ssps, ssps[::-1]):
        manager = JournalCheckpointManager(tmp_path / str(len(bodies)), "job-1", keep=1)
        manager.rewind({"a": Checkpoint({ssp: "1" for ssp in order})}, now_ms=0)
        record = RecordLog(tmp_path / str(len(bodies)) / "generations").last()
        assert record is not None
        with record:
            bodies.append(decoded(record, Start).checkpoints)
    assert bodies[0] == bodies[1]


names = st.text(min_size=1, max_size=8)
systems = names.filter(lambda name: "." not in name and name == name.strip())
ssps = st.builds(SystemStreamPartition, systems, names, st.integers(0, 999))


@given(
    st.dictionaries(
        names,
        st.builds(
            Checkpoint,
            st.dictionaries(ssps, names, max_size=3),
            st.dictionaries(ssps, names, max_size=2),
            st.dictionaries(names, names, max_size=2),
            st.integers(0, 2**40),
            st.integers(0, 2**40),
            st.integers(0, 2**45),
        ),
        min_size=1,
        max_size=3,
    )
)
def test_any_checkpoint_comes_back_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, checkpoints: dict[str, Checkpoint]
) -> None:
    manager = JournalCheckpointManager(tmp_path_factory.mktemp("any") / "job-1", "job-1", keep=3)
    manager.claim(manager.open_generation({0: sorted(checkpoints)}, now_ms=0).number, 0, now_ms=0)
    manager.write(checkpoints)
    assert manager.read_last() == checkpoints
    manager.open_generation({}, now_ms=0)
    assert manager.read_last() == checkpoints
    manager.close()


def test_a_replaced_holder_was_there_since_its_last_checkpointed_commit(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    holder = job.manager()
    holder.claim(holder.open_generation({0: ["a"]}, now_ms=0).number, 0, now_ms=1_000)
    holder.write({})
    job.manager().rewind({"a": at(0)}, now_ms=2_000)
    assert "at 1970-01-01 00:00:01 UTC" in caplog.text
