"""Containers and the broker itself are killed again and again while messages go through: none is missing, and
of those that are there twice the broker has said so."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from streambench.config import Config
from streambench.container.outputs.direct_writer import writing
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.amqp.broker import channel_to
from streambench.system.amqp.settings import Settings
from streambench.system.systems import Systems
from streambench.testing.brokers.rabbitmq import RabbitServer
from tests.conftest import CHECKOUT
from tests.surroundings import SOAK

MESSAGES = 100_000 if SOAK else 1_000
CONTAINER_KILLS = 30 if SOAK else 1
BROKER_KILLS = 10 if SOAK else 1
CHUNK = 50
PATIENCE_S = 120
# Each look opens connections to the broker.
LOOK_S = 0.1

IN, OUT = SystemStream("q", "in"), SystemStream("q", "out")

TASK = """\
import streambench as sb

OUT = sb.SystemStream("q", "out")


class Forward(sb.StreamTask):
    def process(self, envelope, collector, coordinator):
        again = {"amqp.redelivered", "amqp.resent"} & set(envelope.headers or {})
        headers = {"again": b"true"} if again else None
        collector.send(sb.OutgoingMessageEnvelope(OUT, envelope.message, headers=headers))
"""

PROPERTIES = """\
job.name=forward
job.id={number}
task.class=task.py:Forward
task.inputs=q.in
task.checkpoint.system=file
systems.q.samza.factory=amqp
systems.q.url={url}
systems.q.acknowledge.ms=50
systems.q.prefetch=500
"""

JOBS = 2


class Campaign:
    """A sender, two jobs that compete for what it sends, and what is done to them and to the broker."""

    def __init__(
        self, directory: Path, server: RabbitServer, chance: random.Random, progress: Callable[[], None]
    ) -> None:
        self._progress = progress
        self.kills: Counter[str] = Counter()
        self._server = server
        self._chance = chance
        self._directory = directory
        (directory / "task.py").write_text(TASK)
        for number in range(JOBS):
            (directory / f"{number}.properties").write_text(PROPERTIES.format(url=server.url, number=number))
        self.config = Config.from_file(directory / "0.properties")
        self.systems = Systems(self.config)
        for stream in (IN, OUT):
            self.systems.create(stream)
        self._errors = (directory / "errors.txt").open("ab")
        self._jobs: dict[int, subprocess.Popen[bytes]] = {}
        self._failure: BaseException | None = None
        self._sender = threading.Thread(target=self._send, daemon=True)

    def run(self) -> None:
        """Send everything, and kill whatever chance says until as many were killed as there should be."""
        self._sender.start()
        plan = ["container"] * CONTAINER_KILLS + ["broker"] * BROKER_KILLS
        self._chance.shuffle(plan)
        for victim in plan:
            self._keep_running()
            target = self.done() + self._chance.randrange(1, MESSAGES // (2 * len(plan)))
            self._wait_for(lambda target=target: self.done() >= target or not self._has_more())  # type: ignore[misc]
            getattr(self, f"_kill_{victim}")()
            self.kills[victim] += 1
        self._sender.join()
        if self._failure is not None:
            raise self._failure
        self.end_jobs()  # which give back what they had and did not come to
        subprocess.run([*self._command(0), "--until", "caught-up"], **self._surroundings(), check=True)
        assert self.waiting("in") == 0

    def waiting(self, queue: str) -> int:
        with channel_to(Settings("q", self.config)) as open_channel:
            found: int = open_channel().queue_declare(queue, passive=True).method.message_count
            return found

    def done(self) -> int:
        return self.waiting("out")

    def results(self) -> list[IncomingMessageEnvelope]:
        ssp = SystemStreamPartition("q", "out", 0)
        consumer = self.systems.consumer("q", MetricsRegistry())
        consumer.register(ssp, "0")
        consumer.start()
        found: list[IncomingMessageEnvelope] = []
        while not consumer.at_head(ssp):
            polled = consumer.poll({ssp: 1_000}, 100)
            found += polled
            if polled:
                consumer.acknowledge({ssp: polled[-1].offset})
        consumer.stop()
        return found

    def _send(self) -> None:
        try:
            with writing(self.systems, IN, 1, "sender") as writer:
                for first in range(0, MESSAGES, CHUNK):
                    writer.send(
                        OutgoingMessageEnvelope(IN, b"%d" % number) for number in range(first, first + CHUNK)
                    )
        except BaseException as error:
            self._failure = error

    def _has_more(self) -> bool:
        return self._sender.is_alive() or self.waiting("in") > 0

    def _kill_container(self) -> None:
        for victim in self._chance.sample(range(JOBS), self._chance.choice((1, 1, 2))):
            self._jobs[victim].kill()
            self._jobs[victim].wait()

    def _kill_broker(self) -> None:
        self._wait_for(self._queues_are_on_disk)
        self._server.kill()
        self._server.start()

    def _queues_are_on_disk(self) -> bool:
        """RabbitMQ writes the names of new quorum queues within about a second. Killed before, it finds no
        leader for them again."""
        files = self._server.directory.glob("mnesia/*/quorum/*/names.dets")
        written = b"".join(file.read_bytes() for file in files)
        return all(f"2F_{each.stream}".encode() in written for each in (IN, OUT))

    def _keep_running(self) -> None:
        """What was killed is started again; so is what found no broker when it started, said so and ended."""
        for number in range(JOBS):
            if number not in self._jobs or self._jobs[number].poll() is not None:
                self._jobs[number] = subprocess.Popen(self._command(number), **self._surroundings())

    def _command(self, number: int) -> list[str]:
        return [sys.executable, "-m", "streambench", "run", f"{number}.properties", "--quiet"]

    def _surroundings(self) -> dict[str, Any]:
        environment = {**os.environ, "PYTHONPATH": str(CHECKOUT)}
        return {
            "cwd": self._directory,
            "env": environment,
            "stderr": self._errors,
            "stdout": subprocess.DEVNULL,
        }

    def _wait_for(self, condition: Callable[[], bool]) -> None:
        until, before = time.monotonic() + PATIENCE_S, -1
        while not condition():
            if self.done() != before:
                until, before = time.monotonic() + PATIENCE_S, self.done()
                self._progress()
            assert time.monotonic() < until, (self._directory / "errors.txt").read_text()[-3_000:]
            self._keep_running()
            time.sleep(LOOK_S)

    def end_jobs(self) -> None:
        for job in self._jobs.values():
            job.terminate()
        for job in self._jobs.values():
            job.wait()
        self._jobs.clear()

    def close(self) -> None:
        self.end_jobs()
        self._errors.close()


def test_kills_of_containers_and_broker_lose_nothing_and_mark_repeats(
    tmp_path: Path, rabbitmq: RabbitServer, progress: Callable[[], None]
) -> None:
    seed = random.randrange(1 << 32)
    began = time.monotonic()
    campaign = Campaign(tmp_path, rabbitmq, random.Random(seed), progress)
    try:
        campaign.run()
        results = campaign.results()
    finally:
        campaign.close()
    copies = Counter(int(each.message) for each in results)
    unmarked = Counter(
        int(each.message) for each in results if not {"again", "amqp.resent"} & set(each.headers or {})
    )
    twice = sum(copies.values()) - len(copies)
    told = (
        f"seed {seed}: {dict(campaign.kills)} killed, {MESSAGES:,} messages, {twice:,} results twice; "
        f"{time.monotonic() - began:.0f} s"
    )
    print(told)
    assert sorted(copies) == list(range(MESSAGES)), told
    assert not {number: count for number, count in unmarked.items() if count > 1}, told
