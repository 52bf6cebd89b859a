"""A job on a log in a temporary directory, and Spark to run it on."""

from __future__ import annotations

import fcntl
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import psutil
import pytest

from streambench import Config, OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.plan import job_name
from streambench.spark import class_archive, own_session
from streambench.system.systems import Systems
from tests.spark.archive import archive_key
from tests.surroundings import SOAK

CHECKOUT = Path(__file__).resolve().parent.parent.parent
_T = TypeVar("_T")


@contextmanager
def connect_port() -> Iterator[None]:
    """Hold the port that all local servers of Spark Connect use: one test of all workers may have one."""
    with Path(tempfile.gettempdir(), f"streambench-connect-port-{os.getuid()}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def leaving_no_process(begin: Callable[[], AbstractContextManager[_T]]) -> Iterator[_T]:
    """Within what ``begin`` begins; behind it, no process is left that was started meanwhile."""
    me = psutil.Process()
    before = {each.pid for each in me.children(recursive=True)}
    with begin() as begun:
        yield begun
        started = [each for each in me.children(recursive=True) if each.pid not in before]
    assert psutil.wait_procs(started, timeout=60)[1] == []


def of_session(number: int) -> list[psutil.Process]:
    """The processes of a session, but for the one that leads it."""
    return [psutil.Process(pid) for pid in psutil.pids() if pid != number and _session_of(pid) == number]


def _session_of(pid: int) -> int | None:
    try:
        return os.getsid(pid)
    except ProcessLookupError:
        return None


def jvm_options() -> str:
    """Options for a JVM that lives for seconds: those of a session's, and its archive of Spark's classes,
    where there is one."""
    archives = sorted(class_archive.cache().glob(f"{archive_key()}-*.jsa"))
    mapped = [f"-XX:SharedArchiveFile={archives[0]}", "-Xlog:disable"] if archives else []
    return " ".join([own_session._JAVA_OPTIONS, *mapped])


def environment_of_programs() -> dict[str, str]:
    """The environment of a program on Spark, outside of the checkout."""
    return {
        **os.environ, "PYTHONPATH": str(CHECKOUT), "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": jvm_options(), "SPARK_LAUNCHER_OPTS": own_session._JAVA_OPTIONS,
    }  # fmt: skip


class Job:
    """A configuration with one log system, and what is in its streams: ``log.in`` and ``log.out``, as JSON,
    two partitions each."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        self.directory = directory
        self.config = Config.from_text(
            "\n".join(
                [
                    "job.name=job",
                    "job.container.count=2",
                    "task.inputs=log.in",
                    "systems.log.samza.factory=log",
                    "systems.log.path=streams",
                    "systems.log.samza.msg.serde=json",
                    "systems.log.samza.key.serde=string",
                    "systems.log.samza.offset.default=oldest",
                    "systems.log.streams.out.partitions=2",
                ]
            ),
            directory=directory,
        ).with_values(settings)
        systems = Systems(self.config)
        systems.create(SystemStream("log", "in"), 2)
        systems.close()

    def send(self, first: int, last: int) -> None:
        """Put the numbers from ``first`` up to but not ``last`` into the input: even ones into partition 0,
        odd ones into partition 1."""
        systems = Systems(self.config)
        producer = systems.producer("log", MetricsRegistry())
        producer.register("test")
        producer.start()
        for number in range(first, last):
            key, message = f"k{number % 7}".encode(), str(number).encode()
            producer.send(
                "test", OutgoingMessageEnvelope(SystemStream("log", "in"), message, key, partition=number % 2)
            )
        producer.flush("test")
        producer.stop()
        systems.close()

    def write_objects(self, stream: str, objects: list[Any], partitions: int = 1) -> None:
        """Create a stream and put objects into it as JSON, into each partition in turn."""
        import msgspec

        systems = Systems(self.config)
        systems.create(SystemStream("log", stream), partitions)
        producer = systems.producer("log", MetricsRegistry())
        producer.register("test")
        producer.start()
        for at, each in enumerate(objects):
            envelope = OutgoingMessageEnvelope(
                SystemStream("log", stream), msgspec.json.encode(each), partition=at % partitions
            )
            producer.send("test", envelope)
        producer.flush("test")
        producer.stop()
        systems.close()

    def read(self, stream: str = "out") -> dict[int, list[tuple[str | None, Any]]]:
        """Per partition, the keys and messages of a stream."""
        import msgspec

        systems = Systems(self.config)
        found: dict[int, list[tuple[str | None, Any]]] = {}
        try:
            for number, here in self.metadata(stream).items():
                ssp = SystemStreamPartition("log", stream, number)
                rows = found[number] = []
                if here.oldest is None:
                    continue
                consumer = systems.consumer("log", MetricsRegistry())
                consumer.register(ssp, here.oldest)
                consumer.start()
                while len(rows) < int(here.upcoming or 0) - int(here.oldest):
                    for envelope in consumer.poll({ssp: 100_000}, 1000):
                        rows.append(
                            (
                                None if envelope.key is None else envelope.key.decode(),
                                msgspec.json.decode(envelope.message),
                            )
                        )
                consumer.stop()
        finally:
            systems.close()
        return found

    def numbers(self, stream: str = "out") -> list[int]:
        """All messages of a stream, sorted."""
        return sorted(message for rows in self.read(stream).values() for _, message in rows)

    def metadata(self, stream: str) -> dict[int, PartitionMetadata]:
        systems = Systems(self.config)
        try:
            return systems.metadata([SystemStream("log", stream)])[SystemStream("log", stream)]
        finally:
            systems.close()

    def checkpoints(self) -> dict[str, dict[str, str]]:
        """Per task and partition, the last offset that is committed."""
        return committed(self.config)

    def generation(self) -> int:
        """The number of the job's last generation, 0 before the first."""
        manager = checkpoint_manager(self.config, job_name(self.config))
        try:
            last = manager.last_generation()
            return last.number if last else 0
        finally:
            manager.close()


def committed(config: Config) -> dict[str, dict[str, str]]:
    """Per task and partition, the last offset that a job has committed."""
    manager = checkpoint_manager(config, job_name(config))
    try:
        return {
            task: {str(ssp): offset for ssp, offset in each.offsets.items()}
            for task, each in manager.read_last().items()
        }
    finally:
        manager.close()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


@pytest.fixture
def report(capfd: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Prints lines of a long run at once."""

    def say(text: str) -> None:
        with capfd.disabled():
            print(text, flush=True)

    return say if SOAK else print
