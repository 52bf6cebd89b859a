"""A job that copies a topic through a broker that may be harmed, started again each time it fails; and what
is in its output then."""

from __future__ import annotations

import re
import threading
import time
import uuid
from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass

import streambench as sb
from streambench.errors import StreambenchError
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.settings import Settings
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.faults.kafka.proxy import Fault, FaultProxy
from tests.system.kafka.cluster import config, new_stream, sent

PARTITIONS = 2
MESSAGES = 60  # of each partition
COMMIT_EVERY = 25
ATTEMPTS = 6


@dataclass(frozen=True)
class Broker:
    """``nodes`` can be reached directly, too. ``proxies``: those that nobody uses at the moment."""

    nodes: KafkaNodes
    proxies: list[FaultProxy]

    @property
    def servers(self) -> str:
        assert self.nodes.cluster is not None
        return self.nodes.cluster.servers


class Trial:
    """One job, its streams, and what became of it. ``more``: settings of the system, with __ for dots."""

    def __init__(self, broker: Broker, guarantee: str, **more: object) -> None:
        self.broker = broker
        self._proxy = broker.proxies.pop()
        self.input, self.output = new_stream(), new_stream()
        self.guarantee = guarantee
        self._wrong: BaseException | None = None
        self.failures: list[StreambenchError] = []
        self._has_failed = threading.Event()
        self.written: dict[int, list[bytes]] = {}
        """At the end, what another client reads of the output, of what was committed."""
        self.direct = Systems(config(broker.nodes))
        self.direct.admin("k").create(self.input, PARTITIONS)
        self.make_output()
        wanted = [
            (part, b"%d" % number, b"%d" % number) for number in range(MESSAGES) for part in range(PARTITIONS)
        ]
        sent(self.direct, self.input, wanted)
        system = {
            "samza.offset.default": "oldest",
            "bootstrap.servers": self._proxy.address,
            "samza.factory": "kafka",
        }
        # Small batches make several requests of each commit: some are acknowledged already when a fault hits
        # the next.
        quick = {
            "producer.batch.size": 200,
            "producer.linger.ms": 0,
            "producer.request.timeout.ms": 1000,
            "patience.ms": 3000,
        }
        system.update({key: str(value) for key, value in quick.items()})
        system.update({key.replace("__", "."): str(value) for key, value in more.items()})
        self.config = sb.Config(
            {
                "job.name": f"copy-{uuid.uuid4().hex[:8]}",
                "task.inputs": str(self.input),
                "job.default.system": "k",
                "task.processing.guarantee": guarantee,
                "task.commit.ms": -1,
                **{f"systems.k.{key}": value for key, value in system.items()},
            }
        )

    def make_output(self) -> None:
        self.direct.admin("k").create(self.output, PARTITIONS)

    def run(self, fault: Fault, meanwhile: Callable[[Trial], None] | None = None) -> None:
        """Run the job to the end of its input, however many times it takes. ``meanwhile`` is called when the
        fault is reached first, and what was hit goes on when it has returned."""
        self.fault = fault
        self._proxy.plan(fault)
        self._job = job = threading.Thread(target=self._attempts, daemon=True)
        job.start()
        try:
            if meanwhile is not None:
                while not fault.reached.wait(0.1):
                    assert job.is_alive(), self.failures
                meanwhile(self)
        finally:
            fault.go_on()
            job.join()
            self._proxy.plan(None)
            self.broker.proxies.append(self._proxy)
            self.direct.close()
        if self._wrong is not None:
            raise self._wrong
        assert fault.hits, "nothing was hit"
        assert len(self.failures) < ATTEMPTS, self.failures
        self.written = committed(self.broker.servers, self.output.stream, PARTITIONS)

    def wait_for_failure(self) -> None:
        while not self._has_failed.wait(0.1):
            assert self._job.is_alive(), "it did not fail"

    def attempt(self) -> None:
        """One run of the job to the end of its input. Raises what it raises."""
        output = self.output

        class Copy(sb.StreamTask):
            def init(self, context: sb.TaskContext) -> None:
                self.number = 0

            def process(
                self,
                envelope: sb.IncomingMessageEnvelope,
                collector: sb.MessageCollector,
                coordinator: sb.TaskCoordinator,
            ) -> None:
                collector.send(
                    sb.OutgoingMessageEnvelope(
                        output, envelope.message, envelope.key, partition=envelope.ssp.partition
                    )
                )
                self.number += 1
                if self.number % COMMIT_EVERY == 0:
                    coordinator.commit(sb.RequestScope.CURRENT_TASK)

        sb.run(self.config, task=Copy)

    def _attempts(self) -> None:
        while len(self.failures) < ATTEMPTS:
            try:
                self.attempt()
                return
            except StreambenchError as error:
                self.failures.append(error)
                self._has_failed.set()
                self._heed(str(error))
            except BaseException as error:
                self._wrong = error
                return

    def _heed(self, told: str) -> None:
        """Do as an error says of a transaction that nobody ends, since the broker was killed while it did."""
        named = re.search(r"streambench kafka repair (\S+)", told)
        if named is not None:
            with closing(KafkaAdmin(Settings.from_config("k", self.config))) as admin:
                ended, _ = admin.abort_hanging(sb.SystemStream.parse(named[1]))
            assert ended, told


def committed(servers: str, topic: str, partitions: int, patience_s: float = 60.0) -> dict[int, list[bytes]]:
    """All committed messages of a topic by partition, as librdkafka reads them."""
    from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "log_level": 0,
            "group.id": "reader",
            "fetch.wait.max.ms": 20,
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
        }
    )
    found: dict[int, list[bytes]] = {number: [] for number in range(partitions)}
    ended: set[int] = set()
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        end = time.monotonic() + patience_s
        while len(ended) < partitions:
            batch = consumer.consume(1_000, 0.1)
            assert batch or time.monotonic() < end, f"no answer from {topic} for {patience_s:.0f} seconds"
            for each in batch:
                end = time.monotonic() + patience_s
                error = each.error()
                if error is None:
                    found[each.partition()].append(each.value())
                elif error.code() == KafkaError._PARTITION_EOF:
                    ended.add(each.partition())
                else:
                    raise AssertionError(str(error))
    finally:
        consumer.close()
    return found
