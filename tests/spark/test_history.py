"""The history of deployments: a line per round, which outlives what is left of a killed writer."""

from __future__ import annotations

import uuid
from contextlib import closing
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from streambench import Config, StreamSystemError
from streambench.job.failure import Failure
from streambench.job.running import LockRecord
from streambench.locks import Held
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark import history_records
from streambench.spark.history import Run, note, note_run, runs
from streambench.spark.history_records import FileHistory, history_of
from streambench.spark.result import DeployedContainer, DeployResult
from streambench.spark.running import DeploymentLock
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.spark.conftest import Job
from tests.system.kafka.cluster import config as kafka_config

IN = SystemStreamPartition("log", "in", 0)


def result(generation: int, messages: int, failure: Failure | None = None) -> DeployResult:
    container = DeployedContainer(
        number=0,
        tasks=("Partition 0",),
        offsets={IN: ("0", str(messages))},
        messages=messages,
        seconds=1.5,
        failure=failure,
    )
    return DeployResult(
        job="job", containers=(container,), seconds=2.0, generation=generation, master="local[2]", rounds=1
    )


@pytest.fixture
def directory(job: Job) -> Path:
    """The directory of the job, which a first start makes."""
    found = checkpoint_manager(job.config, "job-1").directory
    assert found is not None
    found.mkdir(parents=True, exist_ok=True)
    return found


def test_rounds_are_listed_in_order_with_their_offsets(job: Job, directory: Path) -> None:
    assert runs(job.config, "job-1") == []
    note_run(FileHistory(directory), result(1, 10), 1000)
    note_run(FileHistory(directory), result(2, 5, Failure(0, "ValueError", "no", "")), 2000)
    first, second = runs(job.config, "job-1")
    assert (first.generation, first.messages, first.rate, first.failed, first.began_ms) == (
        1,
        10,
        5.0,
        0,
        1000,
    )
    assert first.containers[0].offsets == {"log.in.0": ("0", "10")}
    assert (second.outcome, second.failed, second.containers[0].error) == ("failed", 1, "no")


def test_a_line_that_was_not_written_whole_is_left_out(job: Job, directory: Path) -> None:
    note_run(FileHistory(directory), result(1, 10), 0)
    path = directory / "deployments.jsonl"
    path.write_bytes(path.read_bytes() + b'{"generation": 2, "began')
    note_run(FileHistory(directory), result(3, 1), 0)
    assert [each.generation for each in runs(job.config, "job-1")] == [1, 3]


def test_a_round_that_was_killed_is_listed_as_one_that_did_not_end(job: Job, directory: Path) -> None:
    for generation in (1, 2):
        begun = Run(generation=generation, began_ms=generation, master="local[2]", outcome="running")
        note(FileHistory(directory), begun)
        if generation == 1:
            note_run(FileHistory(directory), result(1, 10), 1)
    held = Held.locked(directory / "deployment.lock")
    assert [each.outcome for each in runs(job.config, "job-1")] == ["ended", "running"]
    held.release()
    first, second = runs(job.config, "job-1")
    assert (first.outcome, first.messages) == ("ended", 10)
    assert (second.outcome, second.generation) == ("did not end", 2)


def test_a_killed_round_does_not_run_under_the_lock_of_another(
    job: Job, directory: Path
) -> None:
    outcomes = []
    for process in (1, 2):
        held = Held.locked(directory / "deployment.lock")
        held.write(msgspec.json.encode(LockRecord(process, "host", since_ms=process)))
        if process == 1:
            history = FileHistory(directory)
            begun = Run(generation=1, began_ms=0, master="local[2]", outcome="running")
            note(history, replace(begun, holders=history.holders()))
        outcomes += [each.outcome for each in runs(job.config, "job-1")]
        held.release()
    assert outcomes == ["running", "did not end"]


def test_a_deployment_names_itself_as_the_history_does(job: Job, directory: Path) -> None:
    lock = DeploymentLock(job.config, "job-1", "refuse")
    lock.acquire()
    assert lock.holders == FileHistory(directory).holders() != []
    lock.release()
    assert lock.holders == FileHistory(directory).holders() == []


def test_backfills_are_listed_with_their_job(job: Job, directory: Path) -> None:
    note_run(FileHistory(directory), result(1, 10), 1000)
    for other, name in (("job-fixed-1", "fixed"), ("job-old-1", "")):
        (directory.parent / other).mkdir()
        note_run(FileHistory(directory.parent / other), result(1, 3), 500, name)
    assert [(each.backfill, each.messages) for each in runs(job.config, "job-1")] == [("fixed", 3), ("", 10)]


def test_a_long_history_loses_its_oldest_part(
    job: Job, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history_records, "_LARGEST", 4000)
    monkeypatch.setattr(history_records, "_KEPT", 3000)
    for generation in range(1, 30):
        note_run(FileHistory(directory), result(generation, 1), 0)
    kept = [each.generation for each in runs(job.config, "job-1")]
    assert 6 <= len(kept) < 20 and kept == list(range(30 - len(kept), 30))


def test_a_history_of_large_rounds_stays_small(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_records, "_LARGEST", 4000)
    monkeypatch.setattr(history_records, "_KEPT", 3000)
    history, path = FileHistory(directory), directory / "deployments.jsonl"
    for number in range(20):
        history.append(b"%2d" % number + b" " * (1000 if number < 15 else 5000))
        assert path.stat().st_size < 4000 + 1010 if number < 15 else 2 * 5010
    assert [record[:2] for record in history.records()] == [b"18", b"19"]


def test_a_job_without_a_directory_has_no_history(job: Job) -> None:
    config = Config({"job.name": "job", "systems.m.samza.factory": "memory"})
    note_run(None, result(1, 1), 0)
    with pytest.raises(StreamSystemError, match="keeps its checkpoints in memory"):
        runs(config)


def test_the_history_of_a_job_in_kafka_is_there(kafka: KafkaNodes) -> None:
    name = f"job-{uuid.uuid4().hex[:8]}"
    settings = kafka_config(kafka).with_values({"job.name": name, "task.inputs": "k.in"})
    assert runs(settings) == []
    for generation in (1, 2):
        begun = Run(generation=generation, began_ms=generation, master="local[2]", outcome="running")
        note(history_of(settings, f"{name}-1"), begun)
    note_run(history_of(settings, f"{name}-1"), result(2, 5), 2)
    outcomes = [(each.generation, each.outcome, each.messages) for each in runs(settings)]
    assert outcomes == [(1, "did not end", 0), (2, "ended", 5)]
    with closing(Systems(settings)) as systems:
        assert not [each for each in systems.admin("k").streams() if name in each.stream]
    backfill = checkpoint_manager(settings, f"{name}-fixed-1")
    backfill.open_generation({0: ["Partition 0"]}, now_ms=0)
    backfill.close()
    note_run(history_of(settings, f"{name}-fixed-1"), result(1, 3), 3, "fixed")
    assert [each.backfill for each in runs(settings)] == ["", "", "fixed"]
