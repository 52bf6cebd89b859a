"""A DataFrame of a log against Parquet files of the same messages, in the same session: how long a query
takes that looks at every message, and one that parses them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import streambench as sb

from .container import IN, fill_log
from .data import PARTITIONS, messages
from .report import Figure

_THREADS = 2
_AIM = 0.7


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of the best rounds, by wall time, with Spark started and warm."""
    from streambench.spark import read
    from streambench.spark.session import lease

    config = sb.Config(
        {
            "systems.bench.samza.factory": "log",
            "systems.bench.path": directory / "log",
            "systems.bench.samza.msg.serde": "json",
            "systems.bench.streams.in.partitions": PARTITIONS,
        }
    )
    fill_log(config, messages(count).partitions)
    held = lease(None, f"local[{_THREADS}]", config)
    try:
        files = str(directory / "parquet")
        whole = read(config, str(IN), held.spark)
        whole.write.parquet(files)
        parquet = held.spark.read.parquet(files)
        for name, frame, twin in (
            ("message lengths", read(config, str(IN), held.spark, columns="message"), parquet),
            ("all columns", whole, parquet),
        ):
            by_log, by_parquet = _times(_length if frame is not whole else _everything, frame, twin, rounds)
            yield _figure(f"DataFrame of the log / Parquet, {name}", count, by_log, by_parquet)
        parsed = read(config, str(IN), held.spark, schema="user STRING, n INT")
        from_json = parquet.selectExpr("from_json(message, 'user STRING, n INT') AS m").select("m.*")
        by_log, by_parquet = _times(_users, parsed, from_json, rounds)
        yield _figure("the same, fields of the JSON / Parquet with from_json", count, by_log, by_parquet)
    finally:
        held.close()


def _times(query: Callable[[Any], Any], frame: Any, twin: Any, rounds: int) -> tuple[float, float]:
    """The best times of a query over two frames, which take turns; they give the same."""
    best = [float("inf"), float("inf")]
    for _ in range(rounds + 1):
        results = []
        for at, each in enumerate((frame, twin)):
            began = time.perf_counter()
            results.append(query(each))
            best[at] = min(best[at], time.perf_counter() - began)
        if results[0] != results[1]:
            raise AssertionError(f"the log gives {results[0]}, Parquet {results[1]}")
    return best[0], best[1]


def _length(frame: Any) -> Any:
    return frame.selectExpr("COUNT(1)", "SUM(LENGTH(message))").collect()


def _everything(frame: Any) -> Any:
    return frame.selectExpr(
        "COUNT(1)", "SUM(LENGTH(message))", "SUM(offset)", "SUM(partition)", "COUNT(key)", "MAX(timestamp)"
    ).collect()


def _users(frame: Any) -> Any:
    return frame.groupBy("n").agg({"user": "count"}).orderBy("n").collect()


def _figure(name: str, count: int, by_log: float, by_parquet: float) -> Figure:
    note = f"{count / by_log / 1e6:.2f} million messages/s, Parquet {count / by_parquet / 1e6:.2f}"
    return Figure(name, by_parquet / by_log, "x", aim=_AIM, note=note)
