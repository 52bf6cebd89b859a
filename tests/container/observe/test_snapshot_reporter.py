"""The reporters that come with streambench, in real containers: to a stream, to Prometheus, to the log."""

from __future__ import annotations

import json
import logging
import math
import urllib.request
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.container.outputs.direct_writer import writing
from streambench.errors import ConfigError, TaskError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.memory import MemoryProducer, MemoryStreams, MemorySystemFactory
from streambench.system.systems import Systems
from streambench.testing import run_job
from tests.container.jobs import Bench
from tests.container.observe.test_reporting import Metered, advancing


class FailsToFlush(MemoryProducer):
    def flush(self, source: str) -> None:
        raise OSError("broken pipe")


def log_config(directory: Path, **settings: Any) -> Config:
    return Config(
        {
            "job.name": "job",
            "task.inputs": "log.in",
            "systems.log.samza.factory": "log",
            "systems.log.path": directory / "log",
            "systems.log.samza.msg.serde": "json",
            "systems.log.samza.offset.default": "oldest",
            **settings,
        }
    )


def snapshots(config: Config, stream: str = "log.metrics") -> list[dict[str, Any]]:
    """What a snapshot reporter wrote, read by a job as any stream is."""
    found: list[dict[str, Any]] = []
    reading = Config({key: value for key, value in config.items() if not key.startswith("metrics.")})
    container = Container(
        reading.with_values({"task.inputs": stream, "job.name": "reader"}),
        lambda envelope, *_: found.append(envelope.message),
    )
    container.start()
    container.run("caught-up")
    container.stop()
    return found


def send(config: Config, *messages: Any) -> None:
    systems = Systems(config)
    systems.create(SystemStream("log", "in"), 2)
    with writing(systems, SystemStream("log", "in"), 2, "test") as writer:
        writer.send(
            OutgoingMessageEnvelope(SystemStream("log", "in"), json.dumps(each).encode()) for each in messages
        )
    systems.close()


SNAPSHOT = {
    "metrics.reporters": "s",
    "metrics.reporter.s.class": "snapshot",
    "metrics.reporter.s.stream": "log.metrics",
}


def test_snapshots_are_messages_with_a_header_and_metrics_by_group(tmp_path: Path) -> None:
    config = log_config(tmp_path, **SNAPSHOT, **{"job.id": 7})
    send(config, 1, 2, 3)
    container = Container(config, Metered)
    container.start()
    container.run("caught-up")
    container.stop()
    told = snapshots(config)
    header = told[0]["header"]
    assert [each["header"]["source"] for each in told] == [
        "samza-container-0",
        "TaskName-Partition 0",
        "TaskName-Partition 1",
    ]
    assert (header["job-name"], header["job-id"], header["container-name"]) == (
        "job",
        "7",
        "samza-container-0",
    )
    assert header["reset-time"] <= header["time"]
    assert {"host", "version"} <= set(header)
    assert told[0]["metrics"]["container"]["process-envelopes"] == 3
    assert told[0]["metrics"]["consumers"]["log-in-0-messages-behind-high-watermark"] == 0
    assert sum(each["metrics"]["Metered"]["seen"] for each in told[1:]) == 3
    assert container.metrics.snapshot()["producers.sends"] == 0


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_snapshots_of_a_failing_run_are_written_though_it_commits_nothing(
    tmp_path: Path, guarantee: str
) -> None:
    config = log_config(tmp_path, **SNAPSHOT, **{"task.processing.guarantee": guarantee})
    send(config, 1)

    def fails(envelope, collector, coordinator):
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), 1))
        raise ValueError

    container = Container(config, fails)
    container.start()
    with pytest.raises(TaskError):
        container.run("caught-up")
    assert snapshots(config)[0]["metrics"]["container"]["container-running"] == 0


def test_a_stream_of_a_system_that_is_not_there_is_told_by_the_key(tmp_path: Path) -> None:
    config = log_config(tmp_path, **{**SNAPSHOT, "metrics.reporter.s.stream": "lgo.metrics"})
    send(config, 1)
    with pytest.raises(
        ConfigError, match=r"metrics\.reporter\.s\.stream: there is no system 'lgo'; did you mean log\?"
    ):
        Container(config, Metered).start()


def test_after_a_failed_write_the_next_report_gets_a_new_producer() -> None:
    streams = MemoryStreams()
    producers: list[MemoryProducer] = []

    class Flaky(MemorySystemFactory):
        def get_producer(self, system, config, metrics):
            producers.append(FailsToFlush(streams) if not producers else MemoryProducer(streams))
            return producers[-1]

    clock, slow = advancing(1000)
    settings = {**SNAPSHOT, "metrics.reporter.s.stream": "mem.metrics", "metrics.reporter.s.interval": "1"}
    bench = Bench(
        slow, {"mem.a": {0: [1, 2, 3]}}, settings, factory=Flaky(streams), streams=streams, clock=clock
    )
    container = bench.started()
    container.run("caught-up")
    container.stop()
    assert container.metrics.snapshot()["container.report-exceptions"] == 1
    assert len(producers) == 2
    assert len(streams.of(SystemStream("mem", "metrics"))[0]) > 2


def test_prometheus_scrapes_a_container_until_it_stops(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "streambench.metrics")
    settings = {
        "metrics.reporters": "p",
        "metrics.reporter.p.class": "prometheus",
        "metrics.reporter.p.interval": "1",
    }
    clock, slow = advancing(1000)
    bench = Bench(slow, {"mem.a": {0: [1, 2, 3]}}, settings, clock=clock)
    container = bench.started()
    container.step(3)
    told = [record.getMessage() for record in caplog.records if "http://" in record.getMessage()]
    url = told[0].split()[-1]
    with urllib.request.urlopen(url, timeout=60) as answer:
        text = answer.read().decode()
    assert "# HELP streambench_consumers_messages_behind_high_watermark messages: left in a partition" in text
    assert 'stream="a",system="mem"} 1.0' in text
    container.stop()
    with pytest.raises(OSError):
        urllib.request.urlopen(url, timeout=60)


ODD = {
    "text": "x",
    "nothing": None,
    "nan": math.nan,
    "numpy": np.int64(3),
    "half": Fraction(1, 2),
    "large": 2**70,
    "torn": "\udc80",
    "bytes": b"ab",
}


def test_a_gauge_may_hold_anything() -> None:
    clock, slow = advancing(1000)

    class Odd(slow):
        def init(self, context):
            for name, value in ODD.items():
                context.metrics.gauge(name).set(value)

    settings = {
        "metrics.reporters": "s,l,p",
        "metrics.reporter.s.class": "snapshot",
        "metrics.reporter.s.stream": "mem.metrics",
        "metrics.reporter.l.class": "log",
        "metrics.reporter.p.class": "prometheus",
    }
    run = run_job(Odd, settings, {"mem.a": {0: [1]}}, clock=clock)
    assert run.metrics["container.report-exceptions"] == 0
    told = json.loads(run.outputs["mem.metrics"][0][-1][1])
    plain = {
        "text": "x",
        "nothing": None,
        "nan": None,
        "numpy": 3,
        "half": 0.5,
        "large": str(2**70),
        "torn": "\\udc80",
        "bytes": "ab",
    }
    assert told["metrics"]["Odd"] == plain


def test_the_log_gets_a_line_per_source_without_what_every_partition_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "streambench.metrics")
    run_job(
        Metered, {"metrics.reporters": "l", "metrics.reporter.l.class": "log"}, {"mem.a": {0: [1], 1: [2]}}
    )
    lines = [record.getMessage() for record in caplog.records if record.name == "streambench.metrics"]
    assert lines[0].startswith("metrics of job-1, samza-container-0: container.process-envelopes=2 ")
    assert lines[1] == (
        "metrics of job-1, TaskName-Partition 0: Metered.seen=1 Metered.double=2 "
        "mine.sizes=1 mine.sizes.count=1 mine.sizes.p50=1 mine.sizes.p99=1 mine.sizes.max=1"
    )
    assert not any("mem-a-0" in line for line in lines)
