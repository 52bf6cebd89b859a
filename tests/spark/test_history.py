"""The history of deployments: a line per round, which outlives what is left of a killed writer."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench import Config, StreamSystemError
from streambench.job.failure import Failure
from streambench.locks import Held
from streambench.model import SystemStreamPartition
from streambench.spark import history
from streambench.spark.history import Run, directory_of, note, note_run, runs
from streambench.spark.result import DeployedContainer, DeployResult
from tests.spark.conftest import Job

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
    found = directory_of(job.config, "job-1")
    assert found is not None
    found.mkdir(parents=True, exist_ok=True)
    return found


def test_rounds_are_listed_in_order_with_their_offsets(job: Job, directory: Path) -> None:
    assert runs(job.config, "job-1") == []
    note_run(directory, result(1, 10), 1000)
    note_run(directory, result(2, 5, Failure(0, "ValueError", "no", "")), 2000)
    first, second = runs(job.config, "job-1")
    assert (first.generation, first.messages, first.rate, first.failed, first.began_ms) == (
        1,
        10,
        5.0,
        0,
        1000,
    )
    assert first.containers[0].offsets == {"log.in.0": ("0", "10")}
    assert (second.failed, second.containers[0].error) == (1, "no")


def test_a_line_that_was_not_written_whole_is_left_out(job: Job, directory: Path) -> None:
    note_run(directory, result(1, 10), 0)
    path = directory / "deployments.jsonl"
    path.write_bytes(path.read_bytes() + b'{"generation": 2, "began\n')
    note_run(directory, result(3, 1), 0)
    assert [each.generation for each in runs(job.config, "job-1")] == [1, 3]


def test_a_round_that_was_killed_is_listed_as_one_that_did_not_end(job: Job, directory: Path) -> None:
    for generation in (1, 2):
        note(directory, Run(generation=generation, began_ms=generation, master="local[2]", outcome="running"))
        if generation == 1:
            note_run(directory, result(1, 10), 1)
    held = Held.locked(directory / "deployment.lock")
    assert [each.outcome for each in runs(job.config, "job-1")] == ["ended", "running"]
    held.release()
    first, second = runs(job.config, "job-1")
    assert (first.outcome, first.messages) == ("ended", 10)
    assert (second.outcome, second.generation) == ("did not end", 2)


def test_backfills_are_listed_with_their_job(job: Job, directory: Path) -> None:
    note_run(directory, result(1, 10), 1000)
    for other, name in (("job-fixed-1", "fixed"), ("job-old-1", "")):
        (directory.parent / other).mkdir()
        note_run(directory.parent / other, result(1, 3), 500, name)
    assert [(each.backfill, each.messages) for each in runs(job.config, "job-1")] == [("fixed", 3), ("", 10)]


def test_a_long_history_loses_its_oldest_part(
    job: Job, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(history, "_LARGEST", 1000)
    monkeypatch.setattr(history, "_KEPT", 4)
    for generation in range(1, 30):
        note_run(directory, result(generation, 1), 0)
    kept = [each.generation for each in runs(job.config, "job-1")]
    assert 2 <= len(kept) < 10 and kept[-1] == 29


def test_a_job_without_a_directory_has_no_history(job: Job) -> None:
    config = Config({"job.name": "job", "systems.m.samza.factory": "memory"})
    note_run(None, result(1, 1), 0)
    with pytest.raises(StreamSystemError, match="keeps its checkpoints in no directory"):
        runs(config)
