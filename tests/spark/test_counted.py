"""The messages of containers in Spark's own metrics, as its UI shows them. The tests share the session."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pyarrow as pa
import pytest

from streambench.errors import FencedError
from streambench.job.failure import Failure
from streambench.spark import counted, deploy
from streambench.spark.session_handle import SessionHandle
from streambench.spark.worker import Report, RunContainers
from tests.spark import counting
from tests.spark.conftest import Job
from tests.spark.test_deploy import Forward, dies_at


class Attempt(msgspec.Struct, frozen=True):
    """A line of the page of a stage: the index of the task, and the messages by each of the two measures."""

    task: int
    status: str
    messages: int | None
    records: int


def attempts_of(spark: Any, group: str) -> list[Attempt]:
    """The lines of the page of the stage of a round, as Spark's UI has them."""
    store = spark.sparkContext._jsc.sc().statusStore()
    jobs = store.jobsList(None)
    found = [jobs.apply(at) for at in range(jobs.size())]
    latest = next(each for each in found if each.numTasks() and group in str(each.jobGroup()))
    tasks = store.taskList(latest.stageIds().last(), 0, 100)
    lines = []
    for task in (tasks.apply(at) for at in range(tasks.size())):
        updates = task.accumulatorUpdates()
        counts = {updates.apply(at).name(): updates.apply(at).update().get() for at in range(updates.size())}
        messages = int(counts["messages"]) if "messages" in counts else None
        records = task.taskMetrics().get().inputMetrics().recordsRead()
        lines.append((task.index(), task.attempt(), Attempt(task.index(), task.status(), messages, records)))
    return [line for *_, line in sorted(lines, key=lambda each: each[:2])]


def test_the_page_of_the_stage_has_the_messages_of_each_task(
    spark: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionHandle, "shows_metrics", True)
    config = job.config.with_values({"job.name": "counted"})
    for last, counts in ((7, (4, 3)), (40, (16, 17))):
        job.send(last - sum(counts), last)
        result = deploy(config, Forward, spark=spark)
        assert [each.messages for each in result.containers] == list(counts)
        assert attempts_of(spark, "counted-1") == [
            Attempt(at, "SUCCESS", messages, messages) for at, messages in enumerate(counts)
        ]
    assert job.numbers() == list(range(40))
    assert spark.sql("show user functions like '*streambench_count*'").collect() == []
    executions = spark._jsparkSession.sharedState().statusStore().executionsList()
    described = [executions.apply(at).description() for at in range(executions.size())]
    assert len([each for each in described if "counted-1, round 1: containers" in each]) == 2


def test_each_attempt_at_a_container_is_counted_for_itself(
    spark: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionHandle, "shows_metrics", True)
    job.send(0, 40)
    config = job.config.with_values({"job.name": "retried"})
    result = deploy(config, dies_at(21, job.directory / "died"), spark=spark)
    assert [(each.attempt, each.messages) for each in result.containers] == [(0, 20), (1, 20)]
    first, *others = attempts_of(spark, "retried-1")
    assert first == Attempt(0, "SUCCESS", 20, 20)
    assert [(each.task, each.status, each.messages) for each in others] == [
        (1, "FAILED", None),
        (1, "SUCCESS", 10),
    ]


def test_a_session_that_cannot_count_runs_the_containers_all_the_same(
    spark: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionHandle, "shows_metrics", True)
    monkeypatch.setattr(counted, "_CLASS", "streambench.Absent")
    job.send(0, 4)
    config = job.config.with_values({"job.name": "uncounted"})
    assert deploy(config, Forward, spark=spark).messages == 4
    assert [each.messages for each in attempts_of(spark, "uncounted-1")] == [None, None]


class Stepping:
    """Stands for containers, of which each reports three times how far it is, and ends with 10 messages."""

    def __init__(self, failure: Exception | None = None) -> None:
        self._failure = failure

    def number_of(self, row: int) -> int:
        return row + 5

    def run(self, number: int, on_processed: Callable[[int], object] = lambda count: None) -> Report:
        for count in (4, 4, 7):
            on_processed(count)
        if self._failure is not None:
            raise self._failure
        return Report(number, 0, "host", 1, messages=10)


def rows_of(run: Any, *, is_live: bool) -> list[tuple[int, int | None]]:
    """The rows of two containers: messages, and the number of the container with its report."""
    numbers = pa.RecordBatch.from_arrays([pa.array([0, 1])], names=["id"])
    batches = counted.CountedContainers(run, is_live=is_live)(iter([numbers]))
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(each["messages"], each["report"] and Report.from_bytes(each["report"]).number) for each in rows]


def test_counts_add_up_to_the_messages_of_the_report(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counted, "_EVERY_S", 0.0)
    assert rows_of(Stepping(), is_live=False) == [(10, 5), (10, 6)]
    assert rows_of(Stepping(), is_live=True) == [(4, None), (3, None), (3, 5), (4, None), (3, None), (3, 6)]
    with pytest.raises(FencedError, match="replaced"):  # as Spark then starts it again
        rows_of(Stepping(FencedError("replaced")), is_live=True)


class NeedsMainThread:
    """Stands for a container of a task that sets a handler of a signal."""

    def number_of(self, row: int) -> int:
        return row

    def run(self, number: int, on_processed: object = None) -> Report:
        report = Report(number, 0, "host", 1)
        try:
            signal.signal(signal.SIGUSR1, signal.getsignal(signal.SIGUSR1))
        except ValueError as error:
            report.failure = Failure.of(error, number)
        return report


@pytest.mark.parametrize("is_live", [False, True])
def test_a_handler_of_signals_takes_the_main_thread_or_names_the_key(is_live: bool) -> None:
    numbers = pa.RecordBatch.from_arrays([pa.array([0])], names=["id"])
    containers = counted.CountedContainers(cast(RunContainers, NeedsMainThread()), is_live=is_live)
    (row,) = [row for batch in containers(iter([numbers])) for row in batch.to_pylist()]
    failure = Report.from_bytes(row["report"]).failure
    if is_live:
        assert failure is not None and "signal only works in main thread" in failure.text
        assert f"set {counted.LIVE_COUNTS}=false: then the container has the main thread" in failure.text
    else:
        assert failure is None


class Signalled(Forward):
    """Sets a handler of a signal, which Python allows on the main thread alone."""

    def init(self, context):
        signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def test_on_a_local_master_containers_have_the_main_thread(
    spark: Any, job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SessionHandle, "shows_metrics", True)
    job.send(0, 4)
    assert deploy(job.config, Signalled, spark=spark).messages == 4


def test_the_function_that_counts_is_that_of_its_source() -> None:
    assert counting.source() == counting.SOURCE.read_text(), "run python -m tests.spark.counting --write"
