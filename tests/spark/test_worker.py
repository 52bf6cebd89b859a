"""What runs inside a Spark task, without Spark around it."""

from __future__ import annotations

import errno
import logging
import os
import pickle
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from streambench import OutgoingMessageEnvelope, StreambenchError, StreamTask, SystemStream
from streambench.checkpoint.journal_records import JournalRecords
from streambench.errors import ConfigError, ReplacedError, TaskError
from streambench.model import SystemStreamPartition
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark import running, task_output, worker
from streambench.spark.outcome import outcome
from streambench.spark.plan import DeployPlan, make_plan, open_generation
from streambench.spark.progress import Listener
from streambench.spark.round_progress import planned_progress
from streambench.spark.running import DeploymentLock, LockWatch
from streambench.spark.shared import SharedDirectory, check_shared, tokens
from streambench.spark.shipment import sources
from streambench.spark.worker import Report, RunContainers, Shipment, local_files
from streambench.system.systems import Systems
from tests.spark.conftest import Job

IN = [SystemStreamPartition("log", "in", number) for number in (0, 1)]


class Forward(StreamTask):
    def process(self, envelope, collector, coordinator):
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))


class Warns(Forward):
    def init(self, context):
        logging.getLogger("streambench.somewhere").warning("mind %s", context.task_name)


class Slow(Forward):
    def process(self, envelope, collector, coordinator):
        threading.Event().wait(0.001)


class Exits(Forward):
    def process(self, envelope, collector, coordinator):
        sys.exit(3)


class FailsAtThree(Forward):
    def process(self, envelope, collector, coordinator):
        if envelope.message == 3:
            raise ValueError("three")
        super().process(envelope, collector, coordinator)


class Prints(Forward):
    def process(self, envelope, collector, coordinator):
        os.write(1, b"seen\n")
        os.system("echo from a subprocess >&2")
        raise ValueError("no")


def packed(planned: DeployPlan, **changes: Any) -> RunContainers:
    texts = sources(planned.task)
    values: dict[str, Any] = {
        "directories": {},
        "sources": texts,
        "progress": None,
        "names": {},
        **changes,
    }
    return RunContainers(
        pickle.dumps(Shipment(planned.config, planned.task, model=planned.model, ends=planned.ends, **values))
    )


def run(job: Job, task: Any, **changes: Any) -> Report:
    """Run container 0 of a job."""
    planned = make_plan(job.config, task)
    containers = packed(planned, **changes)
    containers.generation = open_generation(planned)
    return containers.run(0)


def unpacked(
    planned: DeployPlan, task: Any, monkeypatch: pytest.MonkeyPatch, lock_path: str = ""
) -> RunContainers:
    """The containers of a task that is not pickled, such as a class of a test that knows its variables."""
    containers = RunContainers(b"")
    containers.generation = open_generation(planned)
    shipment = Shipment(planned.config, task, {}, planned.model, planned.ends, {}, {}, None, lock_path)
    monkeypatch.setattr(containers, "_unpacked", lambda: shipment)
    return containers


def test_a_container_reports_what_it_did(job: Job) -> None:
    job.send(0, 10)
    report = run(job, Forward)
    assert (report.number, report.attempt, report.messages, report.failure) == (0, 0, 5, None)
    assert report.offsets == {IN[0]: ("0", "5")}
    assert job.numbers() == [0, 2, 4, 6, 8]


def test_a_report_is_at_the_driver_what_it_was(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    class Odd(Warns):
        def process(self, envelope, collector, coordinator):
            if envelope.message == 8:
                raise ValueError("a lone \ud800")

    job.send(0, 10)
    planned = make_plan(job.config, Odd)
    reports = [unpacked(planned, Odd, monkeypatch).run(0), run(job, Forward)]
    failed, ended = (Report.from_bytes(each.to_bytes()) for each in reports)
    assert ended == reports[1]
    assert failed.failure is not None and "a lone \\ud800" in failed.failure.text
    assert (failed.starts, failed.warnings) == (reports[0].starts, reports[0].warnings)


class Tag(str):
    """A key of a serde of one's own."""


@pytest.mark.parametrize(
    ("key", "offset", "last", "is_kept"),
    [(Tag("a"), "7", "6", True), ("a", Tag("7"), Tag("6"), True), (1, 7, 1 << 70, False)],
)
def test_a_failure_at_values_of_any_type_reaches_the_driver(
    monkeypatch: pytest.MonkeyPatch, key: Any, offset: Any, last: Any, is_kept: bool
) -> None:
    def fails(*given: object) -> None:
        raise TaskError(
            "the real failure", task="Partition 0", ssp=IN[0], offset=offset, key=key, last_offset=last
        )

    monkeypatch.setattr(worker, "_run", fails)
    containers = RunContainers(b"")
    monkeypatch.setattr(containers, "_unpacked", lambda: SimpleNamespace(output=""))
    (data,) = containers.run_row(0)
    failure = Report.from_bytes(data).failure
    assert failure is not None and "the real failure" in failure.text
    assert (failure.kind, failure.task) == ("TaskError", "Partition 0")
    if is_kept:
        assert (failure.key, failure.offset, failure.last_offset) == ("a", "7", "6")


def test_a_report_of_values_of_any_type_is_sent_or_says_why_not() -> None:
    report = Report(0, 0, "host", 1, messages=np.int64(3), offsets={IN[0]: ("0", Tag("3"))})
    assert Report.from_bytes(report.to_bytes()) == Report(
        0, 0, "host", 1, messages=3, offsets={IN[0]: ("0", "3")}
    )
    odd: Any = object()
    failure = Report.from_bytes(Report(0, 0, "host", 1, starts={IN[0]: odd}).to_bytes()).failure
    assert failure is not None and "its report cannot be sent" in failure.text


def test_a_container_of_several_partitions_reports_the_messages_of_each(job: Job) -> None:
    job.config = job.config.with_values({"job.container.count": 1})
    job.send(0, 5)
    report = run(job, Forward)
    assert (report.messages, report.messages_by_partition) == (5, {IN[0]: 3, IN[1]: 2})


def test_a_container_that_failed_counts_by_partition_what_it_counts_in_all(job: Job) -> None:
    job.config = job.config.with_values({"job.container.count": 1})
    job.send(0, 5)
    report = run(job, FailsAtThree)
    assert report.failure is not None
    assert (report.messages, report.messages_by_partition) == (3, {IN[0]: 2, IN[1]: 1})


def test_what_a_container_that_failed_has_not_committed_does_not_count(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    class FailsToo(FailsAtThree):
        def process(self, envelope, collector, coordinator):
            if envelope.message == 2:
                coordinator.commit()
            if envelope.message == 8:
                open_generation(planned)
                coordinator.commit()
            collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))

    job.send(0, 10)
    planned = make_plan(job.config, FailsToo)
    container = unpacked(planned, FailsToo, monkeypatch)
    report = container.run(0)
    assert report.messages > 2
    fenced, *_ = outcome(planned, [report], "")
    assert (fenced.messages, fenced.messages_by_partition) == (2, {IN[0]: 2})
    assert fenced.offsets == {IN[0]: ("0", "2")}


@pytest.mark.parametrize(
    ("task", "expected"),
    [
        (Forward, ("done", 20, 0, 1, "")),
        (FailsAtThree, ("failed", 1, 19, 0, "three")),
    ],
)
def test_a_container_reports_its_progress_up_to_its_end(
    job: Job, task: type, expected: tuple[Any, ...]
) -> None:
    job.send(0, 40)
    planned = make_plan(job.config, task)
    with Listener("127.0.0.1", planned_progress(planned)) as listener:
        containers = packed(planned, progress=listener.address)
        containers.generation = open_generation(planned)
        containers.run(1)
        waiting, seen = listener.read().each
    assert (waiting.stage, waiting.left) == ("waiting", 20)
    *figures, error = expected
    assert [seen.stage, seen.messages, seen.left, seen.partitions_done] == figures
    assert error in seen.error


def test_it_stops_at_the_planned_end_whatever_arrives_later(job: Job) -> None:
    job.send(0, 10)
    planned = make_plan(job.config, Forward)
    job.send(10, 30)
    containers = packed(planned)
    containers.generation = open_generation(planned)
    assert containers.run(0).offsets == {IN[0]: ("0", "5")}


def test_each_row_of_a_batch_is_a_container_and_gives_a_row(job: Job) -> None:
    job.send(0, 10)
    planned = make_plan(job.config, Forward)
    containers = packed(planned)
    containers.generation = open_generation(planned)
    given: Sequence[pa.RecordBatch] = [pa.record_batch({"id": [1]}), pa.record_batch({"id": [0]})]
    reports = [Report.from_bytes(batch.column("report")[0].as_py()) for batch in containers(iter(given))]
    assert [(each.number, each.messages) for each in reports] == [(1, 5), (0, 5)]


def test_started_again_it_goes_on_from_the_last_commit(job: Job) -> None:
    job.send(0, 10)
    planned = make_plan(job.config, Forward)
    containers = packed(planned)
    containers.generation = open_generation(planned)
    assert [containers.run(0).messages, containers.run(0).messages] == [5, 0]
    assert job.numbers() == [0, 2, 4, 6, 8]


def test_one_of_an_older_start_is_shut_out(job: Job) -> None:
    job.send(0, 10)
    planned = make_plan(job.config, Forward)
    containers = packed(planned)
    containers.generation = open_generation(planned)
    open_generation(planned)
    failure = containers.run(0).failure
    assert failure is not None
    assert failure.kind == "SupersededError"


def test_a_container_that_a_newer_start_ends_is_not_tried_again(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Closed(Forward):
        """Commits while a newer start has closed its checkpoints, and not opened its own generation yet."""

        def process(self, envelope, collector, coordinator):
            with pytest.raises(ZeroDivisionError):
                open_generation(planned)
            coordinator.commit()

    job.send(0, 10)
    planned = make_plan(job.config, Closed)
    container = unpacked(planned, Closed, monkeypatch)
    monkeypatch.setattr(JournalRecords, "check_unused", lambda *given: 1 / 0)
    failure = container.run(0).failure
    assert failure is not None
    assert failure.kind == "SupersededError"


class Replaced(Forward):
    """Has its container claimed again, as another attempt of Spark's does."""

    def init(self, context):
        self.config = context.config

    def process(self, envelope, collector, coordinator):
        manager = checkpoint_manager(self.config, "job-1")
        last = manager.last_generation()
        assert last is not None
        manager.claim(last.number, 0, now_ms=0)
        manager.close()
        coordinator.commit()


def test_a_replaced_attempt_fails_for_spark_and_reports_nothing(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_KILLED_WITHIN_S", 0)
    job.send(0, 10)
    with pytest.raises(ReplacedError):
        run(job, Replaced)


def held(job: Job, monkeypatch: pytest.MonkeyPatch) -> DeploymentLock:
    """The lock of a driver, which is gone as soon as it is seen to be free."""
    monkeypatch.setattr(running, "_GONE_S", 0)
    driver = DeploymentLock(job.config, "job-1", "refuse")
    driver.acquire()
    return driver


def test_a_container_whose_driver_is_gone_commits_and_stops(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = held(job, monkeypatch)
    job.send(0, 20_000)

    class Orphaned(Forward):
        def process(self, envelope, collector, coordinator):
            super().process(envelope, collector, coordinator)
            driver.release()
            threading.Event().wait(0.001)

    planned = make_plan(job.config, Orphaned)
    lock_path = driver.lock_path
    container = unpacked(planned, Orphaned, monkeypatch, lock_path)
    report = container.run(0)
    assert report.failure is not None
    assert f"has ended ({lock_path} is not locked on {report.host}); the" in report.failure.text
    assert 0 < report.messages < 10_000
    assert job.checkpoints()["Partition 0"] == {str(IN[0]): str(report.messages - 1)}


def test_a_container_that_starts_after_the_death_of_its_driver_stops(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = held(job, monkeypatch)
    job.send(0, 20_000)
    planned = make_plan(job.config, Slow)
    path = driver.lock_path
    containers = packed(planned, lock_path=path, is_visible=driver.is_visible)
    containers.generation = open_generation(planned)
    driver.release()
    report = containers.run(0)
    assert report.failure is not None and report.messages < 10_000
    said = report.failure.text
    assert f"has ended ({path} is not locked on {report.host}), or {report.host} does not see" in said
    assert f"Mount {Path(path).parent} with locks that all machines see, as NFS does without nolock" in said
    assert "or keep the checkpoints in Kafka; the container stopped with a commit" in said


def test_a_lock_out_of_sight_is_no_proof_that_its_driver_is_gone(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = held(job, monkeypatch)
    watch = LockWatch(driver.lock_path, is_visible=True)
    directory = Path(driver.lock_path).parent
    away = directory.rename(directory.with_name("away"))
    assert not watch.is_gone() and not watch.is_gone()
    driver.release()
    away.rename(directory)
    assert watch.is_gone()
    assert not LockWatch(str(directory / "deployment.lock")).is_gone()  # it was never seen


def test_a_task_that_exits_does_not_take_the_python_worker_with_it(job: Job) -> None:
    job.send(0, 10)
    failure = run(job, Exits).failure
    assert failure is not None
    assert "sys.exit(3) was called" in failure.text


def test_a_container_keeps_what_it_prints_where_spark_does_not(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job.send(0, 10)
    output = task_output.begin(tmp_path / "kept")
    assert run(job, Prints, output=output).failure is not None
    print("afterwards")
    assert Path(task_output.log_of(output, 0)).read_text().splitlines() == ["seen", "from a subprocess"]
    assert capfd.readouterr() == ("afterwards\n", "")
    assert task_output.log_of(output, 1) == ""
    assert task_output.begin(tmp_path / "kept") == output
    assert task_output.log_of(output, 0) == ""


def test_a_directory_that_is_not_there_costs_the_output_alone(
    job: Job, tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    job.send(0, 10)
    run(job, Prints, output=str(tmp_path / "nowhere"))
    assert capfd.readouterr() == ("seen\n", "from a subprocess\n")
    (tmp_path / "file").touch()
    assert task_output.begin(tmp_path / "file") == ""
    assert "what tasks print is not kept" in caplog.text
    assert task_output.begin(None) == ""


def test_warnings_come_back_with_the_report(job: Job) -> None:
    job.send(0, 10)
    assert "mind Partition 0" in [each.text for each in run(job, Warns).warnings]
    assert not [
        each
        for each in logging.getLogger("streambench").handlers
        if type(each).__module__ == RunContainers.__module__
    ]


def test_an_executor_that_lacks_the_directory_says_so(job: Job) -> None:
    job.send(0, 10)
    failure = run(job, Forward, directories={"systems.log.path": SharedDirectory("/nowhere/streams")}).failure
    assert failure is not None
    assert "systems.log.path" in failure.text
    assert "does not see /nowhere/streams" in failure.text


def test_an_executor_that_sees_another_directory_of_the_same_path_says_so(job: Job) -> None:
    job.send(0, 10)
    path = job.directory / "streams"
    other = SharedDirectory(str(path), str(path / ".streambench-1.token"), "1")
    failure = run(job, Forward, directories={"systems.log.path": other}).failure
    assert failure is not None
    assert "streams on the executor" in failure.text and "another directory than on the dri" in failure.text
    assert job.metadata("in")[0].upcoming == "5" and not job.checkpoints()


def test_a_token_lies_in_each_directory_of_the_job_and_in_none_afterwards(job: Job) -> None:
    output = {"systems.o.samza.factory": "log", "systems.o.path": "made/for/outputs"}
    rows = {"systems.f.samza.factory": "file", "systems.f.path": "rows.jsonl"}
    kept = {"task.checkpoint.system": "file", "task.checkpoint.path": "checkpoints"}
    with tokens(job.config.with_values({**output, **rows, **kept})) as shared:
        assert {key: each.path for key, each in shared.items()} == {
            "systems.log.path": str(job.directory / "streams"),
            "systems.o.path": str(job.directory / "made/for/outputs"),
            "systems.f.path": str(job.directory),
            "task.checkpoint.path": str(job.directory / "checkpoints"),
        }
        check_shared(shared, "here")
        assert Systems(job.config).admin("log").streams() == [SystemStream("log", "in")]
    assert not list(job.directory.rglob(".streambench-*"))


@pytest.mark.parametrize(("number", "is_refused"), [(errno.ENOSPC, True), (errno.EROFS, False)])
def test_a_directory_that_cannot_be_proved_shared_is_refused_or_warned_of(
    job: Job, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, number: int, is_refused: bool
) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr("streambench.spark.shared.os.fsync", fails)
    if is_refused:
        with pytest.raises(StreambenchError, match=r"^systems\.log\.path: .* No space left on device"):
            tokens(job.config).__enter__()
    else:
        for _ in range(2):
            with tokens(job.config) as shared:
                assert shared["systems.log.path"] == SharedDirectory(str(job.directory / "streams"))
        assert [each.message for each in caplog.records] == [
            f"systems.log.path: this process may not write to {job.directory / 'streams'}: it is not proved "
            "that executors see the same directory"
        ]
    assert not list(job.directory.rglob(".streambench-*"))


def test_a_directory_that_cannot_be_created_is_named_by_its_key(job: Job) -> None:
    (job.directory / "file").touch()
    values = {"systems.other.samza.factory": "log", "systems.other.path": job.directory / "file" / "below"}
    with (
        pytest.raises(ConfigError, match=r"systems\.other\.path.* cannot be created: Not a directory"),
        tokens(job.config.with_values(values)),
    ):
        pass


def test_an_executor_with_another_version_says_so(job: Job) -> None:
    report = RunContainers(b"not even looked at", version="0.0.1").run(0)
    assert report.failure is not None
    assert "the driver 0.0.1: install the same version on both" in report.failure.text


def test_an_executor_without_a_module_of_the_task_names_it(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "only_on_the_driver.py").write_text("class Task:\n    def process(self, e, c, k): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import only_on_the_driver  # type: ignore[import-not-found]

    job.send(0, 2)
    containers = packed(make_plan(job.config, only_on_the_driver.Task))
    monkeypatch.undo()
    monkeypatch.delitem(sys.modules, "only_on_the_driver")
    failure = containers.run(0).failure
    assert failure is not None
    assert "needs the module only_on_the_driver" in failure.text


def test_files_of_stores_lie_on_the_executors_disk_apart_by_attempt(
    job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"{tmp_path / 'local'},/elsewhere")
    config = job.config.with_values(
        {"stores.s.factory": "rocksdb", "job.non-logged.store.base.dir": tmp_path / "asked"}
    )
    keys = ("job.logged.store.base.dir", "job.non-logged.store.base.dir")
    with local_files(config) as one, local_files(config) as other:
        places = [each.path(key) for each in (one, other) for key in keys]
        assert [place.parent for place in places] == [tmp_path / "local", tmp_path / "asked"] * 2
        assert len(set(places)) == 4
    assert not any(place.exists() for place in places)
    with local_files(job.config) as untouched:
        assert untouched is job.config
