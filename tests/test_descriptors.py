"""A process that runs out of descriptors says what its limit is, and how to raise it."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from streambench.descriptors import limit, limit_error
from streambench.errors import CheckpointError
from streambench.system.log import open_log
from tests.conftest import CHECKOUT

TASK = """\
import streambench as sb

class Same(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), envelope.message,
                                                  partition=envelope.ssp.partition))
"""


def test_an_error_for_want_of_files_says_the_limit_and_the_remedy() -> None:
    found = limit_error(OSError(errno.EMFILE, os.strerror(errno.EMFILE), "some/file"))
    assert found is not None
    assert f"its limit (RLIMIT_NOFILE) is {limit()}" in str(found)
    assert "some/file" in str(found)
    assert "ulimit -n" in str(found)


def test_what_was_caused_by_it_is_named_as_well() -> None:
    with pytest.raises(CheckpointError) as caught:
        try:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        except OSError as error:
            raise CheckpointError("cannot be written") from error
    assert limit_error(caught.value) is not None
    assert limit_error(OSError(errno.ENOSPC, "no space")) is None


@pytest.mark.parametrize("files", [24, 60])
def test_a_job_with_too_few_files_ends_with_one_line(tmp_path: Path, files: int) -> None:
    with open_log(tmp_path / "streams") as log:
        log.create("in", 60)
        for number in range(60):
            log.partition("in", number).append(None, [b"1"])
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "job.properties").write_text(
        "job.name=j\ntask.class=task.py:Same\ntask.inputs=log.in\nsystems.log.samza.factory=log\n"
        "systems.log.path=streams\n"
        "systems.log.samza.offset.default=oldest\nsystems.log.streams.out.partitions=60\n"
    )
    command = (
        f"ulimit -n {files} && exec {sys.executable} -m streambench run job.properties -q --until caught-up"
    )
    environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    (line,) = [each for each in done.stderr.splitlines() if each.startswith("error: ")]
    assert done.returncode == 1
    assert f"its limit (RLIMIT_NOFILE) is {files}" in line
    assert "ulimit -n 4096" in line
    assert "Traceback" not in done.stderr
