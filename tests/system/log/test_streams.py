"""The streams of a log: made once, with the settings they were made with, named, and deleted."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench.errors import (
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.system.log import open_log
from tests.system.log.partitions import open_partition
from tests.system.log.writers import SPAWN, create, started


def test_a_stream_that_is_not_there_is_named_with_those_that_are_near(tmp_path: Path) -> None:
    log = open_log(tmp_path / "nowhere")
    with pytest.raises(UnknownStreamError, match=r"log\.click: there is no directory .*nowhere.*none at all"):
        log.stream("click")
    log.create("clicks", 2)
    with pytest.raises(UnknownStreamError, match=r"log\.click .*did you mean log\.clicks\?"):
        log.stream("click")
    with pytest.raises(UnknownStreamError, match=r"did you mean log\.clicks with --partition 1\?$"):
        log.stream("clicks.1")
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
