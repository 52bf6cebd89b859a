"""A disk that fails at every call of a job in turn: the error names the file, and what was committed stays
so."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest

from streambench.errors import StreambenchError
from tests.faults import damage
from tests.faults.failing_disk import FailingDisk
from tests.surroundings import SOAK

GUARANTEES = ("at-least-once", "exactly-once")


@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC] if SOAK else [errno.EIO])
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_call_that_fails_is_told_with_the_file_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, guarantee: str, code: int
) -> None:
    monkeypatch.setattr(os, "fsync", lambda descriptor: None)
    template, directory = tmp_path / "template", tmp_path / "run"
    damage.build(template, guarantee)
    damage.send(template, 3)
    shutil.copytree(template, directory)
    with FailingDisk(directory) as disk:
        damage.run(directory, guarantee)
    whole = damage.found(directory, guarantee)
    assert {"open", "stat", "pread", "pwrite", "fsync", "link"} <= {call.split()[0] for call in disk.calls}
    told = 0
    for at in range(1, len(disk.calls) + 1, 1 if SOAK else 23):
        shutil.rmtree(directory)
        shutil.copytree(template, directory)
        try:
            with FailingDisk(directory, at, code) as failing:
                damage.run(directory, guarantee)
        except StreambenchError as error:
            told += 1
            assert str(directory) in str(error), f"{disk.calls[at - 1]}: {error}"
        assert failing.has_failed
        damage.run(directory, guarantee)
        there = damage.found(directory, guarantee)
        what = f"call {at} failed: {disk.calls[at - 1]}"
        assert there.last["Partition 0"][0] == whole.last["Partition 0"][0], what
        assert last_values(there) == last_values(whole), what
        if guarantee == "exactly-once":
            assert there.rows == whole.rows, what
        else:
            assert {row[1:] for row in whole.rows["counts"]} <= {row[1:] for row in there.rows["counts"]}, (
                what
            )
    assert told > 10


def last_values(found: damage.Found) -> dict[str, dict[bytes | None, bytes | None]]:
    return {stream: {key: value for _, key, value in found.rows[stream]} for stream in damage.STREAMS}
