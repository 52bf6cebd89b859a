"""A standalone cluster of Spark on the loopback interface: a master and a worker, processes of their own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pyspark
import pytest

SPARK = Path(pyspark.__file__).parent
_QUICK = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"


@contextmanager
def standalone(directory: Path, cores: int = 2) -> Iterator[str]:
    """The address of its master. Both processes are gone afterwards."""
    environment = {
        **os.environ,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_HOME": str(SPARK),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": f"{_QUICK} -Dspark.master.rest.enabled=false",
        "SPARK_LAUNCHER_OPTS": _QUICK,
    }
    started: list[subprocess.Popen[bytes]] = []

    def begin(name: str, *words: str) -> Path:
        log = directory / f"{name}.log"
        command = [str(SPARK / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", *words]
        with log.open("wb") as stream:
            started.append(subprocess.Popen(command, env=environment, stdout=stream, stderr=stream))
        return log

    def found(log: Path, pattern: str) -> str:
        while not (match := re.search(pattern, log.read_text(errors="replace"))):
            with suppress(subprocess.TimeoutExpired):
                started[-1].wait(0.1)
                pytest.fail(f"it has ended: {log.read_text(errors='replace')}")
        return match[1]

    here = ("--host", "127.0.0.1", "--webui-port", "0")
    try:
        url = found(begin("master.Master", "--port", "0", *here), r"Starting Spark master at (spark://\S+)")
        room = ("--cores", str(cores), "--memory", "1g", "--work-dir", str(directory / "work"))
        found(begin("worker.Worker", *here, *room, url), r"(Successfully registered) with master")
        yield url
    finally:
        for each in reversed(started):
            each.terminate()
        for each in started:
            each.wait(30)
