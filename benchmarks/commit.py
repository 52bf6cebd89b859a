"""Time of a commit, log to log: 120 messages of JSON since the last one, state with a changelog, 12
partitions of outputs."""

from __future__ import annotations

import shutil
import statistics
import time
from collections.abc import Iterator
from pathlib import Path

import streambench as sb
from streambench.container.container import Container

from .container import IN, fill_log
from .data import PARTITIONS, messages
from .report import Figure
from .tasks import OUT

_MESSAGES = 120
_COMMITS = 200
_GUARANTEES = ("at-least-once", "exactly-once")


class _Counts(sb.StreamTask):
    def init(self, context: sb.TaskContext) -> None:
        self.counts = context.store("counts")

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        user = envelope.message["user"]
        count = 1 + (self.counts.get(user) or 0)
        self.counts.put(user, count)
        collector.send(sb.OutgoingMessageEnvelope(OUT, count, key=user))


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """Median and 99th percentile in milliseconds, of all rounds together; the guarantees take turns."""
    taken: dict[str, list[float]] = {guarantee: [] for guarantee in _GUARANTEES}
    for _ in range(rounds):
        for guarantee in _GUARANTEES:
            taken[guarantee] += _commits(guarantee, directory / "log")
    for guarantee, seconds in taken.items():
        cuts = statistics.quantiles(seconds, n=100)
        note = f"{len(seconds)} commits of {_MESSAGES} messages"
        yield Figure(f"commit, {guarantee}: median", cuts[49] * 1000, "ms", note=note)
        yield Figure(f"commit, {guarantee}: 99th percentile", cuts[98] * 1000, "ms", note=note)


def _commits(guarantee: str, path: Path) -> list[float]:
    shutil.rmtree(path, ignore_errors=True)
    streams = {f"systems.bench.streams.{name}.partitions": PARTITIONS for name in ("in", "out")}
    config = sb.Config(
        {
            **streams,
            "job.name": "bench",
            "task.inputs": str(IN),
            "task.processing.guarantee": guarantee,
            "task.commit.ms": -1,
            "stores.counts.factory": "memory",
            "systems.bench.samza.factory": "log",
            "systems.bench.path": path,
            "systems.bench.samza.offset.default": "oldest",
            "systems.bench.samza.msg.serde": "json",
            "systems.bench.samza.key.serde": "string",
        }
    )
    fill_log(config, messages(_MESSAGES * (_COMMITS + 50)).partitions)
    container = Container(config, _Counts)
    container.start()
    taken = []
    for _ in range(_COMMITS):
        container.step(_MESSAGES)
        began = time.perf_counter()
        container.commit()
        taken.append(time.perf_counter() - began)
    container.stop()
    return taken
