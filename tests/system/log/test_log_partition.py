"""Appending and reading: by one, by several at once, across segments, fenced, retained, compacted."""

from __future__ import annotations

import gc
import os
import shutil
from pathlib import Path
from typing import Any
from unittest import mock

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import (
    FencedError,
    OffsetError,
    SerdeError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.system.log import Log, open_log
from streambench.system.log import cursor as cursors
from streambench.system.log.appender import Appender
from streambench.system.log.notes import RecoveryPoint, recovery_point
from streambench.system.log.segment import segments
from tests.surroundings import SOAK, figure
from tests.system.log.partitions import Row, all_rows, files_of, open_partition, rows, some_bytes, values_of
from tests.system.log.writers import SPAWN, append_many, create, started

some_headers = st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5))
messages = st.tuples(st.integers(0, 1 << 50), some_bytes, some_bytes, some_headers)
steps = st.one_of(
    st.lists(messages, min_size=1, max_size=8).map(lambda batch: ("append", batch)),
    st.sampled_from([("reopen", None), ("flush", None), ("roll", None)]),
)


@given(st.lists(steps, max_size=15), st.data())
def test_what_is_appended_is_what_is_read_from_any_offset(
    tmp_path_factory: pytest.TempPathFactory, plan: list[tuple[str, Any]], data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    partition = open_partition(directory, segment_bytes=3000)
    follower = partition.cursor(0)
    expected: list[Row] = []
    followed: list[Row] = []
    for step, batch in plan:
        if step == "append":
            timestamps, keys, values, headers = map(list, zip(*batch, strict=True))
            offsets = partition.append(keys, values, timestamps, headers)
            assert offsets == range(len(expected), len(expected) + len(batch))
            expected += [(offset, *message) for offset, message in zip(offsets, batch, strict=True)]
        elif step == "reopen":
            partition = open_partition(directory, segment_bytes=3000)
        elif step == "flush":
            partition.flush()
        else:
            partition.roll()
        followed += rows(follower.read(data.draw(st.integers(1, 6))))
    while read := follower.read(100):
        followed += rows(read)
    start = data.draw(st.integers(0, len(expected)))
    assert all_rows(partition) == followed == expected
    assert rows(partition.read(start)) == expected[start:]
    assert open_partition(directory).bounds() == (0, len(expected))
    shutil.rmtree(directory)


def test_a_partition_that_was_never_written_to_is_empty_and_has_no_files(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    assert partition.bounds() == (0, 0)
    assert partition.read(0) == []
    assert not (tmp_path / "clicks" / "0").exists()


@pytest.mark.parametrize("offset", [-1, 3, 100])
def test_an_offset_outside_the_partition_is_an_error_that_tells_its_bounds(
    tmp_path: Path, offset: int
) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"0", b"1"])
    with pytest.raises(OffsetError, match=rf"log\.clicks\.0.*{offset}.*oldest is 0.*will get 2"):
        partition.read(offset)


def test_a_reader_sees_another_writers_appends_and_is_at_the_head_between(tmp_path: Path) -> None:
    cursor = open_partition(tmp_path).cursor(0)
    writer = open_partition(tmp_path)
    assert cursor.read(10) == [] and cursor.at_head
    writer.append(None, [b"a", b"b"])
    assert len(rows(cursor.read(1))) == 1 and not cursor.at_head
    assert len(rows(cursor.read(1))) == 1 and cursor.at_head
    writer.roll()
    assert cursor.read(1) == [] and cursor.at_head
    writer.append(None, [b"c"])
    assert [row[3] for row in rows(cursor.read(1))] == [b"c"]


def test_a_reader_is_not_at_the_head_when_more_came_during_its_last_read(
    tmp_path: Path,
) -> None:
    writer = open_partition(tmp_path)
    writer.append(None, [b"a", b"b", b"c"])
    cursor = open_partition(tmp_path).cursor(0)
    cursor.read(1)
    writer.append(None, [b"d"])
    assert len(rows(cursor.read(2))) == 2 and not cursor.at_head
    assert len(rows(cursor.read(2))) == 1 and cursor.at_head


def test_two_writers_take_turns_without_a_gap(tmp_path: Path) -> None:
    one, other = open_partition(tmp_path, segment_bytes=2000), open_partition(tmp_path, segment_bytes=2000)
    for number in range(20):
        (one if number % 3 else other).append(None, [b"%d" % number])
    assert values_of(one) == [b"%d" % number for number in range(20)]
    assert [row[0] for row in all_rows(other)] == list(range(20))
    assert len(files_of(one, tmp_path)) > 3, "or no writer had to follow the other into a new segment"


def test_a_batch_that_is_completed_while_its_end_is_looked_for_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path)
    partition.append([b"k"], [b"first"])
    partition.append([b"k"], [b"second"])
    partition.flush()
    cursor = partition.cursor(0)
    path = segments(tmp_path / "clicks" / "0")[0].path
    whole = path.read_bytes()
    os.truncate(path, len(whole) - 10)

    def finish(directory: Path) -> RecoveryPoint:
        path.write_bytes(whole)
        return recovery_point(directory)

    monkeypatch.setattr(cursors, "recovery_point", finish)
    assert [row[3] for row in rows(cursor.read(10))] == [b"first", b"second"]


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


def test_a_stream_that_is_not_there_is_named_with_those_that_are_near(tmp_path: Path) -> None:
    log = open_log(tmp_path / "nowhere")
    with pytest.raises(UnknownStreamError, match=r"log\.click .*none at all"):
        log.stream("click")
    log.create("clicks", 2)
    with pytest.raises(UnknownStreamError, match=r"log\.click .*did you mean log\.clicks\?"):
        log.stream("click")
    with pytest.raises(
        UnknownStreamError, match=r"log\.clicks has no partition 2; it has 2, numbered from 0"
    ):
        log.partition("clicks", 2)


@pytest.mark.parametrize("name", ["", "_jobs", ".hidden", "a/b", "..", "ü", "a" * 201, "a\n"])
def test_a_name_that_is_no_file_name_or_is_reserved_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(StreamSystemError, match="is named with"):
        open_log(tmp_path).create(name)
    with pytest.raises(UnknownStreamError):
        open_log(tmp_path).stream(name)


def test_a_stream_is_created_once_and_keeps_its_settings(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    assert log.create("clicks", 3, retention_ms=5, **{"cleanup.policy": "compact"})
    assert not log.create("clicks", 3)
    with pytest.raises(StreamExistsError, match="with 3 partitions and not 4"):
        log.create("clicks", 4)
    settings = open_log(tmp_path).stream("clicks").settings
    assert (settings.retention_ms, settings.cleanup_policy) == (5, "compact")


def test_of_several_processes_that_create_a_stream_one_does(tmp_path: Path) -> None:
    start, results = SPAWN.Barrier(3), SPAWN.Array("i", 3)
    for process in started(create, tmp_path / "log", start, results, count=3):
        process.join()
    assert sorted(results) == [0, 0, 1]
    assert open_log(tmp_path / "log").stream("clicks").partitions == 2


def test_a_directory_of_the_runtime_is_no_stream(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    log.create("b")
    log.create("a.b")
    (tmp_path / "_jobs").mkdir()
    (tmp_path / "stray").mkdir()
    assert log.streams() == ["a.b", "b"]


def test_a_deleted_stream_is_gone_for_those_who_have_it_open(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"1"])
    cursor = open_log(tmp_path).partition("clicks", 0).cursor(1)
    assert cursor.read(1) == []
    log = open_log(tmp_path)
    log.delete("clicks")
    assert log.streams() == [] and list(tmp_path.iterdir()) == []
    with pytest.raises(UnknownStreamError, match="deleted"):
        partition.append(None, [b"2"])
    with pytest.raises(UnknownStreamError, match="deleted"):
        cursor.read(1)
    with pytest.raises(UnknownStreamError):
        log.delete("clicks")


def test_a_deleted_and_recreated_stream_is_not_mistaken_for_the_old_one(tmp_path: Path) -> None:
    log, other = open_log(tmp_path), open_log(tmp_path)
    log.create("clicks", 2)
    old = log.partition("clicks", 1)
    old.append(None, [b"old"])
    other.delete("clicks")
    other.create("clicks", 1)
    with pytest.raises(UnknownStreamError, match="created again"):
        old.append(None, [b"late"])
    assert log.stream("clicks").partitions == 1
    assert log.partition("clicks", 0).append(None, [b"new"]) == range(0, 1)


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


def test_a_thousand_partitions_share_a_few_open_files(tmp_path: Path) -> None:
    import psutil

    partitions = 1000 if SOAK else 400
    log = open_log(tmp_path, fsync="never")
    log.create("clicks", partitions)
    before = psutil.Process().num_fds()
    for number in range(partitions):
        log.partition("clicks", number).append(None, [b"%d" % number])
    for number in range(partitions):
        assert values_of(log.partition("clicks", number)) == [b"%d" % number]
    assert psutil.Process().num_fds() - before <= 100
    log.close()
    assert psutil.Process().num_fds() <= before


def test_nothing_stays_open_of_a_log_that_nobody_needs_any_more(tmp_path: Path) -> None:
    def is_open() -> bool:
        return any(Path(file.path).is_relative_to(tmp_path) for file in psutil.Process().open_files())

    partition = open_partition(tmp_path)
    partition.append(None, [b"0"])
    assert is_open()
    del partition
    gc.collect()
    assert not is_open()


def test_a_log_closes_what_it_has_opened(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.create("clicks")
        log.partition("clicks", 0).append(None, [b"1"])
    with open_log(tmp_path) as log:
        assert values_of(log.partition("clicks", 0)) == [b"1"]


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
