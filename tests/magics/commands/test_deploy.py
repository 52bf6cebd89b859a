"""``%stream deploy``: the task of the notebook, on Spark."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from typing import Any

import pytest

from streambench import Container
from streambench.errors import StreambenchError, TaskError
from streambench.spark.backfill import Backfill
from streambench.spark.result import (
    ContainerProgress,
    DeployedContainer,
    DeployProgress,
    DeployResult,
    progress_of,
)
from tests.magics.conftest import Shell
from tests.magics.jobs.test_cell import COUNTS, FUNCTIONS, GLOBALS, counted
from tests.surroundings import missing

TASK = """%%streamtask double
import streambench as sb
factor = 2

def times(number):
    return factor * number

def process(envelope, collector, coordinator):
    collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "doubled"), times(envelope.message),
                                              key=envelope.key))
"""


@pytest.fixture
def ready(ip_empty: Shell) -> Shell:
    ip_empty.run(TASK)
    ip_empty.run("%stream streams create log.numbers --partitions 2")
    ip_empty.run("%stream create double --inputs log.numbers")
    return ip_empty


def test_the_class_of_the_cell_runs_on_spark_from_where_it_stopped_here(ready: Shell) -> None:
    if shutil.which("java") is None:
        missing("Java, which Spark needs", remedy="install a JDK 17")
    ready.run("%stream send log.numbers --from range(10)")
    ready.run("%stream step 4")
    assert ready.run("%stream deploy double --master local[2]").splitlines() == [
        "double is stopped here, with everything committed",
        "double: 6 messages in 1 container",
        "container  tasks  messages",
        "        0      2         6",
    ]
    assert ready.value.source.messages == 6
    ready.run("%stream peek log.doubled --limit 100")
    assert sorted(each["message"] for each in ready.value) == list(range(0, 20, 2))
    ready.run("%stream send log.numbers 50")
    assert "double had stopped; it goes on from its last checkpoint" in ready.run("%stream step 5")
    ready.run("%stream commit")
    ready.run("%stream peek log.doubled --limit 100")
    assert sorted(each["message"] for each in ready.value)[-1] == 100


def frame(stage: Any, *done: int, **values: Any) -> DeployProgress:
    """A progress of two containers with five messages each, of which these are done."""
    each = [
        ContainerProgress(
            number=at,
            stage="done" if messages == 5 else "running",
            messages=messages,
            total=5,
            left=5 - messages,
            partitions=1,
            partitions_done=int(messages == 5),
        )
        for at, messages in enumerate(done)
    ]
    return progress_of(each, seconds=2.0, round=1, stage=stage, **values)


def test_progress_is_one_output_that_changes_and_ends_with_the_truth(
    ready: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deploy(config: Any, task: Any, master: str, progress: Any, **_: Any) -> Any:
        progress(frame("starting Spark", 0, 0))
        progress(frame("running", 5, 2, rate=1.5))
        progress(frame("running", 5, 5))  # too soon after the one before
        progress(frame("ended", 5, 5))
        return DeployResult(job="double", containers=(), seconds=1.0)

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    monkeypatch.setattr("streambench_magics.panel.deploy_display._EVERY_S", 3600.0)
    ready.run("%stream deploy --master local[2]")
    shown = [data["text/plain"].splitlines() for data in ready.displayed]
    assert shown == [
        ["deploying double on local[2]"],
        [
            "deploying double on local[2], round 1: starting Spark, 2.0 s",
            "0 of 10 messages, 2 containers to start",
        ],
        [
            "deploying double on local[2], round 1: running, 2.0 s",
            "█" * 21 + "░" * 9 + " 70 %",
            "7 of 10 messages, 2/s, 3 left, about 2 s to go",
            "1 of 2 containers done, 1 running, 1 of 2 partitions done",
            "container  state    messages  left  partitions done",
            "        0  done            5     0           1 of 1",
            "        1  running         2     3           0 of 1",
        ],
        [
            "deploying double on local[2], round 1: ended, 2.0 s",
            "█" * 30 + " 100 %",
            "10 of 10 messages",
            "2 of 2 containers done, 2 of 2 partitions done",
        ],
    ]
    assert '<progress max="100" value="70.0"' in ready.displayed[2]["text/html"]


def test_the_list_of_jobs_shows_how_far_a_deployment_has_come(
    ready: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    fails = False

    def deploy(config: Any, task: Any, master: str, progress: Any, **_: Any) -> Any:
        with Container.from_config(config, task) as elsewhere:
            done = elsewhere.run("caught-up")
        progress(frame("running", 3, 2))
        if fails:
            raise StreambenchError("no room")
        container = DeployedContainer(number=0, tasks=("Partition 0",), offsets={}, messages=done)
        return DeployResult(job="double", containers=(container,), seconds=1.0)

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    ready.run("%stream send log.numbers --from range(10)")
    ready.run("%stream step 4")
    ready.run("%stream deploy --master local[2]")
    ready.run("%stream send log.numbers --from range(3)")
    said = "double was deployed on local[2], with 6 messages there"
    assert ready.run("%stream").splitlines() == [
        f"{said}; its lag is that behind its last commit",
        "job     state         task    inputs       processed  lag",
        "double  stopped here  double  log.numbers          6    3",
    ]
    assert ready.run("%stream show") == f"this is how it was here, before it {said[7:]}"
    ready.run("%stream checkpoints")
    assert sorted(each["checkpoint"] for each in ready.value) == ["4", "4"]
    ready.run("%stream step 1")
    assert ready.run("%stream").splitlines()[-1].split()[-2:] == ["1", "2"]
    fails = True
    with pytest.raises(StreambenchError):
        ready.run("%stream deploy --master local[2]")
    assert "deployed on local[2], with 5 messages there" in ready.run("%stream")
    assert ready.value[0]["lag"] == 0


def test_an_interrupted_deployment_is_shown_as_stopped(
    ready: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deploy(*_: Any, progress: Any, **__: Any) -> Any:
        progress(frame("running", 5, 2))
        raise KeyboardInterrupt

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    with pytest.raises(KeyboardInterrupt):
        ready.run("%stream deploy --master local[2]")
    title, _, messages, *_ = ready.displayed[-1]["text/plain"].splitlines()
    assert title == "deploying double on local[2], round 1: stopped, 2.0 s"
    assert messages == "7 of 10 messages, 3 left for the next start"


def test_a_container_that_failed_stays_in_the_output(ready: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = ContainerProgress(number=3, stage="failed", error="<b> is no number")

    def deploy(*_: Any, progress: Any, **__: Any) -> Any:
        progress(progress_of([failed], seconds=2.0, round=1, stage="ended"))
        raise StreambenchError("container 3: <b> is no number")

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    with pytest.raises(StreambenchError):
        ready.run("%stream deploy --master local[2]")
    assert "&lt;b&gt; is no number" in ready.displayed[-1]["text/html"]
    assert "        3  failed" in ready.displayed[-1]["text/plain"]


def test_the_token_of_a_master_is_not_shown(ready: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    masters = []

    def deploy(config: Any, task: Any, master: str, progress: Any, **_: Any) -> Any:
        masters.append(master)
        return DeployResult(job="double", containers=(), seconds=1.0)

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    said = ready.run('%stream deploy --master "sc://host;token=hunter2"')
    assert [data["text/plain"] for data in ready.displayed] == ["deploying double on sc://host;token=***"]
    assert "hunter2" not in said
    assert masters == ["sc://host;token=hunter2"]


def test_the_master_is_that_of_the_active_session_unless_one_is_named(
    ready: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    masters = []

    def deploy(config: Any, task: Any, master: str | None, progress: Any, **_: Any) -> Any:
        masters.append(master)
        return DeployResult(job="double", containers=(), seconds=1.0)

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    monkeypatch.setattr("streambench.spark.session.likely_master", lambda config: "yarn")
    ready.run("%stream deploy")
    assert [data["text/plain"] for data in ready.displayed] == ["deploying double on yarn"]
    assert masters == [None]


def test_a_deployment_with_nothing_to_do_is_one_line(ready: Shell) -> None:
    ready.run("%stream run --until caught-up")
    assert ready.run("%stream deploy --master local[2]").splitlines() == [
        "double is stopped here, with everything committed",
        "double: there was nothing to do: its container is at the end of its inputs",
    ]


def test_a_dry_run_begins_where_the_job_is_and_leaves_it_as_it_is(ready: Shell) -> None:
    ready.run("%stream send log.numbers --from range(10)")
    ready.run("%stream step 4")
    assert ready.run("%stream deploy --dry-run --containers 2 --by-lag").splitlines() == [
        "double-1: a dry run; nothing was started; lag: 3 in container 0, 3 in container 1; "
        "dealt by messages: no rounds have measured their time yet",
        "double runs here: without --dry-run it commits and stops first, and the deployment begins there",
        "container  tasks        partition      from  to  lag",
        "        0  Partition 1  log.numbers.1     2   5    3",
        "        1  Partition 0  log.numbers.0     2   5    3",
    ]
    assert ready.magics.bench.job("double").state == "paused"
    assert "     5  log.numbers.0@2" in ready.run("%stream step")


def test_a_backfill_leaves_the_job_as_it_is(ready: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ranges = []

    def backfill(config: Any, range: Any, **_: Any) -> DeployResult:
        ranges.append((config["job.container.count"], range))
        return DeployResult(job="double-old-1", containers=(), seconds=1.0, rounds=1)

    monkeypatch.setattr("streambench.spark.backfill", backfill)
    ready.run("%stream send log.numbers --from range(10)")
    ready.run("%stream step 4")
    said = ready.run(
        "%stream deploy --backfill old --from oldest --from log.numbers.1@3 --to upcoming --containers 3"
    )
    assert ranges == [("3", Backfill("old", ["oldest", "log.numbers.1@3"], ["upcoming"]))]
    assert said.splitlines()[:2] == [
        "the outputs of old: none",
        "the backfill old of double: 0 messages in 0 containers",
    ]
    assert ready.magics.bench.job("double").state == "paused"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ("--to 3", "--to: it is the range of a backfill: give --backfill NAME"),
        ("--by-lag --by-partitions", "--by-partitions: --by-lag is given, too: give one of them"),
        ("--master nowhere", "'nowhere' is not a Spark master: give local[4]"),
        ("--containers 0", "argument --containers: '0' is not a number of 1 or more; usage: %stream deploy"),
        ("--if-running no", "argument --if-running: invalid choice: 'no' (choose from"),
    ],
)
def test_wrong_options_are_named_before_anything_is_stopped(ready: Shell, options: str, text: str) -> None:
    ready.run("%stream send log.numbers 1")
    ready.run("%stream step")
    assert text in ready.fails(f"%stream deploy {options}")
    assert ready.magics.bench.job("double").state == "paused"


def test_a_failure_on_spark_is_an_error_of_the_cell(ready: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    def deploy(*_: Any, **__: Any) -> Any:
        raise TaskError("container 0: Partition 0 failed at log.numbers.0@1", task="Partition 0")

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    with pytest.raises(StreambenchError, match="container 0: Partition 0 failed"):
        ready.run("%stream deploy")


@pytest.mark.usefixtures("spark")
def test_a_capture_on_spark_of_a_cells_task_opens_with_the_cell(ready: Shell) -> None:
    ready.run(TASK.replace("return factor * number", "return factor / number"))
    ready.run("%stream send log.numbers --from range(3)")
    with pytest.raises(StreambenchError, match="division by zero") as failed:
        ready.run("%stream deploy double --master local[2]")
    captured = re.search(r"captured: %stream replay (\S+)", str(failed.value))
    assert captured is not None, failed.value
    assert "replay stands before it" in ready.run(f"%stream replay {captured[1]}")
    assert "division by zero" in ready.fails("%stream step replay")
    ready.run(TASK)
    ready.run(f"%stream replay {captured[1]}")
    ready.run("%stream step replay")
    elsewhere = [sys.executable, "-m", "streambench", "replay", captured[1]]
    refused = subprocess.run(elsewhere, capture_output=True, text=True, check=False)
    assert "if you trust it, with --recorded-source" in refused.stderr
    trusted = subprocess.run([*elsewhere, "--recorded-source"], capture_output=True, text=True, check=False)
    assert "it fails after" in trusted.stderr and "division by zero" in trusted.stderr


@pytest.mark.usefixtures("spark")
def test_functions_with_state_go_on_from_it_on_spark(ip_empty: Shell) -> None:
    ip_empty.run(COUNTS)
    ip_empty.run(FUNCTIONS)
    ip_empty.run("%stream streams create log.in --partitions 2")
    for key in "abcdabcd":
        ip_empty.run(f"%stream send log.in 1 --key {key}")
    ip_empty.run("%stream create tally --config counting")
    ip_empty.run("%stream step 3")
    ip_empty.run("%stream deploy tally --master local[2]")
    assert {key: number for (_, key), number in counted(ip_empty, "log.counts").items()} == dict.fromkeys(
        "abcd", 2
    )


@pytest.mark.usefixtures("spark")
def test_a_global_that_cannot_be_sent_to_spark_is_named(ip_empty: Shell) -> None:
    ip_empty.run(COUNTS)
    ip_empty.run(GLOBALS)
    ip_empty.run("%stream streams create log.in --partitions 2")
    for key in "ab":
        ip_empty.run(f"%stream send log.in 1 --key {key}")
    ip_empty.run("%stream create tally --config counting")
    ip_empty.run("%stream step")
    with pytest.raises(StreambenchError, match="its init\\(\\) assigns the global counts"):
        ip_empty.run("%stream deploy tally --master local[2]")


def test_a_stream_is_a_frame_of_the_active_session(ready: Shell, spark: Any) -> None:
    ready.run("%stream send log.numbers --from range(10)")
    ready.run("%stream dataframe log.numbers --columns partition,message --from oldest --view numbers")
    assert sorted(int(row.message) for row in ready.value.collect()) == list(range(10))
    assert spark.sql("SELECT COUNT(*) FROM numbers WHERE partition = 0").collect()[0][0] == 5


def test_a_stream_that_is_not_there_is_no_frame(ready: Shell) -> None:
    assert "there is no stream log.number" in ready.fails("%stream dataframe log.number")
