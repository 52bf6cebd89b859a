"""A DataFrame of a log against Parquet files of the same messages, in the same session: what a query costs
that looks at every message, and one that parses them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import streambench as sb

from .container import IN, fill_log
from .cost import Cost, least_costs
from .data import PARTITIONS, messages
from .report import Figure

_THREADS = 2
_AIM = 0.7


def measure(count: int, rounds: int, directory: Path) -> Iterator[Figure]:
    """The ratios of the best rounds, by CPU time, with Spark started and warm."""
    from streambench.spark import read
    from streambench.spark.session import session_for

    config = sb.Config(
        {
            "systems.bench.samza.factory": "log",
            "systems.bench.path": directory / "log",
            "systems.bench.samza.msg.serde": "json",
            "systems.bench.streams.in.partitions": PARTITIONS,
        }
    )
    fill_log(config, messages(count).partitions)
    held = session_for(None, f"local[{_THREADS}]", config)
    try:
        files = str(directory / "parquet")
        whole = read(config, str(IN), held.spark)
        whole.write.parquet(files)
        parquet = held.spark.read.parquet(files)
        for name, frame, twin in (
            ("message lengths", read(config, str(IN), held.spark, columns="message"), parquet),
            ("all columns", whole, parquet),
        ):
            by_log, by_parquet = _costs(_length if frame is not whole else _everything, frame, twin, rounds)
            yield _figure(f"DataFrame of the log / Parquet, {name}", count, by_log, by_parquet)
        parsed = read(config, str(IN), held.spark, schema="user STRING, n INT")
        from_json = parquet.selectExpr("from_json(message, 'user STRING, n INT') AS m").select("m.*")
        by_log, by_parquet = _costs(_users, parsed, from_json, rounds)
        yield _figure("the same, fields of the JSON / Parquet with from_json", count, by_log, by_parquet)
    finally:
        held.close()


def _costs(query: Callable[[Any], Any], frame: Any, twin: Any, rounds: int) -> tuple[Cost, Cost]:
    """The costs of a query over two frames, which take turns; they give the same."""
    by_log, by_parquet = query(frame), query(twin)
    if by_log != by_parquet:
        raise AssertionError(f"the log gives {by_log}, Parquet {by_parquet}")
    best = least_costs({"log": lambda: query(frame), "parquet": lambda: query(twin)}, rounds)
    return best["log"], best["parquet"]


def _length(frame: Any) -> Any:
    return frame.selectExpr("COUNT(1)", "SUM(LENGTH(message))").collect()


def _everything(frame: Any) -> Any:
    return frame.selectExpr(
        "COUNT(1)", "SUM(LENGTH(message))", "SUM(offset)", "SUM(partition)", "COUNT(key)", "MAX(timestamp)"
    ).collect()


def _users(frame: Any) -> Any:
    return frame.groupBy("n").agg({"user": "count"}).orderBy("n").collect()


def _figure(name: str, count: int, by_log: Cost, by_parquet: Cost) -> Figure:
    rate = count / by_log.wall / 1e6
    note = (
        f"{by_log.cpu:.2f} s of CPU, Parquet {by_parquet.cpu:.2f}; "
        f"{by_parquet.wall / by_log.wall:.2f} by wall time, {rate:.2f} million messages/s"
    )
    return Figure(name, by_parquet.cpu / by_log.cpu, "x", aim=_AIM, note=note)
