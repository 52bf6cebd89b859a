"""Jobs with all in Kafka: the lease that a second deployment sees, and captures that come to the driver."""

from __future__ import annotations

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from kafka.admin import MemberToRemove
from kafka.structs import MemberState

from streambench import Config, debug
from streambench.checkpoint.api import LeaseHolder
from streambench.container.container import Container
from streambench.errors import StreamSystemError
from streambench.job.failure import Failure
from streambench.job.run import container_of, run
from streambench.job.running import JobRunningError, check_not_running, work_elsewhere
from streambench.model import SystemStream
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.recording.captures import capture_directory, save_capture
from streambench.spark import running, sent_captures
from streambench.spark.deployment import deploy
from streambench.spark.history import Run, note, runs
from streambench.spark.history_records import history_of
from streambench.spark.plan import make_plan, open_generation
from streambench.spark.result import DeployTaskError
from streambench.spark.running import DeploymentLock, LeaseWatch
from streambench.spark.sent_captures import capture_folder, landed
from streambench.spark.worker import RunContainers, Shipment
from streambench.system.kafka import clients as clients_of_kafka
from streambench.system.kafka import job_lease
from streambench.system.kafka.settings import Settings
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.job.together import RUNS, begun_together
from tests.spark.test_starts_at_once import STARTS
from tests.system.kafka.cluster import config as kafka_config
from tests.system.kafka.cluster import new_stream, sent

KILLED = """
import sys, time
from streambench import Config
from streambench.spark.running import DeploymentLock
from streambench.system.kafka import job_lease
job_lease.SESSION_MS = 6_000  # the least that brokers allow
lock = DeploymentLock(Config.from_text(sys.argv[1]), sys.argv[2], "refuse")
lock.acquire()
print("held", flush=True)
time.sleep(600)
"""


class Ignore:
    def process(self, envelope, collector, coordinator):
        pass


@pytest.fixture
def stream(kafka: KafkaNodes) -> Iterator[SystemStream]:
    stream = new_stream()
    with closing(Systems(kafka_config(kafka))) as systems:
        systems.admin("k").create(stream, 1)
        sent(systems, stream, [(0, None, b"%d" % number) for number in range(2_000)])
    yield stream


@pytest.fixture
def config(kafka: KafkaNodes, stream: SystemStream) -> Config:
    name = f"job-{uuid.uuid4().hex[:8]}"
    values = {"job.name": name, "task.inputs": str(stream), "systems.k.samza.offset.default": "oldest"}
    return kafka_config(kafka).with_values(values)


@pytest.fixture
def name(config: Config) -> str:
    return f"{config['job.name']}-1"


def test_a_job_in_kafka_that_is_being_deployed_is_not_deployed_again(config: Config, name: str) -> None:
    first = DeploymentLock(config, name, "refuse")
    first.acquire()
    first.check()
    with pytest.raises(JobRunningError, match=f"{name} is being deployed by process {os.getpid()} on"):
        deploy(config, Ignore)
    late = DeploymentLock(config, name, "refuse")
    with pytest.raises(JobRunningError, match="is being deployed by process"):
        late.acquire()
    late.release()
    over = DeploymentLock(config, name, "take-over")
    over.check()
    over.acquire()
    over.release()
    with pytest.raises(JobRunningError, match="is being deployed by process"):
        run(config, task=Ignore, if_running="refuse")
    with pytest.raises(
        JobRunningError, match=r"is being deployed by .*, or rewind with --if-running take-over"
    ):
        check_not_running(config, name, "rewind")
    first.release()
    DeploymentLock(config, name, "refuse").check()


def test_of_deployments_in_kafka_that_begin_together_one_at_most_goes_on(config: Config, name: str) -> None:
    with begun_together(STARTS, config, name) as answers:
        assert answers.count("held") <= 1
        assert all(each == "held" or "is being deployed by" in each for each in answers)
        if "held" in answers:
            with pytest.raises(JobRunningError, match="is being deployed by"):
                DeploymentLock(config, name, "refuse").acquire()


def test_of_runs_in_kafka_that_begin_together_one_at_most_goes_on(config: Config, name: str) -> None:
    with begun_together(RUNS, config, name, 3) as answers:
        assert answers.count("held") <= 1
        assert all(each == "held" or f"{name} is running: it is run by" in each for each in answers)


def started(container: Container, config: Config, name: str) -> Container:
    """The container, when others see its lease."""
    container.start()
    with closing(checkpoint_manager(config, name)) as manager:
        while not manager.lease_holders():
            time.sleep(0.02)
    return container


def test_a_job_in_kafka_that_runs_is_not_ended_unasked(config: Config, name: str) -> None:
    container = started(Container(config, Ignore), config, name)
    with pytest.raises(JobRunningError, match=f"is running: it is run by process {os.getpid()} on"):
        deploy(config, Ignore)
    with pytest.raises(JobRunningError, match=r"is running: .*, or run with --if-running take-over"):
        run(config, task=Ignore, if_running="refuse")
    container.stop()
    DeploymentLock(config, name, "refuse").check()


def test_a_container_in_kafka_starts_beside_the_others_of_its_job(config: Config, name: str) -> None:
    stream = new_stream()
    with closing(Systems(config)) as systems:
        systems.admin("k").create(stream, 2)
    config = config.with_values({"job.container.count": 2, "task.inputs": str(stream)})
    first = started(container_of(config, Ignore, 1), config, name)
    assert run(config, task=Ignore, container=0, if_running="refuse").messages == 0
    with pytest.raises(JobRunningError, match="is running"):
        run(config, task=Ignore, container=1, if_running="refuse")
    with pytest.raises(JobRunningError, match="is running"):
        run(config, task=Ignore, if_running="refuse")
    first.stop()


def test_the_lease_of_a_killed_driver_ends_and_its_round_did_not(config: Config, name: str) -> None:
    text = "".join(f"{key}={value}\n" for key, value in config.items())
    driver = subprocess.Popen([sys.executable, "-c", KILLED, text, name], stdout=subprocess.PIPE, text=True)
    try:
        assert driver.stdout is not None and driver.stdout.readline() == "held\n"
        note(history_of(config, name), Run(generation=1, began_ms=1, master="local[2]", outcome="running"))
        assert [each.outcome for each in runs(config)] == ["running"]
        work = work_elsewhere(config, name)
        assert re.fullmatch(rf"process {driver.pid} on \S+ since .* deploys it", work)
    finally:
        driver.send_signal(signal.SIGKILL)
        driver.communicate()
    with closing(checkpoint_manager(config, name)) as manager:
        assert [each.process for each in manager.lease_holders()] == [driver.pid]
        assert work_elsewhere(config, name) == ""
        check_not_running(config, name, "run")  # waits for its end, as that process is known to have ended
        assert manager.lease_holders() == []
    assert [each.outcome for each in runs(config)] == ["did not end"]


def test_a_container_sees_that_the_lease_of_its_client_has_ended(
    config: Config, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_ABSENT_LOOKS", 2)
    monkeypatch.setattr(running, "_LOOK_S", 0.05)
    driver = DeploymentLock(config, name, "refuse")
    driver.acquire()
    assert driver.seen_lease() == driver.leased_as != ""

    class Orphaned:
        def process(self, envelope, collector, coordinator):
            if int(envelope.offset) == 100:
                driver.release()
            threading.Event().wait(0.005)

    planned = make_plan(config, Orphaned)
    container = RunContainers(b"")
    container.generation = open_generation(planned)
    shipment = Shipment(
        planned.config, Orphaned, {}, planned.model, planned.ends, {}, {}, None, leased_as=driver.leased_as
    )
    monkeypatch.setattr(container, "_unpacked", lambda: shipment)
    report = container.run(0)
    assert report.failure is not None
    assert "the process that deployed the job has ended" in report.failure.text
    assert 100 < report.messages < 2_000
    with closing(checkpoint_manager(config, name)) as manager:
        [checkpoint] = manager.read_last().values()
    assert list(checkpoint.offsets.values()) == [str(report.messages - 1)]


class Looks:
    """A checkpoint manager that knows one lease, in some answers of it."""

    def __init__(self, answers: list[str]) -> None:
        self.answers = answers
        self.asked = 0

    def lease_holders(self) -> list[LeaseHolder]:
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer == "away":
            raise StreamSystemError("away")
        return [LeaseHolder("driver", "deploy", 1, "here", 0)] if answer == "there" else []

    def close(self) -> None:
        pass


@pytest.mark.parametrize("before", [[], ["there"], ["none", "there"], ["none", "none", "away"]])
def test_a_lease_that_never_shows_is_gone_and_a_pause_in_it_is_not(
    before: list[str], config: Config, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = Looks([*before, "none", "none", "none"])
    monkeypatch.setattr(running, "checkpoint_manager", lambda *_: looks)
    monkeypatch.setattr(running, "_ABSENT_LOOKS", 3)
    monkeypatch.setattr(running, "_LOOK_S", 0.001)
    watch = LeaseWatch(config, name, "driver")
    assert watch._gone.wait(20)
    assert looks.asked == len(before) + 3


@pytest.fixture
def clients(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The clients that leases make, whose session is the shortest that brokers allow."""
    made: list[Any] = []
    new = job_lease.new_consumer

    def keep(*given: Any, **options: Any) -> Any:
        made.append(new(*given, **options))
        return made[-1]

    monkeypatch.setattr(job_lease, "new_consumer", keep)
    monkeypatch.setattr(job_lease, "SESSION_MS", 6_000)
    return made


def joined(clients: list[Any]) -> Any:
    """The latest client, when it is a member whose heartbeats the broker answers."""
    while not (clients and job_lease._is_held(clients[-1]._coordinator)):
        time.sleep(0.02)
    return clients[-1]


def is_answered_again(client: Any) -> bool:
    """True when the broker answers a heartbeat of the client that was sent from now on."""
    asked = time.monotonic()
    until = asked + 60
    heartbeat = client._coordinator.heartbeat
    while heartbeat.last_receive < asked + 1 and time.monotonic() < until:
        time.sleep(0.02)
    return bool(heartbeat.last_receive >= asked + 1)


def test_a_lease_is_kept_where_its_topic_appears(
    config: Config, name: str, clients: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), closing(checkpoint_manager(config, name)) as manager:
        manager.take_lease("deploy")
        client = joined(clients)
        generation = client.group_metadata().generation_id
        manager.open_generation({0: ["Partition 0"]}, now_ms=1)
        client._client.cluster.request_update()
        while client.group_metadata().generation_id == generation:
            time.sleep(0.02)
        # It joins once, or again where the partitions of the topic follow; then it stays.
        while client.group_metadata().generation_id != generation:
            generation = client.group_metadata().generation_id
            assert is_answered_again(client)
        assert len(clients) == len(manager.lease_holders()) == 1
    assert "was lost" not in caplog.text


def test_a_lease_whose_client_lost_the_answer_to_its_join_is_kept(
    config: Config, name: str, clients: list[Any]
) -> None:
    with closing(checkpoint_manager(config, name)) as manager:
        manager.take_lease("deploy")
        client = joined(clients)
        client._coordinator.state = MemberState.REBALANCING
        client._coordinator._disable_heartbeat()
        assert is_answered_again(client)
        assert len(clients) == len(manager.lease_holders()) == 1


def test_a_lease_that_the_broker_has_ended_is_taken_again(
    config: Config, name: str, clients: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    with closing(checkpoint_manager(config, name)) as manager:
        own = manager.take_lease("deploy")
        group, said = joined(clients)._coordinator.group_id, "was lost, and is there again"
        with closing(clients_of_kafka.new_admin(Settings.from_config("k", config))) as admin:
            # Again where it was removed before the lease itself had seen that it was a member.
            while said not in caplog.text:
                member = joined(clients).group_metadata().member_id
                admin.remove_group_members(group, [MemberToRemove(member_id=member)])
                while said not in caplog.text and clients[-1].group_metadata().member_id in (member, ""):
                    time.sleep(0.02)
        assert is_answered_again(clients[-1])
        assert [each.name for each in manager.lease_holders()] == [own]


def test_a_client_that_stays_without_membership_is_replaced(
    config: Config, name: str, clients: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_lease, "_LOST_S", 1.0)
    with closing(checkpoint_manager(config, name)) as manager:
        own = manager.take_lease("deploy")
        first = joined(clients)
        # It does nothing any more, and the broker ends its membership.
        first.poll = lambda timeout_ms: time.sleep(timeout_ms / 1000)
        first._coordinator.stable = lambda: False
        first._coordinator._disable_heartbeat()
        while len(clients) == 1:
            time.sleep(0.02)
        assert is_answered_again(joined(clients))
        assert own in [each.name for each in manager.lease_holders()]


def test_the_capture_of_a_job_with_all_in_kafka_comes_to_the_driver(
    spark: Any, config: Config, name: str, tmp_path: Path
) -> None:
    class Fails:
        def process(self, envelope, collector, coordinator):
            if envelope.message == b"7":
                raise ValueError("seven")

    text = "".join(f"{key}={value}\n" for key, value in config.items())
    beside = Config.from_text(text, directory=tmp_path)
    with pytest.raises(DeployTaskError, match="seven") as caught:
        deploy(beside, Fails, spark)
    captured = re.search(r"captured: streambench replay (\S+)", str(caught.value))
    assert captured is not None, caught.value
    assert Path(captured[1]).absolute() == tmp_path / "captures" / name / "1-c0.capture"
    session = debug.open(captured[1], Fails)
    assert session.message is not None and session.message.message == b"7"


def test_a_capture_that_is_too_large_to_travel_is_not_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sent_captures, "_MOST_BYTES", 10)
    config = Config.from_text("systems.m.samza.factory=memory", directory=tmp_path)
    with capture_folder(config, "job-1", 2) as (inside, folder):
        assert folder.taken() is None
        directory = capture_directory(inside, "job-1", None)
        assert directory is not None
        written = save_capture(directory, 0, lambda path: path.write_bytes(b"12345"))
        fits = folder.taken()
        save_capture(directory, 0, lambda path: path.write_bytes(b"123456"))
        too_large = folder.taken()
    assert fits is not None and too_large is not None
    failure = Failure(0, "ValueError", f"no; captured: {fits.command}", "")
    here = landed(config, "job-1", failure, fits)
    assert "captures/job-1/1-c0.capture" in here.text and str(written) not in here.text
    assert (tmp_path / "captures" / "job-1" / "1-c0.capture").read_bytes() == b"12345"
    failure = Failure(0, "ValueError", f"no; captured: {too_large.command}", "")
    assert landed(config, "job-1", failure, too_large).text == "no"
    assert "its capture is left out" in caplog.text
    (tmp_path / "file").touch()
    nowhere = config.with_values({"task.capture.path": str(tmp_path / "file")})
    failure = Failure(0, "ValueError", f"no; captured: {fits.command}", "")
    assert landed(nowhere, "job-1", failure, fits).text == "no"
    assert "its capture is lost" in caplog.text
