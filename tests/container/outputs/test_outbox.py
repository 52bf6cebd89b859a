"""Targets of outputs: streams that are made, systems that are not there, and when all is durable."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import ConfigError, StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.system.api import Sender, SystemProducer
from streambench.system.log import open_log
from streambench.system.memory import MemoryProducer, MemoryStreams, MemorySystemFactory, memory_streams
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import run_job
from tests.container.jobs import Bench, echo, sending

OUT = SystemStream("mem", "out")
SEVEN = {"systems.mem.streams.out.partitions": 7}


def test_a_stream_that_is_there_keeps_its_partitions() -> None:
    bench = Bench(sending(OutgoingMessageEnvelope(OUT, "x", partition=1)), {"mem.a": {0: [1]}}, SEVEN)
    bench.streams.create(OUT, 2)
    bench.started().run("caught-up")
    assert [len(partition) for partition in bench.streams.of(OUT)] == [0, 1]


def test_a_stream_is_made_when_the_first_message_is_sent_to_it() -> None:
    bench = Bench(echo, {"mem.a": {0: [1]}})
    container = bench.started()
    assert OUT not in bench.streams.partitions
    container.step()
    assert OUT in bench.streams.partitions


def test_timestamp_and_headers_go_along() -> None:
    bench = Bench(
        sending(OutgoingMessageEnvelope(OUT, "x", timestamp=5, headers={"h": b"1"})), {"mem.a": {0: [1]}}
    )
    bench.started().run("caught-up")
    extra = bench.streams.of(OUT)[0].fields[2]
    assert extra == (5, {"h": b"1"})


def test_headers_and_timestamps_come_to_the_task() -> None:
    seen = []

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.append((envelope.timestamp, envelope.headers))
        if envelope.message == 1:
            collector.send(
                OutgoingMessageEnvelope(SystemStream("mem", "a"), 2, timestamp=5, headers={"h": b"1"})
            )

    run_job(process, None, {"mem.a": {0: [1]}})
    assert seen == [(None, None), (5, {"h": b"1"})]


def test_a_system_that_is_not_defined_cannot_be_sent_to() -> None:
    system = "test-outbox"
    streams = memory_streams(system)
    streams.create(SystemStream(system, "a"), 1)
    MemoryProducer(streams).send("test", OutgoingMessageEnvelope(SystemStream(system, "a"), "x"))
    config = {
        "task.inputs": f"{system}.a",
        f"systems.{system}.samza.factory": "memory",
        f"systems.{system}.samza.offset.default": "oldest",
    }
    container = Container.from_config(
        config, sending(OutgoingMessageEnvelope(SystemStream("test-outbx", "out"), 1))
    )
    container.start()
    try:
        with pytest.raises(
            ConfigError,
            match=rf"Partition 0 cannot send to test-outbx\.out: there is no system .*; did you mean "
            rf"{system}\?.*{system}\.a\.0@0",
        ):
            container.run("caught-up")
    finally:
        streams.partitions.clear()


def test_what_was_sent_is_counted_when_it_is_durable() -> None:
    bench = Bench(echo, {"mem.a": {0: [1, 2, 3]}})
    container = bench.started()
    container.step(2)
    container.commit()
    assert container.metrics.snapshot()["producers.sends"] == 2


class KeepingProducer(MemoryProducer):
    """Keeps messages back until a flush, as a producer that writes in batches does."""

    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams)
        self._kept: list[tuple[str, OutgoingMessageEnvelope]] = []

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        self._kept.append((source, envelope))

    def sender(self, stream: SystemStream) -> Sender:
        return SystemProducer.sender(self, stream)

    def flush(self, source: str) -> None:
        for each in self._kept:
            super().send(*each)
        self._kept.clear()


class Keeping(MemorySystemFactory):
    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams)
        self.streams = streams

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        return KeepingProducer(self.streams)


class Unreachable(MemorySystemFactory):
    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        raise StreamSystemError("no such host")


def test_an_input_waiting_for_own_outputs_gets_them_before_the_loop_rests() -> None:
    def count_down(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message:
            collector.send(OutgoingMessageEnvelope(SystemStream("mem", "a"), envelope.message - 1))

    streams = MemoryStreams()
    bench = Bench(count_down, {"mem.a": {0: [5]}}, factory=Keeping(streams), streams=streams)
    assert bench.started().run("caught-up") == 6


def test_what_a_producer_keeps_back_is_durable_with_the_commit() -> None:
    streams = MemoryStreams()
    bench = Bench(echo, {"mem.a": {0: [1, 2, 3]}}, factory=Keeping(streams), streams=streams)
    container = bench.started()
    container.run(2)
    assert bench.outputs() == []
    container.commit()
    assert bench.outputs() == [1, 2]
    container.run(1)
    container.abandon()
    assert bench.outputs() == [1, 2]


def test_a_producer_that_cannot_be_made_fails_the_container() -> None:
    streams = MemoryStreams()
    bench = Bench(echo, {"mem.a": {0: [5]}}, factory=Unreachable(streams), streams=streams)
    with pytest.raises(StreamSystemError, match="no such host"):
        bench.started().run("caught-up")
    assert bench.container.state == "failed"


@pytest.mark.parametrize("serde", ["bytes", "json"])
@pytest.mark.parametrize("partition", [None, 1], ids=["by key", "named"])
def test_what_is_sent_to_a_log_is_written_in_batches_before_the_commit(
    tmp_path: Path, serde: str, partition: int | None
) -> None:
    to = SystemStream("log", "out")

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(
            OutgoingMessageEnvelope(
                to, envelope.message if serde == "bytes" else 1, b"k", partition=partition
            )
        )

    settings = {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "systems.log.samza.msg.serde": serde,
        "systems.log.streams.out.partitions": 2,
        "systems.log.linger.ms": 1 << 40,
        "systems.log.batch.messages": 500,
        "task.commit.ms": -1,
    }
    config = Config(
        {
            "task.inputs": "mem.a",
            "systems.mem.samza.offset.default": "oldest",
            "systems.mem.samza.factory": "memory",
        }
        | settings
    )
    streams = memory_streams("mem")
    streams.create(SystemStream("mem", "a"), 1)
    streams.of(SystemStream("mem", "a"))[0].fields.extend([None, b"x", None] * 2_500)
    container = Container(config, process)
    try:
        container.start()
        assert container.run(2_500) == 2_500
        with open_log(tmp_path) as log:
            written = sum(log.partition("out", number).bounds()[1] for number in range(2))
        assert written >= 1_500
    finally:
        container.abandon()
        streams.partitions.clear()


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_suffix_sends_outputs_to_streams_beside_them(guarantee: str) -> None:
    def send(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, b"one"))
        collector.send(OutgoingMessageEnvelope(OUT, b"two", partition=2, timestamp=7))

    config = {
        "task.output.suffix": "-b",
        "task.processing.guarantee": guarantee,
        "systems.mem.streams.out-b.partitions": 3,
    }
    ran = run_job(send, config, {"mem.in": {0: [b"m"]}})
    assert {name: sorted(each) for name, each in ran.outputs.items()} == {"mem.out-b": [0, 1, 2]}
    found = sorted(message for rows in ran.outputs["mem.out-b"].values() for _, message in rows)
    assert found == [b"one", b"two"]


def test_a_suffix_never_sends_outputs_to_a_changelog() -> None:
    config = {
        "task.output.suffix": "-b", "stores.s.factory": "memory", "stores.s.changelog": "mem.out-b",
        "stores.s.key.serde": "string", "stores.s.msg.serde": "string",
    }  # fmt: skip
    with pytest.raises(ConfigError, match=r"sends to mem.out, which goes to mem.out-b, a changelog"):
        run_job(sending(OutgoingMessageEnvelope(OUT, b"x")), config, {"mem.in": {0: [b"m"]}})
