"""Deploying where executors are processes of their own, which can die."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyspark
import pytest

from streambench import OutgoingMessageEnvelope, StreamTask, SystemStream
from streambench.config import Config
from streambench.model import SystemStreamPartition
from streambench.spark import deploy, register
from streambench.spark.session import lease
from streambench.spark.source.options import as_options
from tests.spark.conftest import Job, leaving_no_process


@pytest.fixture(scope="module")
def cluster(spark_installed: None) -> Iterator[Any]:
    """A session on two executors. Nothing of it is left afterwards: no process, and no file where Spark is
    installed."""
    installed = Path(pyspark.__file__).parent
    files = {each.name for each in installed.iterdir()}
    with leaving_no_process(lambda: closing(lease(None, "local-cluster[2,1,1024]", Config()))) as leased:
        yield leased.spark
    assert {each.name for each in installed.iterdir()} - {"__pycache__"} == files - {"__pycache__"}


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


def test_nothing_is_lost_when_an_executor_is_killed(job: Job, cluster: Any) -> None:
    job.send(0, 400)
    result = deploy(job.config, kills_its_executor_at(201, job.directory), spark=cluster)
    assert (job.directory / "killed").read_text().endswith("java")
    hit = result.containers[1]
    # Message 201 is the 101st of its partition: what was before it had been committed by the attempt that was
    # killed.
    assert (hit.attempt, hit.messages, hit.error) == (1, 200, None)
    assert hit.offsets == {SystemStreamPartition("log", "in", 1): ("0", "200")}
    assert set(job.numbers()) == set(range(400))
    assert job.checkpoints() == {"Partition 0": {"log.in.0": "199"}, "Partition 1": {"log.in.1": "199"}}
    job.send(400, 410)
    assert deploy(job.config, kills_its_executor_at(201, job.directory), spark=cluster).messages == 10


def test_exactly_once_has_no_duplicates_when_an_executor_is_killed(
    tmp_path: Path, cluster: Any
) -> None:
    job = Job(tmp_path, **{"task.processing.guarantee": "exactly-once"})
    job.send(0, 400)
    # Message 215 is the 108th of its partition: seven before it were processed, sent, and not committed.
    hit = deploy(job.config, kills_its_executor_at(215, job.directory), spark=cluster).containers[1]
    assert (hit.attempt, hit.messages, hit.error) == (1, 200, None)
    assert [[number for _, number in rows] for rows in job.read().values()] == [
        list(range(0, 400, 2)),
        list(range(1, 400, 2)),
    ]


def test_a_frame_is_written_once_though_an_executor_is_killed_meanwhile(job: Job, cluster: Any) -> None:
    killed = job.directory / "killed"

    def kills_its_executor(batches: Iterator[Any]) -> Iterator[Any]:
        """Pass the rows on, and have the executor killed once in the midst of them."""
        import psutil

        for batch in batches:
            yield batch
            if batch.column(0)[0].as_py() == "2500" and not killed.exists():
                killed.touch()
                os.kill(psutil.Process(os.getppid()).ppid(), signal.SIGKILL)

    register(cluster)
    cluster.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "100")
    frame = cluster.range(0, 4000, 1, 2).selectExpr("CAST(id AS STRING) AS message")
    frame = frame.mapInArrow(kills_its_executor, "message STRING")
    frame.write.format("streambench").options(**as_options(job.config)).mode("append").save("log.out")
    assert killed.exists()
    assert job.numbers() == list(range(4000))
    assert not [path for path in (job.directory / "streams" / ".staging").rglob("*") if path.is_file()]
