"""A job from Kafka to Kafka, whose process and whose brokers are killed again and again, at moments that
chance chooses; and three nodes of which one has just gone, or does not lead any more."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

import pytest
from kafka import errors as kafka_errors

import streambench as sb
from streambench.system.kafka.clients import LookUps
from streambench.system.kafka.settings import Settings
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.conftest import CHECKOUT, kafka_nodes
from tests.faults.kafka.table import committed
from tests.surroundings import SOAK
from tests.system.kafka.cluster import all_of, config, new_stream, sent

MESSAGES = 1_000_000 if SOAK else 12_000
KILLS = 20 if SOAK else 1
BROKER_KILLS = 5 if SOAK else 1
PARTITIONS = 12
# Longer than a job itself waits for a transaction that Kafka leaves hanging, before it says how to end it.
PATIENCE_S = 180.0
# Each look asks the brokers for the ends of all partitions.
LOOK_S = 0.1

TASK = """\
import streambench as sb


class Transform(sb.StreamTask):
    def init(self, context):
        self.output = sb.SystemStream("k", context.config["test.output"])

    def process(self, envelope, collector, coordinator):
        collector.send(sb.OutgoingMessageEnvelope(self.output, b"<%b>" % envelope.message,
                                                  partition=envelope.ssp.partition))
"""

PROPERTIES = """\
job.name={job}
job.default.system=k
task.class=task.py:Transform
task.inputs=k.{job}-in
task.commit.ms=200
task.processing.guarantee={guarantee}
test.output={job}-out
systems.k.samza.factory=kafka
systems.k.samza.offset.default=oldest
systems.k.bootstrap.servers={servers}
"""


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaNodes]:
    nodes = kafka_nodes(tmp_path_factory.mktemp("three"))
    nodes.start(3, 0)
    yield nodes
    nodes.stop()


class Campaign:
    """A job that is killed, and brokers that are."""

    def __init__(
        self,
        nodes: KafkaNodes,
        directory: Path,
        guarantee: str,
        chance: random.Random,
        progress: Callable[[], None],
    ) -> None:
        from confluent_kafka import Producer
        from confluent_kafka.admin import AdminClient, NewTopic

        assert nodes.cluster is not None
        self.servers = nodes.cluster.servers
        self.kills: list[str] = []
        self.ended = 0
        """How often the job ended by itself: not what killed brokers should do to it."""
        self.expected: dict[int, list[bytes]] = {number: [] for number in range(PARTITIONS)}
        self._progress = progress
        self._nodes = nodes
        self._directory = directory
        self._chance = chance
        self._process: subprocess.Popen[bytes] | None = None
        job = f"job-{uuid.uuid4().hex[:8]}"
        self.input, self.output = f"{job}-in", f"{job}-out"
        (directory / "task.py").write_text(TASK)
        (directory / "job.properties").write_text(
            PROPERTIES.format(job=job, guarantee=guarantee, servers=self.servers)
        )
        self._said = (directory / "said.txt").open("ab")
        client = {"bootstrap.servers": self.servers, "log_level": 0}
        self._admin = AdminClient(client)
        for made in self._admin.create_topics(
            [NewTopic(name, PARTITIONS, 3) for name in (self.input, self.output)]
        ).values():
            made.result()
        self._ends = [0] * PARTITIONS
        self._producer = Producer({**client, "enable.idempotence": True, "linger.ms": 5})
        self._looking = self._new_look()

    def run(self) -> None:
        """Send all messages, a part before each kill, and kill; then let the job come to their end."""
        brokers = set(self._chance.sample(range(KILLS), BROKER_KILLS))
        part = MESSAGES // (KILLS + 2 * BROKER_KILLS + 1)
        for number in range(KILLS):
            if number in brokers:
                self._go_on_without_a_broker(part)
            self._send_and_wait(part)
            self._kill()
        self._send(MESSAGES - sum(map(len, self.expected.values())))
        while self._came_to_the_end() != 0:
            assert self.ended < 5, self.said()
        self._process = None

    def said(self) -> str:
        return (self._directory / "said.txt").read_text()

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        self._said.close()
        self._looking.close()

    def _send(self, count: int) -> None:
        for _ in range(count):
            partition = self._chance.randrange(PARTITIONS)
            of_partition = self.expected[partition]
            message = b"%d" % len(of_partition)
            while True:
                try:
                    self._producer.produce(self.input, message, partition=partition)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            of_partition.append(b"<%b>" % message)
        assert self._producer.flush(PATIENCE_S) == 0

    def _running(self, *options: str) -> subprocess.Popen[bytes]:
        """The job's process, a new one where there is none."""
        if self._process is not None and self._process.poll() is not None:
            self.ended += 1
            self._process = None
        if self._process is None:
            environment = {**os.environ, "PYTHONPATH": str(CHECKOUT), "PYTHONFAULTHANDLER": "1"}
            self._process = subprocess.Popen(
                [sys.executable, "-m", "streambench", "run", "job.properties", "--quiet", *options],
                cwd=self._directory, env=environment, stdout=subprocess.DEVNULL, stderr=self._said,
            )  # fmt: skip
        return self._process

    def _send_and_wait(self, part: int) -> None:
        """Until the job has come some way with what is sent now; or for a moment, whatever it does then: it
        may just have been started."""
        if self._chance.random() < 0.3:
            self._send(part)
            with suppress(subprocess.TimeoutExpired):
                self._running().wait(self._chance.uniform(0, 4))
        else:
            self._go_on(part)

    def _go_on(self, part: int) -> None:
        """Send messages, and wait until the job has come some way with them."""
        goal = self._written() + self._chance.randrange(1, part)
        self._send(part)
        self._until(
            lambda: self._running() is not None and self._written() >= goal, f"the output to come to {goal}"
        )

    def _came_to_the_end(self) -> int:
        """The exit code of a run over all that is left, however long, while something comes of it."""
        process, written = self._running("--until", "caught-up"), -1
        while True:
            try:
                return process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                before, written = written, self._written()
                if written <= before:
                    self._fail_of("something to be written")

    def _kill(self) -> None:
        process = self._running()
        process.kill()
        process.wait()
        self._process = None
        self.kills.append("container")

    def _go_on_without_a_broker(self, part: int) -> None:
        """Kill a broker that matters; bring it back when the job has gone on without it."""
        self._until(self._complete, "all copies to be there")
        self._go_on(part)
        victim, what = (
            (self._controller(), "controller") if self._chance.random() < 0.5 else (self._leader(), "leader")
        )
        self._nodes.kill(victim)
        self.kills.append(f"{what} {victim}")
        self._go_on(part)
        self._nodes.start_node(victim)

    def _written(self) -> int:
        """How many offsets of the output are taken: more than messages, as what is taken back and the ends of
        transactions count, too."""
        from confluent_kafka import KafkaException, TopicPartition

        try:
            for at in range(PARTITIONS):
                self._ends[at] = self._looking.get_watermark_offsets(TopicPartition(self.output, at), 1)[1]
        except KafkaException:
            # Of those whose broker has been killed: what it was before. The client may never find their new
            # leader.
            self._looking.close()
            self._looking = self._new_look()
        return sum(self._ends)

    def _new_look(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer({"bootstrap.servers": self.servers, "group.id": "looks", "log_level": 0})

    def _complete(self) -> bool:
        topics = self._admin.list_topics(timeout=60).topics
        return all(len(each.isrs) == 3 for topic in topics.values() for each in topic.partitions.values())

    def _leader(self) -> int:
        partitions = self._admin.list_topics(self.output, timeout=60).topics[self.output].partitions
        return int(partitions[self._chance.randrange(PARTITIONS)].leader)

    def _controller(self) -> int:
        from kafka import KafkaAdminClient

        admin = KafkaAdminClient(bootstrap_servers=self.servers.split(","))
        try:
            return int(admin.describe_metadata_quorum()["topics"][0]["partitions"][0]["leader_id"])
        finally:
            admin.close()

    def _until(self, is_so: Callable[[], bool], what: str) -> None:
        end, before = time.monotonic() + PATIENCE_S, -1
        while not is_so():
            written = self._written()
            if written != before:
                end, before = time.monotonic() + PATIENCE_S, written
                self._progress()
            if time.monotonic() > end:
                self._fail_of(what)
            time.sleep(LOOK_S)

    def _fail_of(self, what: str) -> NoReturn:
        process = self._running()
        process.send_signal(signal.SIGABRT)  # it tells what its threads are doing
        process.wait()
        pytest.fail(f"waited {PATIENCE_S:.0f} seconds for {what}, after {self.kills}: {self.said()}")


@pytest.mark.timeout(120)
def test_the_end_of_a_partition_is_known_though_its_leader_changed(three: KafkaNodes) -> None:
    from kafka import KafkaAdminClient, TopicPartition

    topic = f"moves-{uuid.uuid4().hex[:8]}"
    partition = TopicPartition(topic, 0)
    settings = Settings.from_config("k", config(three))
    admin = KafkaAdminClient(bootstrap_servers=list(settings.servers))
    look_ups = LookUps(settings)
    try:
        admin.create_topics({topic: {"assignments": {0: [1, 2, 3]}}}, wait_for_metadata=True)
        assert look_ups.upcoming([partition]) == {partition: 0}
        admin.alter_partition_reassignments({partition: [2, 3, 1]})

        def leads() -> int:
            with suppress(kafka_errors.KafkaError):
                admin.elect_leaders(0, {topic: [0]})
            return int(admin.describe_topics([topic])[0]["partitions"][0]["leader_id"])

        end = time.monotonic() + 60
        while leads() != 2:
            assert time.monotonic() < end
        assert look_ups.upcoming([partition], timeout_ms=60_000) == {partition: 0}
    finally:
        look_ups.close()
        admin.close()


GUARANTEES = ["exactly-once", *(["at-least-once"] if SOAK else [])]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_everything_arrives_though_processes_and_brokers_are_killed(
    three: KafkaNodes, tmp_path: Path, guarantee: str, progress: Callable[[], None]
) -> None:
    chance = random.Random(os.environ.get("SEED", "7"))
    campaign = Campaign(three, tmp_path, guarantee, chance, progress)
    began = time.monotonic()
    try:
        campaign.run()
    finally:
        campaign.close()
    seconds = time.monotonic() - began
    found = committed(campaign.servers, campaign.output, PARTITIONS)
    count = sum(map(len, found.values()))
    said = campaign.said()
    stalls = said.count("acknowledged nothing") + said.count("it is written again")
    print(
        f"{guarantee}: {MESSAGES} messages in, {count} out, {seconds:.0f} s, ended by itself "
        f"{campaign.ended} times, "
        f"stalled {stalls} times, doubted {said.count('it is not certain')} commits; {campaign.kills}"
    )
    if guarantee == "exactly-once":
        assert found == campaign.expected, said
    else:
        assert {part: set(each) for part, each in found.items()} == {
            part: set(each) for part, each in campaign.expected.items()
        }
    assert "Traceback" not in said
    assert campaign.ended == 0, said


@pytest.mark.timeout(300)
@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_job_starts_though_a_broker_has_died_a_moment_ago(three: KafkaNodes, guarantee: str) -> None:
    from kafka import KafkaAdminClient

    assert three.cluster is not None
    settings = config(three, samza__offset__default="oldest").with_values(
        {"task.processing.guarantee": guarantee}
    )
    systems, into, out = Systems(settings), new_stream(), new_stream()
    for stream in (into, out):
        systems.admin("k").create(stream, 3)
    sent(systems, into, [(number % 3, None, b"%d" % number) for number in range(300)])
    job = settings.with_values({"job.name": into.stream, "task.inputs": str(into), "job.default.system": "k"})

    def copy(
        envelope: sb.IncomingMessageEnvelope, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator
    ) -> None:
        collector.send(sb.OutgoingMessageEnvelope(out, envelope.message, partition=envelope.ssp.partition))

    admin = KafkaAdminClient(bootstrap_servers=three.cluster.servers.split(","))
    victim = int(admin.describe_topics([into.stream])[0]["partitions"][0]["leader_id"])
    admin.close()
    three.kill(victim)
    try:
        container = sb.Container(job, copy)
        container.start()
        container.run("caught-up")
        container.stop()
    finally:
        three.start_node(victim)
    copied = {part: [each.message for each in envelopes] for part, envelopes in all_of(systems, out).items()}
    systems.close()
    assert copied == {part: [b"%d" % number for number in range(part, 300, 3)] for part in range(3)}
