"""Backfills: a range of the inputs processed again beside the job, which stays as it is."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench import Config, OutgoingMessageEnvelope, SystemStream
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.errors import ConfigError, OffsetError, UnknownStreamError
from streambench.job.run import run
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark import Backfill, JobRunningError, backfill, deploy
from streambench.spark.history import Run, note
from streambench.spark.history_records import history_of
from streambench.spark.plan import make_plan, open_generation
from streambench.spark.running import DeploymentLock
from streambench.system.log import LogSystemFactory
from tests.spark.conftest import Job

OUT = SystemStream("log", "out")
STORES = {
    "stores.counts.factory": "memory",
    "stores.counts.changelog": "log.counts",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "integer",
}


class Count:
    """Sends each message with how many of its key there were so far."""

    def init(self, context: Any) -> None:
        self.counts = context.store("counts")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        count = (self.counts.get(envelope.key) or 0) + 1
        self.counts.put(envelope.key, count)
        collector.send(OutgoingMessageEnvelope(OUT, [envelope.message, count], key=envelope.key))


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    yield Job(tmp_path, **STORES, **{"task.processing.guarantee": "exactly-once"})


def files(job: Job) -> dict[str, bytes]:
    """All files of the job and of its streams."""
    return {str(path): path.read_bytes() for path in job.directory.rglob("*") if path.is_file()}


def sent(job: Job, stream: str) -> dict[int, list[Any]]:
    return {number: [message for _, message in rows] for number, rows in job.read(stream).items()}


def expected(first: int, last: int) -> list[list[int]]:
    """The outputs of a fresh job that reads these numbers alone: each partition of the input is one task."""
    counts: dict[tuple[int, int], int] = {}
    found = []
    for number in range(first, last):
        key = number % 2, number % 7
        counts[key] = counts.get(key, 0) + 1
        found.append([number, counts[key]])
    return sorted(found)


def test_a_range_is_processed_beside_the_job(spark: Any, job: Job, caplog: pytest.LogCaptureFixture) -> None:
    job.send(0, 100)
    deploy(job.config, Count, spark)
    before = files(job)
    wanted = Backfill("fixed", start=["log.in@10"], end=["log.in@40"])
    result = backfill(job.config, wanted, Count, spark)
    assert (result.job, result.messages) == ("job-fixed-1", 60)
    # The 10th to 40th message of each partition: even numbers in one, odd ones in the other.
    assert sorted(sum(sent(job, "out-fixed").values(), [])) == expected(20, 80)
    after = files(job)
    assert {path: after.get(path) for path in before} == before
    caplog.clear()
    assert backfill(job.config, wanted, Count, spark).messages == 0
    assert "continues from its checkpoints, and does not use the start log.in@10" in caplog.text
    caplog.clear()
    further = Backfill("fixed", end=["log.in@50"])
    assert backfill(job.config, further, Count, spark).messages == 20
    assert not caplog.text
    assert sorted(sum(sent(job, "out-fixed").values(), [])) == expected(20, 100)
    job.send(100, 104)
    assert deploy(job.config, Count, spark).messages == 4
    assert sorted(sum(sent(job, "out").values(), [])) == expected(0, 104)


def test_a_backfill_that_runs_is_taken_over_where_that_is_asked_for(
    spark: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.spark.running._ENDS_WITHIN_S", 0.5)  # this process does not end
    job.send(0, 10)
    running = DeploymentLock(job.config, "job-fixed-1", "refuse")
    running.acquire()
    with pytest.raises(JobRunningError, match="job-fixed-1 is being deployed by"):
        backfill(job.config, Backfill("fixed"), Count, spark)
    assert backfill(job.config, Backfill("fixed"), Count, spark, if_running="take-over").messages == 10
    running.release()


def test_a_plan_of_a_backfill_shows_its_range_and_writes_nothing(job: Job) -> None:
    job.send(0, 100)
    before = files(job)
    planned = backfill(job.config, Backfill("b", ["upcoming", "log.in.1@7"]), Count, dry_run=True)
    spans = [span for each in planned.containers for span in each.offsets.values()]
    assert sorted(spans) == [("50", "50"), ("7", "50")]
    assert files(job) == before


class Ignore:
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None: ...


def named(job: Job, name: str) -> Config:
    return job.config.with_values({"job.name": name, "job.container.count": 1})


def begin_backfill(job: Job, of: str, name: str) -> int:
    """Open a generation of a backfill as a round does; its number."""
    wanted = Backfill(name)
    return open_generation(make_plan(wanted.config(named(job, of), Ignore), Ignore, wanted))


def test_a_backfill_does_not_take_the_checkpoints_of_a_job_with_its_name(job: Job) -> None:
    job.send(0, 100)
    run(named(job, "job-fixed"), task=Ignore)
    job.send(100, 200)
    with pytest.raises(ConfigError, match="the backfill fixed would be job-fixed-1, and there are checkpoi"):
        begin_backfill(job, "job", "fixed")
    with pytest.raises(ConfigError, match="give the backfill another name"):
        backfill(job.config, Backfill("fixed"), Ignore, dry_run=True)
    assert run(named(job, "job-fixed"), task=Ignore).messages == 100


def test_a_job_does_not_take_the_checkpoints_of_a_backfill_with_its_name(job: Job) -> None:
    assert [begin_backfill(job, "job", "fixed") for _ in range(2)] == [2, 3]
    for begin in (run, deploy):
        with pytest.raises(ConfigError, match="job-fixed-1 is the backfill fixed of job-1: .* another job.n"):
            begin(named(job, "job-fixed"), task=Ignore)  # type: ignore[operator]


def test_backfills_of_two_jobs_do_not_meet_under_one_name(job: Job) -> None:
    begin_backfill(job, "a", "b-c")
    with pytest.raises(ConfigError, match="would be a-b-c-1, which is the backfill b-c of a-1 alre"):
        begin_backfill(job, "a-b", "c")


class WithoutMarks(JournalCheckpointManager):
    """As a plug-in may have it, which knows neither backfills nor histories."""

    def open_generation(self, assignment, *, now_ms, places=None):  # type: ignore[override]
        return super().open_generation(assignment, now_ms=now_ms, places=places)


class LosesMarks(JournalCheckpointManager):
    def open_generation(self, assignment, *, now_ms, places=None, **more):
        return super().open_generation(assignment, now_ms=now_ms, places=places)


class KeepsWithoutMarks(LogSystemFactory):
    kind: type[JournalCheckpointManager] = WithoutMarks

    def get_checkpoint_manager(self, system, config, job):
        manager = self.kind(config.path(f"systems.{system}.path") / "own" / job, job, keep=3)
        manager.directory = None
        return manager


class KeepsAndLosesMarks(KeepsWithoutMarks):
    kind = LosesMarks


def kept_by(job: Job, factory: type[KeepsWithoutMarks]) -> None:
    """Have a plug-in keep the checkpoints of a job."""
    own = {"systems.own.samza.factory": f"{__name__}:{factory.__name__}", "systems.own.path": job.directory}
    job.config = job.config.with_values({**own, "task.checkpoint.system": "own"})


def test_a_backfill_goes_on_where_a_plug_in_marks_no_checkpoints(job: Job) -> None:
    job.send(0, 10)
    kept_by(job, KeepsWithoutMarks)
    assert [begin_backfill(job, "job", "fixed") for _ in range(2)] == [2, 3]


def test_a_plug_in_that_takes_a_mark_and_does_not_keep_it_is_named(job: Job) -> None:
    kept_by(job, KeepsAndLosesMarks)
    with pytest.raises(ConfigError, match="LosesMarks.open_generation takes backfill='fixed of job-1', and"):
        begin_backfill(job, "job", "fixed")


@pytest.mark.parametrize(("rounds", "goes_on"), [(["fixed"], True), (["", "fixed"], False), ([], False)])
def test_a_backfill_without_a_mark_goes_on_where_its_history_names_it(
    job: Job, rounds: list[str], goes_on: bool
) -> None:
    """As older versions have left it."""
    manager = checkpoint_manager(job.config, "job-fixed-1")
    manager.open_generation({0: ["Partition 0", "Partition 1"]}, now_ms=0)
    for at, name in enumerate(rounds):
        note(history_of(job.config, "job-fixed-1"), Run(generation=at, began_ms=at, master="", backfill=name))
    if goes_on:
        begin_backfill(job, "job", "fixed")
        last = manager.last_generation()
        assert last is not None and last.backfill == "fixed of job-1"
    else:
        with pytest.raises(ConfigError, match="there are checkpoints of a job of that name"):
            begin_backfill(job, "job", "fixed")
        run(named(job, "job-fixed"), task=Ignore)  # the job goes on


@pytest.mark.parametrize(
    ("wish", "error", "text"),
    [
        ("log.other@3", UnknownStreamError, "log.other is no input of the job, and no partition of one"),
        ("7", ConfigError, "7: an offset is one of a partition: give log.in.0@7, for example"),
        ("0@7", ConfigError, "0@7: name the stream of partition 0 as well: log.in.0@7"),
        ("log.in.0@99", OffsetError, "log.in.0: 99 is outside of what it holds: 0 to 0"),
    ],
)
def test_a_range_that_is_not_there_is_refused(job: Job, wish: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        backfill(job.config, Backfill("b", [wish]), Count, dry_run=True)
    with pytest.raises(ConfigError, match="'a/b' cannot be the name of a backfill"):
        backfill(job.config, Backfill("a/b"), Count, dry_run=True)


def test_a_range_that_ends_before_its_begin_is_refused(job: Job) -> None:
    job.send(0, 40)
    wanted = Backfill("b", ["log.in.0@10"], ["log.in.0@5"])
    with pytest.raises(ConfigError, match=r"log\.in\.0: the backfill would end at 5, before its begin at 10"):
        backfill(job.config, wanted, Count, dry_run=True)
    assert backfill(job.config, Backfill("b", ["log.in@5"], ["log.in@5"]), Count, dry_run=True).messages == 0


@pytest.mark.parametrize(
    ("kind", "setting"),
    [
        ("log", "retention.ms"),
        ("log", "partitions"),
        ("log", "min.compaction.lag.ms"),
        ("log", "samza.msg.serde"),
        ("kafka", "segment.index.bytes"),
        ("memory", "partitions"),
    ],
)
def test_outputs_whose_names_have_dots_keep_their_settings(kind: str, setting: str) -> None:
    config = Config(
        {
            "job.name": "job",
            "task.class": f"{__name__}:Count",
            "task.inputs": "s.orders.in",
            "systems.s.samza.factory": kind,
            f"systems.s.streams.orders.late.{setting}": "7",
            f"systems.s.streams.orders.in.{setting}": "8",
            f"systems.s.streams.out.{setting}": "9",
        }
    )
    made = Backfill("b.1").config(config, None)
    found = {key for key, value in made.items() if value in "789" and key not in config}
    assert found == {f"systems.s.streams.{each}-b.1.{setting}" for each in ("orders.late", "out")}


def test_a_backfill_creates_an_output_with_a_dot_like_that_of_the_job(spark: Any, tmp_path: Path) -> None:
    job = Job(tmp_path, **{"systems.log.streams.out.late.partitions": "3"})
    job.send(0, 10)

    class Late:
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            collector.send("log.out.late", envelope.message)

    assert backfill(job.config, Backfill("b"), Late, spark).messages == 10
    assert len(job.metadata("out.late-b")) == 3
