"""Deploying on a real Spark, on two threads of this machine. The tests of this file share the session."""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import psutil
import pytest

from streambench import OutgoingMessageEnvelope, StreambenchError, StreamTask, SystemStream, TaskError, debug
from streambench.chooser import RoundRobinChooser
from streambench.config import Config
from streambench.model import SystemStreamPartition
from streambench.spark import DeployError, DeployProgress, DeployResult, DeployTaskError, deploy, spark_job
from streambench.spark.history import runs
from streambench.spark.session import likely_master
from streambench.spark.shipment import without_endpoints
from streambench.testing import run_job
from tests.spark.conftest import Job

OUT = SystemStream("log", "out")
IN = [SystemStreamPartition("log", "in", number) for number in (0, 1)]


class Forward(StreamTask):
    """Sends every message on, into the partition it came from."""

    def process(self, envelope, collector, coordinator):
        collector.send(
            OutgoingMessageEnvelope(OUT, envelope.message, envelope.key, partition=envelope.ssp.partition)
        )


class ForwardInRuns(StreamTask):
    """The same by the column."""

    def process_batch(self, batch, collector, coordinator):
        collector.send_batch(OUT, batch.to_arrow(), partitions=batch.ssp.partition)


class Gated(Forward):
    """The same, but the message 6 waits for a file."""

    def init(self, context):
        self.gate = Path(context.config["test.gate"])

    def process(self, envelope, collector, coordinator):
        until = time.monotonic() + 60
        while envelope.message == 6 and not self.gate.exists():
            assert time.monotonic() < until
            time.sleep(0.01)
        super().process(envelope, collector, coordinator)


class RunFails(StreamTask):
    """Raises at the first run."""

    def process_batch(self, batch, collector, coordinator):
        raise ValueError(f"I do not like {len(batch)} messages")


class Total(StreamTask):
    """Sends the sum so far with each message: it depends on order, and on every message being there once."""

    def init(self, context):
        self.total = 0

    def process(self, envelope, collector, coordinator):
        self.total += envelope.message
        collector.send(OutgoingMessageEnvelope(OUT, [envelope.offset, self.total], envelope.key))


class FailsAt(StreamTask):
    """Raises at one number, and commits what was before it."""

    number = 11

    def process(self, envelope, collector, coordinator):
        if envelope.message == self.number:
            raise ValueError(f"I do not like {envelope.message}")
        collector.send(OutgoingMessageEnvelope(OUT, envelope.message, partition=envelope.ssp.partition))
        coordinator.commit()


class Present(RoundRobinChooser):
    """Takes turns, and leaves a file where it was at work."""

    directory = ""

    def stop(self) -> None:
        (Path(self.directory) / f"chooser-{os.getpid()}").touch()


def stuck_at(number: int, directory: Path) -> type[StreamTask]:
    """A task that never returns from one message, and says in the file ``stuck`` which process it is; unless
    there is a file ``free``."""
    stuck, free = directory / "stuck", directory / "free"

    class Stuck(Forward):
        def process(self, envelope, collector, coordinator):
            import os
            import threading

            if envelope.message == number and not free.exists():
                Path(f"{stuck}.new").write_text(str(os.getpid()))
                os.rename(f"{stuck}.new", stuck)
                threading.Event().wait()
            super().process(envelope, collector, coordinator)

    return Stuck


def once_stuck(directory: Path, then: Callable[[], object]) -> Callable[[DeployProgress], None]:
    """A progress callback that calls ``then`` once a task is known to be stuck."""

    def look(progress: DeployProgress) -> None:
        if (directory / "stuck").exists():
            then()

    return look


def process_of(directory: Path) -> psutil.Process:
    return psutil.Process(int((directory / "stuck").read_text()))


def test_a_chooser_of_this_program_goes_with_it_to_spark(
    job: Job, spark: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    job.send(0, 10)
    here = type("Present", (Present,), {"directory": str(job.directory), "__module__": "__main__"})
    monkeypatch.setattr(sys.modules["__main__"], "Present", here, raising=False)
    deploy(job.config.with_values({"task.chooser.class": "__main__.Present"}), Forward, spark=spark)
    assert job.numbers() == list(range(10))
    pids = {int(each.name.partition("-")[2]) for each in job.directory.glob("chooser-*")}
    assert pids
    assert os.getpid() not in pids


def test_each_container_is_a_spark_task_and_together_they_process_all(spark: Any, job: Job) -> None:
    job.send(0, 100)
    result = deploy(job.config, Forward, spark=spark)
    assert result.messages == 100
    assert [(each.number, each.tasks, each.messages, each.error) for each in result.containers] == [
        (0, ("Partition 0",), 50, None),
        (1, ("Partition 1",), 50, None),
    ]
    assert [each.offsets for each in result.containers] == [{IN[0]: ("0", "50")}, {IN[1]: ("0", "50")}]
    assert [each.messages_by_partition for each in result.containers] == [{IN[0]: 50}, {IN[1]: 50}]
    assert result.generation == job.generation() == 1
    assert job.numbers() == list(range(100))
    assert job.checkpoints() == {"Partition 0": {str(IN[0]): "49"}, "Partition 1": {str(IN[1]): "49"}}


def test_spark_names_the_job_the_round_and_the_containers(spark: Any, job: Job) -> None:
    job.send(0, 5)
    deploy(job.config, Forward, spark=spark)
    jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
    ordered = sorted((jobs.apply(at) for at in range(jobs.size())), key=lambda each: each.jobId())
    end = ordered[-1]
    latest = next(each for each in ordered if each.jobGroup() == end.jobGroup())
    assert latest.description().get() == (
        "streambench job-1, round 1: containers 0 to 1, a task each; "
        "5 messages to read, 3 of them in container 0"
    )
    # The stage page shows it, too, and a task for each container.
    stage = spark.sparkContext._jsc.sc().statusStore().lastStageAttempt(latest.stageIds().last())
    assert stage.description().get() == latest.description().get()
    assert re.fullmatch(r"collect at .*/spark_job\.py:\d+", stage.name())
    assert (stage.numTasks(), stage.numCompleteTasks()) == (2, 2)
    assert latest.jobGroup().get().startswith("streambench-job-1-round-1-")
    assert end.jobGroup().get() == latest.jobGroup().get()
    said = re.sub(r"[0-9.]+ s\b", "T", end.description().get())
    assert said == (
        "streambench job-1, round 1: ended after T; 5 messages processed; container 0 3 in T, 1 2 in T"
    )
    assert (end.status().toString(), end.numTasks()) == ("SUCCEEDED", 0)
    # The jobs of this thread are not the deployment's.
    assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") is None


def test_spark_shows_how_far_the_containers_are_while_they_run(
    spark: Any, job: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_job, "_SHOWN_EVERY_S", 0.1)
    gate = tmp_path / "gate"
    job.send(0, 10)
    said = []

    def look(progress: DeployProgress) -> None:
        jobs = spark.sparkContext._jsc.sc().statusStore().jobsList(None)
        said[:] = [jobs.apply(at).description() for at in range(jobs.size())]
        said[:] = [each.get() for each in said if each.isDefined()]
        if any("container 0 running" in each and "1 done 5" in each for each in said):
            gate.touch()

    deploy(job.config.with_values({"test.gate": gate}), Gated, spark=spark, progress=look)
    assert gate.exists(), said
    shown = {re.sub(r"[0-9.]+ s", "T", each) for each in said if "1 done 5" in each}
    assert any(each.startswith("streambench job-1, round 1: after T: ") for each in shown), shown
    assert any("1 of 2 containers done, 1 running" in each for each in shown), shown


def test_a_container_without_new_messages_is_not_started(spark: Any, job: Job) -> None:
    job.send(0, 4)
    deploy(job.config, Forward, spark=spark)
    job.send(5, 6)
    idle, busy = deploy(job.config, Forward, spark=spark).containers
    assert (idle.messages, idle.process, idle.offsets) == (0, 0, {IN[0]: ("2", "2")})
    assert busy.process and busy.messages_by_partition == {IN[1]: 1}


def test_runs_of_messages_end_where_planning_saw_the_end(spark: Any, job: Job) -> None:
    job.send(0, 100)
    result = deploy(job.config.with_values({"task.batch.messages": 7}), ForwardInRuns, spark=spark)
    assert [each.messages for each in result.containers] == [50, 50]
    assert job.numbers() == list(range(100))
    assert job.checkpoints() == {"Partition 0": {str(IN[0]): "49"}, "Partition 1": {str(IN[1]): "49"}}


def test_a_run_that_fails_names_its_first_and_its_last_message(spark: Any, job: Job) -> None:
    job.send(0, 20)
    with pytest.raises(
        DeployTaskError, match=r"log\.in\.[01]@0\.\.9 \(a run of 10 messages\): ValueError: I do not like 10"
    ):
        deploy(job.config, RunFails, spark=spark)


def test_outputs_are_the_same_as_of_a_run_in_memory(spark: Any, job: Job) -> None:
    job.send(0, 300)
    deploy(job.config, Total, spark=spark)
    in_memory = run_job(
        Total,
        {
            "systems.log.samza.msg.serde": "json",
            "systems.log.samza.key.serde": "string",
            "systems.log.streams.out.partitions": 2,
        },
        {"log.in": {number: [(f"k{each % 7}", each) for each in range(number, 300, 2)] for number in (0, 1)}},
    ).outputs["log.out"]
    # Two containers write side by side: only what one task sends into one partition has an order.
    deployed = job.read()
    assert {number: sorted(rows) for number, rows in deployed.items()} == {
        number: sorted(rows) for number, rows in in_memory.items()
    }


def test_the_next_one_goes_on_from_the_checkpoints(spark: Any, job: Job) -> None:
    job.send(0, 10)
    deploy(job.config, Forward, spark=spark)
    job.send(10, 30)
    result = deploy(job.config, Forward, spark=spark)
    assert result.messages == 20
    assert result.containers[1].offsets == {IN[1]: ("5", "15")}
    assert job.numbers() == list(range(30))


def test_nothing_is_started_where_there_is_nothing_new(spark: Any, job: Job) -> None:
    job.send(0, 10)
    deploy(job.config, Forward, spark=spark)
    result = deploy(job.config, Forward, spark=spark)
    assert (result.messages, result.generation, result.rounds) == (0, None, 0)
    assert result.containers[0].offsets == {IN[0]: ("5", "5")}
    assert job.generation() == 1


def test_a_first_start_with_nothing_to_read_still_remembers_where_it_began(
    spark: Any, tmp_path: Path
) -> None:
    job = Job(tmp_path, **{"systems.log.samza.offset.default": "upcoming"})
    job.send(0, 10)
    assert deploy(job.config, Forward, spark=spark).messages == 0
    job.send(10, 14)
    assert deploy(job.config, Forward, spark=spark).messages == 4
    assert job.numbers() == [10, 11, 12, 13]


def test_a_class_in_a_file_is_sent_along_as_it_is_now(spark: Any, job: Job) -> None:
    """A Python worker of Spark is used again and keeps the modules that it has imported: they must not
    decide."""
    file = job.directory / "mytask.py"
    text = (
        "from streambench import OutgoingMessageEnvelope, SystemStream\n"
        "FACTOR = {}\n"
        "def times(number): return number * FACTOR\n"
        "class Times:\n"
        "    def process(self, envelope, collector, coordinator):\n"
        "        collector.send(OutgoingMessageEnvelope(SystemStream('log', 'out'), "
        "times(envelope.message)))\n"
    )
    config = job.config.with_values({"task.class": "mytask.py:Times"})
    file.write_text(text.format(10))
    job.send(1, 3)
    deploy(config, spark=spark)
    file.write_text(text.format(1000))
    job.send(3, 5)
    deploy(config, spark=spark)
    assert job.numbers() == [10, 20, 3000, 4000]


def test_a_failing_task_is_reported_with_its_message_and_its_code(spark: Any, job: Job) -> None:
    job.send(0, 40)
    with pytest.raises(DeployTaskError) as caught:
        deploy(job.config, FailsAt, spark=spark)
    error = caught.value
    assert isinstance(error, TaskError)
    assert (error.container, error.task, error.ssp, error.offset, error.key) == (
        1,
        "Partition 1",
        IN[1],
        "5",
        "k4",
    )
    for part in (
        "container 1",
        "Partition 1",
        "log.in.1@5",
        "'k4'",
        "ValueError: I do not like 11",
        'raise ValueError(f"I do not like',
    ):
        assert part in str(error)
    good, bad = error.result.containers
    assert (good.messages, good.error) == (20, None)
    assert bad.error and "I do not like 11" in bad.error
    assert bad.offsets == {IN[1]: ("0", "5")}
    assert job.checkpoints()["Partition 1"] == {str(IN[1]): "4"}


def test_after_a_failure_the_next_one_goes_on_at_the_failing_message(spark: Any, job: Job) -> None:
    job.send(0, 40)
    with pytest.raises(DeployTaskError):
        deploy(job.config, FailsAt, spark=spark)
    result = deploy(job.config, Forward, spark=spark)
    assert result.messages == 15
    assert job.numbers() == list(range(40))


def dies_at(number: int, marker: Path, *, always: bool = False) -> type[StreamTask]:
    """A task whose Python process ends without a word at one message."""

    class Dies(Forward):
        def process(self, envelope, collector, coordinator):
            import os

            if envelope.message == number and (always or not marker.exists()):
                marker.touch()
                os._exit(1)
            super().process(envelope, collector, coordinator)
            coordinator.commit()

    return Dies


def test_a_python_process_that_dies_is_started_again_and_goes_on(spark: Any, job: Job) -> None:
    job.send(0, 40)
    result = deploy(job.config, dies_at(21, job.directory / "died"), spark=spark)
    assert [(each.attempt, each.messages) for each in result.containers] == [(0, 20), (1, 20)]
    assert result.containers[1].offsets == {IN[1]: ("0", "20")}
    assert job.numbers() == list(range(40))


def test_a_python_process_that_dies_again_and_again_is_given_up(spark: Any, job: Job) -> None:
    job.send(0, 40)
    with pytest.raises(DeployError, match="Spark gave up: .*; log.in.1 is at 10 of 20") as caught:
        deploy(job.config, dies_at(21, job.directory / "died", always=True), spark=spark)
    assert caught.value.container == 1
    assert caught.value.result.containers[1].offsets == {IN[1]: ("0", "10")}
    assert caught.value.result.containers[1].messages_by_partition == {IN[1]: 10}


def test_a_task_that_cannot_be_sent_stops_nothing_that_runs(spark: Any, job: Job) -> None:
    job.send(0, 10)
    lock = threading.Lock()

    class Locked(StreamTask):
        def process(self, envelope, collector, coordinator):
            with lock:
                pass

    with pytest.raises(StreambenchError, match=r"Locked cannot be sent to Spark .*init\(\)"):
        deploy(job.config, Locked, spark=spark)
    assert job.generation() == 0


def test_progress_ends_with_the_truth(spark: Any, job: Job) -> None:
    job.send(0, 100)
    seen: list[DeployProgress] = []
    result = deploy(job.config, Forward, spark=spark, progress=seen.append)
    assert {each.job for each in seen} == {result.job}
    last = seen[-1]
    assert (last.containers, last.active, last.done, last.messages, last.total) == (2, 0, 2, 100, 100)
    assert (last.stage, last.left, last.partitions_done, last.partitions) == ("ended", 0, 2, 2)
    assert all(before.messages <= after.messages for before, after in zip(seen, seen[1:], strict=False))


def test_progress_shows_a_container_that_is_stuck_and_one_that_fails(spark: Any, job: Job) -> None:
    job.send(0, 40)
    seen: list[DeployProgress] = []
    cancel = threading.Event()

    def look(progress: DeployProgress) -> None:
        seen.append(progress)
        if progress.done and progress.active and progress.each[0].left == 0:
            cancel.set()

    with pytest.raises(DeployError, match="cancelled"):
        deploy(job.config, stuck_at(21, job.directory), spark=spark, progress=look, cancel=cancel)
    assert [(each.stage, each.messages, each.left) for each in seen[-2].each] == [
        ("done", 20, 0),
        ("running", 0, 20),
    ]
    assert [(each.stage, each.messages, each.left) for each in seen[-1].each] == [
        ("done", 20, 0),
        ("failed", 0, 20),
    ]
    seen.clear()
    with pytest.raises(DeployTaskError):
        deploy(job.config, FailsAt, spark=spark, progress=seen.append)
    assert [(each.number, each.stage) for each in seen[-1].each] == [(1, "failed")]
    assert "I do not like 11" in seen[-1].each[0].error


def test_cancelling_ends_the_python_processes_and_keeps_what_is_committed(spark: Any, job: Job) -> None:
    job.send(0, 40)
    cancel = threading.Event()
    with pytest.raises(DeployError, match="cancelled") as caught:
        deploy(
            job.config,
            stuck_at(21, job.directory),
            spark=spark,
            cancel=cancel,
            progress=once_stuck(job.directory, cancel.set),
        )
    assert caught.value.result.containers[1].offsets == {IN[1]: ("0", "0")}
    assert not process_of_is_alive(job.directory)  # it was waited for
    assert deploy(job.config, Forward, spark=spark).containers[1].messages == 20
    assert set(job.numbers()) == set(range(40))


def test_ctrl_c_cancels_the_spark_job(spark: Any, job: Job) -> None:
    job.send(0, 40)
    with pytest.raises(KeyboardInterrupt):
        deploy(
            job.config, stuck_at(21, job.directory), spark=spark,
            progress=once_stuck(job.directory, lambda: signal.raise_signal(signal.SIGINT)),
        )  # fmt: skip
    assert list(spark.sparkContext.statusTracker().getActiveJobsIds()) == []
    (job.directory / "free").touch()
    assert deploy(job.config, Forward, spark=spark).containers[1].messages == 20


def process_of_is_alive(directory: Path) -> bool:
    try:
        return process_of(directory).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Rounds(threading.Event):
    """Set after as many rounds as there are steps; each step is done between two rounds."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        super().__init__()
        self._steps = list(steps)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._steps:
            return True
        self._steps.pop(0)()
        return self.is_set()


def test_every_goes_on_with_what_has_arrived_meanwhile(spark: Any, job: Job) -> None:
    job.send(0, 10)
    rounds = Rounds(lambda: job.send(10, 16), lambda: None, lambda: job.send(16, 20))
    result = deploy(job.config, Forward, spark=spark, every=0.5, cancel=rounds)
    assert (result.messages, result.rounds, result.generation) == (20, 3, 3)
    assert result.containers[0].offsets == {IN[0]: ("0", "10")}
    assert job.numbers() == list(range(20))


def test_ctrl_c_between_rounds_is_the_way_to_end_them(spark: Any, job: Job) -> None:
    job.send(0, 10)
    result: DeployResult = deploy(
        job.config, Forward, spark=spark, every=0.5, cancel=Rounds(lambda: signal.raise_signal(signal.SIGINT))
    )
    assert (result.messages, result.rounds) == (10, 1)


def test_a_session_that_was_given_is_left_as_it_was(spark: Any, job: Job) -> None:
    job.send(0, 10)
    before = signal.getsignal(signal.SIGINT)
    deploy(job.config, Forward, spark=spark)
    assert spark.range(3).count() == 3
    assert list(spark.sparkContext.getJobTags()) == []
    assert signal.getsignal(signal.SIGINT) is before


def test_the_active_session_is_used_where_none_is_given(spark: Any, job: Job) -> None:
    job.send(0, 10)
    assert likely_master(job.config) == spark.conf.get("spark.master")
    assert deploy(job.config, Forward).master == spark.conf.get("spark.master")
    assert spark.range(3).count() == 3


def test_a_context_alone_is_used_as_well(spark: Any, job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    job.send(0, 10)
    monkeypatch.setattr(SparkSession, "active", Mock(side_effect=PySparkException("there is none")))
    assert deploy(job.config, Forward).messages == 10


def test_an_active_session_on_another_master_is_not_passed_over(spark: Any, job: Job) -> None:
    job.send(0, 10)
    with pytest.raises(
        StreambenchError, match="active Spark session on local.2,4., and this process can have only one"
    ):
        deploy(job.config, Forward, master="spark://somewhere:7077")


SNAPSHOT = {"metrics.reporter.s.class": "snapshot", "metrics.reporter.s.stream": "log.metrics"}
PROMETHEUS = {"metrics.reporter.p.class": "prometheus", "metrics.reporter.p.port": "1"}


class Counts(StreamTask):
    def init(self, context):
        self.seen = context.metrics.counter("seen")

    def process(self, envelope, collector, coordinator):
        self.seen.inc()
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))


@pytest.mark.parametrize(("named", "left"), [("s,p", "s"), ("p", None), ("s", "s"), (None, None)])
def test_endpoints_stay_at_home(named: str | None, left: str | None) -> None:
    config = Config({**SNAPSHOT, **PROMETHEUS, "metrics.reporters": named})
    assert without_endpoints(config).text("metrics.reporters") == left


def test_containers_write_snapshots_from_the_executors(job: Job, spark: Any) -> None:
    job.config = job.config.with_values({**SNAPSHOT, **PROMETHEUS, "metrics.reporters": "s,p"})
    job.send(0, 10)
    assert deploy(job.config, Counts, spark=spark).messages == 10
    told = [message for _, message in job.read("metrics")[0]]
    seen = {
        each["header"]["source"]: each["metrics"]["Counts"]["seen"]
        for each in told
        if "Counts" in each["metrics"]
    }
    assert seen == {"TaskName-Partition 0": 5, "TaskName-Partition 1": 5}
    assert {each["header"]["container-name"] for each in told} == {"samza-container-0", "samza-container-1"}


class Keeps(Forward):
    """Counts in a store, and fails at one message when it has counted it."""

    def init(self, context):
        self.store = context.store("n")

    def process(self, envelope, collector, coordinator):
        self.store.put("all", (self.store.get("all") or 0) + 1)
        if envelope.message == 11:
            raise ValueError("I do not like 11")
        super().process(envelope, collector, coordinator)


def test_a_failure_on_spark_names_a_capture_that_can_be_stepped(spark: Any, job: Job) -> None:
    job.send(0, 40)
    stores = {"stores.n.factory": "memory", "stores.n.key.serde": "string", "stores.n.msg.serde": "integer"}
    with pytest.raises(DeployTaskError) as caught:
        deploy(job.config.with_values(stores), Keeps, spark=spark)
    captured = re.search(r"captured: streambench replay (\S+)", str(caught.value))
    assert captured is not None, caught.value
    session = debug.open(captured[1], Keeps)
    assert session.message is not None
    assert (session.message.ssp, session.message.offset) == (IN[1], "5")
    assert session.stores() == {"Partition 1": {"n": {"all": 5}}}
    with pytest.raises(TaskError, match="I do not like 11"):
        session.step()


def test_each_round_with_something_to_do_is_in_the_history(job: Job, spark: Any) -> None:
    job.send(0, 10)
    result = deploy(job.config, Forward, spark=spark)
    deploy(job.config, Forward, spark=spark)
    [run] = runs(job.config)
    assert (run.generation, run.messages, run.failed) == (result.generation, 10, 0)
    assert [each.offsets for each in run.containers] == [{"log.in.0": ("0", "5")}, {"log.in.1": ("0", "5")}]
