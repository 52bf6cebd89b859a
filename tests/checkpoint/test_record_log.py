"""Record logs: files that are written once, linked to their numbers, checked, and pruned."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from streambench.checkpoint import record_log
from streambench.checkpoint.record_log import RecordLog
from streambench.errors import CheckpointError
from tests.checkpoint.job import Job
from tests.checkpoint.samples import at


def test_a_record_in_the_place_of_another_is_found_out(job: Job) -> None:
    holder = job.started()
    holder.write({"a": at(0)})
    holder.write({"a": at(1)})
    records = job.records()
    records[-1].write_bytes(records[-2].read_bytes())
    with pytest.raises(CheckpointError, match="in the wrong place: it is the record with the number 2"):
        job.manager().read_last()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_after_a_refused_write_the_last_checkpoint_stays_until_a_new_claim(
    job: Job, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    holder = job.started()
    holder.write({"a": at(0)})

    def refuse(handle: int, data: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as full:
        full.setattr(record_log.os, "write", refuse)
        with pytest.raises(CheckpointError, match=f"job job-1: .*{os.strerror(number)}"):
            holder.write({"a": at(1)})
    assert job.manager().read_last() == {"a": at(0)}
    with pytest.raises(CheckpointError, match="claim one before"):
        holder.write({"a": at(2)})
    holder.claim(1, 0, now_ms=0)
    holder.write({"a": at(2)})
    assert job.manager().read_last() == {"a": at(2)}


def test_a_file_system_without_hard_links_is_said_to_be_unfit(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    holder = job.started()

    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(source))

    monkeypatch.setattr(record_log.os, "link", refuse)
    with pytest.raises(CheckpointError, match="on a file system with hard links"):
        holder.write({"a": at(0)})


def test_a_link_that_succeeded_though_reported_as_failed_counts(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As over NFS, where the answer to a request may be lost and the request repeated."""
    holder = job.started()
    link = os.link

    def twice(source: Path, target: Path) -> None:
        link(source, target)
        link(source, target)

    monkeypatch.setattr(record_log.os, "link", twice)
    holder.write({"a": at(0)})
    monkeypatch.undo()
    holder.write({"a": at(1)})
    assert job.manager().read_last() == {"a": at(1)}


def test_who_links_a_number_that_was_pruned_is_found_out(tmp_path: Path) -> None:
    records = RecordLog(tmp_path / "records")
    top = records.append(None, b"1")
    late = records.last()
    for number in range(2, 9):
        following = records.append(top, b"%d" % number)
        assert top is not None
        top.close()
        top = following
    records.prune(range(1, 6))
    assert records.append(late, b"late", witness=late) is None
    assert records.append(None, b"late") is None
    assert records.kept() == [6, 7, 8]
    for record in (top, late):
        assert record is not None
        record.close()


def test_a_record_is_read_whole_though_one_call_reads_only_a_part_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = RecordLog(tmp_path / "c0").append(None, b'{"a":1}', payload=b"effects" * 10)
    assert record is not None
    read = os.pread
    monkeypatch.setattr(record_log.os, "pread", lambda handle, size, at: read(handle, min(size, 30), at))
    with record:
        assert (record.body(), record.payload()) == (b'{"a":1}', b"effects" * 10)
