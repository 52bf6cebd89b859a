"""A deployment on Spark against a ``mapInArrow`` written by hand that does the same work on the same files, in the same session."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

import streambench as sb
from benchmarks.container import IN, fill_log
from benchmarks.data import PARTITIONS, messages
from benchmarks.report import Figure
from benchmarks.tasks import JsonCount

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
            "job.name": "bench", "task.inputs": str(IN), "job.container.count": _TASKS, "systems.bench.samza.factory": "log",
            "systems.bench.path": path, "systems.bench.samza.offset.default": "oldest", **streams,
        }
    )  # fmt: skip
    best = {"hand": float("inf"), "deploy": float("inf")}
    held = lease(None, f"local[{_TASKS}]", config)
    try:
        for _ in range(rounds + 1):
            shutil.rmtree(path, ignore_errors=True)
            fill_log(config, partitions)
            best["hand"] = min(best["hand"], _by_hand(held.spark, path, directory))
            began = time.perf_counter()
            result = deploy(config, JsonCount, spark=held.spark)
            best["deploy"] = min(best["deploy"], time.perf_counter() - began)
            if result.messages != count:
                raise AssertionError(f"{result.messages} messages were processed, not {count}")
    finally:
        held.close()
    note = f"{count / best['deploy'] / 1e3:.0f}k messages/s, by hand {count / best['hand'] / 1e3:.0f}k"
    yield Figure("Spark deploy / mapInArrow by hand", best["hand"] / best["deploy"], "x", aim=0.6, note=note)


def _by_hand(spark: Any, path: Path, directory: Path) -> float:
    """Read the log's files with pyarrow, count, and write the outputs as Arrow files: no offsets, no checkpoints, one output partition."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import orjson
        import pyarrow

        for batch in batches:
            for task in batch.column(0).to_pylist():
                rows = 0
                schema = pyarrow.schema([("value", pyarrow.binary())])
                with pyarrow.OSFile(str(directory / f"by-hand-{task}.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, schema) as writer:
                    for partition in range(task, PARTITIONS, _TASKS):
                        counts: dict[str, int] = {}
                        for segment in sorted((path / IN.stream / str(partition)).glob("*.arrow")):
                            for stored in pyarrow.ipc.open_stream(segment.read_bytes()):
                                out = []
                                for message in stored.column("value").to_pylist():
                                    rows += 1
                                    row = orjson.loads(message)
                                    if row["n"] != 7:
                                        user = row["user"]
                                        count = counts[user] = counts.get(user, 0) + 1
                                        out.append(orjson.dumps({"user": user, "count": count}))
                                writer.write_batch(pyarrow.record_batch([pyarrow.array(out, pyarrow.binary())], schema=schema))
                yield pyarrow.record_batch([pyarrow.array([rows], pyarrow.int64())], names=["rows"])

    began = time.perf_counter()
    spark.range(0, _TASKS, 1, _TASKS).mapInArrow(work, "rows long").collect()
    return time.perf_counter() - began
