"""Real container processes under load are killed again and again, at moments that chance chooses: nothing is
missing, nothing double."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import psutil
import pytest

from streambench.system.log import open_log
from tests.conftest import CHECKOUT
from tests.surroundings import SOAK

KILLS = 200 if SOAK else 2  # under each guarantee
USERS = 12
PARTITIONS = 4

TASK = """\
import streambench as sb

OUT = sb.SystemStream("log", "out")


class Counts(sb.StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        user, n = envelope.message
        count = 1 + (self.counts.get(user) or 0)
        self.counts.put(user, count)
        collector.send(sb.OutgoingMessageEnvelope(OUT, [n, count], key=user))
"""

PROPERTIES = """\
job.name=counts
job.container.count=2
task.class=task.py:Counts
task.inputs=log.in
task.commit.ms=40
task.processing.guarantee={guarantee}
stores.counts.factory=memory
systems.log.samza.factory=log
systems.log.path=streams
systems.log.samza.msg.serde=json
systems.log.samza.key.serde=string
systems.log.samza.offset.default=oldest
systems.log.streams.out.partitions=3
"""


class Sender:
    """Appends messages to the input without a pause: of each user the numbers 0, 1, 2..., in a partition of
    his own choice."""

    def __init__(self, directory: Path) -> None:
        self.numbers = [0] * USERS
        self._log = open_log(directory)
        self._log.create("in", PARTITIONS)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, daemon=True)

    def _send(self) -> None:
        while not self._stopping.wait(0.02):
            for partition in range(PARTITIONS):
                users = range(partition, USERS, PARTITIONS)
                rows = [orjson.dumps([f"user {user}", self.numbers[user]]) for user in users]
                self._log.partition("in", partition).append(None, rows)
                for user in users:
                    self.numbers[user] += 1

    @contextmanager
    def sending(self) -> Iterator[None]:
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()
            self._log.close()


class Runs:
    """Runs of the job, one after the other, as a user starts them."""

    def __init__(self, directory: Path, chance: random.Random) -> None:
        self.started = 0
        self.kills: list[str] = []
        self._directory = directory
        self._chance = chance
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = (directory / "errors.txt").open("ab")

    def command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "streambench", "run", "job.properties", "--quiet", *options]

    def surroundings(self) -> dict[str, Any]:
        return {
            "cwd": self._directory,
            "env": {**os.environ, "PYTHONPATH": str(CHECKOUT)},
            "stderr": self._errors,
        }

    def kill_one(self) -> None:
        """Let the job do a little (or nothing), and kill a container, or the process that started them, or
        all of them."""
        process = self._running()
        victims = self._chance.choice(("container", "starter", "all"))
        if not self._progress(process, self._chance.choice((0, 1, 5, 50, 200))):
            return
        children = [
            each for each in psutil.Process(process.pid).children() if each.status() != psutil.STATUS_ZOMBIE
        ]
        if victims == "container":
            targets = [each.pid for each in self._chance.sample(children, min(1, len(children)))]
        else:
            targets = [process.pid, *(each.pid for each in children if victims == "all")]
        for target in targets:
            with suppress(ProcessLookupError):
                os.kill(target, 9)
        if victims != "container":
            process.wait()
        if targets:
            self.kills.append(victims)

    def finish(self) -> None:
        """End what runs, and run once more, to the head of the inputs."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        subprocess.run(
            self.command("--until", "caught-up"), **self.surroundings(), stdout=subprocess.DEVNULL, check=True
        )
        self._errors.close()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            self._process = subprocess.Popen(self.command(), **self.surroundings(), stdout=subprocess.DEVNULL)
            self.started += 1
        return self._process

    def _progress(self, process: subprocess.Popen[bytes], rows: int) -> bool:
        """Wait until the job has a container, and has written so many rows; False where it ended before."""
        goal = self._written() + rows
        while True:
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.01)
                return False
            if self._written() >= goal and psutil.Process(process.pid).children():
                return True

    def _written(self) -> int:
        with open_log(self._directory / "streams") as streams:
            if "out" not in streams.streams():
                return 0
            return sum(streams.partition("out", number).bounds()[1] for number in range(3))


def outputs(directory: Path) -> dict[str, list[list[int]]]:
    """Per user, what is in the output, in order. Each user has one partition."""
    found: dict[str, list[list[int]]] = {}
    with open_log(directory) as streams:
        places: dict[str, int] = {}
        for number in range(3):
            for batch in streams.partition("out", number).read(0):
                for key, value in zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True):
                    assert places.setdefault(key, number) == number
                    found.setdefault(key.decode(), []).append(orjson.loads(value))
    return found


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_job_whose_processes_are_killed_all_the_time(
    tmp_path: Path, guarantee: str, progress: Callable[[], None]
) -> None:
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "job.properties").write_text(PROPERTIES.format(guarantee=guarantee))
    sender = Sender(tmp_path / "streams")
    runs = Runs(tmp_path, random.Random(11))
    with sender.sending():
        while len(runs.kills) < KILLS:
            progress()
            runs.kill_one()
    progress()
    runs.finish()

    errors = (tmp_path / "errors.txt").read_text()
    there = outputs(tmp_path / "streams")
    for user, count in enumerate(sender.numbers):
        rows = there[f"user {user}"]
        if guarantee == "exactly-once":
            assert rows == [[n, n + 1] for n in range(count)], errors
        else:
            assert {n for n, _ in rows} == set(range(count)), errors
            assert all(counted == n + 1 for n, counted in rows), errors
    total, written = sum(sender.numbers), sum(map(len, there.values()))
    print(f"{guarantee}: {len(runs.kills)} kills, {runs.started} starts, {total} messages in, {written} out")
