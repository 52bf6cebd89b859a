"""What ``streambench deploy`` says of what came of a deployment; Spark itself is not started here."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from streambench.errors import StreambenchError
from streambench.model import SystemStreamPartition
from streambench.spark import DeployedContainer, DeployResult
from streambench.spark.service import JobStatus, ServiceStatus
from tests.job.project import Project

IN = [SystemStreamPartition("log", "numbers", number) for number in range(4)]


def container(
    number: int, partitions: Mapping[SystemStreamPartition, int], **values: Any
) -> DeployedContainer:
    """A container that has read so many offsets of these partitions."""
    return DeployedContainer(
        number=number, tasks=(), offsets={ssp: ("0", str(end)) for ssp, end in partitions.items()}, **values
    )


def table(project: Project, monkeypatch: pytest.MonkeyPatch, *containers: DeployedContainer) -> list[str]:
    """What is said of these, line by line."""
    result = DeployResult(job="up-1", containers=containers, seconds=9, generation=1, rounds=1)
    monkeypatch.setattr("streambench.spark.deploy", lambda *_, **__: result)
    first, *lines = [line.rstrip() for line in project.ok("deploy", "job.properties").splitlines()]
    assert first == "planning"
    return lines


def test_each_partition_has_its_messages_and_each_container_its_time_once(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {IN[1]: 9, IN[0]: 3}  # of the one some offsets hold no message, as in a log that was compacted
    first = container(0, {IN[0]: 8, IN[1]: 9}, messages=12, messages_by_partition=counts, seconds=3.25)
    assert table(
        project,
        monkeypatch,
        first,
        container(1, {IN[2]: 5}, messages=5, messages_by_partition={IN[2]: 5}, seconds=1),
    ) == [
        "container  partition      from  to  messages  seconds",
        "        0  log.numbers.0     0   8         3      3.2",
        "        0  log.numbers.1     0   9         9",
        "        1  log.numbers.2     0   5         5      1.0",
        "up-1: 17 messages in 2 containers in 9.0 s",
    ]


def test_messages_of_unknown_partitions_are_shown_as_one_number(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert table(project, monkeypatch, container(0, {IN[0]: 8, IN[1]: 9}, messages=12, seconds=3)) == [
        "container  partition      from  to  messages  seconds",
        "        0  log.numbers.0     0   8        12      3.0",
        "        0  log.numbers.1     0   9",
        "up-1: 12 messages in 1 container in 9.0 s",
    ]


def test_a_container_without_a_message_has_none_in_each_partition(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [
        line.split()[4] for line in table(project, monkeypatch, container(0, {IN[0]: 0, IN[1]: 0}))[1:3]
    ] == ["0", "0"]


def test_the_first_line_comes_before_spark_is_even_imported(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise StreambenchError("no Spark here")

    monkeypatch.setattr("streambench.spark.deploy", refuse)
    done = project.run("deploy", "job.properties")
    assert (done.returncode, done.stdout.splitlines()) == (1, ["planning"])


def test_quiet_shows_no_progress(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    given = []

    def deploy(*_: Any, progress: Any, **__: Any) -> DeployResult:
        given.append(progress)
        return DeployResult(job="up-1", containers=(), seconds=9)

    monkeypatch.setattr("streambench.spark.deploy", deploy)
    first, *_ = project.ok("deploy", "job.properties", "--quiet").splitlines()
    assert first == "up-1: there was nothing to do"
    assert given == [None]


def test_a_deployment_with_nothing_to_do_is_one_line(project: Project) -> None:
    project.configure({"job.container.count": "2"})
    project.fill(4, partitions=2)
    project.ok("run", "job.properties", "--until", "caught-up")
    assert project.ok("deploy", "job.properties").splitlines() == [
        "planning",
        "up-1: there was nothing to do: all 2 containers are at the end of their inputs",
    ]
    first, _ = project.rows("deploy", "--quiet")
    assert (first["messages"], first["partitions"][0]["to"]) == (0, "2")


def test_a_reporter_that_reports_nothing_from_spark_is_told(project: Project) -> None:
    project.configure({"metrics.reporters": "prom", "metrics.reporter.prom.class": "prometheus"})
    project.fill(2)
    done = project.run("deploy", "job.properties", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "metrics.reporters: prom is left out on Spark" in done.stderr
    assert "class=snapshot" in done.stderr


def test_a_dry_run_shows_tasks_offsets_and_lag_and_writes_nothing(project: Project) -> None:
    project.configure({"job.container.count": "2", "systems.log.samza.offset.default": "oldest"})
    project.fill(5, partitions=2)
    before = {path: path.read_bytes() for path in sorted(project.directory.rglob("*")) if path.is_file()}
    told = [line.rstrip() for line in project.ok("deploy", "job.properties", "--dry-run").splitlines()]
    assert told[:3] == [
        "container  tasks        partition      from  to  lag",
        "        0  Partition 0  log.numbers.0     0   3    3",
        "        1  Partition 1  log.numbers.1     0   2    2",
    ]
    assert told[3].endswith("a dry run; nothing was started; lag: 3 in container 0, 2 in container 1")
    first, second = project.rows("deploy", "--dry-run")
    assert first == {
        "container": 0, "tasks": ["Partition 0"], "lag": 3,
        "partitions": [{"partition": "log.numbers.0", "from": "0", "to": "3", "lag": 3}],
    }  # fmt: skip
    assert second["lag"] == 2
    assert {
        path: path.read_bytes() for path in sorted(project.directory.rglob("*")) if path.is_file()
    } == before


def test_by_lag_each_container_has_about_as_many_messages(project: Project) -> None:
    project.fill(120, partitions=4)
    project.fill_more(0, 60, partitions=1)  # into the first partition alone
    rows = project.rows("deploy", "--containers", "2", "--by-lag", "--dry-run")
    assert [(row["tasks"], row["lag"]) for row in rows] == [
        (["Partition 0"], 90),
        (["Partition 1", "Partition 2", "Partition 3"], 90),
    ]


def test_a_dry_run_shows_where_a_bounded_round_ends(project: Project) -> None:
    project.fill(8, partitions=2)
    rows = project.rows("deploy", "--dry-run", "--containers", "1", "--max-messages", "4")
    assert [each["to"] for each in rows[0]["partitions"]] == ["2", "2"]


def test_a_dry_run_of_a_backfill_shows_its_range(project: Project) -> None:
    project.configure({"job.container.count": "2", "systems.log.samza.offset.default": "upcoming"})
    project.fill(9, partitions=2)
    first, second = project.rows("deploy", "--dry-run", "--backfill", "b", "--from", "log.numbers.0@2")
    assert (first["partitions"][0]["from"], first["partitions"][0]["to"]) == ("2", "5")
    assert (second["partitions"][0]["from"], second["partitions"][0]["to"]) == ("0", "4")


def test_a_backfill_names_the_streams_that_it_has_sent_to(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "stores.seen.factory": "memory", "stores.seen.changelog": "log.seen",
        "stores.seen.key.serde": "string", "stores.seen.msg.serde": "json",
    }  # fmt: skip
    project.configure(settings)
    project.fill(2)
    for stream in ("log.up", "log.up-fixed", "log.seen-fixed"):
        project.ok("streams", "create", stream, "-c", "job.properties")
    result = DeployResult(job="up-fixed-1", containers=(container(0, {IN[0]: 2}, messages=2),), seconds=9)
    monkeypatch.setattr("streambench.spark.backfill", lambda *_, **__: result)
    said = project.ok("deploy", "job.properties", "--backfill", "fixed")
    assert said.splitlines()[-1] == "  the outputs of fixed: log.up-fixed"


@pytest.mark.parametrize("options", [["--from", "oldest"], ["--backfill", "b", "--every", "5"]])
def test_a_range_goes_with_one_backfill_only(project: Project, options: list[str]) -> None:
    done = project.run("deploy", "job.properties", *options)
    assert done.returncode == 2
    assert "backfill" in done.stderr


def test_a_deployment_is_told_as_json_one_container_a_line(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = {IN[1]: 9, IN[0]: 3}
    ran = container(0, {IN[0]: 8, IN[1]: 9}, messages=12, messages_by_partition=counts, seconds=3.25)
    result = DeployResult(job="up-1", containers=(ran,), seconds=9, generation=1, rounds=1)
    monkeypatch.setattr("streambench.spark.deploy", lambda *_, **__: result)
    (row,) = project.rows("deploy")
    partitions = row.pop("partitions")
    assert row == {
        "container": 0, "tasks": [], "messages": 12, "seconds": 3.25, "error": None, "attempt": 0,
        "log": None,
    }  # fmt: skip
    assert partitions[1] == {"partition": "log.numbers.1", "from": "0", "to": "9", "messages": 9}


def test_what_one_job_has_done_is_shown_where_a_later_one_cannot_begin(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    def deploy_all(*_: object, **__: object) -> Iterator[DeployResult]:
        yield DeployResult(
            job="up-1", containers=(container(0, {IN[0]: 8}, messages=8),), seconds=9, generation=1, rounds=1
        )
        raise StreambenchError("the other job is running")

    monkeypatch.setattr("streambench.spark.deploy_all", deploy_all)
    result = project.run("deploy", "job.properties", "job.properties")
    assert "up-1: 8 messages in 1 container" in result.stdout
    assert "the other job is running" in result.stderr
    assert result.returncode == 1


def served(
    project: Project,
    monkeypatch: pytest.MonkeyPatch,
    jobs: list[JobStatus],
    results: list[DeployResult],
) -> subprocess.CompletedProcess[str]:
    """The command line after a service that ended with these."""

    def serve(*_: Any, report: Any, **__: Any) -> list[DeployResult]:
        report(ServiceStatus(jobs, state="stopped"))
        return results

    monkeypatch.setattr("streambench.spark.serve", serve)
    return project.run("deploy", "job.properties", "--every", "60", "--quiet")


def test_a_service_of_which_no_round_ended_well_fails(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [JobStatus("up-1", failures=3, error="no stream log.numbers"), JobStatus("down-1")]
    done = served(project, monkeypatch, jobs, [])
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines() == [
        "error: up-1: its last 3 rounds failed: no stream log.numbers",
        "down-1: no round has ended well",
    ]


def test_a_service_whose_last_round_failed_shows_its_sum_and_fails(
    project: Project, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [JobStatus("up-1", rounds=2, messages=5, failures=1, error="no stream")]
    done = served(project, monkeypatch, jobs, [DeployResult(job="up-1", containers=(), seconds=9, rounds=2)])
    assert (done.returncode, done.stdout) == (
        1,
        "up-1: there was nothing to do\nup-1: 0 messages in 0 containers in 9.0 s\n",
    )
    assert done.stderr == "error: up-1: its last round failed: no stream\n"
