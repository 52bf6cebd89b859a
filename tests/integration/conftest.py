"""A directory with a job in it, and what its streams hold; an IPython shell."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.metrics.registry import MetricsRegistry
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems
from tests.conftest import CHECKOUT
from tests.magics.conftest import ip_empty, ip_no_magics
from tests.spark.conftest import committed

__all__ = ["Workplace", "ip_empty", "ip_no_magics"]

LOG = """\
systems.log.samza.factory=log
systems.log.path=streams
systems.log.samza.key.serde=string
systems.log.samza.msg.serde=json
systems.log.samza.offset.default=oldest
"""


class Workplace:
    """A directory with ``tasks.py`` and a ``job.properties``, and the command line in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        shutil.copy(Path(__file__).with_name("tasks.py"), directory / "tasks.py")

    def configure(self, text: str) -> sb.Config:
        """Write the properties: these lines, and a log system in the directory."""
        (self.directory / "job.properties").write_text(text + LOG)
        return self.config

    @property
    def config(self) -> sb.Config:
        return sb.Config.from_file(self.directory / "job.properties")

    def command(self, *arguments: str) -> str:
        """The command line, in a process of its own; what it printed. It must succeed."""
        done = self.start(*arguments)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def start(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        command = [sys.executable, "-m", "streambench", *arguments]
        return subprocess.run(
            command, cwd=self.directory, env=environment, capture_output=True, text=True, check=False
        )

    def read(self, stream: str) -> dict[int, list[tuple[str | None, Any]]]:
        """Per partition, the keys and messages of a stream of the log."""
        return {
            partition: [
                (None if each.key is None else each.key.decode(), each.message and json.loads(each.message))
                for each in envelopes
            ]
            for partition, envelopes in self.raw(stream).items()
        }

    def raw(self, stream: str) -> dict[int, list[Any]]:
        """Per partition, the messages of a stream of the log, as they are stored."""
        named = sb.SystemStream.parse(stream)
        systems = Systems(self.config)
        try:
            starts = {
                sb.SystemStreamPartition(named.system, named.stream, partition): here.oldest or "0"
                for partition, here in systems.metadata([named])[named].items()
            }
            found = read_to_head(systems.consumer(named.system, MetricsRegistry()), starts)
        finally:
            systems.close()
        return {ssp.partition: envelopes for ssp, envelopes in found.items()}

    def last(self, stream: str) -> dict[int, dict[str, Any]]:
        """Per partition, the last message of each key: what is in a store whose changelog this is."""
        return {
            partition: {str(key): value for key, value in rows}
            for partition, rows in self.read(stream).items()
        }

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """Per task and partition, the last offset that is committed."""
        return committed(self.config)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path)
