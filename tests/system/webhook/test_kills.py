"""A job that listens is killed again and again, at moments of chance: who repeats what was not answered loses
nothing."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import orjson
import psutil
import pytest

from streambench.system.log import open_log
from tests.conftest import CHECKOUT
from tests.ports import free_port
from tests.surroundings import SOAK

KILLS = 50 if SOAK else 2
SENDERS = 4

TASK = """\
import streambench as sb

OUT = sb.SystemStream("log", "out")


def process(envelope, collector, coordinator):
    collector.send(sb.OutgoingMessageEnvelope(OUT, envelope.message))
"""

PROPERTIES = """\
job.name=hooked
task.class=task.py:process
task.inputs=hook.events
systems.hook.samza.factory=webhook
systems.hook.port={port}
systems.hook.acknowledge.within.ms=20
systems.hook.samza.msg.serde=json
systems.log.samza.factory=log
systems.log.path=streams
systems.log.samza.msg.serde=json
{more}"""


class Sender:
    """Posts [sender, 0], [sender, 1] and so on, each until it is taken, or given up."""

    def __init__(self, number: int, url: str) -> None:
        self.number = number
        self.taken = 0
        self.repeated = 0
        self._url = url
        self._stopping = threading.Event()
        self._giving_up = False
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def _send(self) -> None:
        with httpx.Client(trust_env=False, timeout=60) as http:
            while not self._stopping.is_set():
                while not self._is_taken(http):
                    if self._giving_up:
                        return
                    self.repeated += 1
                    time.sleep(0.05)  # also when it is to stop: what was begun is finished
                self.taken += 1

    def _is_taken(self, http: httpx.Client) -> bool:
        with suppress(httpx.TransportError):
            return http.post(self._url, json=[self.number, self.taken]).status_code == 200
        return False

    def ask_to_stop(self, *, giving_up: bool = False) -> None:
        self._giving_up = giving_up
        self._stopping.set()

    def join(self) -> None:
        self._thread.join()


@contextmanager
def sending(url: str) -> Iterator[list[Sender]]:
    """Senders at work; all that they have begun is taken when it is left."""
    senders = [Sender(number, url) for number in range(SENDERS)]
    failed = True
    try:
        yield senders
        failed = False
    finally:
        for each in senders:
            each.ask_to_stop(giving_up=failed)
        for each in senders:
            each.join()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("more", ["", "systems.hook.samza.landing=log"], ids=["read at once", "landed"])
def test_nothing_that_was_taken_is_lost_when_the_receiver_is_killed(
    tmp_path: Path, more: str, progress: Callable[[], None]
) -> None:
    port, chance = free_port(), random.Random(5)
    (tmp_path / "task.py").write_text(TASK)
    (tmp_path / "job.properties").write_text(PROPERTIES.format(port=port, more=more))
    errors = (tmp_path / "errors.txt").open("ab")
    command = [sys.executable, "-m", "streambench", "run", "job.properties", "--quiet"]
    surroundings: dict[str, Any] = {
        "cwd": tmp_path,
        "env": {**os.environ, "PYTHONPATH": str(CHECKOUT)},
        "stdout": subprocess.DEVNULL,
        "stderr": errors,
    }

    def start() -> psutil.Popen:
        return psutil.Popen([*command, "--container", "0"], **surroundings)

    job = start()
    try:
        with sending(f"http://127.0.0.1:{port}/events") as senders:
            for _ in range(KILLS):
                goal = sum(each.taken for each in senders) + chance.randint(1, 60)
                while sum(each.taken for each in senders) < goal:
                    with suppress(psutil.TimeoutExpired):
                        job.wait(chance.random() * 0.02)
                        raise AssertionError((tmp_path / "errors.txt").read_text())
                progress()
                job.kill()
                job.wait()
                job = start()
    except BaseException:
        job.kill()
        raise
    job.terminate()
    job.wait()
    if more:
        # Landed is safe; the job has still to read it.
        subprocess.run([*command, "--until", "caught-up"], **surroundings, check=True)
    errors.close()

    with open_log(tmp_path / "streams") as streams:
        found = [
            orjson.loads(value)
            for batch in streams.partition("out", 0).read(0)
            for value in batch["value"].to_pylist()
        ]
    for each in senders:
        numbers = [number for sender, number in found if sender == each.number]
        assert sorted(set(numbers)) == list(range(each.taken)), (tmp_path / "errors.txt").read_text()
        firsts = list(dict.fromkeys(numbers))
        assert firsts == sorted(firsts)
    taken, repeated = sum(each.taken for each in senders), sum(each.repeated for each in senders)
    print(f"{KILLS} kills, {taken} requests taken, {repeated} repeated, {len(found) - taken} messages twice")
