"""Deployments that go on: rounds of several jobs on one session, their status, and their end."""

from __future__ import annotations

import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from streambench.errors import ConfigError, StreambenchError, StreamSystemError, UnknownStreamError
from streambench.job.failure import Failure
from streambench.job.running import JobRunningError
from streambench.spark import health
from streambench.spark.health import HealthServer, StatusFile
from streambench.spark.result import (
    SPARK_ERROR,
    ContainerProgress,
    DeployedContainer,
    DeployError,
    DeployResult,
    progress_of,
    taken_over,
)
from streambench.spark.service import BusyContainer, JobStatus, Service, ServiceStatus
from streambench.spark.shared_session import SharedSession
from tests.spark.conftest import Job
from tests.spark.test_programs import start

TASK = """
from streambench import OutgoingMessageEnvelope, SystemStream

class Forward:
    def process(self, envelope, collector, coordinator):
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))
"""


class Plan(msgspec.Struct):
    """The plan of a round. ``is_last``: it leaves nothing to another."""

    is_last: bool = True
    idle: bool = False


class Rounds:
    """A deployment whose rounds are these; the last one is the last of the service."""

    holds_job = False

    def __init__(
        self, name: str, *rounds: Callable[[], int], plans: Sequence[Callable[[], object]] = ()
    ) -> None:
        self.name = name
        self.rounds = list(rounds)
        self.plans = list(plans)
        self.stop: threading.Event = threading.Event()

    def check_holder(self) -> None:
        """Raise nothing: no other start takes the job over."""

    def close(self) -> None:
        self.name += ", which is closed"

    def plan(self) -> Any:
        return self.plans.pop(0)() if self.plans else Plan()

    def round(self, planned: Any) -> DeployResult:
        done = self.rounds.pop(0)
        if not self.rounds:
            self.stop.set()
        messages = done()
        return DeployResult(job=self.name, containers=(), seconds=0.0, rounds=1 if messages else 0)


class Session:
    """A session that counts how often it was given up."""

    closed = 0

    def close(self, *, quickly: bool = False) -> None:
        self.closed += 1


class Clock(threading.Event):
    """A stop event and its clock: to wait takes no time, but lets that much pass."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.waits: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waits.append(timeout or 0.0)
        self.now += timeout or 0.0
        return self.is_set()


def serve(
    *rounds: Callable[[], int],
    session: Any = None,
    stop: Clock | None = None,
    seen: list[ServiceStatus] | None = None,
    report: Callable[[ServiceStatus], object] = lambda status: None,
) -> list[ServiceStatus]:
    """All states of a service for one job, also where it raises, which ``report`` is called with, too."""
    deployment, stop = Rounds("job", *rounds), stop or Clock()
    deployment.stop = stop
    return serve_all([deployment], stop, session or Session(), seen, report)


def serve_all(
    deployments: Any,
    stop: Clock,
    session: Any,
    seen: list[ServiceStatus] | None = None,
    report: Callable[[ServiceStatus], object] = lambda status: None,
) -> list[ServiceStatus]:
    """All states of a service for jobs, as ``serve``."""
    seen = [] if seen is None else seen

    def note(status: ServiceStatus) -> None:
        seen.append(msgspec.json.decode(msgspec.json.encode(status), type=ServiceStatus))
        report(status)

    Service(deployments, session, every_s=0.5, report=note, stop=stop, now=lambda: stop.now).run()
    return seen


def fail() -> int:
    raise StreambenchError("no")


def test_a_round_that_fails_is_repeated_until_it_ends_well() -> None:
    seen = serve(lambda: 1, fail, fail, lambda: 1)
    ended = [each.jobs[0] for each in seen if each.jobs[0].state == "waiting"]
    assert [(each.rounds, each.failures, each.error) for each in ended[:5]] == [
        (0, 0, None), (1, 0, None), (1, 1, "no"), (1, 2, "no"), (2, 0, None)
    ]  # fmt: skip
    problems = [each.problems(0) for each in seen if each.jobs[0].failures == 1]
    assert set(map(tuple, problems)) == {("job: its last round failed: no",)}
    assert seen[-1].state == "stopped"
    assert seen[-1].problems(0) == ["the service has stopped"]


def test_pauses_double_up_to_five_minutes_however_often_it_fails() -> None:
    stop = Clock()
    seen = serve(lambda: 1, *[fail] * 1100, lambda: 1, lambda: 1, stop=stop)
    # None before the first round, 0.5 s after one that ended well.
    assert stop.waits[:12] == [0, 0.5, 1, 2, 4, 8, 16, 32, 64, 128, 256, 300]
    assert stop.waits[1099:] == [300, 300, 300, 0.5, 0.5]
    assert max(each.jobs[0].failures for each in seen) == 1100


def test_a_round_that_leaves_messages_is_followed_at_once() -> None:
    stop = Clock()
    job = Rounds("job", lambda: 1, lambda: 1, fail, lambda: 1, plans=[lambda: Plan(False)] * 3)
    job.stop = stop
    serve_all([job], stop, Session())
    assert stop.waits == [0, 0, 0, 1, 0.5]


def lost(kind: str) -> DeployError:
    result = DeployResult(
        job="job",
        containers=(
            DeployedContainer(number=0, tasks=(), offsets={}, failure=Failure(0, kind, "it is gone", "")),
        ),
        seconds=0.0,
    )
    return DeployError("it is gone", result=result)


@pytest.mark.parametrize(
    ("error", "closed"),
    [
        (lost(SPARK_ERROR), 1),
        (ConnectionRefusedError("the JVM is gone"), 1),
        (NotADirectoryError("/data/jobs"), 0),
        (lost("FencedError"), 0),
        (JobRunningError("job is being deployed"), 0),
        (UnknownStreamError("log.in"), 0),
    ],
)
def test_only_a_failure_of_spark_takes_the_session_from_all(error: Exception, closed: int) -> None:
    session = Session()

    def raises() -> int:
        raise error

    serve(lambda: 1, raises, lambda: 1, session=session)
    assert session.closed == closed


def test_whatever_the_client_of_spark_raises_is_a_failure_of_spark() -> None:
    conf = pytest.importorskip("pyspark").SparkConf(_jconf=object())  # of a JVM that is gone
    session = Session()
    serve(lambda: 1, lambda: conf.get("spark.master"), lambda: 1, session=session)
    assert session.closed == 1


def test_a_status_that_cannot_be_written_ends_no_job(caplog: pytest.LogCaptureFixture) -> None:
    full = [False, False, True, True, False, True, True, False, False]

    def report(status: ServiceStatus) -> None:
        if full.pop(0):
            raise StreamSystemError("no space left")

    seen = serve(*[lambda: 1] * 3, report=report)
    assert [each.jobs[0].rounds for each in seen if each.state == "stopped"] == [3]
    assert [each.getMessage() for each in caplog.records if each.levelname == "WARNING"] == [
        "the status is not reported for now: no space left; the jobs go on"
    ] * 2


def test_the_last_status_may_fail_and_hides_no_error() -> None:
    def report(status: ServiceStatus) -> None:
        if status.state == "stopped":
            raise StreamSystemError("no space left")

    def end() -> int:
        raise SystemExit("wrong")

    with pytest.raises(SystemExit, match="wrong"):
        serve(end, lambda: 1, report=report)


def test_a_status_that_cannot_be_written_at_the_start_is_refused() -> None:
    seen: list[ServiceStatus] = []

    def report(status: ServiceStatus) -> None:
        raise StreamSystemError("no such directory")

    with pytest.raises(StreamSystemError, match="no such directory"):
        serve(lambda: 1, seen=seen, report=report)
    assert [each.jobs[0].rounds for each in seen] == [0]


def wrong() -> int:
    raise ConfigError("wrong")


def test_a_job_is_planned_once_for_its_check_and_its_first_round() -> None:
    planned: list[str] = []

    def plan(name: str) -> Callable[[], object]:
        return lambda: planned.append(name) or Plan()

    stop = Clock()
    a, b = (Rounds(name, *[lambda: 1] * 2, plans=[plan(name) for _ in range(3)]) for name in ("a", "b"))
    b.stop = stop
    serve_all([a, b], stop, Session())
    # While the first round of a went on, the plan of b became old.
    assert planned == ["a", "b", "b", "a", "b"]


def test_ctrl_c_while_a_service_checks_its_jobs_ends_it() -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    seen: list[ServiceStatus] = []
    serve_all([Rounds("job", lambda: 1, plans=[interrupt])], Clock(), Session(), seen)
    assert [(each.state, each.jobs[0].rounds) for each in seen] == [("stopped", 0)]


TAKEN = taken_over(DeployResult(job="taken", containers=(), seconds=0.0), "process 7 on vm")


def taken() -> int:
    raise TAKEN


@pytest.mark.parametrize("is_between", [False, True])
def test_a_job_that_another_start_has_taken_over_has_no_more_rounds(is_between: bool) -> None:
    class Lost(Rounds):
        """Its lock is lost between its rounds, once it has had one."""

        holds_job = True

        def check_holder(self) -> None:
            if is_between and len(self.rounds) < 3:
                raise TAKEN

    stop, session = Clock(), Session()
    lost, other = Lost("lost", lambda: 1, taken, lambda: 1), Rounds("other", *[lambda: 1] * 4)
    other.stop = stop
    seen = serve_all([lost, other], stop, session)
    assert (lost.name, len(lost.rounds)) == ("lost, which is closed", 2 if is_between else 1)
    status = seen[-1].jobs[0]
    assert (status.state, status.rounds, status.failures, status.next_ms) == ("taken over", 1, 0, None)
    assert seen[-2].problems(0) == [str(TAKEN)]
    assert (seen[-1].jobs[1].rounds, session.closed) == (4, 0)


def test_a_service_whose_only_job_is_taken_over_has_ended() -> None:
    seen = serve(lambda: 1, taken, lambda: 1)
    assert (seen[-1].state, seen[-1].jobs[0].state) == ("stopped", "taken over")
    assert "taken was taken over by process 7 on vm; this deployment has ended" in seen[-1].problems(0)[1]


def test_a_configuration_that_is_wrong_later_is_a_failure_of_its_job() -> None:
    stop, session = Clock(), Session()
    bad, good = Rounds("bad", lambda: 1, wrong, lambda: 1), Rounds("good", lambda: 1, lambda: 1, lambda: 1)
    bad.stop = stop
    seen = serve_all([bad, good], stop, session)
    errors = [each.jobs[0].error for each in seen if each.jobs[0].failures]
    assert set(errors) == {"wrong"}
    assert [(each.rounds, each.failures) for each in seen[-1].jobs] == [(2, 0), (3, 0)]
    assert session.closed == 0


def test_a_plan_that_fails_takes_the_session_from_none() -> None:
    def gone() -> None:
        raise FileNotFoundError("the directory is not there")

    stop, session = Clock(), Session()
    job = Rounds("job", lambda: 1, lambda: 1, plans=[Plan, gone])
    job.stop = stop
    seen = serve_all([job], stop, session)
    assert [each.jobs[0].failures for each in seen if each.jobs[0].state == "waiting"] == [0, 0, 1, 0, 0]
    assert session.closed == 0


def test_a_configuration_that_is_wrong_at_the_start_is_refused() -> None:
    good, bad = Rounds("good", lambda: 1), Rounds("bad", lambda: 1, plans=[wrong])
    seen: list[ServiceStatus] = []
    with pytest.raises(ConfigError, match="wrong"):
        serve_all([good, bad], Clock(), Session(), seen)
    assert (len(good.rounds), seen) == (1, [])


def test_an_input_that_is_missing_at_the_start_is_looked_up_again(caplog: pytest.LogCaptureFixture) -> None:
    def missing() -> None:
        raise UnknownStreamError("log.in is not there")

    stop = Clock()
    job = Rounds("job", lambda: 1, plans=[missing, missing])
    job.stop = stop
    seen = serve_all([job], stop, Session())
    assert "job: log.in is not there; it is tried again" in caplog.text
    assert [each.jobs[0].failures for each in seen if each.jobs[0].state == "waiting"] == [0, 1, 0, 0]


def test_a_round_that_is_cancelled_runs_no_more() -> None:
    def cancel() -> int:
        raise KeyboardInterrupt

    seen = serve(cancel, lambda: 1)
    last, job = seen[-1], seen[-1].jobs[0]
    assert (last.state, job.state, job.failures, job.error) == ("stopped", "waiting", 0, None)
    assert job.ended_ms is not None and job.round_began_ms is None


def test_a_status_says_since_when_a_round_runs() -> None:
    seen = serve(lambda: 1, fail, lambda: 1)
    by_state = [(each.jobs[0].state, each.jobs[0].round_began_ms is not None) for each in seen]
    assert set(by_state) == {("waiting", False), ("running", True)}


def test_a_job_is_served_once() -> None:
    jobs: Any = [Rounds("job"), Rounds("job")]
    with pytest.raises(ConfigError, match="the job job is given twice"):
        Service(jobs, SharedSession(None, None), every_s=1, report=print, stop=threading.Event())


def test_a_service_is_not_healthy_before_it_has_begun() -> None:
    server = HealthServer(0)
    try:
        assert answer_of(server.port) == (503, {"problems": ["the service has not begun yet"]})
    finally:
        server.close()


def test_health_and_status_are_there_for_others(tmp_path: Path) -> None:
    file, server = StatusFile(tmp_path / "status.json"), HealthServer(0)
    try:
        for failures, code in ((0, 200), (1, 503)):
            status = ServiceStatus([JobStatus("job", failures=failures, error="no")])
            file.write(status)
            server.show(status)
            problems = ["job: its last round failed: no"] if failures else []
            assert answer_of(server.port) == (code, {**msgspec.to_builtins(status), "problems": problems})
            assert json.loads((tmp_path / "status.json").read_text()) == msgspec.to_builtins(status)
        with pytest.raises(StreambenchError, match=f"port {server.port} cannot be listened on"):
            HealthServer(server.port)
    finally:
        server.close()
    assert [path.name for path in tmp_path.iterdir()] == ["status.json"]


def test_a_round_that_hangs_is_no_health_until_it_goes_on() -> None:
    server = HealthServer(0)
    began_ms = time.time_ns() // 1_000_000 - 500_000
    try:
        for stuck_ms, code in ((began_ms + 300_000, 503), (began_ms + 3_600_000, 200)):
            job = JobStatus(
                "job", "running", round_began_ms=began_ms, progress_ms=began_ms + 100_000, stuck_ms=stuck_ms,
                busy=[BusyContainer(2, began_ms + 102_000, "Partition 0 at log.in.0@15")],
            )  # fmt: skip
            server.show(ServiceStatus([job]))
            found, body = answer_of(server.port)
            assert found == code
            assert bool(body["problems"]) == (code == 503)
            if body["problems"]:
                said = (
                    r"job: its round has not gone on for 4\d\d s; "
                    r"container 2 busy 39\d s: Partition 0 at log\.in\.0@15"
                )
                assert re.fullmatch(said, body["problems"][0])
    finally:
        server.close()


@pytest.mark.parametrize(
    ("every_s", "last_s", "given_s", "bound_ms"),
    [(1, None, None, 120_000), (60, None, None, 300_000), (1, 100.0, None, 300_000), (60, 100.0, 7, 7000)],
)
def test_a_round_counts_as_stuck_a_bound_after_its_last_progress(
    monkeypatch: pytest.MonkeyPatch,
    every_s: float,
    last_s: float | None,
    given_s: float | None,
    bound_ms: int,
) -> None:
    now_ms = [1000]
    monkeypatch.setattr("streambench.spark.service._now_ms", lambda: now_ms[0])
    stop, stuck, reported = Clock(), [], []

    def hang() -> int:
        status = service.status.jobs[0]
        reported.clear()
        # Seen first, the same for long, further, and ended.
        for at_ms, messages in ((2000, 0), (900_000, 0), (901_000, 5), (901_500, 6)):
            now_ms[0], stop.now = at_ms, at_ms / 1000
            each = ContainerProgress(number=0, messages=messages)
            service.show_progress(progress_of([each], seconds=0.0, job="job", round=1, stage="running"))
            stuck.append(status.stuck_ms)
        return 1

    job: Any = Rounds("job", hang)
    job.stop = stop
    service = Service(
        [job], SharedSession(None, None), every_s=every_s, stuck_s=given_s,
        report=lambda status: reported.append(status.jobs[0].stuck_ms), stop=stop, now=lambda: stop.now,
    )  # fmt: skip
    service.status.jobs[0].seconds = last_s
    service.run()
    assert stuck == [2000 + bound_ms] * 2 + [901_000 + bound_ms, 901_500 + bound_ms]
    # What had been stuck is reported at once, the next step not before a part of the bound has gone.
    assert reported[:-2].count(901_000 + bound_ms) == 1
    assert (901_500 + bound_ms in reported) == (bound_ms < 10_000)
    assert service.status.jobs[0].stuck_ms is None


def test_a_status_file_that_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    path = tmp_path / "status.json"
    path.mkdir()
    with pytest.raises(StreamSystemError, match=r"status\.json cannot be written: Is a directory; mend that"):
        StatusFile(path).write(ServiceStatus([]))
    assert [each.name for each in tmp_path.iterdir()] == ["status.json"]


def test_a_connection_that_sends_no_request_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert 0 < health._Handler.timeout < 60
    monkeypatch.setattr(health._Handler, "timeout", 0.05)
    server = HealthServer(0)
    try:
        with socket.create_connection(("127.0.0.1", server.port), timeout=60) as connection:
            connection.sendall(b"GET /healthz HT")
            assert connection.recv(100) == b""
    finally:
        server.close()


def answer_of(port: int, path: str = "/healthz") -> tuple[int, Any]:
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
        streams, away = tmp_path / "a" / "streams", tmp_path / "away"
        streams.rename(away)
        until(program, lambda: json.loads(status.read_text())["jobs"][0]["failures"] > 1)
        jobs[1].send(30, 40)
        until(program, lambda: jobs[1].numbers() == list(range(40)))
        put_back(away, streams)
        jobs[0].send(30, 40)
        until(program, lambda: jobs[0].numbers() == list(range(40)))
        until(program, lambda: not json.loads(status.read_text())["jobs"][0]["failures"])
        program.send_signal(signal.SIGTERM)
        said, noise = program.communicate(timeout=120)
    finally:
        if program.poll() is None:
            program.kill()
            program.communicate()
    assert program.returncode == 0, noise
    assert "a-1: 40 messages" in said and "b-1: 40 messages" in said
    found = json.loads(status.read_text())
    assert (found["state"], [each["messages"] for each in found["jobs"]]) == ("stopped", [40, 40])
    assert [job.numbers() for job in jobs] == [list(range(40))] * 2


def put_back(away: Path, directory: Path) -> None:
    """Rename a directory to one that a process may make at any moment."""
    while away.exists():
        shutil.rmtree(directory, ignore_errors=True)
        with suppress(OSError):
            away.rename(directory)


def until(program: subprocess.Popen[str], reached: Callable[[], bool]) -> None:
    while True:
        with suppress(UnknownStreamError):  # before the first round there are no outputs
            if reached():
                return
        with suppress(subprocess.TimeoutExpired):
            program.wait(0.2)
            pytest.fail(f"it has ended: {program.communicate()}")
