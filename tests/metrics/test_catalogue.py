"""The catalogue of metrics: complete, and right about what jobs report."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.container.observe.metrics import take_report
from streambench.metrics.catalogue import METRICS, Metric, find
from streambench.metrics.registry import MetricsRegistry, Reading
from streambench.model import OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.systems import Systems
from streambench.task import StreamTask
from tests.container.jobs import Bench


class Busy(StreamTask):
    """Uses all there is to be measured."""

    def init(self, context):
        self.store = context.store("counts")

    def process(self, envelope, collector, coordinator):
        if envelope.message == "bad":
            raise ValueError(envelope.message)
        self.store.put("n", 1 + (self.store.get("n") or 0))
        collector.send(OutgoingMessageEnvelope(SystemStream("mem", "out"), envelope.message))

    def window(self, collector, coordinator):
        pass


EVERYTHING = {
    "task.ignored.exceptions": "ValueError",
    "task.window.ms": "1000",
    "metrics.timer.enabled": "true",
    "stores.counts.factory": "memory",
    "systems.mem.streams.a.samza.priority": "3",
    "systems.mem.streams.b.samza.bootstrap": "true",
}


@pytest.fixture(scope="module")
def told() -> dict[str, list[Reading]]:
    """All metrics of a container in the middle of a run, by source."""
    bench = Bench(Busy, {"mem.a": {0: ["bad", "x", "y"], 1: ["z"]}, "mem.b": {0: ["p", "q"]}}, EVERYTHING)
    container = bench.started()
    container.step(4)
    container.commit()
    report = take_report(container.status)
    container.stop()
    return {source: list(readings) for source, readings in report.sources.items()}


def entries(readings: list[Reading]) -> Iterator[tuple[Reading, Metric]]:
    for each in readings:
        entry = find(each.group, each.name)
        assert entry is not None, f"{each.group}.{each.name} has no entry"
        yield each, entry[0]


def test_every_metric_of_streambench_has_an_entry_of_its_kind(told: dict[str, list[Reading]]) -> None:
    for source, readings in told.items():
        for each, entry in entries(readings):
            assert entry.kind == each.kind, each
            assert entry.source == ("container" if source.startswith("samza-container") else "task"), each


def test_what_has_an_entry_is_measured(told: dict[str, list[Reading]], tmp_path: Path) -> None:
    measured = {entry for readings in told.values() for _, entry in entries(readings)}
    config = Config(
        {
            "systems.log.samza.factory": "log",
            "systems.log.path": tmp_path,
            "task.inputs": "log.in",
            "job.name": "j",
        }
    )
    Systems(config).create(SystemStream("log", "in"), 1)
    container = Container(config, _passes)
    container.start()
    measured |= {
        entry
        for readings in take_report(container.status).sources.values()
        for _, entry in entries(list(readings))
    }
    container.stop()
    elsewhere = {
        "<system>-batches-written",
        "entries-restored",
    }  # by a log that was written to, by a store with a changelog
    expected = [
        each
        for each in METRICS
        if each.pattern not in elsewhere and each.group not in ("amqp", "tcp", "udp", "webhook")
    ]
    assert [each for each in expected if each not in measured] == []


_NET = {"streams.in.listen": "0", "streams.out.connect": "9"}


@pytest.mark.parametrize(
    ("kind", "settings"), [("tcp", _NET), ("udp", _NET), ("webhook", {"port": "0", "streams.in.path": "/in"})]
)
def test_what_a_system_on_the_network_measures_has_entries(kind: str, settings: dict[str, str]) -> None:
    config = Config(
        {
            "systems.net.samza.factory": kind,
            **{f"systems.net.{name}": value for name, value in settings.items()},
        }
    )
    registry, systems = MetricsRegistry(), Systems(config)
    consumer, producer = systems.consumer("net", registry), systems.producer("net", registry)
    consumer.register(SystemStreamPartition("net", "in", 0), "0")
    consumer.start()
    consumer.stop()
    producer.stop()
    found = {entry: each.kind for each, entry in entries(registry.readings())}
    assert all(entry.kind == measured for entry, measured in found.items())
    assert set(found) == {each for each in METRICS if each.group == kind}


def _passes(envelope, collector, coordinator):
    pass


def test_no_name_stands_twice() -> None:
    names = [(each.group, each.pattern) for each in METRICS]
    assert len(set(names)) == len(names)


def test_a_name_is_taken_apart() -> None:
    entry = find("consumers", "kafka-page-views-12-messages-behind-high-watermark")
    assert entry is not None
    assert entry[1] == {"system": "kafka", "stream": "page-views", "partition": "12"}
    system = find("log", "my-log-messages-read")
    assert system is not None
    assert system[1] == {"system": "my-log"}
    store = find("stores", "counts-puts")
    assert store is not None
    assert store[1] == {"store": "counts"}
    assert find("Busy", "seen") is None


def test_labels_say_what_the_name_says(told: dict[str, list[Reading]]) -> None:
    for readings in told.values():
        for each in readings:
            entry = find(each.group, each.name)
            assert entry is not None
            if each.labels:
                assert entry[1] == each.labels
