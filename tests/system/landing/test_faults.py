"""Receivers are killed with -9 wherever it hurts: nothing that was acknowledged is lost."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from streambench.cli.app import main
from streambench.config import Config
from streambench.container.container import Container
from streambench.system.landing import receiver
from streambench.system.log import open_log
from streambench.system.log.producer import LogProducer
from tests.conftest import CHECKOUT, SOAK
from tests.frozen import freeze
from tests.system.spooled import Spool, SpoolConsumer

_PROPERTIES = """\
job.name=landing
task.class=task.py:Echo
task.inputs=s.orders
systems.s.samza.factory=tests.system.spooled.SpoolSystem
systems.s.path=spool
systems.s.samza.landing=log
systems.log.samza.factory=log
systems.log.path=log
task.commit.ms=20
task.processing.guarantee=exactly-once
"""

_TASK = """\
import streambench as sb

class Echo(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), envelope.message))
"""

_STEPS = {
    "receive": (SpoolConsumer, "poll"), "append": (LogProducer, "send"),
    "write": (LogProducer, "append_pending"), "flush": (LogProducer, "flush"),
    "acknowledge": (SpoolConsumer, "acknowledge"),
}  # fmt: skip


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def die_at(step: str, when: str, number: int, by: Callable[[], None] = die) -> None:
    """Have this process kill (or freeze) itself at the so-many-th call of one of the steps of landing: before
    it, or behind it."""
    owner, name = _STEPS[step]
    real, calls = getattr(owner, name), 0

    def dying(self: Any, *args: Any) -> Any:
        nonlocal calls
        is_it = step != "receive" and (calls := calls + 1) == number
        if is_it and when == "before":
            by()
        result = real(self, *args)
        if (is_it and when == "behind") or (step == "receive" and result and (calls := calls + 1) == number):
            by()
        return result

    setattr(owner, name, dying)


class Site:
    """A job in a directory, whose input is landed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "job.properties").write_text(_PROPERTIES)
        (directory / "task.py").write_text(_TASK)
        self.spool = Spool(directory / "spool")
        self.spool.create("orders", 2)
        with open_log(directory / "log") as log:
            log.create("out", 1)
        self.processes: list[subprocess.Popen[str]] = []
        self.forked: list[int] = []

    def fork(self, *arguments: str, first: Callable[[], None] = lambda: None) -> int:
        """The command line in a copy of this process, which is there at once; its process id."""
        process = os.fork()
        if process:
            self.forked.append(process)
            return process
        try:
            os.chdir(self.directory)
            receiver._FIRST = receiver._MOST = 10
            first()
            main(list(arguments))
        finally:
            os._exit(1)

    def killed(self, process: int) -> bool:
        """Wait until a copy has ended; whether it was killed."""
        self.forked.remove(process)
        return os.WTERMSIG(os.waitpid(process, 0)[1]) == signal.SIGKILL

    def run(self) -> None:
        """Run the job until it has caught up."""
        container = Container(Config.from_file(self.directory / "job.properties"))
        container.start()
        container.run("caught-up")
        container.stop()

    def streambench(self, *arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        command = [sys.executable, "-m", "streambench", *arguments]
        started = subprocess.Popen(
            command, cwd=self.directory, env=environment, text=True, stdout=subprocess.PIPE
        )
        self.processes.append(started)
        return started

    def put(self, numbers: range) -> None:
        self.spool.put("orders", numbers[::2], 0)
        self.spool.put("orders", numbers[1::2], 1)

    def landed(self) -> list[int]:
        with open_log(self.directory / "log") as log:
            if "s.orders" not in log.streams():
                return []
            batches = [batch for number in range(2) for batch in log.partition("s.orders", number).read(0)]
            return [int(each) for batch in batches for each in batch["value"].to_pylist()]

    def outputs(self) -> list[int]:
        with open_log(self.directory / "log") as log:
            return [
                int(each) for batch in log.partition("out", 0).read(0) for each in batch["value"].to_pylist()
            ]

    def close(self) -> None:
        for process in self.forked:
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
        for each in self.processes:
            if each.poll() is None:
                each.kill()
            each.communicate()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


@pytest.mark.parametrize("number", [1, 3])
@pytest.mark.parametrize(
    ("step", "when"),
    [
        ("receive", "behind"), ("append", "before"), ("append", "behind"), ("write", "before"),
        ("write", "behind"), ("flush", "before"),
        ("flush", "behind"), ("acknowledge", "before"), ("acknowledge", "behind"),
    ],
)  # fmt: skip
def test_whenever_a_receiver_dies_nothing_acknowledged_is_lost(
    site: Site, step: str, when: str, number: int
) -> None:
    site.put(range(60))
    died = site.fork("land", "job.properties", first=lambda: die_at(step, when, number))
    assert site.killed(died)
    assert set(site.spool.acknowledged("orders")) <= set(site.landed())
    site.run()
    assert site.spool.left("orders") == []
    assert set(site.landed()) == set(range(60))
    # Exactly what was landed is processed, exactly once; what was sent again may have been landed again.
    assert sorted(site.outputs()) == sorted(site.landed())


@pytest.mark.parametrize(
    ("step", "when"), [("write", "before"), ("flush", "behind"), ("acknowledge", "before")]
)
def test_a_receiver_that_freezes_is_replaced_and_stands_by_later(site: Site, step: str, when: str) -> None:
    properties = site.directory / "job.properties"
    properties.write_text(f"{properties.read_text()}systems.log.lock.lease.ms=1000\n")
    site.put(range(60))
    frozen = site.fork("land", "job.properties", first=lambda: die_at(step, when, 2, freeze))
    os.waitpid(frozen, os.WUNTRACED)
    second = site.streambench("land", "job.properties", "--json")
    while site.spool.left("orders"):
        assert second.poll() is None
    os.kill(frozen, signal.SIGCONT)
    lock = str(site.directory / "log" / ".landing" / "s.orders.lock")
    while lock in {each.path for each in psutil.Process(frozen).open_files()}:
        assert os.waitpid(frozen, os.WNOHANG) == (0, 0), "it has ended instead"
    second.kill()
    site.put(range(60, 70))
    while site.spool.left("orders"):
        assert os.waitpid(frozen, os.WNOHANG) == (0, 0), "it has ended instead"
    assert set(site.landed()) == set(range(70))
    site.close()
    site.forked, site.processes = [], []
    site.run()
    assert sorted(site.outputs()) == sorted(site.landed())


@pytest.mark.timeout(3600 if SOAK else 300)
def test_killed_again_and_again_at_any_moment_nothing_acknowledged_is_lost(site: Site) -> None:
    chance = random.Random(11)
    kills = 50 if SOAK else 4
    sent = 0
    for _ in range(kills):
        running = site.fork("run", "job.properties", "-q")
        before = len(site.spool.acknowledged("orders"))
        site.put(range(sent, sent + 60))
        sent += 60
        enough = before + chance.randrange(1, 60)
        while len(site.spool.acknowledged("orders")) < enough:
            assert os.waitpid(running, os.WNOHANG) == (0, 0), "it has ended by itself"
        os.kill(running, signal.SIGKILL)
        assert site.killed(running)
        assert set(site.spool.acknowledged("orders")) <= set(site.landed())
    site.run()
    assert site.spool.left("orders") == []
    assert set(site.landed()) == set(range(sent))
    assert sorted(site.outputs()) == sorted(site.landed())


def test_one_receives_at_a_time_and_another_takes_over_when_it_dies(site: Site) -> None:
    first = site.streambench("land", "job.properties", "--json")
    assert first.stdout is not None
    assert '"receiving"' in first.stdout.readline()
    second = site.streambench("land", "job.properties", "--json")
    assert second.stdout is not None
    told = second.stdout.readline()
    assert '"waiting"' in told
    assert f"streambench land, process {first.pid} on" in told
    first.kill()
    assert '"receiving"' in second.stdout.readline()
    site.put(range(10))
    while site.spool.left("orders"):
        os.sched_yield()
    second.send_signal(signal.SIGINT)
    assert second.stdout.read() == '{"event":"landed","system":"s","messages":10}\n'
    assert second.wait() == 0
    assert sorted(site.landed()) == list(range(10))


def test_a_job_reads_what_another_process_receives(site: Site) -> None:
    receiving = site.streambench("land", "-c", "job.properties", "s.orders")
    assert receiving.stdout is not None
    assert receiving.stdout.readline() == "s.orders is received, and landed in log.s.orders\n"
    site.put(range(10))
    while site.spool.left("orders"):
        os.sched_yield()
    site.run()
    receiving.send_signal(signal.SIGTERM)
    assert receiving.stdout.read() == "s: 10 messages landed\n"
    assert receiving.wait() == 0
    assert sorted(site.outputs()) == list(range(10))
