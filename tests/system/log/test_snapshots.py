"""Snapshots of state beside a changelog: written whole, read whole, or not used."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import CorruptDataError, UnknownStreamError
from streambench.model import SystemStreamPartition
from streambench.system.capabilities import SnapshotName, StateSnapshots
from streambench.system.log import Log, open_log
from streambench.system.log.admin import LogAdmin
from streambench.system.log.cleaner import Cleaner

SSP = SystemStreamPartition("log", "changes", 0)
ENTRIES = {b"a": b"1", b"": b"", b"b" * 300: b"\0" * 1_000, b"c": b"\xff"}


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path) as log:
        log.create("changes", 1, **{"cleanup.policy": "compact", "delete.retention.ms": 0})
        log.partition("changes", 0).append(list(ENTRIES), list(ENTRIES.values()))
        yield log


def files(log: Log) -> StateSnapshots:
    found = LogAdmin("log", log).snapshots(SSP)
    assert found is not None
    return found


def written(log: Log, offset: int = 4, commit: tuple[int, int] = (1, 1)) -> SnapshotName:
    name = SnapshotName(offset, commit)
    assert files(log).write(name, [(list(ENTRIES), list(ENTRIES.values()))], stamped=False) == 4
    files(log).remove_older(name)
    return name


def content(log: Log, name: SnapshotName) -> dict[bytes, bytes]:
    found: dict[bytes, bytes] = {}
    for keys, values in files(log).read(name):
        found.update(zip(keys, values, strict=True))
    return found


def test_a_snapshot_has_what_was_written(log: Log) -> None:
    name = written(log)
    assert files(log).names(4) == [name]
    assert files(log).names(3) == []
    assert files(log).entries(name, stamped=False) == 4
    assert content(log, name) == ENTRIES


def test_an_empty_store_has_a_snapshot(log: Log) -> None:
    name = SnapshotName(4, (1, 1))
    assert files(log).write(name, [], stamped=False) == 0
    assert files(log).entries(name, stamped=False) == 0
    assert content(log, name) == {}


@given(st.lists(st.lists(st.tuples(st.binary(max_size=20), st.binary(max_size=3_000_000)), max_size=4)))
def test_entries_of_any_size_are_read_as_they_were(
    tmp_path_factory: pytest.TempPathFactory, batches: list[list[tuple[bytes, bytes]]]
) -> None:
    with open_log(tmp_path_factory.mktemp("log")) as log:
        log.create("changes", 1)
        log.partition("changes", 0).append([b"a"], [b"1"])
        name = SnapshotName(1, (1, 1))
        given = [([key for key, _ in batch], [value for _, value in batch]) for batch in batches]
        count = files(log).write(name, given, stamped=True)
        found = [entry for keys, values in files(log).read(name) for entry in zip(keys, values, strict=True)]
        assert found == [entry for batch in batches for entry in batch]
        assert files(log).entries(name, stamped=True) == count == len(found)


def test_a_file_that_is_cut_anywhere_is_damaged(log: Log) -> None:
    name = written(log)
    path = files(log).path(name)
    data = path.read_bytes()
    for size in range(len(data)):
        path.write_bytes(data[:size])
        with pytest.raises(CorruptDataError, match="snapshot-"):
            files(log).entries(name, stamped=False)


def test_a_bit_that_flips_anywhere_never_leads_to_other_entries(log: Log) -> None:
    name = written(log)
    path = files(log).path(name)
    data = bytearray(path.read_bytes())
    for at in range(len(data)):
        data[at] ^= 1 << at % 8
        path.write_bytes(data)
        data[at] ^= 1 << at % 8
        try:
            if files(log).entries(name, stamped=False) is not None:
                assert content(log, name) == ENTRIES, at
        except CorruptDataError:
            continue


def test_a_file_under_the_name_of_another_offset_is_not_used(log: Log) -> None:
    name = written(log)
    for offset in (3, 5):
        other = name._replace(offset=offset)
        os.link(files(log).path(name), files(log).path(other))
        assert files(log).entries(other, stamped=False) is None


def test_values_with_their_times_are_none_without(log: Log) -> None:
    name = written(log)
    assert files(log).entries(name, stamped=True) is None


def test_a_stream_that_was_created_again_has_none_of_the_former(log: Log) -> None:
    name = written(log)
    former, path = files(log), files(log).path(name)
    data = path.read_bytes()
    log.delete("changes")
    assert former.write(name, [], stamped=False) is None
    log.create("changes")
    log.partition("changes", 0).append(list(ENTRIES), list(ENTRIES.values()))
    path.write_bytes(data)
    assert files(log).entries(name, stamped=False) is None
    with pytest.raises(UnknownStreamError):
        former.write(name, [], stamped=False)


def test_a_changelog_that_lost_its_end_and_went_on_otherwise_is_another(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create("changes", 1)
        log.partition("changes", 0).append([b"a"], [b"1"])
        end = (tmp_path / "changes" / "0" / f"{0:020d}.arrow").stat().st_size
        log.partition("changes", 0).append([b"b"], [b"1"], [5])
        name = SnapshotName(2, (1, 1))
        files(log).write(name, [], stamped=False)
        assert files(log).entries(name, stamped=False) == 0
    os.truncate(tmp_path / "changes" / "0" / f"{0:020d}.arrow", end)
    with open_log(tmp_path) as log:
        assert files(log).entries(name, stamped=False) is None
        log.partition("changes", 0).append([b"b"], [b"1"], [6])
        assert files(log).entries(name, stamped=False) is None


def test_nothing_is_written_for_an_offset_that_the_changelog_lacks(log: Log) -> None:
    for offset in (0, 5):
        assert files(log).write(SnapshotName(offset, (1, 1)), [], stamped=False) is None
    assert files(log).names(9) == []


def test_a_snapshot_is_not_used_once_what_follows_it_was_compacted(log: Log) -> None:
    name = written(log)
    partition = log.partition("changes", 0)
    partition.roll()
    partition.clean()
    assert files(log).entries(name, stamped=False) == 4
    partition.append([b"a"], [None], [0])
    partition.roll()
    assert files(log).is_valid(name)
    partition.clean()
    assert [key for batch in partition.read(0) for key in batch["key"].to_pylist()].count(b"a") == 0
    assert not files(log).is_valid(name)
    assert files(log).entries(name, stamped=False) is None


def test_what_was_compacted_is_known_without_the_note_of_it(log: Log) -> None:
    name = written(log)
    partition = log.partition("changes", 0)
    partition.append([b"a"], [None], [0])
    partition.roll()
    partition.clean()
    (log.path / "changes" / "0" / "compacted.json").unlink()
    assert files(log).entries(name, stamped=False) is None


def test_a_compaction_that_died_counts_from_its_first_change(
    log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = written(log)
    partition = log.partition("changes", 0)
    partition.append([b"a"], [None], [0])
    partition.roll()
    with monkeypatch.context() as patched:
        patched.setattr(Cleaner, "_rewrite", lambda *arguments: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            partition.clean()
    assert files(log).entries(name, stamped=False) is None


def test_two_are_kept_and_those_of_later_commits(log: Log) -> None:
    late = written(log, 4, (2, 1))
    log.partition("changes", 0).append([b"a"] * 6, [b"2"] * 6)
    names = [written(log, offset, (1, offset)) for offset in (5, 6, 7)]
    assert files(log).names(10) == [*reversed(names[1:]), late]


def test_a_later_offset_of_an_earlier_commit_goes(log: Log) -> None:
    log.partition("changes", 0).append([b"a"] * 6, [b"2"] * 6)
    written(log, 9, (1, 9))
    last = written(log, 5, (2, 1))
    assert files(log).names(10) == [last]


def test_what_a_killed_writer_left_goes_with_the_next_snapshot(log: Log) -> None:
    path = files(log).path(SnapshotName(2, (1, 1)))
    left, of_successor = (
        path.with_name(f".snapshot-{2:020d}-{commit}.123.0123abcd") for commit in ("1.1", "3.1")
    )
    left.write_bytes(b"half")
    of_successor.write_bytes(b"half")
    written(log, commit=(2, 1))
    assert not left.exists()
    assert of_successor.exists()


def test_a_writer_that_fails_leaves_nothing(log: Log) -> None:
    def batches() -> Iterator[tuple[list[bytes], list[bytes]]]:
        yield [b"a"], [b"1"]
        raise OSError("no more")

    before = sorted(os.listdir(log.path / "changes" / "0"))
    with pytest.raises(OSError, match="no more"):
        files(log).write(SnapshotName(4, (1, 1)), batches(), stamped=False)
    assert sorted(os.listdir(log.path / "changes" / "0")) == before


def test_a_log_with_snapshots_is_read_and_surveyed_as_without(log: Log) -> None:
    written(log)
    assert log.streams() == ["changes"]
    assert log.partition("changes", 0).damage() == []
    assert log.partition("changes", 0).bounds() == (0, 4)
