"""Deploying on a standalone cluster: a master, workers and executors are processes, which can die."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import psutil
import pytest

import streambench
from streambench import Config, OutgoingMessageEnvelope, StreamTask, SystemStream, SystemStreamPartition
from streambench.errors import StreambenchError
from streambench.spark import DeployProgress, DeployTaskError, deploy, register
from streambench.spark.session import session_for
from streambench.spark.source.options import as_options
from streambench.testing.spark_cluster import SparkCluster
from tests.spark.conftest import Job, connect_port, jvm_options, leaving_no_process
from tests.spark.test_programs import run_script
from tests.surroundings import SOAK, only_soak

COUNTING = {
    "stores.counts.factory": "memory",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "json",
    "task.processing.guarantee": "exactly-once",
}

# The same for a program as for this module.
COUNTS = """
from streambench import OutgoingMessageEnvelope, StreamTask, SystemStream

class Counts(StreamTask):
    def init(self, context):
        self.counts = context.store("counts")

    def process(self, envelope, collector, coordinator):
        count = self.counts[envelope.key] = self.counts.get(envelope.key, 0) + 1
        out = [envelope.message, count]
        stream = SystemStream("log", "out")
        collector.send(
            OutgoingMessageEnvelope(stream, out, key=envelope.key, partition=envelope.ssp.partition)
        )
"""

ON_CONNECT = """
import json
import os
import signal
import socket
import threading
from contextlib import closing
from pathlib import Path
from urllib.request import urlopen
import psutil
from pyspark.sql import SparkSession
from streambench import Config
from streambench.spark import DeployTaskError, deploy, read
from streambench.spark.source.options import as_options
from task import Counts

HERE = Path.cwd()

class Fails:
    def process(self, envelope, collector, coordinator):
        raise ValueError("of the task")

class Stuck:
    def process(self, envelope, collector, coordinator):
        (HERE / f"{os.getpid()}.pid").touch()
        threading.Event().wait()

def asked(path):
    with urlopen(f"http://127.0.0.1:{port}/api/v1/{path}") as answer:
        return json.load(answer)

def interrupt(progress):
    if list(HERE.glob("*.pid")) and progress.active:
        signal.raise_signal(signal.SIGINT)

if __name__ == "__main__":
    with closing(socket.create_server(("127.0.0.1", 0))) as place:
        port = place.getsockname()[1]
    spark = SparkSession.builder.remote("local[2]").config("spark.ui.port", port).getOrCreate()
    frames = []
    config = Config(json.loads(Path("config.json").read_text()))
    result = deploy(config, Counts, spark=spark, progress=frames.append)
    print(json.dumps([result.messages, result.rounds, [each.number for each in result.containers]]))
    print(frames[-1].done, frames[-1].left)
    stages, = [asked(f"applications/{each['id']}/stages") for each in asked("applications")]
    found = asked(f"applications/{asked('applications')[0]['id']}/stages/{stages[0]['stageId']}/0")["tasks"]
    counts = [[each["update"] for each in task["accumulatorUpdates"]] for task in found.values()]
    print("tasks", counts, [task["taskMetrics"]["inputMetrics"]["recordsRead"] for task in found.values()])
    frame = read(config, "log.in", spark, columns="message,offset")
    print(frame.count(), frame.where("offset < 3").count())
    writer = frame.select("message").write.format("streambench").options(**as_options(config))
    writer.mode("append").save("log.copy")
    print(read(config, "log.copy", spark).selectExpr("SUM(message)").collect()[0][0])
    bounds = {"start": '{"0": "timestamp:2000-01-01", "1": "190"}', "end": '{"0": "3", "1": "upcoming"}'}
    print("options", read(config, "log.in", spark, columns="offset", **bounds).count())
    pushed = read(config, "log.in", spark, columns="partition,offset", pushdown=True)
    print("pushed down", pushed.where("partition = 1 and offset >= 198").count())
    fields = read(config, "log.objects", spark, schema="n INT, offset LONG", columns="offset")
    print("fields", [tuple(row) for row in fields.orderBy("n").collect()])
    stream = spark.readStream.format("streambench").options(**as_options(config))
    stream = stream.options(stream="log.in", columns="key,message", maxMessagesPerTrigger=300).load()
    writer = stream.writeStream.format("streambench").options(**as_options(config)).trigger(availableNow=True)
    query = writer.options(stream="log.followed", checkpointLocation=str(HERE / "checkpoint")).start()
    query.awaitTermination()
    # A trigger that finds nothing may be reported behind the last step.
    print("steps", [step.numInputRows for step in query.recentProgress if step.numInputRows])
    print("followed", read(config, "log.followed", spark).count())
    try:
        deploy(config.with_values({"job.name": "fails"}), Fails, spark=spark)
    except DeployTaskError:
        print("failed")
    try:
        deploy(config.with_values({"job.name": "other"}), Stuck, spark=spark, progress=interrupt)
    except KeyboardInterrupt:
        pids = [int(path.stem) for path in HERE.glob("*.pid")]
        # One that its parent has not asked about since it ended (a zombie) has ended all the same.
        found = [each for each in psutil.process_iter(["status"]) if each.pid in pids]
        print(len(pids) > 0, [each.pid for each in found if each.info["status"] != psutil.STATUS_ZOMBIE])
    spark.stop()
"""


@pytest.fixture(scope="module")
def cluster(spark_installed: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers. None of their processes is left afterwards."""
    directory = tmp_path_factory.mktemp("cluster")
    with leaving_no_process(lambda: SparkCluster(directory, java_options=jvm_options())) as started:
        yield started


@pytest.fixture(scope="module")
def session(cluster: SparkCluster) -> Iterator[Any]:
    handle = session_for(None, cluster.master, Config())
    yield handle.spark
    handle.close()


class Prints(StreamTask):
    def process(self, envelope, collector, coordinator):
        import sys

        print("this flight has no delay", file=sys.stderr, flush=True)
        raise ValueError(envelope.message)


def job_in(directory: Path) -> Job:
    """A job that counts the keys of 400 messages, and its code in a file."""
    directory.mkdir(exist_ok=True)
    (directory / "task.py").write_text(COUNTS)
    job = Job(directory, **COUNTING, **{"task.class": "task.py:Counts"})
    job.send(0, 400)
    return job


@pytest.fixture(scope="module")
def on_connect(spark_installed: None, tmp_path_factory: pytest.TempPathFactory) -> tuple[Job, list[str]]:
    """The job that a Spark Connect client has deployed, and what that printed."""
    job = job_in(tmp_path_factory.mktemp("connect"))
    settings = {key: value for key, value in job.config.items() if key != "task.class"}
    (job.directory / "config.json").write_text(json.dumps(settings))
    job.write_objects("objects", [{"n": 4}, {"n": 5}])
    with connect_port():
        return job, run_script(job.directory, ON_CONNECT)


def test_the_same_job_gives_equal_outputs_wherever_it_runs(
    tmp_path: Path, session: Any, on_connect: tuple[Job, list[str]]
) -> None:
    ways: dict[str, Callable[[Job], object]] = {
        "run": lambda job: streambench.run(job.config, until="caught-up"),
        "standalone": lambda job: deploy(job.config, spark=session),
    }
    if SOAK:  # tests/integration/test_equivalence.py compares a local master with a run
        ways["local"] = lambda job: deploy_apart(job.config)
    jobs = {"connect": on_connect[0]}
    for way, start in ways.items():
        start(jobs.setdefault(way, job_in(tmp_path / way)))
    found = {way: (job.read(), job.checkpoints()) for way, job in jobs.items()}
    outputs, checkpoints = found["run"]
    assert [len(rows) for rows in outputs.values()] == [200, 200]
    assert checkpoints == {"Partition 0": {"log.in.0": "199"}, "Partition 1": {"log.in.1": "199"}}
    assert found == dict.fromkeys(found, found["run"])


def test_progress_is_live_on_spark_connect_and_nothing_of_it_is_left(
    on_connect: tuple[Job, list[str]],
) -> None:
    # That it is live is seen by the interrupt, which comes once a container is shown at work.
    assert printed(on_connect)[:2] == ["[400, 1, [0, 1]]", "2 0"]
    assert printed(on_connect)[-2:] == ["failed", "True []"]


def test_the_ui_of_spark_connect_has_the_messages_of_each_task(on_connect: tuple[Job, list[str]]) -> None:
    assert printed(on_connect)[2] == "tasks [['200'], ['200']] [200, 200]"


def test_frames_are_read_and_written_on_spark_connect(on_connect: tuple[Job, list[str]]) -> None:
    assert printed(on_connect)[3:5] == ["400 6", "79800.0"]


def test_options_of_frames_hold_on_spark_connect(on_connect: tuple[Job, list[str]]) -> None:
    assert printed(on_connect)[5:8] == ["options 13", "pushed down 2", "fields [(4, 0), (5, 1)]"]


def test_a_stream_is_followed_in_steps_on_spark_connect(on_connect: tuple[Job, list[str]]) -> None:
    assert printed(on_connect)[8:-2] == ["steps [300, 100]", "followed 400"]


def printed(on_connect: tuple[Job, list[str]]) -> list[str]:
    return [line for line in on_connect[1] if not line.startswith("stderr: ")]


def deploy_apart(config: Config) -> None:
    """Deploy on a local master, in a process of its own: this one has a session."""
    (config.directory / "config.json").write_text(json.dumps(dict(config)))
    text = (
        "import json\nfrom pathlib import Path\nfrom streambench import Config\n"
        "from streambench.spark import deploy\n"
        "if __name__ == '__main__':\n"
        "    deploy(Config(json.loads(Path('config.json').read_text())), master='local[2]')\n"
    )
    assert run_script(config.directory, text) == []


def test_a_container_that_fails_names_the_log_with_what_it_printed(
    job: Job, session: Any, cluster: SparkCluster
) -> None:
    job.send(0, 4)
    with pytest.raises(DeployTaskError, match="log of its executor: ") as caught:
        deploy(job.config, Prints, spark=session)
    log = caught.value.result.containers[0].log
    asked = parse_qs(urlsplit(log).query)
    (application,), (executor,) = asked["appId"], asked["executorId"]
    (file,) = (cluster.directory / "work").glob(f"*/{application}/{executor}/stderr")
    assert "this flight has no delay" in file.read_text()


def test_ctrl_c_ends_the_python_processes_on_the_workers(job: Job, session: Any) -> None:
    job.send(0, 4)
    stuck = job.directory / "stuck"

    class Stuck(StreamTask):
        def process(self, envelope, collector, coordinator):
            import os
            import threading

            (stuck.parent / f"{os.getpid()}.pid").touch()
            stuck.touch()
            threading.Event().wait()

    def look(progress: DeployProgress) -> None:
        if stuck.exists() and progress.active:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        deploy(job.config, Stuck, spark=session, progress=look)
    pids = [int(path.stem) for path in job.directory.glob("*.pid")]
    assert pids
    found = [each for each in psutil.process_iter(["status"]) if each.pid in pids]
    assert not [each.pid for each in found if each.info["status"] != psutil.STATUS_ZOMBIE]


def kills_its_executor_at(number: int, directory: Path) -> type[StreamTask]:
    """A task that commits every tenth message and, the first time it meets ``number``, has its executor
    killed with signal 9."""
    killed = directory / "killed"

    class Kills(StreamTask):
        def init(self, context):
            self.count = 0

        def process(self, envelope, collector, coordinator):
            import threading

            if envelope.message == number and not killed.exists():
                import psutil

                daemon = psutil.Process(os.getppid())
                killed.write_text(" ".join(map(str, (os.getpid(), daemon.ppid(), daemon.parent().name()))))
                os.kill(daemon.ppid(), signal.SIGKILL)
                threading.Event().wait()
            collector.send(
                OutgoingMessageEnvelope(
                    SystemStream("log", "out"), envelope.message, partition=envelope.ssp.partition
                )
            )
            self.count += 1
            if self.count % 10 == 0:
                coordinator.commit()

    return Kills


@only_soak("the next test kills an executor as well")
def test_nothing_is_lost_when_an_executor_is_killed(job: Job, session: Any) -> None:
    job.send(0, 400)
    result = deploy(job.config, kills_its_executor_at(201, job.directory), spark=session)
    assert (job.directory / "killed").read_text().endswith("java")
    hit = result.containers[1]
    # Message 201 is the 101st of its partition: what was before it had been committed by the attempt that was
    # killed.
    assert (hit.attempt, hit.messages, hit.error) == (1, 200, None)
    assert hit.offsets == {SystemStreamPartition("log", "in", 1): ("0", "200")}
    assert set(job.numbers()) == set(range(400))
    assert job.checkpoints() == {"Partition 0": {"log.in.0": "199"}, "Partition 1": {"log.in.1": "199"}}
    job.send(400, 410)
    assert deploy(job.config, kills_its_executor_at(201, job.directory), spark=session).messages == 10


def test_exactly_once_has_no_duplicates_when_an_executor_is_killed(
    tmp_path: Path, session: Any
) -> None:
    job = Job(tmp_path, **{"task.processing.guarantee": "exactly-once"})
    job.send(0, 400)
    # Message 215 is the 108th of its partition: seven before it were processed, sent, and not committed.
    hit = deploy(job.config, kills_its_executor_at(215, job.directory), spark=session).containers[1]
    assert (hit.attempt, hit.messages, hit.error) == (1, 200, None)
    assert [[number for _, number in rows] for rows in job.read().values()] == [
        list(range(0, 400, 2)),
        list(range(1, 400, 2)),
    ]
    job.send(400, 410)
    assert deploy(job.config, kills_its_executor_at(215, job.directory), spark=session).messages == 10


def test_a_frame_is_written_once_though_an_executor_is_killed_meanwhile(job: Job, session: Any) -> None:
    killed = job.directory / "killed"

    def kills_its_executor(batches: Iterator[Any]) -> Iterator[Any]:
        """Pass the rows on, and have the executor killed once in the midst of them."""
        import psutil

        for batch in batches:
            yield batch
            if batch.column(0)[0].as_py() == "2500" and not killed.exists():
                killed.touch()
                os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)

    register(session)
    session.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = session.range(0, 4000, 1, 2).selectExpr("CAST(id AS STRING) AS message")
    frame = frame.mapInArrow(kills_its_executor, "message STRING")
    frame.write.format("streambench").options(**as_options(job.config)).mode("append").save("log.out")
    assert killed.exists()
    assert job.numbers() == list(range(4000))
    assert not [path for path in (job.directory / "streams" / ".staging").rglob("*") if path.is_file()]


def test_a_cluster_that_cannot_start_shows_its_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_installed: None
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "none"))
    with pytest.raises(StreambenchError, match=r"the master of a Spark cluster has ended; .*master\.log"):
        SparkCluster(tmp_path).start()
