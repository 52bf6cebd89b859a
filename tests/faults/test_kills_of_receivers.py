"""A job that receives over TCP is killed again and again, at moments that chance chooses: whoever sends until
it is acknowledged loses nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.log import open_log
from streambench.system.net import TcpSystemFactory
from tests.conftest import CHECKOUT
from tests.ports import free_ports
from tests.surroundings import SOAK
from tests.system.net.peers import config

KILLS = 50 if SOAK else 3
STREAM = SystemStream("t", "lines")

TASK = """\
import streambench as sb

OUT = sb.SystemStream("log", "out")


class Copies(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(OUT, envelope.message, partition=envelope.ssp.partition))
"""

PROPERTIES = """\
job.name=copies
task.class=task.py:Copies
task.inputs=t.lines
systems.t.samza.factory=tcp
systems.t.acknowledge.within.ms=20
systems.t.streams.lines.listen=127.0.0.1:{port}
systems.t.streams.lines.partitions=2
systems.log.samza.factory=log
systems.log.path=streams
systems.log.streams.out.partitions=2
{more}
"""


class Sender:
    """Sends the numbers 0, 1, 2... to each of two partitions, and forgets what is acknowledged."""

    def __init__(self, port: int) -> None:
        self.safe = 0
        self.registry = MetricsRegistry()
        settings = config(
            streams__lines__connect=str(port), streams__lines__partitions=2, connect__timeout__ms=60_000
        )
        self._producer = TcpSystemFactory().get_producer("t", settings, self.registry)
        self._stopping = threading.Event()
        self._moved = threading.Condition()
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._live, daemon=True)

    def _live(self) -> None:
        try:
            self._producer.start()
            chance, next_one = random.Random(5), 0
            while not self._stopping.is_set():
                for _ in range(chance.choice((1, 10, 500, 3000))):
                    for partition in range(2):
                        self._producer.send(
                            "s", OutgoingMessageEnvelope(STREAM, b"%d" % next_one, partition=partition)
                        )
                    next_one += 1
                self._producer.flush("s")
                with self._moved:
                    self.safe = next_one
                    self._moved.notify_all()
        except BaseException as error:
            with self._moved:
                self._problem = error
                self._moved.notify_all()

    def wait_for(self, safe: int) -> None:
        with self._moved:
            self._moved.wait_for(lambda: self.safe >= safe or self._problem is not None)
        assert self._problem is None

    @contextmanager
    def sending(self) -> Iterator[None]:
        self._thread.start()
        yield
        self._stopping.set()
        self._thread.join()
        self._producer.stop()
        assert self._problem is None


@pytest.mark.parametrize("more", ["", "systems.t.samza.landing=log"], ids=["read at once", "landed"])
def test_what_is_sent_until_it_is_acknowledged_is_never_lost(tmp_path: Path, more: str) -> None:
    chance = random.Random(11)
    port = free_ports(2)
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "job.properties").write_text(PROPERTIES.format(port=port, more=more))
    command = [sys.executable, "-m", "streambench", "run", "job.properties", "--quiet"]
    errors = (tmp_path / "errors.txt").open("ab")

    def started() -> subprocess.Popen[bytes]:
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        return subprocess.Popen(
            command, cwd=tmp_path, env=environment, stdout=subprocess.DEVNULL, stderr=errors
        )

    sender = Sender(port)
    with sender.sending():
        for _ in range(KILLS):
            with _killed_in_the_end(started):
                # Chance decides how much more is acknowledged, and where in the next round it ends.
                sender.wait_for(sender.safe + chance.choice((0, 1, 1, 100, 5000)))
                threading.Event().wait(chance.random() * 0.05)
        with _killed_in_the_end(started):
            sender.wait_for(sender.safe + 1)
            sender._stopping.set()
            sender._thread.join()
            if more:
                # Landed is safe; the job has still to read it.
                _wait_until(lambda: all(sender.safe - 1 in found for found in _outputs(tmp_path)))
    errors.close()
    assert sender.registry.snapshot()["tcp.t-reconnects"] >= 2
    for found in _outputs(tmp_path):
        assert set(found) == set(range(sender.safe))
        # Twice or not: what came first came in order.
        assert list(dict.fromkeys(found)) == list(range(sender.safe))


@contextmanager
def _killed_in_the_end(start: Callable[[], subprocess.Popen[bytes]]) -> Iterator[None]:
    process = start()
    try:
        yield
        assert process.poll() is None, "the job has ended by itself"
    finally:
        process.kill()
        process.wait()


def _outputs(directory: Path) -> list[list[int]]:
    with open_log(directory / "streams") as streams:
        batches = [streams.partition("out", number).cursor(0).read(1 << 30) for number in range(2)]
        return [
            [int(value) for batch in each for value in batch.column("value").to_pylist()] for each in batches
        ]


def _wait_until(condition: Callable[[], object]) -> None:
    while not condition():
        threading.Event().wait(0.1)
