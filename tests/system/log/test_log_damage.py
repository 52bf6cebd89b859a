"""Damage: what is missing or was changed is told with the files and the offsets, never passed over, never cut
off, and can be repaired."""

from __future__ import annotations

import logging
import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from streambench.errors import CorruptDataError, FencedError
from streambench.system.log import Partition, notes, open_log, repair
from streambench.system.log.location import PartitionLocation
from streambench.system.log.notes import RECOVERY_POINT
from streambench.system.log.segment import segment_of, segments


def partition_in(directory: Path, **settings: object) -> Partition:
    log = open_log(directory, **settings)
    log.create("clicks")
    return log.partition("clicks", 0)


def path_of(directory: Path, base: int) -> Path:
    return segment_of(directory / "clicks" / "0", base).path


def offsets_of(directory: Path) -> list[int]:
    partition = partition_in(directory)
    return [
        offset for batch in partition.read(partition.bounds()[0]) for offset in batch["offset"].to_pylist()
    ]


def contents(directory: Path) -> dict[Path, bytes]:
    """All files but the locks."""
    files = (path for path in directory.rglob("*") if path.is_file() and not path.name.startswith("."))
    return {path: path.read_bytes() for path in files}


def cut(path: Path, by: int) -> None:
    os.truncate(path, path.stat().st_size - by)


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Three sealed segments with the offsets 0-4, 5-9 and 10-14, and 15 in the one that is appended to; all
    of it committed."""
    partition = partition_in(tmp_path)
    for number in range(3):
        partition.append(None, [b"%d" % number] * 3)
        partition.append(None, [b"x%d" % number] * 2)
        partition.roll()
    partition.append(None, [b"last"])
    partition.flush()
    return tmp_path


def test_a_sealed_segment_that_lost_only_its_end_mark_is_read_on(log: Path) -> None:
    cut(path_of(log, 5), 8)
    assert offsets_of(log) == list(range(16))


@pytest.mark.parametrize("by", [9, 16, 300, 900])
def test_a_sealed_segment_that_lost_messages_is_told(log: Path, by: int) -> None:
    cut(path_of(log, 5), by)
    with pytest.raises(
        CorruptDataError, match=rf"{path_of(log, 5)}, byte \d+: .*repair log.clicks --partition 0 -c JOB"
    ):
        offsets_of(log)


def test_a_segment_cut_between_two_batches_names_both_files(log: Path) -> None:
    path = path_of(log, 5)
    with open_log(log) as streams:
        first = streams.partition("clicks", 0).read(5, 3)[0]
    assert first.num_rows == 3
    data = path.read_bytes()
    cut(path, len(data) - data.rindex(b"\xff\xff\xff\xff", 0, len(data) - 8))
    with pytest.raises(
        CorruptDataError,
        match=rf"{path}, .* ends before offset 8, .*{path_of(log, 10)}.*: the messages 8 to 9 .* missing",
    ):
        offsets_of(log)


@pytest.mark.parametrize(("base", "until"), [(0, 4), (5, 9), (10, 14), (15, 15)])
def test_a_deleted_segment_is_told_with_the_messages_that_are_gone(log: Path, base: int, until: int) -> None:
    path_of(log, base).unlink()
    with pytest.raises(CorruptDataError, match=rf"the messages {base} to {until} .* (lost|missing)"):
        offsets_of(log)


def test_all_segments_deleted_is_no_empty_partition(log: Path) -> None:
    for segment in segments(log / "clicks" / "0"):
        segment.path.unlink()
    with pytest.raises(CorruptDataError, match="the messages 0 to 15 of log.clicks.0 are lost"):
        offsets_of(log)
    with pytest.raises(CorruptDataError, match="the messages 0 to 15"):
        partition_in(log).append(None, [b"new"])


def test_a_reader_that_stands_before_a_segment_as_it_is_deleted_is_told(log: Path) -> None:
    cursor = partition_in(log).cursor(0)
    cursor.read(5)
    path_of(log, 5).unlink()
    with pytest.raises(CorruptDataError, match="the messages 5 to 9"):
        cursor.read(100)


def test_what_retention_removed_is_not_missed(tmp_path: Path) -> None:
    partition = partition_in(tmp_path, retention_bytes=1)
    for _ in range(3):
        partition.append(None, [b"x"] * 2)
        partition.roll()
    partition.clean()
    assert offsets_of(tmp_path) == [] and partition.bounds() == (6, 6)
    partition.append(None, [b"y"])
    partition.flush()
    assert offsets_of(tmp_path) == [6]


def test_what_compaction_removed_is_not_missed_and_what_is_missing_is(tmp_path: Path) -> None:
    partition = partition_in(tmp_path, cleanup_policy="compact", delete_retention_ms=0)
    for number in range(6):
        partition.append([b"a", b"b" if number in (0, 5) else b"a"], [b"%d" % number] * 2)
        partition.roll()
    partition.append([b"c"], [b"end"])
    partition.flush()
    partition.clean()
    kept = offsets_of(tmp_path)
    assert kept == [10, 11, 12]
    assert partition_in(tmp_path).append(None, [b"more"]) == range(13, 14)
    path_of(tmp_path, 10).unlink()
    with pytest.raises(CorruptDataError, match="the messages 10 to 11"):
        offsets_of(tmp_path)


def test_a_damaged_segment_is_not_compacted_into_a_whole_one(tmp_path: Path) -> None:
    partition = partition_in(tmp_path, cleanup_policy="compact")
    for _ in range(2):
        partition.append([b"a"], [b"1"])
        partition.append([b"a"], [b"2"])
        partition.roll()
    path = path_of(tmp_path, 0)
    data = path.read_bytes()
    cut(path, len(data) - data.rindex(b"\xff\xff\xff\xff", 0, len(data) - 8))
    with pytest.raises(CorruptDataError, match=str(path)):
        partition_in(tmp_path, cleanup_policy="compact").clean()
    with pytest.raises(CorruptDataError, match="1 to 1"):
        offsets_of(tmp_path)


def test_a_flip_in_a_committed_batch_is_never_cut_off(log: Path) -> None:
    path = path_of(log, 15)
    whole = path.read_bytes()
    for at in range(whole.rindex(b"\xff\xff\xff\xff"), len(whole)):
        flip(path, at)
        damaged = path.read_bytes()
        try:
            assert partition_in(log).append(None, [b"new"]) == range(16, 17), at
        except CorruptDataError as error:
            assert str(path) in str(error) and "streams repair" in str(error)
            assert path.read_bytes() == damaged, "nothing is changed"
        path.write_bytes(whole)


def test_a_flip_in_a_whole_batch_that_was_not_forced_is_not_cut_off_either(tmp_path: Path) -> None:
    partition = partition_in(tmp_path)
    partition.append(None, [b"1"])
    partition.append(None, [b"2" * 100])
    flip(path_of(tmp_path, 0), -50)
    with pytest.raises(CorruptDataError, match="it is no unfinished append"):
        partition_in(tmp_path).append(None, [b"new"])


def test_what_a_loss_of_power_left_of_an_append_is_put_aside(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    partition = partition_in(tmp_path)
    partition.append(None, [b"1"])
    partition.flush()
    partition.append(None, [b"2" * 100])
    flip(path_of(tmp_path, 0), -50)
    monkeypatch.setattr(notes, "boot_id", lambda: "another start of the machine")
    with caplog.at_level(logging.WARNING):
        assert partition_in(tmp_path).append(None, [b"new"]) == range(1, 2)
    (aside,) = (tmp_path / "clicks" / "0").glob("*.cut")
    assert str(aside) in caplog.text


def test_a_cut_below_the_recovery_point_is_no_unfinished_append(log: Path) -> None:
    cut(path_of(log, 15), 5)
    for attempt in (lambda: offsets_of(log), lambda: partition_in(log).append(None, [b"new"])):
        with pytest.raises(CorruptDataError, match="committed"):
            attempt()
    (log / "clicks" / "0" / RECOVERY_POINT).unlink()
    assert partition_in(log).append(None, [b"new"]) == range(15, 16), "without it, it looks like one"


def test_without_forcing_nothing_is_said_to_be_committed(tmp_path: Path) -> None:
    partition = partition_in(tmp_path, fsync="never")
    partition.append(None, [b"1"])
    partition.flush()
    assert not (tmp_path / "clicks" / "0" / RECOVERY_POINT).exists()


DAMAGE: dict[str, Callable[[Path], object]] = {
    "nothing": lambda log: None,
    "a tail cut off": lambda log: cut(path_of(log, 5), 300),
    "a segment deleted": lambda log: path_of(log, 5).unlink(),
    "the first deleted": lambda log: path_of(log, 0).unlink(),
    "the last deleted": lambda log: path_of(log, 15).unlink(),
    "all deleted": lambda log: [each.path.unlink() for each in segments(log / "clicks" / "0")],
    "a flip in the middle": lambda log: flip(path_of(log, 5), 1200),
    "a flip in the last batch": lambda log: flip(path_of(log, 15), -100),
    "a flip in a header": lambda log: flip(path_of(log, 10), 40),
    "a header and a tail": lambda log: (flip(path_of(log, 0), 40), cut(path_of(log, 15), 5)),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_a_repair_gives_up_what_is_damaged_and_nothing_else(log: Path, what: str) -> None:
    DAMAGE[what](log)
    before = contents(log)
    told = partition_in(log).damage()
    assert contents(log) == before, "it only looks"
    assert partition_in(log).repair() == told
    lost = [
        offset
        for loss in told
        if loss.first is not None
        for offset in range(loss.first, (loss.last or 0) + 1)
    ]
    assert sorted({*offsets_of(log), *lost}) == list(range(max([*lost, 15]) + 1))
    assert not {*offsets_of(log)} & {*lost}
    assert bool(told) == (what != "nothing")
    for loss in told:
        if loss.bytes:
            assert loss.aside is not None
            assert loss.aside.read_bytes() == before[loss.file][loss.position : loss.position + loss.bytes]
    assert partition_in(log).damage() == []
    offsets = partition_in(log).append(None, [b"new"])
    assert offsets is not None and offsets.start >= 16, "no offset is given twice"
    assert offsets_of(log)[-1] == offsets.start


def test_who_reads_over_what_was_given_up_is_told(log: Path, caplog: pytest.LogCaptureFixture) -> None:
    path_of(log, 5).unlink()
    partition_in(log).repair()
    with caplog.at_level(logging.WARNING):
        assert offsets_of(log) == [*range(5), *range(10, 16)]
    assert "the offsets 5-9 were given up when it was repaired, and are not read" in caplog.text


def test_a_repair_that_died_halfway_is_finished_by_the_next(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flip(path_of(log, 15), -100)
    cut(path_of(log, 5), 300)
    template = log.parent / "template"
    shutil.copytree(log, template)
    real, steps = os.replace, 0

    def dies(*arguments: str) -> None:
        nonlocal steps
        steps -= 1
        if steps < 0:
            raise KeyboardInterrupt
        real(*arguments)

    monkeypatch.setattr(os, "replace", dies)
    for count in range(10):
        shutil.rmtree(log)
        shutil.copytree(template, log)
        steps = count
        try:
            partition_in(log).repair()
        except KeyboardInterrupt:
            steps = 1000
            partition_in(log).repair()
        else:
            break
        assert partition_in(log).append(None, [b"new"]) == range(16, 17)
        assert offsets_of(log) == [*range(8), *range(10, 15), 16]
    assert count > 1


def test_a_log_that_an_older_version_wrote_is_read_and_appended_to(tmp_path: Path) -> None:
    """One that had no checksums but those of batches, and removed segments without a note."""
    shutil.copytree(Path(__file__).parent / "former", tmp_path / "log")
    log = open_log(tmp_path / "log")
    clicks, state = log.partition("clicks", 0), log.partition("state", 0)
    assert log.stream("clicks").partitions == 2
    assert values(clicks) == [b"1", b"2", None, b"3"]
    assert values(state) == [b"3", b"3", b"end"]
    assert clicks.damage() == state.damage() == []
    assert clicks.last_of("job/1/c0") == (1, 2)
    assert clicks.append(None, [b"4"], producer="job/1/c0", generation=1, sequence=2) is None
    with pytest.raises(FencedError):
        clicks.fence("task", 1, 1)
    for partition in (clicks, state):
        partition.append([b"a"], [b"new"])
        partition.roll()
        partition.append([b"a"], [b"newer"])
        partition.flush()
        partition.clean()
    assert values(clicks) == [b"1", b"2", None, b"3", b"new", b"newer"]
    assert values(state)[-1] == b"newer"
    assert clicks.damage() == state.damage() == []


def values(partition: Partition) -> list[bytes | None]:
    return [value for batch in partition.read(partition.bounds()[0]) for value in batch["value"].to_pylist()]


def test_no_writer_takes_over_from_a_long_repair(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The repair rewrites the last segment as it has read it: what came meanwhile would be lost."""
    partition = partition_in(log, lock_lease_ms=500)
    partition.append(None, [b"p"], producer="p", generation=1, sequence=1)
    partition.roll()
    partition.append(None, [b"behind"])
    partition.flush()
    flip(segments(log / "clicks" / "0")[-1].state_path, 3)
    lock = log / "clicks" / "0" / ".lock"
    offsets: list[range | None] = []
    other = partition_in(log, lock_lease_ms=500)
    writer = threading.Thread(target=lambda: offsets.append(other.append(None, [b"new"])), daemon=True)
    planned = repair._planned

    def slow(location: PartitionLocation) -> object:
        plan = planned(location)
        writer.start()
        signs = set()
        # A lease has five signs of life in it; without any, the writer takes over.
        while len(signs) < 12 and writer.is_alive():
            signs.add(lock.read_bytes())
        return plan

    monkeypatch.setattr(repair, "_planned", slow)
    assert partition.repair()
    writer.join(60)
    assert offsets == [range(18, 19)]
    assert offsets_of(log) == list(range(19))
    assert not lock.with_name(".lock.1").exists(), "the writer waited"
