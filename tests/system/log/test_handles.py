"""Open files of a log: few, and none that is no longer needed."""

from __future__ import annotations

import gc
from pathlib import Path

import psutil

from streambench.system.log import Log, open_log
from tests.surroundings import SOAK
from tests.system.log.partitions import open_partition, values_of


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
