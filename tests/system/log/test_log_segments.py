"""Segments: sealed, merged, retained, compacted."""

from __future__ import annotations

import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import (
    OffsetError,
)
from streambench.system.log import open_log
from streambench.system.log.segment import segments
from tests.system.log.partitions import all_rows, files_of, open_partition, rows, some_bytes, values_of


def test_a_large_enough_segment_is_sealed_and_its_many_batches_become_few(
    tmp_path: Path,
) -> None:
    partition = open_partition(tmp_path, segment_bytes=20_000)
    for number in range(60):
        partition.append([b"k"], [b"%d" % number])
    assert len(files_of(partition, tmp_path)) > 1
    first = tmp_path / "clicks" / "0" / files_of(partition, tmp_path)[0]
    with pa.ipc.open_stream(first) as reader:
        assert len(list(reader)) == 1
    assert values_of(partition) == [b"%d" % number for number in range(60)]


@pytest.mark.parametrize("still_open", [True, False])
def test_a_reader_amid_a_segment_goes_on_when_it_is_rewritten(
    tmp_path: Path, still_open: bool
) -> None:
    partition = open_partition(tmp_path)
    for number in range(10):
        partition.append(None, [b"%d" % number])
    log = open_log(tmp_path)
    cursor = log.partition("clicks", 0).cursor(0)
    seen = rows(cursor.read(4))
    if not still_open:
        log.handles.close_all()
    partition.roll()
    before = (tmp_path / "clicks" / "0" / f"{0:020d}.arrow").stat().st_ino
    partition.clean()
    assert (tmp_path / "clicks" / "0" / f"{0:020d}.arrow").stat().st_ino != before, (
        "or nothing was written anew"
    )
    seen += rows(cursor.read(100))
    seen += rows(cursor.read(100))
    assert [row[0] for row in seen] == list(range(10))


def test_a_writer_that_died_between_two_segments_leaves_no_gap(
    tmp_path: Path,
) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"0", b"1"])
    partition.roll()
    (tmp_path / "clicks" / "0" / f"{2:020d}.arrow").unlink()
    cursor = open_partition(tmp_path).cursor(0)
    assert len(rows(cursor.read(10))) == 2
    assert cursor.read(10) == [] and cursor.at_head
    assert open_partition(tmp_path).append(None, [b"2"]) == range(2, 3)
    assert [row[3] for row in rows(cursor.read(10))] == [b"2"]


def test_an_append_does_not_fail_when_only_the_cleaning_behind_it_did(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    partition = open_partition(tmp_path, segment_bytes=3000, cleanup_policy="compact")
    partition.append([b"k"], [b"x" * 3000])
    first = tmp_path / "clicks" / "0" / f"{0:020d}.arrow"
    first.write_bytes(first.read_bytes().replace(b"xxxx", b"yyyy", 1))
    assert partition.append([b"k"], [b"1"]) == range(1, 2)
    assert "could not be cleaned" in caplog.text and first.name in caplog.text


def test_compaction_by_itself_keeps_a_changelog_small(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=20_000, cleanup_policy="compact")
    for number in range(300):
        partition.append([b"%d" % (number % 3)], [b"x" * 500])
    size = sum(file.stat().st_size for file in (tmp_path / "clicks" / "0").iterdir())
    assert size < 80_000 < 300 * 500
    assert [row[0] for row in all_rows(partition)][-3:] == [297, 298, 299]


def test_retention_by_size_moves_the_oldest_by_whole_segments(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, segment_bytes=10_000, retention_bytes=25_000)
    stale = partition.cursor(0)
    for _ in range(12):
        partition.append(None, [b"x" * 5000])
    oldest, upcoming = partition.bounds()
    assert 0 < oldest < upcoming == 12
    assert [row[0] for row in all_rows(partition)] == list(range(oldest, 12))
    with pytest.raises(OffsetError, match=f"oldest is {oldest}"):
        partition.read(oldest - 1)
    with pytest.raises(OffsetError, match=f"oldest is {oldest}"):
        stale.read(1)


def test_segments_that_are_removed_meanwhile_have_no_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = open_partition(tmp_path, segment_bytes=10_000)
    for _ in range(6):
        partition.append(None, [b"x" * 5000])
    sizes = [file.stat().st_size for file in sorted((tmp_path / "clicks" / "0").glob("*.arrow"))]
    listed = segments(tmp_path / "clicks" / "0")
    monkeypatch.setattr("streambench.system.log.partition.segments", lambda directory: listed)
    assert partition.size() == sum(sizes)
    listed[0].path.unlink()
    assert partition.size() == sum(sizes[1:])


def test_retention_by_time_deletes_what_is_too_old_but_no_active_segment(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, retention_ms=1 << 40)
    for timestamp in (1000, 2000, 3000):
        partition.append(None, [b"x"], [timestamp])
        partition.roll()
    partition.append(None, [b"x"], [100])
    partition.clean(now_ms=2500 + (1 << 40))
    assert partition.bounds() == (2, 4)
    partition.clean(now_ms=1 << 50)
    assert partition.bounds() == (3, 4)


def test_an_emptied_partition_goes_on_counting(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, retention_bytes=0)
    partition.append(None, [b"x"] * 5)
    partition.roll()
    partition.clean()
    again = open_partition(tmp_path)
    assert again.bounds() == (5, 5)
    assert again.metadata().oldest is None and again.metadata().upcoming == "5"
    assert again.append(None, [b"y"]) == range(5, 6)


@given(
    st.lists(st.tuples(st.sampled_from([b"a", b"b", b"c", None]), some_bytes), min_size=1, max_size=30),
    st.data(),
)
def test_compaction_keeps_the_last_of_every_key_at_its_offset(
    tmp_path_factory: pytest.TempPathFactory,
    sent: list[tuple[bytes | None, bytes | None]],
    data: st.DataObject,
) -> None:
    directory = tmp_path_factory.mktemp("log")
    partition = open_partition(directory, cleanup_policy="compact")
    for key, value in sent:
        partition.append([key], [value])
        if data.draw(st.booleans()):
            partition.roll()
    partition.roll()
    partition.clean()
    partition.clean()
    last = {key: offset for offset, (key, _) in enumerate(sent) if key is not None}
    expected = [
        (offset, *sent[offset])
        for offset in range(len(sent))
        if sent[offset][0] is None or last[sent[offset][0]] == offset
    ]
    assert [(row[0], row[2], row[3]) for row in all_rows(partition)] == expected
    start = data.draw(st.integers(0, len(sent)))
    assert [row[0] for row in rows(open_partition(directory).read(start))] == [
        offset for offset, _, _ in expected if offset >= start
    ]
    assert partition.bounds() == (0, len(sent))
    shutil.rmtree(directory)


def test_compaction_forgets_a_tombstone_when_its_time_is_over(tmp_path: Path) -> None:
    partition = open_partition(tmp_path, cleanup_policy="compact", delete_retention_ms=100)
    partition.append([b"a", b"b", b"a"], [b"1", b"2", None], [1000, 1000, 1000])
    partition.roll()
    partition.clean(now_ms=1050)
    assert values_of(partition) == [b"2", None]
    partition.clean(now_ms=1101)
    assert values_of(partition) == [b"2"]


def test_compaction_leaves_what_is_younger_than_its_lag_and_its_past(tmp_path):
    with open_log(tmp_path) as log:
        log.create("a", **{"cleanup.policy": "compact", "min.compaction.lag.ms": 1000})
        partition = log.partition("a", 0)
        for value, time_ms in ((b"old", 1_000), (b"newer", 2_000), (b"newest", 9_500)):
            partition.append([b"k"], [value], [time_ms])
            partition.roll()
        partition.clean(now_ms=10_000)
        assert [value for batch in partition.read(0, 10) for value in batch.column("value").to_pylist()] == [
            b"newer",
            b"newest",
        ]
