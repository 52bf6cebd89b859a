"""Deployments on Spark against programs written by hand that do the same work on the same messages, in one
session on two threads: CPU time of all processes, and wall time, with Spark started and warm."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streambench as sb

from .batches import JsonCountInBatches
from .container import IN, fill_log, log_job
from .cost import Cost, cost_of, least_costs
from .data import PARTITIONS, messages
from .report import Figure
from .spark_twins import count_batches, count_in_stream, count_messages
from .tasks import JsonCount

_TASKS = 2
_CONTAINERS = (100, 1_000)
_INCREMENT = 100
_runs = itertools.count()
_STREAMED = 60_000
_LONG = 1_000_000  # one container takes seconds for them
_STORE = {
    "stores.counts.factory": "memory",
    "stores.counts.key.serde": "string",
    "stores.counts.msg.serde": "json",
}


class StoreCount(JsonCount):
    """JsonCount with its counts in a store."""

    def init(self, context: sb.TaskContext) -> None:
        self.counts = context.store("counts")


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of the best rounds."""
    from streambench.spark.session import session_for

    held = session_for(None, f"local[{_TASKS}]", _job(directory))
    try:
        yield from _beside_twins(held.spark, count, rounds, directory)
        yield from _two_beside_one(held.spark, max(count, _LONG), rounds, directory)
        yield from _beside_streaming(held.spark, min(count, _STREAMED), directory)
        yield from _many_containers(held.spark, directory)
        yield from _increments(held.spark, rounds, directory)
    finally:
        held.close()


def _beside_twins(spark: Any, count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """Per message, with a store, and in batches."""
    config = _filled(directory / "log", messages(count).partitions)
    files = [[str(path) for path in _segments(config, number)] for number in range(PARTITIONS)]
    shares = [sum(files[task::_TASKS], []) for task in range(_TASKS)]
    target = directory / "by-hand"
    best = least_costs(
        {
            "by hand": lambda: count_messages(spark, shares, target),
            "messages": lambda: _deploy(spark, config, JsonCount, count),
            "store": lambda: _deploy(spark, config.with_values(_STORE), StoreCount, count),
        },
        rounds,
    )
    yield _ratio("Spark deploy, per message / mapInArrow by hand", best, "by hand", "messages")
    yield _ratio("the same with a store and changelog", best, "by hand", "store", aim=0.5)
    best = least_costs(
        {
            "by hand": lambda: count_batches(spark, shares, target),
            "batches": lambda: _deploy(spark, config, JsonCountInBatches, count),
        },
        rounds,
    )
    yield _ratio("Spark deploy, process_batch / mapInArrow by hand", best, "by hand", "batches", aim=0.9)


def _two_beside_one(spark: Any, count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """Per message, by wall time, over so many messages that the start of a container counts for little."""
    config = _filled(directory / "two", messages(count).partitions)
    best = least_costs(
        {
            "two": lambda: _deploy(spark, config, JsonCount, count),
            "one": lambda: _deploy(spark, config.with_values({"job.container.count": 1}), JsonCount, count),
        },
        rounds,
    )
    name = f"Spark deploy, two containers / one, by wall time, {count:,} messages"
    note = f"{best['two']}; one {best['one']}"
    yield Figure(name, best["one"].wall / best["two"].wall, "x", aim=1.7, note=note)


def _beside_streaming(spark: Any, count: int, directory: Path) -> Iterator[Figure]:
    partitions = messages(count).partitions
    config = _filled(directory / "streamed", partitions).with_values(_STORE)
    source = directory / "streamed.parquet"
    source.mkdir()
    for number, of_partition in enumerate(partitions):
        values = pa.array(of_partition, pa.binary())
        pq.write_table(pa.table({"value": values}), source / f"{number}.parquet")
    targets = [directory / "streamed-out", directory / "streamed-checkpoints"]
    best = least_costs(
        {
            "by hand": lambda: count_in_stream(spark, source, *targets),
            "deploy": lambda: _deploy(spark, config, StoreCount, count),
        },
        rounds=1,
        between=lambda: [shutil.rmtree(each, ignore_errors=True) for each in targets],
    )
    name = f"Spark deploy with a store / transformWithStateInPandas, {count:,} messages"
    yield _ratio(name, best, "by hand", "deploy", aim=10)


def _many_containers(spark: Any, directory: Path) -> Iterator[Figure]:
    """A message for each container."""
    for containers in _CONTAINERS:
        every = messages(containers).all
        config = _filled(directory / f"containers-{containers}", [[each] for each in every])
        config = config.with_values({"job.container.count": containers})
        cost = cost_of(lambda config=config, count=containers: _deploy(spark, config, JsonCount, count))
        note = f"{cost}, {cost.cpu / containers * 1e3:.0f} ms of CPU each"
        below = 0.05 * containers
        yield Figure(f"Spark deploy of {containers:,} containers", cost.cpu, "s of CPU", below, True, note)


def _increments(spark: Any, rounds: int, directory: Path) -> Iterator[Figure]:
    """New messages for a job that has caught up, again and again."""
    made = messages(_INCREMENT).partitions
    config = _filled(directory / "increments", made)
    _deploy(spark, config, JsonCount, _INCREMENT, own_name=False)
    costs = []
    for _ in range(rounds + 1):
        fill_log(config, made)
        costs.append(cost_of(lambda: _deploy(spark, config, JsonCount, _INCREMENT, own_name=False)))
    best = min(costs, key=lambda each: each.wall)
    name = f"Spark deploy of {_INCREMENT} more messages, session warm"
    yield Figure(name, best.wall, "s", 0.5, True, f"{best.cpu:.2f} s of CPU")


def _job(path: Path) -> sb.Config:
    return log_job(path).with_values(
        {"job.name": "bench", "job.container.count": _TASKS, "task.commit.ms": None}
    )


def _filled(path: Path, partitions: list[list[bytes]]) -> sb.Config:
    config = _job(path)
    fill_log(config, partitions)
    return config


def _segments(config: sb.Config, partition: int) -> list[Path]:
    """The files of a partition of the input."""
    return sorted(Path(config["systems.bench.path"], IN.stream, str(partition)).glob("*.arrow"))


def _deploy(
    spark: Any, config: sb.Config, task: type[sb.StreamTask], count: int, *, own_name: bool = True
) -> None:
    """``own_name``: under a name of its own, from the oldest message on."""
    from streambench.spark import deploy

    if own_name:
        config = config.with_values({"job.name": f"bench-{next(_runs)}"})
    processed = deploy(config, task, spark=spark).messages
    if processed != count:
        raise AssertionError(f"{processed} messages were processed, not {count}")


def _ratio(name: str, best: dict[str, Cost], by_hand: str, ours: str, aim: float | None = None) -> Figure:
    """By CPU time; the note has the wall time as well."""
    value = best[by_hand].cpu / best[ours].cpu
    faster = best[by_hand].wall / best[ours].wall
    note = f"{best[ours]}; by hand {best[by_hand]}; {faster:.2f} by wall time"
    return Figure(name, value, "x", aim, note=note)
