"""Jobs whose streams, state and checkpoints are all in Kafka, while processes and brokers die."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import streambench
from streambench.cli.app import app
from streambench.config import Config
from streambench.errors import ConfigError, FencedError, StreamSystemError, UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.surroundings import only_soak
from tests.system.kafka.cluster import all_of, new_stream, sent

TASK = """
from pathlib import Path
from streambench import OutgoingMessageEnvelope, SystemStream

class Count:
    def init(self, context):
        self.counts = context.store("counts")
        self.output = SystemStream("k", context.config["test.output"])

    def process(self, envelope, collector, coordinator):
        count = (self.counts.get("n") or 0) + 1
        self.counts.put("n", count)
        collector.send(OutgoingMessageEnvelope(self.output, envelope.message, b"%d" % count,
                                               partition=envelope.ssp.partition))

    def window(self, collector, coordinator):
        Path(__file__).with_name("window").touch()
"""


ONCE = {"task.processing.guarantee": "exactly-once"}


KILLED = """
import os
import signal

from streambench.system.kafka.transactions import Transactions

commits = []
commit = Transactions._commit

def killed(transactions, producer):
    commits.append(producer)
    if len(commits) == 4:
        os.kill(os.getpid(), signal.SIGKILL)
    commit(transactions, producer)

Transactions._commit = killed
"""


class Job:
    """A job that copies its input and counts it, in a directory of its own."""

    def __init__(self, kafka: KafkaNodes, directory: Path, **more: str) -> None:
        assert kafka.cluster is not None
        (directory / "count.py").write_text(TASK)
        self.input, self.output = new_stream(), new_stream()
        self.values = {
            "job.name": f"job {uuid.uuid4().hex[:8]}",
            "task.class": "count.py:Count",
            "task.inputs": str(self.input),
            "task.commit.ms": "50",
            "test.output": self.output.stream,
            "job.default.system": "k",
            "stores.counts.factory": "memory",
            "systems.k.samza.factory": "kafka",
            "systems.k.samza.offset.default": "oldest",
            "systems.k.bootstrap.servers": kafka.cluster.servers,
            **more,
        }
        self.path = directory / "job.properties"
        self.path.write_text("".join(f"{key}={value}\n" for key, value in self.values.items()))
        self.systems = Systems(Config(self.values))
        for stream in (self.input, self.output):
            self.systems.admin("k").create(stream, 2)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "streambench", "run", str(self.path), *arguments]
        return subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=os.environ
        )

    def run(self) -> None:
        streambench.run(Config.from_file(self.path), until="caught-up")

    def written(self) -> int:
        """How many messages the output holds."""
        there = self.systems.admin("k").metadata([self.output])[self.output]
        return sum(int(each.upcoming or 0) for each in there.values())

    def wait_until(self, is_so: Callable[[], bool], process: subprocess.Popen[str]) -> None:
        while not is_so():
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
                pytest.fail(process.communicate()[0])

    def outputs(self) -> dict[int, list[tuple[bytes, bytes]]]:
        return {
            number: [(e.key, e.message) for e in found]
            for number, found in all_of(self.systems, self.output).items()
        }


def messages(start: int, stop: int) -> list[tuple[int, bytes | None, bytes | None]]:
    return [(number % 2, None, b"%d" % number) for number in range(start, stop)]


def counted(start: int, stop: int) -> dict[int, list[tuple[bytes, bytes]]]:
    """What comes of these messages."""
    return {
        part: [(b"%d" % (at + 1), b"%d" % (2 * at + part)) for at in range(start // 2, stop // 2)]
        for part in range(2)
    }


def test_a_job_goes_on_where_it_was_with_its_state_and_repeats_nothing(
    kafka: KafkaNodes, tmp_path: Path
) -> None:
    job = Job(kafka, tmp_path)
    sent(job.systems, job.input, messages(0, 100))
    job.run()
    sent(job.systems, job.input, messages(100, 150))
    job.run()
    assert job.outputs() == counted(0, 150)


def test_jobs_with_checkpoints_in_kafka_are_groups(kafka: KafkaNodes, tmp_path: Path) -> None:
    job = Job(kafka, tmp_path)
    sent(job.systems, job.input, messages(0, 10))
    job.run()
    done = CliRunner().invoke(app, ["streams", "--groups", "--json", "-c", str(job.path), str(job.input)])
    assert done.exit_code == 0, done.output
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["group"], row["task"], row["partition"], row["position"], row["lag"]) for row in rows] == [
        (f"{job.values['job.name']}-1", f"Partition {number}", number, "5", 0) for number in range(2)
    ]


@pytest.mark.parametrize("guarantee", [{}, ONCE])
def test_an_input_recreated_between_two_runs_is_read_whole_and_reported(
    guarantee: dict[str, str], kafka: KafkaNodes, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    job = Job(kafka, tmp_path, **guarantee)
    sent(job.systems, job.input, messages(0, 10))
    job.run()
    job.run()
    assert "is not what it was" not in caplog.text
    job.systems.admin("k").delete(job.input)
    job.systems.admin("k").create(job.input, 2)
    sent(job.systems, job.input, messages(0, 20))
    job.run()
    assert f"{job.input}.1 is not what it was when Partition 1 made its checkpoint" in caplog.text
    found = {part: [message for _, message in each] for part, each in job.outputs().items()}
    assert found == {part: [b"%d" % n for n in (*range(part, 10, 2), *range(part, 20, 2))] for part in (0, 1)}


def test_nothing_is_lost_when_the_process_is_killed_in_the_middle(kafka: KafkaNodes, tmp_path: Path) -> None:
    job = Job(kafka, tmp_path)
    total = 2400
    sent(job.systems, job.input, messages(0, total))
    killed = job.start()
    job.wait_until(lambda: job.written() > 200, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    job.run()
    for part, found in job.outputs().items():
        wanted = [b"%d" % number for number in range(part, total, 2)]
        assert set(wanted) == {message for _, message in found}
        # State and position are of one commit: whatever was repeated counted on from there, and the end is as
        # if nothing had happened.
        assert found[-1] == (b"%d" % len(wanted), wanted[-1])


@only_soak("faults/kafka/test_campaign.py kills brokers")
def test_nothing_is_lost_when_the_broker_is_killed_in_the_middle(kafka: KafkaNodes, tmp_path: Path) -> None:
    job = Job(kafka, tmp_path)
    running = job.start()
    producer = job.systems.producer("k", MetricsRegistry())
    producer.register("test")
    producer.start()

    def send(start: int, stop: int) -> None:
        for part, key, message in messages(start, stop):
            producer.send("test", OutgoingMessageEnvelope(job.input, message, key, None, part))

    send(0, 500)
    producer.flush("test")
    job.wait_until(lambda: job.written() > 100, running)
    kafka.kill(1)
    send(500, 1000)
    kafka.start_node(1)
    producer.flush("test")
    producer.stop()
    job.wait_until(
        lambda: {m for found in job.outputs().values() for _, m in found} == {b"%d" % n for n in range(1000)},
        running,
    )
    running.send_signal(signal.SIGINT)
    assert "Traceback" not in running.communicate(timeout=60)[0]


class Counts:
    """Counts messages in its state, and knows what that was when it began."""

    def init(self, context: Any) -> None:
        self.state = context.store("counts")
        self.restored = self.state.get("n")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message == b"counts":
            self.state.put("n", (self.state.get("n") or 0) + 1)


def test_changes_that_a_replaced_container_wrote_late_are_in_no_checkpoint(
    kafka: KafkaNodes, tmp_path: Path
) -> None:
    job = Job(kafka, tmp_path, **{"task.commit.ms": "-1"})
    sent(job.systems, job.input, [(0, None, b"changes nothing"), *[(0, None, b"counts")] * 5])
    settings = Config({key: value for key, value in job.values.items() if key != "task.class"})
    old, new, third = (streambench.Container.from_config(settings, Counts) for _ in range(3))
    old.start()
    old.run(6)
    new.start()
    new.run(1)
    with pytest.raises(FencedError):
        old.stop()
    with pytest.raises(
        StreamSystemError,
        match="the changes of state here end at offset 0, and the partition at 1: something else",
    ):
        new.commit()
    new.abandon()
    third.start()
    assert [each.task.restored for each in third.tasks] == [None, None]
    third.run("caught-up")
    assert sorted((each.task.state.get("n") or 0) for each in third.tasks) == [0, 5]
    third.stop()


def test_an_idle_job_stops_although_kafka_does_not_answer(kafka: KafkaNodes, tmp_path: Path) -> None:
    """However patient it is otherwise."""
    # Without windows: the time of the last one is committed at the stop.
    job = Job(kafka, tmp_path, **{"systems.k.patience.ms": "3600000", "task.window.ms": "-1"})
    sent(job.systems, job.input, messages(0, 10))
    settings = Config.from_file(job.path)
    manager = checkpoint_manager(settings, f"{job.values['job.name']}-1")

    def is_idle() -> bool:
        return [sorted(each.offsets.values()) for each in manager.read_last().values()] == [["4"], ["4"]]

    process = job.start()
    job.wait_until(is_idle, process)
    # A commit can be read a moment before the answer to its writer: let the brokers answer a few times more.
    assert all(is_idle() for _ in range(5))
    manager.close()
    brokers = kafka.running().values()
    try:
        for pid in brokers:
            os.kill(pid, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        said, _ = process.communicate()
    finally:
        for pid in brokers:
            os.kill(pid, signal.SIGCONT)
    assert "stopping" in said and "error:" not in said
    assert process.returncode == 0, said


def test_checkpoints_are_of_the_job_and_not_among_its_streams(kafka: KafkaNodes, tmp_path: Path) -> None:
    job = Job(kafka, tmp_path)
    sent(job.systems, job.input, messages(0, 10))
    job.run()
    assert '"processed":"4"' in CliRunner().invoke(app, ["checkpoints", str(job.path), "--json"]).stdout
    names = {stream.stream for stream in job.systems.admin("k").streams()}
    assert job.input.stream in names
    assert not [name for name in names if name.startswith("__")]


def test_a_dead_input_is_told(kafka: KafkaNodes, tmp_path: Path) -> None:
    job = Job(kafka, tmp_path, **{"task.inputs": "k.nowhere"})
    with pytest.raises(UnknownStreamError, match=r"k\.nowhere: there is no such topic"):
        job.run()


def test_exactly_once_repeats_nothing_when_the_process_is_killed_midway(
    kafka: KafkaNodes, tmp_path: Path
) -> None:
    job = Job(kafka, tmp_path, **ONCE)
    total = 2400
    sent(job.systems, job.input, messages(0, total))
    killed = job.start()
    job.wait_until(lambda: job.written() > 200, killed)
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    job.run()
    assert job.outputs() == counted(0, total)


def test_a_start_waits_for_no_commit_in_which_the_last_was_killed(kafka: KafkaNodes, tmp_path: Path) -> None:
    """Kafka would end the transaction after a quarter of an hour."""
    job = Job(kafka, tmp_path, **ONCE, **{"systems.k.producer.transaction.timeout.ms": "900000"})
    (tmp_path / "count.py").write_text(TASK + KILLED)
    killed = job.start("--quiet")
    total = 0
    while killed.poll() is None:  # it is killed in its fourth commit, and commits only what there is
        sent(job.systems, job.input, messages(total, total + 100))
        total += 100
    assert (killed.communicate()[0], killed.returncode) == ("", -signal.SIGKILL)
    (tmp_path / "count.py").write_text(TASK)
    job.run()
    assert job.outputs() == counted(0, total)


def test_exactly_once_state_outputs_and_positions_go_on_together(kafka: KafkaNodes, tmp_path: Path) -> None:
    job = Job(kafka, tmp_path, **ONCE)
    for start in (0, 30):
        sent(job.systems, job.input, messages(start, start + 30))
        job.run()
    assert job.outputs() == counted(0, 60)


def test_exactly_once_needs_all_of_it_in_one_kafka(kafka: KafkaNodes, tmp_path: Path) -> None:
    for more, reason in (
        (
            {
                "systems.l.samza.factory": "log",
                "systems.l.path": str(tmp_path),
                "task.checkpoint.system": "l",
            },
            "another kind of system",
        ),
        ({"systems.k.consumer.isolation.level": "read_uncommitted"}, "must not see what was never committed"),
    ):
        job = Job(kafka, tmp_path, **ONCE, **more)
        with pytest.raises(ConfigError, match=reason):
            job.run()
