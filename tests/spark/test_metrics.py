"""Metrics of containers on Spark: reported from the executors, except to Prometheus."""

from __future__ import annotations

from typing import Any

import pytest

from streambench import OutgoingMessageEnvelope, StreamTask, SystemStream
from streambench.config import Config
from streambench.spark import deploy
from streambench.spark.shipment import without_endpoints
from tests.spark.conftest import Job

SNAPSHOT = {"metrics.reporter.s.class": "snapshot", "metrics.reporter.s.stream": "log.metrics"}
PROMETHEUS = {"metrics.reporter.p.class": "prometheus", "metrics.reporter.p.port": "1"}


class Counts(StreamTask):
    def init(self, context):
        self.seen = context.metrics.counter("seen")

    def process(self, envelope, collector, coordinator):
        self.seen.inc()
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))


@pytest.mark.parametrize(("named", "left"), [("s,p", "s"), ("p", None), ("s", "s"), (None, None)])
def test_endpoints_stay_at_home(named: str | None, left: str | None) -> None:
    config = Config({**SNAPSHOT, **PROMETHEUS, "metrics.reporters": named})
    assert without_endpoints(config).text("metrics.reporters") == left


def test_containers_write_snapshots_from_the_executors(job: Job, spark: Any) -> None:
    job.config = job.config.with_values({**SNAPSHOT, **PROMETHEUS, "metrics.reporters": "s,p"})
    job.send(0, 10)
    assert deploy(job.config, Counts, spark=spark).messages == 10
    told = [message for _, message in job.read("metrics")[0]]
    seen = {each["header"]["source"]: each["metrics"]["Counts"]["seen"] for each in told if "Counts" in each["metrics"]}
    assert seen == {"TaskName-Partition 0": 5, "TaskName-Partition 1": 5}
    assert {each["header"]["container-name"] for each in told} == {"samza-container-0", "samza-container-1"}
