"""Open files of a log: few, and none that is no longer needed."""

from __future__ import annotations

from pathlib import Path

import psutil

from streambench.system.log import Log, open_log
from tests.garbage import await_collected
from tests.surroundings import SOAK
from tests.system.log.partitions import open_partition, values_of


def open_below(directory: Path) -> int:
    """The number of files that are open there. Others of this process are for what earlier tests began."""
    return sum(Path(file.path).is_relative_to(directory) for file in psutil.Process().open_files())


def test_a_thousand_partitions_share_a_few_open_files(tmp_path: Path) -> None:
    partitions = 1000 if SOAK else 400
    log = open_log(tmp_path, fsync="never")
    log.create("clicks", partitions)
    before = open_below(tmp_path)
    for number in range(partitions):
        log.partition("clicks", number).append(None, [b"%d" % number])
    for number in range(partitions):
        assert values_of(log.partition("clicks", number)) == [b"%d" % number]
    assert 0 < open_below(tmp_path) - before <= 100
    log.close()
    assert open_below(tmp_path) == 0


def test_nothing_stays_open_of_a_log_that_nobody_needs_any_more(tmp_path: Path) -> None:
    partition = open_partition(tmp_path)
    partition.append(None, [b"0"])
    assert open_below(tmp_path)
    del partition
    await_collected(lambda: not open_below(tmp_path))


def test_a_log_closes_what_it_has_opened(tmp_path: Path) -> None:
    with Log(tmp_path) as log:
        log.create("clicks")
        log.partition("clicks", 0).append(None, [b"1"])
    with open_log(tmp_path) as log:
        assert values_of(log.partition("clicks", 0)) == [b"1"]
