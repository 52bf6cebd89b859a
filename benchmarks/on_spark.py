"""A deployment on Spark against a ``mapInArrow`` written by hand that does the same work on the same
messages, in the same session."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import streambench as sb

from .container import IN, fill_log
from .data import PARTITIONS, messages
from .report import Figure
from .tasks import SKIPPED, JsonCount

_TASKS = 2


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratio of the best rounds, by wall time, with Spark started and warm."""
    from streambench.spark import deploy
    from streambench.spark.session import lease

    partitions = messages(count).partitions
    path = directory / "log"
    streams = {f"systems.bench.streams.{name}.partitions": PARTITIONS for name in ("in", "out")}
    config = sb.Config(
        {
            "job.name": "bench",
            "task.inputs": str(IN),
            "job.container.count": _TASKS,
            "systems.bench.samza.factory": "log",
            "systems.bench.path": path,
            "systems.bench.samza.offset.default": "oldest",
            **streams,
        }
    )
    _write_parquet(partitions, directory / "in")
    best = {"hand": float("inf"), "deploy": float("inf")}
    held = lease(None, f"local[{_TASKS}]", config)
    try:
        for _ in range(rounds + 1):
            shutil.rmtree(path, ignore_errors=True)
            fill_log(config, partitions)
            best["hand"] = min(best["hand"], _by_hand(held.spark, directory / "in", directory / "out"))
            began = time.perf_counter()
            result = deploy(config, JsonCount, spark=held.spark)
            best["deploy"] = min(best["deploy"], time.perf_counter() - began)
            if result.messages != count:
                raise AssertionError(f"{result.messages} messages were processed, not {count}")
    finally:
        held.close()
    note = f"{count / best['deploy'] / 1e3:.0f}k messages/s, by hand {count / best['hand'] / 1e3:.0f}k"
    yield Figure("Spark deploy / mapInArrow by hand", best["hand"] / best["deploy"], "x", aim=0.6, note=note)


def _write_parquet(partitions: list[list[bytes]], directory: Path) -> None:
    """The messages as Spark likes them: a file for each partition, so that each user is in one of them."""
    directory.mkdir(exist_ok=True)
    for number, of_partition in enumerate(partitions):
        pq.write_table(
            pa.table({"value": pa.array(of_partition, pa.binary())}), directory / f"{number}.parquet"
        )


def _by_hand(spark: Any, source: Path, target: Path) -> float:
    """The program one writes without streambench: read with Spark, count in Python, write with Spark. It
    knows no offsets and keeps no state."""

    def count(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import orjson
        import pyarrow

        counts: dict[str, int] = {}
        for batch in batches:
            out = []
            for message in batch.column("value").to_pylist():
                row = orjson.loads(message)
                if row["n"] != SKIPPED:
                    user = row["user"]
                    count = counts[user] = counts.get(user, 0) + 1
                    out.append(orjson.dumps({"user": user, "count": count}))
            yield pyarrow.record_batch([pyarrow.array(out, pyarrow.binary())], names=["value"])

    began = time.perf_counter()
    spark.read.parquet(str(source)).mapInArrow(count, "value binary").write.mode("overwrite").parquet(
        str(target)
    )
    return time.perf_counter() - began
