"""The class data archive of Spark, made while the first tests run.

Sessions make it by themselves, the second one as it ends. In a run of all tests that one may live for
minutes, while dozens of JVMs load Spark's classes one by one, which takes each of them twice the CPU. As a
program, ``python -m tests.spark.archive`` makes it, unless it is there already, is being made, or this Java
has failed to make one. It takes 40 seconds of CPU: ``make test`` begins it before lint, which uses one core.
Before it comes that of Kafka's classes, which takes 7.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tests import kafka_archive

CHECKOUT = Path(__file__).resolve().parent.parent.parent

#: So long may the first test with Spark wait for the archive.
AWAITED_S = 60

_making: list[subprocess.Popen[bytes]] = []


def begin() -> None:
    """Make it in a process of its own, which ends by itself, or with the tests."""
    command, none = [sys.executable, "-m", "tests.spark.archive"], subprocess.DEVNULL
    _making.append(subprocess.Popen(command, cwd=CHECKOUT, stdin=none, stdout=none, stderr=none))


def await_made() -> None:
    """Wait until no process makes it any more, for a minute at most."""
    until = time.monotonic() + AWAITED_S
    while time.monotonic() < until:
        with _turn() as is_free:
            if is_free:
                return
        time.sleep(0.5)


@contextmanager
def _turn() -> Iterator[bool]:
    """Hold the lock of the one that makes it; yields False where another process has it."""
    name = f"streambench-archive-{os.getuid()}-{archive_key()}.lock"
    with Path(tempfile.gettempdir(), name).open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def archive_key() -> str:
    """The name under which sessions of this environment look for their archive."""
    from pyspark.find_spark_home import _find_spark_home

    from streambench.spark import class_archive, own_session
    from streambench.spark.jvm import required_java

    return class_archive._key(required_java(), Path(_find_spark_home()), own_session._JAVA_OPTIONS)


def make() -> None:
    """Have a session do what most do, and write the archive as it ends; before it a broker of Kafka."""
    with _turn() as is_free:
        if is_free:
            kafka_archive.make()
            _make()


def _make() -> None:
    from streambench import Config
    from streambench.spark import class_archive
    from streambench.spark.session import session_for

    cache, key = class_archive.cache(), archive_key()
    if any(cache.glob(f"{key}-*.jsa")) or (cache / f"{key}.none").exists():
        return
    cache.mkdir(parents=True, exist_ok=True)
    (cache / f"{key}.seen").touch()  # it is written only where a session was before
    session = session_for(None, "local[2]", Config())
    try:
        with tempfile.TemporaryDirectory() as directory:
            use(session.spark, Path(directory))
    finally:
        session.close()


def use(spark: Any, directory: Path) -> None:
    """A deployment, and a frame that is read and written."""
    from streambench.spark import deploy, read
    from streambench.spark.source.options import as_options
    from tests.spark.conftest import Job

    job = Job(directory)
    job.send(0, 4)
    deploy(job.config, lambda envelope, collector, coordinator: None, spark=spark)
    frame = read(job.config, "log.in", spark, columns="message")
    frame.write.format("streambench").options(**as_options(job.config)).mode("append").save("log.out")


if __name__ == "__main__":
    if find_spec("pyspark") is not None and find_spec("pandas") is not None:
        make()
