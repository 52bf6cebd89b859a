"""Drivers killed with -9: the next one removes what they left."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from streambench.spark import register
from streambench.spark.source.options import as_options
from tests.spark.conftest import Job
from tests.spark.test_programs import start

# The first task stages its messages and ends; the second one stays in the middle of its own.
PROGRAM = """
import sys
from pathlib import Path
from streambench import Config
from streambench.spark import register
from streambench.spark.session import session_for
from streambench.spark.source.options import as_options

def stuck(batches):
    import threading
    for batch in batches:
        yield batch
        if batch.column(0)[0].as_py() == "1":
            (Path(sys.argv[1]) / "stuck").touch()
            threading.Event().wait()

if __name__ == "__main__":
    config = Config.from_file("job.properties")
    spark = register(session_for(None, "local[2]", config).spark)
    frame = spark.range(0, 2, 1, 2).selectExpr("CAST(id AS STRING) AS message")
    stalled = frame.mapInArrow(stuck, "message STRING")
    stalled.write.format("streambench").options(**as_options(config)).mode("append").save("log.out")
"""


def staged(job: Job) -> list[Path]:
    return list((job.directory / "streams" / ".staging" / "out").iterdir())


def test_a_write_and_a_session_of_a_killed_driver_are_swept(
    spark: Any, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    text = "".join(f"{key}={value}\n" for key, value in job.config.items())
    (job.directory / "job.properties").write_text(text)
    program = start(job.directory, PROGRAM.replace("sys.argv[1]", repr(str(job.directory))))
    try:
        while not (job.directory / "stuck").exists() or not staged(job):
            with suppress(subprocess.TimeoutExpired):
                program.wait(0.1)
                pytest.fail(f"it has ended: {program.communicate()}")
        [left] = staged(job)
        write(spark, job, "2")
        assert staged(job) == [left]  # its driver lives
        started = psutil.Process(program.pid).children(recursive=True)
    finally:
        os.killpg(program.pid, signal.SIGKILL)
        program.communicate()
    assert psutil.wait_procs(started, timeout=60)[1] == []
    assert list(temporary.glob("streambench-spark-*"))
    write(spark, job, "3")
    assert staged(job) == []
    assert job.numbers() == [2, 3]
    monkeypatch.setattr(tempfile, "tempdir", None)
    from streambench.temporary import TemporaryDirectory

    made = TemporaryDirectory("streambench-spark-")
    assert list(temporary.glob("streambench-spark-*")) == [made.path]
    made.remove()


def write(spark: Any, job: Job, message: str) -> None:
    frame = register(spark).sql(f"SELECT '{message}' AS message")
    frame.write.format("streambench").options(**as_options(job.config)).mode("append").save("log.out")
