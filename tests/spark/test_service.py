"""Deployments that go on: rounds of several jobs on one session, their status, and their end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streambench.errors import ConfigError, StreambenchError, UnknownStreamError
from streambench.spark.health import HealthServer, StatusFile
from streambench.spark.result import DeployResult
from streambench.spark.service import JobStatus, Service, ServiceStatus
from streambench.spark.shared_session import SharedSession
from tests.spark.conftest import Job
from tests.spark.test_programs import start

TASK = """
from streambench import OutgoingMessageEnvelope, SystemStream

class Forward:
    def process(self, envelope, collector, coordinator):
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))
"""


class Rounds:
    """A deployment whose rounds are these; the last one is the last of the service."""

    def __init__(self, name: str, *rounds: Callable[[], int]) -> None:
        self.name = name
        self.rounds = list(rounds)
        self.stop = threading.Event()

    def round(self) -> DeployResult:
        done = self.rounds.pop(0)
        if not self.rounds:
            self.stop.set()
        messages = done()
        return DeployResult(job=self.name, containers=(), seconds=0.0, rounds=1 if messages else 0)


class Session:
    """A session that counts how often it was given up."""

    closed = 0

    def close(self, *, in_haste: bool = False) -> None:
        self.closed += 1


def serve(*rounds: Callable[[], int], session: Any = None) -> list[ServiceStatus]:
    """All states of a service for one job."""
    deployment, seen = Rounds("job", *rounds), []

    def report(status: ServiceStatus) -> None:
        seen.append(msgspec.json.decode(msgspec.json.encode(status), type=ServiceStatus))

    service = Service([deployment], session or Session(), every_s=0.001, report=report, stop=deployment.stop)  # type: ignore[list-item]
    service.run()
    return seen


def fail() -> int:
    raise StreambenchError("no")


def test_a_round_that_fails_is_repeated_until_it_ends_well() -> None:
    session = Session()
    seen = serve(lambda: 1, fail, fail, lambda: 1, session=session)
    ended = [each.jobs[0] for each in seen if each.jobs[0].state == "waiting"]
    assert [(each.rounds, each.failures, each.error) for each in ended[:5]] == [
        (0, 0, None), (1, 0, None), (1, 1, "no"), (1, 2, "no"), (2, 0, None)
    ]  # fmt: skip
    assert not any(each.is_healthy for each in seen if each.jobs[0].failures)
    pauses = [each.next_ms - each.ended_ms for each in ended[1:4] if each.next_ms and each.ended_ms]
    assert pauses == sorted(pauses)
    assert session.closed == 2
    assert seen[-1].state == "stopped"


def test_a_wrong_configuration_ends_the_service() -> None:
    def wrong() -> int:
        raise ConfigError("wrong")

    with pytest.raises(ConfigError, match="wrong"):
        serve(wrong, lambda: 1)


def test_a_job_is_served_once() -> None:
    jobs: Any = [Rounds("job"), Rounds("job")]
    with pytest.raises(ConfigError, match="the job job is given twice"):
        Service(jobs, SharedSession(None, None), every_s=1, report=print, stop=threading.Event())


def test_health_and_status_are_there_for_others(tmp_path: Path) -> None:
    file, server = StatusFile(tmp_path / "status.json"), HealthServer(0)
    try:
        for failures, code in ((0, 200), (1, 503)):
            status = ServiceStatus([JobStatus("job", failures=failures)])
            file.write(status)
            server.show(status)
            assert health(server.port) == (code, msgspec.to_builtins(status))
            assert json.loads((tmp_path / "status.json").read_text()) == msgspec.to_builtins(status)
        with pytest.raises(StreambenchError, match=f"port {server.port} cannot be listened on"):
            HealthServer(server.port)
    finally:
        server.close()
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def health(port: int, path: str = "/healthz") -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


@pytest.mark.usefixtures("spark_installed")
def test_one_process_serves_two_jobs_until_sigterm(tmp_path: Path) -> None:
    jobs = [Job(tmp_path / name, **{"job.name": name, "task.class": "t.py:Forward"}) for name in ("a", "b")]
    for job in jobs:
        job.send(0, 10)
        (job.directory / "t.py").write_text(TASK)
        text = "".join(f"{key}={value}\n" for key, value in job.config.items())
        (job.directory / "job.properties").write_text(text)
    status = tmp_path / "status.json"
    command = [sys.executable, "-m", "streambench", "deploy", "a/job.properties", "b/job.properties"]
    program = start(
        tmp_path, "", [*command, "--master", "local[2]", "--every", "0.3", "--status", str(status)]
    )
    try:
        for last in (10, 20):
            until(program, lambda last=last: all(job.numbers() == list(range(last)) for job in jobs))
            for job in jobs:
                job.send(last, last + 10)
        until(program, lambda: all(len(job.numbers()) == 30 for job in jobs))
        program.send_signal(signal.SIGTERM)
        said, noise = program.communicate(timeout=120)
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()
    assert program.returncode == 0, noise
    assert "a-1: 30 messages" in said and "b-1: 30 messages" in said
    found = json.loads(status.read_text())
    assert (found["state"], [each["messages"] for each in found["jobs"]]) == ("stopped", [30, 30])
    assert [job.numbers() for job in jobs] == [list(range(30))] * 2


def until(program: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    while True:
        with suppress(UnknownStreamError):  # before the first round there are no outputs
            if reached():
                return
        with suppress(subprocess.TimeoutExpired):
            program.wait(0.2)
            pytest.fail(f"it has ended: {program.communicate()}")
