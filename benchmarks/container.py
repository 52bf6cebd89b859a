"""The container against bare Python loops over the same messages, in one process, interleaved, by the CPU
time of the best round."""

from __future__ import annotations

import gc
import itertools
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import streambench as sb
from streambench.container.container import Container
from streambench.metrics.registry import MetricsRegistry
from streambench.system.log import LogSystemFactory
from streambench.system.memory import memory_streams
from streambench.system.systems import Systems

from .data import PARTITIONS, messages
from .report import Figure
from .tasks import OUT, Empty, JsonCount, PassThrough, bare_json_count, bare_pass_through

IN = sb.SystemStream("bench", "in")

_runs = itertools.count()

_JOB = {"task.inputs": str(IN), "systems.bench.samza.offset.default": "oldest"}


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of container and bare loop."""
    made = messages(count)
    _fill_memory(made.partitions)
    runs: dict[str, Callable[[], float]] = {
        "bare count": lambda: bare_json_count(made.all, directory),
        "empty": lambda: _in_memory(Empty, count),
        "count": lambda: _in_memory(JsonCount, count),
        "log count": lambda: _log_to_log(made.partitions, count, directory),
        "bare pass": lambda: bare_pass_through(made.all, directory),
        "pass": lambda: _in_memory(PassThrough, count),
    }
    best = in_turns(runs, rounds, count)
    bare_count, bare_pass = best["bare count"], best["bare pass"]
    yield Figure("bare loop, JSON count", bare_count, "ns a message")
    yield Figure(
        "container's own cost / bare JSON count",
        best["empty"] / bare_count,
        "x",
        aim=1.2,
        below=True,
        note=f"{best['empty']:.0f} ns",
    )
    yield Figure(
        "JSON count in memory / bare",
        bare_count / best["count"],
        "x",
        aim=0.40,
        note=f"{best['count']:.0f} ns",
    )
    yield Figure(
        "JSON count log to log, checkpoints on / bare",
        bare_count / best["log count"],
        "x",
        aim=0.35,
        note=f"{best['log count']:.0f} ns",
    )
    yield Figure(
        "pass-through in memory / bare",
        bare_pass / best["pass"],
        "x",
        aim=0.13,
        note=f"{best['pass']:.0f} ns, bare {bare_pass:.0f}",
    )


def in_turns(runs: Mapping[str, Callable[[], float]], rounds: int, count: int) -> dict[str, float]:
    """Nanoseconds per message of the best round of each, where one after the other has its turn in each
    round."""
    best: dict[str, float] = {}
    for _ in range(rounds):
        for name, run in runs.items():
            with _no_collector():
                best[name] = min(best.get(name, float("inf")), run() / count * 1e9)
    return best


def _fill_memory(partitions: list[list[bytes]]) -> None:
    streams = memory_streams(IN.system)
    for stream in (IN, OUT):
        streams.partitions.pop(stream, None)
        streams.create(stream, PARTITIONS)
    for number, of_partition in enumerate(partitions):
        streams.of(IN)[number].fields = [field for message in of_partition for field in (None, message, None)]


def _in_memory(task: type[sb.StreamTask], count: int) -> float:
    for partition in memory_streams(OUT.system).of(OUT):
        partition.fields.clear()
    return run_job(sb.Config({**_JOB, "systems.bench.samza.factory": "memory"}), task, count)


def _log_to_log(partitions: list[list[bytes]], count: int, directory: Path) -> float:
    path = directory / "log"
    shutil.rmtree(path, ignore_errors=True)
    config = log_job(path)
    fill_log(config, partitions)
    return run_job(config, JsonCount, count)


def log_job(path: Path) -> sb.Config:
    """A job from log to log: a commit every second, an fsync with each, as one does that may not lose
    anything."""
    streams = {f"systems.bench.streams.{name}.partitions": PARTITIONS for name in ("in", "out")}
    return sb.Config(
        {
            **_JOB,
            **streams,
            "systems.bench.samza.factory": "log",
            "systems.bench.path": path,
            "task.commit.ms": 1000,
        }
    )


def fill_log(config: sb.Config, partitions: list[list[bytes]], stream: sb.SystemStream = IN) -> None:
    """Write the messages to a stream in the log."""
    systems = Systems(config)
    systems.create(stream, len(partitions))
    producer = LogSystemFactory().get_producer(stream.system, config, MetricsRegistry())
    producer.register("bench")
    producer.start()
    for number, of_partition in enumerate(partitions):
        for start in range(0, len(of_partition), 10_000):
            producer.send_columns(stream, number, None, of_partition[start : start + 10_000])
    producer.flush("bench")
    producer.stop()
    systems.close()


def run_job(config: sb.Config, task: type[sb.StreamTask], count: int) -> float:
    """Seconds of CPU that a job takes for all its messages, from its start on to its last commit."""
    # A name of its own: a job of the same name would go on from the checkpoints of the run before.
    container = Container(config.with_values({"job.name": f"bench-{next(_runs)}"}), task)
    container.start()
    began = time.process_time()
    processed = container.run("caught-up")
    container.commit()
    seconds = time.process_time() - began
    container.stop()
    if processed != count:
        raise AssertionError(f"{processed} messages were processed, not {count}")
    return seconds


@contextmanager
def _no_collector() -> Iterator[None]:
    """A full collection walks all messages of the benchmark itself, at moments that have nothing to do with
    what is measured."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
