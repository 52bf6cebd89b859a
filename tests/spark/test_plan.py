"""What a deployment plans, and what it refuses before anything is started."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

import pytest
from msgspec.structs import replace

from streambench import (
    Config,
    ConfigError,
    OutgoingMessageEnvelope,
    StreambenchError,
    StreamTask,
    SystemStream,
    UnknownStreamError,
)
from streambench.cli.deploy_rows import dry_run_line
from streambench.container.container import Container
from streambench.errors import MissingExtraError
from streambench.job.run import run
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.spark import JobRunningError, deploy, session
from streambench.spark.deployment import portable
from streambench.spark.history import ContainerRun, Run, note
from streambench.spark.plan import count_messages, make_plan, open_generation
from streambench.spark.running import DeploymentLock
from streambench.spark.session import chosen_master, session_for
from streambench.system.log import LogSystemFactory
from streambench.system.systems import Systems
from tests.spark.conftest import Job

IN = [SystemStreamPartition("log", "in", number) for number in (0, 1)]


class Ignore(StreamTask):
    def process(self, envelope, collector, coordinator):
        pass


class WithoutUpcoming(LogSystemFactory):
    """A log that does not tell how far it goes, as a socket could not; nor does it keep checkpoints."""

    def get_admin(self, system, config):
        admin = super().get_admin(system, config)
        known = admin.metadata

        def metadata(streams):
            return {
                stream: {number: replace(each, upcoming=None) for number, each in parts.items()}
                for stream, parts in known(streams).items()
            }

        admin.metadata = metadata
        return admin


def files_below(directory: Path) -> list[str]:
    return sorted(str(path) for path in directory.rglob("*"))


def test_a_dry_run_tells_who_would_read_what_and_touches_nothing(job: Job) -> None:
    job.send(0, 11)
    before = files_below(job.directory)
    result = deploy(job.config, Ignore, dry_run=True)
    assert files_below(job.directory) == before
    assert [(each.number, each.tasks, each.offsets, each.span) for each in result.containers] == [
        (0, ("Partition 0",), {IN[0]: ("0", "6")}, 6),
        (1, ("Partition 1",), {IN[1]: ("0", "5")}, 5),
    ]
    assert (result.job, result.dry_run, result.generation, result.messages) == ("job-1", True, None, 0)


def test_a_dry_run_needs_no_spark(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "find_spec", lambda name: None)
    assert deploy(job.config, Ignore, dry_run=True).job == "job-1"
    with pytest.raises(MissingExtraError, match=r"streambench\[spark\]"):
        deploy(job.config, Ignore)


def test_without_java_the_remedy_is_named(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    job.send(0, 2)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(job.directory))
    with pytest.raises(
        StreambenchError, match="Spark needs Java 17 or newer, and there is no java on the PATH.*openjdk-17"
    ):
        deploy(job.config, Ignore)
    assert job.generation() == 0


def test_a_memory_system_is_refused_by_its_key(job: Job) -> None:
    with pytest.raises(
        ConfigError, match=r"systems\.mem\.samza\.factory.*memory system exists once in each process"
    ):
        deploy(job.config.with_values({"systems.mem.samza.factory": "memory"}), Ignore)


def test_checkpoints_in_memory_are_refused_by_their_key(job: Job) -> None:
    config = job.config.with_values({"systems.log.samza.factory": f"{__name__}:WithoutUpcoming"})
    with pytest.raises(ConfigError, match=r"task\.checkpoint\.system.*set it to file"):
        deploy(config, Ignore)


def test_an_input_without_an_end_is_refused(job: Job) -> None:
    config = job.config.with_values(
        {"systems.log.samza.factory": f"{__name__}:WithoutUpcoming", "task.checkpoint.system": "file"}
    )
    with pytest.raises(
        ConfigError, match=r"log\.in\.0: .*does not know how far its streams go.*land it in a log first"
    ):
        deploy(config, Ignore)


@pytest.mark.parametrize(
    ("settings", "task", "error", "text"),
    [
        ({"task.inputs": "log.nothing"}, Ignore, UnknownStreamError, "there is no stream log.nothing"),
        ({"task.inputs": "lag.in"}, Ignore, ConfigError, "did you mean log"),
        ({"job.container.count": 3}, Ignore, ConfigError, "job.container.count: 3 containers for 2 tasks"),
        ({"task.comit.ms": 3}, Ignore, ConfigError, "did you mean task.commit.ms"),
        ({}, None, ConfigError, "task.class: is missing"),
        ({}, object(), ConfigError, "cannot be a task"),
    ],
)
def test_what_is_wrong_is_told_before_spark_starts(
    job: Job,
    settings: dict[str, Any],
    task: Any,
    error: type[Exception],
    text: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        "streambench.spark.shared_session.session_for", lambda *arguments: pytest.fail("Spark was started")
    )
    with pytest.raises(error, match=text):
        deploy(job.config.with_values(settings), task)


def test_every_needs_a_time(job: Job) -> None:
    with pytest.raises(ConfigError, match="every=0"):
        deploy(job.config, Ignore, every=0)


def test_a_relative_directory_means_that_of_the_driver(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executors have working directories of their own."""
    monkeypatch.chdir(tmp_path)
    relative = Config.from_text("task.checkpoint.path=here", origin="a.properties", directory=Path("jobs"))
    config = portable(relative)
    monkeypatch.chdir("/")
    assert config.path("task.checkpoint.path") == tmp_path / "jobs" / "here"
    assert (config, config.origin) == (relative, "a.properties")


def test_a_properties_file_will_do(tmp_path: Path) -> None:
    (tmp_path / "up.properties").write_text("job.id=7")
    assert portable(str(tmp_path / "up.properties")) == portable({"job.id": 7}) == Config({"job.id": "7"})


def test_a_recreated_stream_is_planned_as_a_container_would_read_it(
    job: Job, caplog: pytest.LogCaptureFixture
) -> None:
    """Also while it is empty: where the job has begun in it has to be known before anything arrives."""
    config = job.config.with_values({"job.container.count": 1})
    job.send(0, 4)
    run(config, task=Ignore)
    assert make_plan(config, Ignore).idle
    assert not caplog.records
    systems = Systems(config)
    systems.admin("log").delete(IN[0].system_stream)
    systems.create(IN[0].system_stream, 2)
    systems.close()
    assert not make_plan(config, Ignore).idle
    job.send(0, 11)
    caplog.clear()
    assert [each.offsets for each in make_plan(config, Ignore).containers()] == [
        {IN[0]: ("0", "6"), IN[1]: ("0", "5")}
    ]
    assert "log.in.1 is not what it was when Partition 1 made its checkpoint" in caplog.text


def test_the_master_is_from_environment_or_configuration_or_all_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_REMOTE", raising=False)
    given = Config({"spark.master": "spark://host:7077"})
    assert (chosen_master(Config({})), chosen_master(given)) == ("local[*]", "spark://host:7077")
    monkeypatch.setenv("SPARK_REMOTE", "sc://host")
    assert chosen_master(given) == "sc://host"
    monkeypatch.delenv("SPARK_REMOTE")
    with pytest.raises(ConfigError, match="'loacl' is not a Spark master"):
        chosen_master(Config({"spark.master": "loacl"}))


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.job.running._PATIENCE_S", 0)


@pytest.mark.usefixtures("impatient")
def test_a_job_that_runs_is_not_ended_unasked(job: Job) -> None:
    job.send(0, 10)
    running = Container(job.config, Ignore)
    running.start()
    generation = job.generation()
    with pytest.raises(
        JobRunningError, match=f"job-1 is running: process {os.getpid()} .*--if-running take-"
    ):
        deploy(job.config, Ignore)
    assert job.generation() == generation
    DeploymentLock(job.config, "job-1", "take-over").check()
    running.stop()
    DeploymentLock(job.config, "job-1", "refuse").check()


def test_a_job_that_is_being_deployed_is_not_deployed_a_second_time(job: Job) -> None:
    job.send(0, 10)
    first = DeploymentLock(job.config, "job-1", "refuse")
    first.acquire()
    with pytest.raises(JobRunningError, match=f"job-1 is being deployed by process {os.getpid()} on"):
        deploy(job.config, Ignore)
    first.release()
    DeploymentLock(job.config, "job-1", "refuse").check()


def test_only_two_answers_to_a_job_that_runs_are_known(job: Job) -> None:
    with pytest.raises(ConfigError, match="if_running='ask': give refuse or take-over"):
        deploy(job.config, Ignore, if_running="ask")  # type: ignore[arg-type]


def test_speculation_of_the_configuration_is_refused_by_its_key(job: Job) -> None:
    with pytest.raises(ConfigError, match="spark.speculation: is true: two attempts") as caught:
        deploy(job.config.with_values({"spark.speculation": "TRUE"}), Ignore)
    assert caught.value.key == "spark.speculation"


def test_speculation_of_a_session_is_refused_by_its_key(job: Job) -> None:
    class Session:
        conf: ClassVar = {"spark.speculation": "true", "spark.master": "yarn"}

    with pytest.raises(ConfigError, match="spark.speculation is true: two attempts .* start the session"):
        session_for(Session(), None, job.config)  # type: ignore[arg-type]


def test_messages_between_offsets_are_counted_by_reading(job: Job) -> None:
    job.send(0, 20)
    assert count_messages(job.config, {IN[0]: ("2", "7"), IN[1]: ("3", "3")}) == {IN[0]: 5}
    assert count_messages(job.config, {IN[1]: ("0", "10")}) == {IN[1]: 10}


def test_only_containers_that_have_something_to_do_are_started(job: Job) -> None:
    job.send(0, 10)
    assert make_plan(job.config, Ignore).working == (0, 1)
    run(job.config, until="caught-up", task=Ignore)
    assert make_plan(job.config, Ignore).working == ()
    send_to_partition_1(job)
    assert make_plan(job.config, Ignore).working == (1,)


def send_to_partition_1(job: Job) -> None:
    systems = Systems(job.config)
    producer = systems.producer("log", MetricsRegistry())
    producer.register("test")
    producer.start()
    producer.send("test", OutgoingMessageEnvelope(SystemStream("log", "in"), b"1", b"k", partition=1))
    producer.flush("test")
    producer.stop()
    systems.close()


def planned_tasks(config: Config) -> list[list[str]]:
    """The tasks of each container of a deployment, as the next one finds them."""
    planned = make_plan(config, Ignore)
    open_generation(planned)
    return [[task.name for task in each.tasks] for each in planned.model.containers]


def test_new_inputs_and_partitions_are_part_of_the_next_deployment(job: Job) -> None:
    job.send(0, 10)
    assert planned_tasks(job.config) == [["Partition 0"], ["Partition 1"]]
    job.write_objects("more", list(range(9)), partitions=3)
    config = job.config.with_values({"task.inputs": "log.in,log.more"})
    assert planned_tasks(config) == [["Partition 0", "Partition 2"], ["Partition 1"]]
    more = [SystemStreamPartition("log", "more", number) for number in range(3)]
    starts = [each.offsets for each in make_plan(config, Ignore).containers()]
    assert starts == [
        {IN[0]: ("0", "5"), more[0]: ("0", "3"), more[2]: ("0", "3")},
        {IN[1]: ("0", "5"), more[1]: ("0", "3")},
    ]


def test_by_lag_tasks_move_only_where_the_shares_differ(job: Job) -> None:
    job.send(0, 40)
    job.write_objects("more", list(range(400)), partitions=4)
    config = job.config.with_values({"task.inputs": "log.in,log.more", "job.container.balance": "lag"})
    # Partitions 0 and 1 have 120 messages, 2 and 3 have 100.
    first = planned_tasks(config)
    assert first == [["Partition 0", "Partition 2"], ["Partition 1", "Partition 3"]]
    job.send(40, 42)
    assert planned_tasks(config) == first
    for number in range(0, 400, 2):
        job.send(number, number + 1)
    assert planned_tasks(config) == [["Partition 0"], ["Partition 1", "Partition 2", "Partition 3"]]


def test_by_lag_the_measured_time_of_messages_counts(job: Job) -> None:
    job.write_objects("four", list(range(400)), partitions=4)
    config = job.config.with_values({"task.inputs": "log.four", "job.container.balance": "lag"})
    planned = make_plan(config, Ignore)
    assert planned.balance == "by messages: no rounds have measured their time yet"
    assert planned_tasks(config) == [["Partition 0", "Partition 2"], ["Partition 1", "Partition 3"]]
    partitions = [f"log.four.{number}" for number in range(4)]
    # Three times as long for each message of partition 0.
    measured = ContainerRun(
        container=0, messages=4000, seconds=60.0, attempt=0, offsets={},
        partition_messages=dict.fromkeys(partitions, 1000),
        partition_seconds=dict(zip(partitions, (30.0, 10.0, 10.0, 10.0), strict=True)),
    )  # fmt: skip
    note(planned.history, Run(generation=1, began_ms=1, master="local[2]", containers=[measured]))
    planned = make_plan(config, Ignore)
    assert planned.balance == "by time, as measured in 1 round"
    assert planned_tasks(config) == [["Partition 0"], ["Partition 1", "Partition 2", "Partition 3"]]
    seconds = [each.seconds for each in planned.containers()]
    assert seconds == pytest.approx([3.0, 3.0], rel=0.02)
    line = dry_run_line(deploy(config, Ignore, dry_run=True))
    assert line.endswith(
        "lag: 100 in container 0 (3.0 s), 300 in container 1 (3.0 s); dealt by time, as measured in 1 round"
    )


def test_by_partitions_each_container_has_about_as_many_of_them(job: Job) -> None:
    job.write_objects("wide", list(range(6)), partitions=6)
    config = job.config.with_values(
        {"task.inputs": "log.in,log.wide", "job.container.balance": "partitions", "job.container.count": 4}
    )
    assert planned_tasks(config) == [
        ["Partition 0"],
        ["Partition 1"],
        ["Partition 2", "Partition 4"],
        ["Partition 3", "Partition 5"],
    ]
