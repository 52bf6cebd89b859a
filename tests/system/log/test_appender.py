"""The appender: fences, sequences, several writers, and what is durable."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import (
    FencedError,
    SerdeError,
    StreamSystemError,
)
from streambench.system.log.appender import Appender
from streambench.system.log.segment import segments
from tests.surroundings import figure
from tests.system.log.partitions import Row, all_rows, files_of, open_partition, rows, values_of
from tests.system.log.writers import SPAWN, append_many, started


def test_two_writers_take_turns_without_a_gap(tmp_path: Path) -> None:
    one, other = open_partition(tmp_path, segment_bytes=2000), open_partition(tmp_path, segment_bytes=2000)
    for number in range(20):
        (one if number % 3 else other).append(None, [b"%d" % number])
    assert values_of(one) == [b"%d" % number for number in range(20)]
    assert [row[0] for row in all_rows(other)] == list(range(20))
    assert len(files_of(one, tmp_path)) > 3, "or no writer had to follow the other into a new segment"


def test_appends_of_several_processes_are_not_lost_doubled_or_reordered(tmp_path: Path) -> None:
    writers, batches = 3, figure(40, soak=400, check=20)
    reader = open_partition(tmp_path)
    start = SPAWN.Barrier(writers + 1)
    processes = started(append_many, tmp_path, batches, start, count=writers)
    start.wait()
    cursor = reader.cursor(0)
    seen: list[Row] = []
    while len(seen) < writers * batches * 2 and (
        any(process.is_alive() for process in processes) or not cursor.at_head
    ):
        seen += rows(cursor.read(1000))
    seen += rows(cursor.read(1 << 60))
    for process in processes:
        process.join()
        assert process.exitcode == 0
    assert [row[0] for row in seen] == list(range(writers * batches * 2))
    for writer in range(writers):
        assert [row[3] for row in seen if row[2] == b"%d" % writer] == [
            b"%d" % number for number in range(2 * batches)
        ]


def test_a_column_that_is_not_bytes_is_refused_whole(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    with pytest.raises(SerdeError, match="value of a log must be bytes or None, not str"):
        partition.append(None, [b"a", "b"])  # type: ignore[list-item]
    with pytest.raises(SerdeError, match="2 values cannot be appended with 1 keys"):
        partition.append([b"k"], [b"a", b"b"])
    with pytest.raises(SerdeError, match="headers"):
        partition.append(None, [b"a"], headers=[{"h": "text"}])  # type: ignore[dict-item]
    assert partition.bounds() == (0, 0)


def test_messages_without_a_timestamp_get_the_present_one(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"a", b"b"], [7, None])
    first, second = (row[1] for row in all_rows(partition))
    assert first == 7 and second is not None and second > 1_600_000_000_000


def test_a_fence_stops_the_older_holder_and_only_that(tmp_path: Path) -> None:
    partition, other = open_partition(tmp_path), open_partition(tmp_path)
    partition.append(None, [b"1"], producer="job/Partition 0", generation=1, epoch=1)
    other.fence("job/Partition 0", 2, 1)
    for generation, epoch in ((1, 9), (2, 0)):
        with pytest.raises(
            FencedError, match=r"log\.clicks\.0: job/Partition 0 .*generation 2, epoch 1 has taken over"
        ):
            partition.append(None, [b"late"], producer="job/Partition 0", generation=generation, epoch=epoch)
    partition.append(None, [b"2"], producer="job/Partition 0", generation=2, epoch=1)
    partition.append(None, [b"3"], producer="another", generation=0, epoch=0)
    partition.append(None, [b"4"])
    assert values_of(open_partition(tmp_path)) == [b"1", b"2", b"3", b"4"]


def test_a_fence_is_never_lowered(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.fence("a", 2, 5)
    with pytest.raises(FencedError):
        partition.fence("a", 2, 4)
    partition.fence("a", 2, 5)
    partition.fence("b", 1, 0)
    with pytest.raises(FencedError):
        open_partition(tmp_path).append(None, [b"late"], producer="a", generation=2, epoch=4)


@given(st.lists(st.sampled_from(["apply", "reopen", "roll", "foreign"]), max_size=12))
def test_an_append_with_a_sequence_happens_once_however_often_repeated(
    tmp_path_factory: pytest.TempPathFactory, plan: list[str]
) -> None:
    directory = tmp_path_factory.mktemp("log")
    partition = open_partition(directory)
    applied = 0
    for step in plan:
        if step == "apply":
            applied += 1
        elif step == "roll":
            partition.roll()
        elif step == "reopen":
            partition = open_partition(directory)
        else:
            open_partition(directory).append(None, [b"foreign"], producer="other", sequence=100)
        for sequence in range(1, applied + 1):
            partition.append(None, [b"%d" % sequence], producer="journal", generation=3, sequence=sequence)
    assert [value for value in values_of(partition) if value != b"foreign"] == [
        b"%d" % number for number in range(1, applied + 1)
    ]
    assert partition.last_of("journal") == ((3, applied) if applied else None)
    shutil.rmtree(directory)


def test_a_sequence_of_a_newer_generation_is_new(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    assert partition.append(None, [b"1"], producer="j", generation=1, sequence=5) == range(0, 1)
    assert partition.append(None, [b"1"], producer="j", generation=1, sequence=5) is None
    assert partition.append(None, [b"2"], producer="j", generation=2, sequence=1) == range(1, 2)
    assert partition.append(None, [b"1"], producer="j", generation=1, sequence=6) is None


def test_a_full_disk_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"1"])
    (segment,) = segments(tmp_path / "clicks" / "0")
    size = segment.path.stat().st_size
    write = os.pwrite
    monkeypatch.setattr(
        os, "pwrite", lambda descriptor, data, position: write(descriptor, data[: len(data) // 2], position)
    )
    with pytest.raises(StreamSystemError, match="could not be written"):
        partition.append(None, [b"2"])
    monkeypatch.undo()
    assert segment.path.stat().st_size == size
    assert partition.append(None, [b"3"]) == range(1, 2)
    assert values_of(open_partition(tmp_path)) == [b"1", b"3"]


def forced(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """The files that are forced to the disk from now on."""
    files: set[int] = set()
    force = os.fsync

    def fsync(descriptor: int) -> None:
        files.add(os.fstat(descriptor).st_ino)
        force(descriptor)

    monkeypatch.setattr(os, "fsync", fsync)
    return files


def test_what_is_there_is_durable_though_its_writer_died_before_syncing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_partition(tmp_path).append(None, [b"1"], producer="p", generation=1, sequence=7)
    files, heir = forced(monkeypatch), open_partition(tmp_path)
    assert heir.append(None, [b"1"], producer="p", generation=1, sequence=7) is None
    heir.flush()
    assert os.stat(segments(tmp_path / "clicks" / "0")[-1].path).st_ino in files


def test_a_segment_whose_writer_died_sealing_it_is_durable_before_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = open_partition(tmp_path)
    dead.append(None, [b"1"], producer="p", generation=1, sequence=7)
    with (
        mock.patch.object(Appender, "flush", side_effect=KeyboardInterrupt),
        pytest.raises(KeyboardInterrupt),
    ):
        dead.roll()
    files, heir = forced(monkeypatch), open_partition(tmp_path)
    assert heir.append(None, [b"1"], producer="p", generation=1, sequence=7) is None
    sealed, _ = segments(tmp_path / "clicks" / "0")
    assert os.stat(sealed.path).st_ino in files
