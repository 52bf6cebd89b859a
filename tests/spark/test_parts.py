"""The parts around a deployment: progress, packing, results, settings of a session."""

from __future__ import annotations

import pickle
import re
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy
import pytest

from streambench import Config, StreambenchError, TaskError
from streambench.cli.deploy_rows import dry_run_line
from streambench.job.failure import Failure
from streambench.model import SystemStreamPartition
from streambench.spark import register, spark_job
from streambench.spark.master import with_attempts
from streambench.spark.outcome import warning_lines
from streambench.spark.own_session import _import_path
from streambench.spark.result import DeployedContainer, DeployError, DeployResult, DeployTaskError, failed
from streambench.spark.round_progress import end_of
from streambench.spark.session import session_for
from streambench.spark.shipment import own_modules, sources
from streambench.spark.spark_job import SparkJob, reason_of
from streambench.spark.worker import Report, Warned

A, B = SystemStreamPartition("log", "a", 0), SystemStreamPartition("log", "b", 1)


def test_own_code_is_sent_and_installed_code_is_not() -> None:
    own = {module.__name__ for module in own_modules()}
    assert __name__ in own
    assert not own & {"streambench", "streambench.model", "pytest", "json", numpy.__name__, "__main__"}


def test_pyspark_below_spark_home_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory into which Spark is unpacked, not installed by pip: spark-submit of a cluster."""
    for name in ("pyspark.below", "py4j.below", "job.below"):
        module = ModuleType(name)
        module.__file__ = f"/opt/spark/python/{name.replace('.', '/')}.py"
        monkeypatch.setitem(sys.modules, name, module)
    assert {each.__name__ for each in own_modules()} & {"pyspark.below", "py4j.below", "job.below"} == {
        "job.below"
    }


def test_the_text_of_a_class_travels_with_it() -> None:
    assert "test_the_text_of_a_class_travels_with_it" in sources(Listed)[Listed.process.__code__.co_filename]


class Listed(list):  # type: ignore[type-arg]
    """A class with a base that was not written in Python."""

    def process(self) -> None: ...


@pytest.mark.parametrize(
    ("master", "meant"),
    [
        ("local", "local[1,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2]", "local[2,4]"),
        ("local[2,1]", "local[2,1]"),
        ("local[ 2 , 1 ]", "local[2,1]"),
        ("local[ 2 ]", "local[2,4]"),
        ("yarn", "yarn"),
    ],
)
def test_a_local_master_starts_a_task_again_when_its_process_dies(master: str, meant: str) -> None:
    assert with_attempts(master) == meant


def test_a_missing_spark_connect_server_is_reported_without_its_token(
    spark_installed: None,
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with pytest.raises(
        StreambenchError, match=f"cannot reach Spark Connect at sc://127.0.0.1:{port}: "
    ) as caught:
        session_for(None, f"sc://127.0.0.1:{port}/;token=hidden", Config())
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(("url", "is_same"), [("sc://here/;token=a", True), ("sc://here:1", False)])
def test_the_active_client_of_the_named_connect_server_is_used(
    spark_installed: None, monkeypatch: pytest.MonkeyPatch, url: str, is_same: bool
) -> None:
    from pyspark.sql.connect.client import SparkConnectClient
    from pyspark.sql.connect.session import SparkSession

    active = object.__new__(SparkSession)  # to make one asks the server
    active._client = SparkConnectClient("sc://here:15002/;token=b")
    monkeypatch.setattr("streambench.spark.session.active_session", lambda: active)
    monkeypatch.setattr("streambench.spark.session.setting", lambda spark, key: "local[1]")
    if is_same:
        assert session_for(None, url, Config()).spark is active
    else:
        with pytest.raises(StreambenchError, match=r"there is an active Spark session on local\[1\]"):
            session_for(None, url, Config())


def test_python_workers_find_what_this_process_imports_by_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    path = _import_path()
    assert str(tmp_path.resolve()) in path
    assert str(Path(sys.modules["streambench"].__file__ or "").parent.parent) in path
    assert not any("site-packages" in each for each in path)


def container(
    number: int, *, messages: int = 0, failure: Failure | None = None, **offsets: tuple[str, str]
) -> DeployedContainer:
    named = {"a": A, "b": B}
    reached = {named[key]: pair for key, pair in offsets.items()}
    return DeployedContainer(
        number=number, tasks=(f"Partition {number}",), messages=messages, failure=failure, offsets=reached
    )


def result(*containers: DeployedContainer, generation: int | None = 1, rounds: int = 1) -> DeployResult:
    return DeployResult(job="job", containers=containers, seconds=1.0, generation=generation, rounds=rounds)


def test_rounds_add_up_to_one_result() -> None:
    first = result(container(0, messages=5, a=("0", "5")), container(1, b=("2", "2")))
    idle = result(container(0, a=("5", "5")), container(1, b=("2", "2")), generation=None, rounds=0)
    last = result(
        container(0, a=("5", "6"), messages=1), container(1, b=("2", "4"), messages=2), generation=2
    )
    total = first.followed_by(idle).followed_by(last)
    assert (total.messages, total.rounds, total.generation, total.seconds) == (8, 2, 2, 3.0)
    assert [each.offsets for each in total.containers] == [{A: ("0", "6")}, {B: ("2", "4")}]


def test_messages_of_each_partition_add_up_unless_a_round_lacks_them() -> None:
    first = counting({A: 5, B: 0})
    total = (
        result(first)
        .followed_by(result(container(0, a=("5", "5"))))
        .followed_by(result(counting({A: 1, B: 2})))
    )
    assert total.containers[0].messages_by_partition == {A: 6, B: 2}
    assert total.followed_by(result(container(0, messages=3))).containers[0].messages_by_partition == {}


def counting(counts: dict[SystemStreamPartition, int]) -> DeployedContainer:
    return DeployedContainer(
        number=0, tasks=(), messages=sum(counts.values()), messages_by_partition=counts, offsets={}
    )


def test_a_task_that_raised_is_named_before_what_else_failed() -> None:
    lost = Failure(0, "SparkError", "Spark gave up", "")
    raised = Failure(
        1,
        "TaskError",
        "Partition 1 failed at log.b.1@7: ValueError: no",
        "  File task.py",
        "Partition 1",
        B,
        "7",
        "k",
    )
    error = failed(result(container(0, failure=lost), container(1, failure=raised)))
    assert isinstance(error, DeployTaskError)
    assert isinstance(error, TaskError)
    assert (error.container, error.task, error.ssp, error.offset, error.key) == (
        1,
        "Partition 1",
        B,
        "7",
        "k",
    )
    assert str(error).splitlines()[0] == "container 1: Partition 1 failed at log.b.1@7: ValueError: no"
    assert "of 2 containers 2 failed" in str(error)
    assert not isinstance(failed(result(container(0, failure=lost))), TaskError)
    assert issubclass(DeployTaskError, DeployError)


def test_a_span_is_unknown_where_offsets_are_no_numbers() -> None:
    assert container(0, a=("2", "7"), b=("0", "1")).span == 6
    assert container(0, a=("2", "7"), b=("x", "y")).span is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "x\nModuleNotFoundError: No module named 'streambench'\n at y",
            "no module streambench.*PYSPARK_PYTHON",
        ),
        (
            "Error from python worker:\n  python: Error while finding module specification for "
            "'streambench.spark.daemon' (ModuleNotFoundError: No module named 'streambench')",
            "no module streambench.*PYSPARK_PYTHON",
        ),
        (
            "failed 4 times, most recent failure: Lost task 1.3 (exit 137)\nDriver stacktrace:",
            "gave up: Lost task 1.3 .exit 137.$",
        ),
        (
            "An exception was thrown from the Python worker.\nTraceback\nRecursionError: too deep\n",
            "gave up: RecursionError: too deep$",
        ),
        (
            "<_InactiveRpcError of RPC that terminated with:\n\tstatus = StatusCode.UNAUTHENTICATED\n"
            '\tdetails = "Invalid authentication token"\n\tdebug_error_string = "UNKNOWN: x"\n>',
            "gave up: Invalid authentication token$",
        ),
        ("", "gave up: RuntimeError$"),
    ],
)
def test_of_the_pages_that_spark_prints_one_line_is_told(text: str, told: str) -> None:
    assert re.search(told, reason_of(RuntimeError(text)))


def test_a_configuration_is_the_same_at_the_other_end() -> None:
    config = Config.from_text("job.name=a", origin="a.properties", directory=Path("/somewhere"))
    there = pickle.loads(pickle.dumps(config))
    assert (there, there.origin, there.directory) == (config, "a.properties", Path("/somewhere"))


class InterruptingSession:
    """Stands for a session of Spark, and for its context. What collects an RDD interrupts ``main``
    once the job is started and ``main`` waits for it, and is stuck until it is cancelled."""

    def __init__(self, main: int) -> None:
        self.cancelled = threading.Event()
        self.main = main
        self.started = False
        self.shows_metrics = False

    @property
    def context(self) -> InterruptingSession:
        return self

    def parallelize(self, *_: object) -> InterruptingSession:
        return self

    def mapPartitionsWithIndex(self, *_: object) -> InterruptingSession:
        return self

    def addJobTag(self, tag: str) -> None:
        pass

    def setJobGroup(self, group: str, description: str) -> None:
        pass

    def cancelJobsWithTag(self, tag: str) -> None:
        self.cancelled.set()

    def collect(self) -> list[Any]:
        while not self.started or sys._current_frames()[self.main].f_code.co_filename != threading.__file__:
            threading.Event().wait(0.001)
        signal.pthread_kill(self.main, signal.SIGINT)
        assert self.cancelled.wait(60)
        return []


def test_a_spark_job_with_interrupted_waiting_lives_and_can_be_cancelled() -> None:
    pytest.importorskip("pyspark")
    spark: Any = InterruptingSession(threading.get_ident())
    run: Any = SimpleNamespace(numbers=(0,), run_row=None)
    job = SparkJob(spark, run, "a job")
    assert not job.alive
    job.start()
    spark.started = True
    with pytest.raises(KeyboardInterrupt):
        job.wait(60)
    assert job.alive
    job.interrupt(60)
    assert spark.cancelled.is_set() and not job.alive


def test_a_job_that_is_cancelled_before_spark_has_it_does_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyspark")
    registering, cancelled = threading.Event(), threading.Event()
    calls: list[str] = []

    @contextmanager
    def counted(*given: object, is_live: bool) -> Iterator[Any]:
        registering.set()
        assert cancelled.wait(60)
        yield SimpleNamespace(collect=lambda: calls.append("collect") or [])

    context = SimpleNamespace(
        addJobTag=lambda tag: None,
        setJobGroup=lambda *texts: None,
        cancelJobsWithTag=lambda tag: calls.append("cancel"),
    )
    session: Any = SimpleNamespace(context=context, spark=None, master="yarn", shows_metrics=True)
    monkeypatch.setattr(spark_job, "counted_reports", counted)
    run: Any = SimpleNamespace(numbers=(0,))
    job = SparkJob(session, run, "a job")
    job.start()
    assert registering.wait(60)
    job.cancel()
    cancelled.set()
    assert not job.wait(60)
    assert (calls, job.reason, job.reports) == (["cancel"], "cancelled", [])


def test_a_dry_run_of_many_containers_names_the_smallest_and_the_largest() -> None:
    containers = tuple(
        DeployedContainer(number=at, tasks=(), offsets={A: ("0", str(10 + at))}) for at in range(13)
    )
    line = dry_run_line(DeployResult(job="a", containers=containers, seconds=1.0, dry_run=True))
    assert line.endswith("; lag: 208, from 10 in container 0 to 22 in container 12")


def test_the_end_of_a_round_counts_messages_and_failed_containers() -> None:
    failure = Failure.of(ValueError("no"), 1)
    containers = tuple(
        DeployedContainer(number=at, tasks=(), offsets={}, messages=1_000, failure=each)
        for at, each in enumerate((None, failure))
    )
    result = DeployResult(job="a", containers=containers, seconds=61.26)
    assert end_of(result) == (
        "ended after 61.3 s; 2,000 messages processed; 1 container failed; "
        "container 0 1,000 in 0.0 s, 1 failed, 1,000 in 0.0 s"
    )
    many = tuple(
        DeployedContainer(number=at, tasks=(), offsets={}, messages=10, seconds=at) for at in range(10)
    )
    assert end_of(DeployResult(job="a", containers=many, seconds=9.0)).endswith(
        "; container 2 10 in 2.0 s, 3 10 in 3.0 s, 4 10 in 4.0 s, 5 10 in 5.0 s, 6 10 in 6.0 s, "
        "7 10 in 7.0 s, 8 10 in 8.0 s, 9 10 in 9.0 s, and 2 more"
    )


def test_warnings_of_one_kind_are_one_line() -> None:
    reports = [
        Report(number, 0, "here", 1, warnings=tuple(Warned("%s is odd", f"{each} is odd") for each in odd))
        for number, odd in ((1, "c"), (0, "ab"))
    ]
    other = Report(2, 0, "there", 1, warnings=(Warned("mind", "mind"),))
    assert warning_lines([other, *reports]) == [
        "container 0 on here: a is odd (and 2 more warnings of this kind)",
        "container 2 on there: mind",
    ]


def test_an_older_pyspark_is_named_where_a_stream_is_to_be_a_frame(
    spark_installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark.__version__", "4.0.2")
    with pytest.raises(StreambenchError, match=r"PySpark 4\.1 or newer, and this is 4\.0\.2: pip"):
        register()
