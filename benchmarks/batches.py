"""Batches of messages: a task with ``process_batch`` against the same work in polars alone, on the same
messages.

The job is JsonCount: parse, filter, a running count per user, and each count out as JSON. polars alone reads
the messages as Arrow arrays of bytes, a partition at a time in runs as long as the task gets them, and writes
its output as an Arrow file. The work itself is the very same function for both, so that what differs is the
container: reading, choosing, keyed partitioning of the output, offsets, commits.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pyarrow as pa

import streambench as sb
from streambench.metrics.registry import MetricsRegistry
from streambench.system.log import LogSystemFactory

from .container import fill_log, in_turns, log_job, run_job
from .data import PARTITIONS, messages
from .report import Figure
from .tasks import OUT, SKIPPED, JsonCount

_RUN = 10_000
_FIELDS = pl.Struct({"user": pl.String, "n": pl.Int64})


class Counts:
    """A running count per user, by the column."""

    def __init__(self) -> None:
        self._before = pl.DataFrame(schema={"user": pl.String, "before": pl.UInt32})

    def add(self, messages: pa.Array) -> tuple[pl.Series, pl.Series]:
        """Keys and messages to be sent for these messages, both as bytes."""
        read: pl.Series = pl.Series(messages)
        rows = (
            read.cast(pl.String)
            .str.json_decode(_FIELDS)
            .struct.unnest()
            .filter(pl.col("n") != SKIPPED)
            .select("user")
        )
        counted = rows.with_columns(seen=pl.int_range(1, pl.len() + 1, dtype=pl.UInt32).over("user"))
        counted = counted.join(self._before, on="user", how="left", maintain_order="left")
        counted = counted.select("user", count=pl.col("seen") + pl.col("before").fill_null(0))
        latest = counted.group_by("user").agg(before=pl.col("count").max())
        self._before = pl.concat([self._before.join(latest, on="user", how="anti"), latest])
        sent = counted.select(
            key=pl.col("user").cast(pl.Binary),
            message=pl.struct("user", "count").struct.json_encode().cast(pl.Binary),
        )
        return sent["key"], sent["message"]


class JsonCountInBatches(sb.StreamTask):
    """JsonCount by the column."""

    def __init__(self) -> None:
        self._counts = Counts()

    def process_batch(
        self, batch: sb.MessageBatch, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator
    ) -> None:
        keys, counts = self._counts.add(batch.to_arrow()["message"])
        collector.send_batch(OUT, counts, keys)


class PassOn(sb.StreamTask):
    """Sends on what it gets."""

    def process_batch(
        self, batch: sb.MessageBatch, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator
    ) -> None:
        collector.send_batch(OUT, batch.to_arrow())


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of process_batch to polars alone, and to the same job message by message."""
    made = messages(count)
    columns = [pa.array(of_partition, pa.binary()) for of_partition in made.partitions]
    path = directory / "log"
    runs: dict[str, Callable[[], float]] = {
        "polars": lambda: _in_polars(columns, directory),
        "batches": lambda: _log_to_log(path, made.partitions, JsonCountInBatches, count),
        "messages": lambda: _log_to_log(path, made.partitions, JsonCount, count),
        "pass": lambda: _log_to_log(path, made.partitions, PassOn, count),
    }
    best = in_turns(runs, rounds, count)
    yield Figure("polars alone, JSON count", best["polars"], "ns a message")
    yield Figure(
        "process_batch JSON count log to log / the same in polars",
        best["polars"] / best["batches"],
        "x",
        aim=0.3,
        note=f"{best['batches']:.0f} ns, checkpoints on",
    )
    faster = best["messages"] / best["batches"]
    yield Figure(
        "process_batch / process, JSON count log to log",
        faster,
        "x",
        note=f"process {best['messages']:.0f} ns",
    )
    rate = 1e3 / best["pass"]
    yield Figure(
        "process_batch pass-through log to log",
        best["pass"],
        "ns a message",
        note=f"{rate:.2f} M messages/s of CPU",
    )


def _in_polars(columns: list[pa.Array], directory: Path) -> float:
    """Each partition by itself, as tasks have it, in turns."""
    counts = [Counts() for _ in columns]
    schema = pa.schema([("key", pa.binary()), ("message", pa.binary())])
    began = time.process_time()
    with pa.OSFile(str(directory / "polars.arrow"), "wb") as file, pa.ipc.new_stream(file, schema) as sink:
        for start in range(0, max(map(len, columns)), _RUN):
            for column, of_partition in zip(columns, counts, strict=True):
                if start < len(column):
                    keys, sent = of_partition.add(column[start : start + _RUN])
                    sink.write_batch(
                        pa.RecordBatch.from_arrays(
                            [keys.to_arrow().cast(pa.binary()), sent.to_arrow().cast(pa.binary())],
                            schema=schema,
                        )
                    )
    return time.process_time() - began


def _log_to_log(path: Path, partitions: list[list[bytes]], task: type[sb.StreamTask], count: int) -> float:
    shutil.rmtree(path, ignore_errors=True)
    config = log_job(path)
    fill_log(config, partitions)
    seconds = run_job(config, task, count)
    if task is JsonCountInBatches:
        _check(config, partitions)
    return seconds


def _check(config: sb.Config, partitions: list[list[bytes]]) -> None:
    """Check that the output has as many messages as should, each user in one partition and counted from one
    on."""
    factory = LogSystemFactory()
    consumer = factory.get_consumer(OUT.system, config, MetricsRegistry())
    users: set[str] = set()
    total = 0
    for number in range(PARTITIONS):
        ssp = sb.SystemStreamPartition(OUT.system, OUT.stream, number)
        batches = consumer.read_batches(ssp, "0")
        if not batches:
            continue
        frame = pl.Series(pa.chunked_array([batch["value"] for batch in batches])).cast(pl.String)
        rows = frame.str.json_decode(pl.Struct({"user": pl.String, "count": pl.Int64})).struct.unnest()
        per_user = rows.group_by("user", maintain_order=True).agg(pl.col("count"), n=pl.len())
        counted = per_user.select((pl.col("count") == pl.int_ranges(1, pl.col("n") + 1)).all()).item()
        if not counted or not users.isdisjoint(per_user["user"]):
            raise AssertionError(f"the counts of {ssp} are not those of its messages")
        users.update(per_user["user"])
        total += len(rows)
    expected = sum(
        b'"n":%d,' % SKIPPED not in message for of_partition in partitions for message in of_partition
    )
    if total != expected:
        raise AssertionError(f"{total} counts came out, not {expected}")
