"""The log by itself: appending in batches, reading as Arrow batches and as envelopes; messages of 100 bytes,
12 partitions."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import streambench as sb
from streambench.metrics.registry import MetricsRegistry
from streambench.system.log import LogSystemFactory

from .container import IN, fill_log
from .data import PARTITIONS
from .report import Figure

_AT_ONCE = 1000


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """Messages per second, of the best round."""
    per_partition = count // PARTITIONS
    payload = [b"%b" % (b"%0100d" % number) for number in range(per_partition)]
    path = directory / "log"
    config = sb.Config({"systems.bench.samza.factory": "log", "systems.bench.path": path})
    ssps = [sb.SystemStreamPartition(IN.system, IN.stream, number) for number in range(PARTITIONS)]
    best = {"append": 0.0, "batches": 0.0, "envelopes": 0.0}
    for _ in range(rounds):
        shutil.rmtree(path, ignore_errors=True)
        rates = {
            "append": _append(config, payload),
            "batches": _read_batches(config, ssps, per_partition),
            "envelopes": _read_envelopes(config, ssps, per_partition),
        }
        best = {name: max(best[name], rate) for name, rate in rates.items()}
    yield Figure("log: append in batches, flushed to disk", best["append"] / 1e6, "M messages/s", aim=2)
    yield Figure("log: read as Arrow batches", best["batches"] / 1e6, "M messages/s", aim=3)
    yield Figure("log: read as envelopes", best["envelopes"] / 1e6, "M messages/s", aim=1.2)


def _append(config: sb.Config, payload: list[bytes]) -> float:
    began = time.perf_counter()
    fill_log(config, [payload] * PARTITIONS)
    return len(payload) * PARTITIONS / (time.perf_counter() - began)


def _read_batches(config: sb.Config, ssps: list[sb.SystemStreamPartition], count: int) -> float:
    consumer = LogSystemFactory().get_consumer(IN.system, config, MetricsRegistry())
    began = time.perf_counter()
    rows = 0
    for ssp in ssps:
        consumer.register(ssp, "0")
    consumer.start()
    for ssp in ssps:
        rows += sum(batch.num_rows for batch in consumer.read_batches(ssp, "0"))
    seconds = time.perf_counter() - began
    consumer.stop()
    assert rows == count * len(ssps), rows
    return rows / seconds


def _read_envelopes(config: sb.Config, ssps: list[sb.SystemStreamPartition], count: int) -> float:
    consumer = LogSystemFactory().get_consumer(IN.system, config, MetricsRegistry())
    began = time.perf_counter()
    for ssp in ssps:
        consumer.register(ssp, "0")
    consumer.start()
    read = 0
    while read < count * len(ssps):
        read += len(consumer.poll(dict.fromkeys(ssps, _AT_ONCE), 0))
    seconds = time.perf_counter() - began
    consumer.stop()
    return read / seconds
