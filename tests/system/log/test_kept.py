"""What compaction must leave, because somebody may come back to it."""

from __future__ import annotations

from pathlib import Path

from streambench.system.log import open_log


def test_compaction_leaves_everything_at_or_after_the_offset_to_keep_from(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create("changes", 1, **{"cleanup.policy": "compact"})
        partition = log.partition("changes", 0)
        assert partition.compacted_to() is None
        for at in range(4):
            partition.append([b"a", b"b"], [b"%d" % at, b"%d" % at])
            partition.roll()
        partition.keep_from(5)
        partition.clean()
        assert [offset for batch in partition.read(0) for offset in batch["offset"].to_pylist()] == [
            2,
            3,
            4,
            5,
            6,
            7,
        ]
        assert partition.compacted_to() == 4
        partition.keep_from(8)
        partition.clean()
        assert [offset for batch in partition.read(0) for offset in batch["offset"].to_pylist()] == [6, 7]
        assert partition.compacted_to() == 8


def test_what_to_keep_is_remembered_by_whoever_cleans(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create("changes", 1, **{"cleanup.policy": "compact"})
        log.partition("changes", 0).append([b"a", b"a"], [b"1", b"2"])
        log.partition("changes", 0).keep_from(0)
    with open_log(tmp_path) as log:
        log.partition("changes", 0).roll()
        log.partition("changes", 0).clean()
        assert sum(batch.num_rows for batch in log.partition("changes", 0).read(0)) == 2
        assert log.partition("changes", 0).compacted_to() is None


def test_what_to_keep_is_remembered_before_anything_is_there(tmp_path: Path) -> None:
    with open_log(tmp_path) as log:
        log.create("changes", 1, **{"cleanup.policy": "compact"})
        partition = log.partition("changes", 0)
        partition.keep_from(0)
        partition.append([b"a", b"a"], [b"1", b"2"])
        partition.roll()
        partition.clean()
        assert sum(batch.num_rows for batch in partition.read(0)) == 2
