"""A task that is slower than what feeds it does not fill the memory with what waits."""

from __future__ import annotations

import os
import time
from pathlib import Path

import psutil
import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.system.systems import Systems
from tests.job.project import Project
from tests.surroundings import SOAK

# A soak has ten million messages waiting and takes a look at the memory again and again for a minute.
MESSAGES, SIZE, SECONDS, AT_ONCE = (10_000_000, 100, 60.0, 1) if SOAK else (100_000, 1_000, 0.0, 10)
AT_LEAST = 2_000
GROWTH = 32 << 20

TASK = f"""\
import os
from typing import ClassVar

import streambench as sb
from streambench.model import PartitionMetadata
from streambench.system.api import SystemAdmin, SystemConsumer, SystemFactory


class Slow(sb.StreamTask):
    # After every message (or every few of them) it says so in the pipe "reached" and waits until somebody
    # writes to the pipe "gate".
    def init(self, context):
        self.reached, self.gate = os.open("reached", os.O_WRONLY), os.open("gate", os.O_RDONLY)
        self.seen = 0

    def process(self, envelope, collector, coordinator):
        self.seen += 1
        if self.seen % {AT_ONCE} == 0:
            os.write(self.reached, b"!")
            os.read(self.gate, 1)


class Flood(SystemConsumer):
    # Has always as many messages as it is asked for, and is read by a thread of its own.
    def register(self, ssp, offset):
        self.ssp, self.at = ssp, int(offset)

    def start(self): ...

    def stop(self): ...

    def at_head(self, ssp):
        return False

    def poll(self, wanted, timeout_ms):
        count = wanted.get(self.ssp, 0)
        self.at += count
        return [
            sb.IncomingMessageEnvelope(self.ssp, str(self.at - count + n), None, b"%0{SIZE}d" % n)
            for n in range(count)
        ]


class FloodAdmin(SystemAdmin):
    def metadata(self, streams):
        return {{stream: {{0: PartitionMetadata("0", "{MESSAGES}", "{MESSAGES + 1}")}} for stream in streams}}

    def create(self, stream, partitions, **settings): ...

    def compare(self, offset, other):
        return (int(offset) > int(other)) - (int(offset) < int(other))

    def after(self, offset):
        return str(int(offset) + 1)


class FloodFactory(SystemFactory):
    def get_consumer(self, system, config, metrics):
        return Flood()

    def get_producer(self, system, config, metrics): ...

    def get_admin(self, system, config):
        return FloodAdmin()
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (tmp_path / "slow.py").write_text(TASK)
    project.pipes()
    return project


def fill(config: sb.Config) -> None:
    stream = sb.SystemStream("log", "numbers")
    systems = Systems(config)
    systems.create(stream, 1)
    message = b"x" * SIZE
    with writing(systems, stream, 1, "test") as writer:
        writer.send(
            (sb.OutgoingMessageEnvelope(stream, message) for _ in range(MESSAGES)), flush_every=100_000
        )
    systems.close()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("system", ["log", "flood"])
def test_the_memory_of_a_slow_task_stays_flat_whatever_waits(project: Project, system: str) -> None:
    config = project.configure({
        "task.class": "slow.py:Slow", "task.inputs": f"{system}.numbers", "task.checkpoint.system": "log",
        "systems.log.samza.msg.serde": None, "systems.log.samza.key.serde": None,
        "systems.flood.samza.factory": "slow.py:FloodFactory", "systems.flood.samza.offset.default": "oldest",
    })  # fmt: skip
    if system == "log":
        fill(config)
    with project.start("run", "job.properties", "--quiet") as job:
        try:
            reached = os.open(project.directory / "reached", os.O_RDONLY)
            gate = os.open(project.directory / "gate", os.O_WRONLY)
            sizes = sampled(psutil.Process(job.pid), reached, gate)
            os.close(reached)
            os.close(gate)
        finally:
            job.kill()
            job.communicate()
    settled = sizes[len(sizes) // 5]
    if SOAK:
        print(
            f"\n{system}: {len(sizes)} looks while {AT_ONCE * len(sizes):,} of {MESSAGES:,} messages were "
            "processed: ",
            end="",
        )
        print(
            f"{settled >> 20} MiB after a fifth of the time, {max(sizes) >> 20} MiB at most, "
            f"{sizes[-1] >> 20} MiB at the end"
        )
    assert max(sizes) - settled < GROWTH
    # What waits is several times as much as what may be added.
    assert (MESSAGES - AT_ONCE * len(sizes)) * SIZE > 2 * GROWTH


def sampled(process: psutil.Process, reached: int, gate: int) -> list[int]:
    """The resident size each time that the task has processed some more messages, before it may go on."""
    sizes: list[int] = []
    began = time.monotonic()
    while len(sizes) < AT_LEAST or time.monotonic() - began < SECONDS:
        assert os.read(reached, 1) == b"!"
        sizes.append(process.memory_info().rss)
        os.write(gate, b"!")
    return sizes
