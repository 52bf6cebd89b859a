"""Cursors: reading at the head, behind other writers, and past what is not finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from streambench.system.log import cursor as cursors
from streambench.system.log.notes import RecoveryPoint, recovery_point
from streambench.system.log.segment import segments
from tests.system.log.partitions import open_partition, rows


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
