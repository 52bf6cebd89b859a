"""The twins of the deployments that are measured: programs on Spark that do the same work without
streambench."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa

from .tasks import SKIPPED

Batches = Iterator[pa.RecordBatch]

_OUTPUT = "key binary, message binary"


def count_messages(spark: Any, segments: list[list[str]], target: Path) -> None:
    """Count message by message in ``mapInArrow``, from the files of the log to Parquet."""

    def count(lists: Batches) -> Batches:
        import orjson
        import pyarrow

        for list_of_files in lists:
            for file in list_of_files.column("file").to_pylist():
                counts: dict[str, int] = {}
                with pyarrow.memory_map(file) as opened:
                    for batch in pyarrow.ipc.open_stream(opened):
                        keys, out = [], []
                        for message in batch.column("value").to_pylist():
                            row = orjson.loads(message)
                            if row["n"] != SKIPPED:
                                user = row["user"]
                                count = counts[user] = counts.get(user, 0) + 1
                                keys.append(user.encode())
                                out.append(orjson.dumps({"user": user, "count": count}))
                        columns = [pyarrow.array(each, pyarrow.binary()) for each in (keys, out)]
                        yield pyarrow.record_batch(columns, names=["key", "message"])

    _map(spark, segments, count, target)


def count_batches(spark: Any, segments: list[list[str]], target: Path) -> None:
    """Count by the column, in polars, in ``mapInArrow``, from the files of the log to Parquet."""

    def count(lists: Batches) -> Batches:
        import pyarrow

        from .batches import Counts

        for list_of_files in lists:
            for file in list_of_files.column("file").to_pylist():
                counts = Counts()
                with pyarrow.memory_map(file) as opened:
                    for batch in pyarrow.ipc.open_stream(opened):
                        counted = counts.add(batch["value"])
                        columns = [each.to_arrow().cast(pyarrow.binary()) for each in counted]
                        yield pyarrow.record_batch(columns, names=["key", "message"])

    _map(spark, segments, count, target)


def _map(spark: Any, segments: list[list[str]], count: Callable[[Batches], Batches], target: Path) -> None:
    """One Spark task for each list of files."""
    rows = [(number, file) for number, files in enumerate(segments) for file in files]
    files = spark.createDataFrame(rows, "task INT, file STRING").repartitionByRange(len(segments), "task")
    files.mapInArrow(count, _OUTPUT).write.mode("overwrite").parquet(str(target))


def count_in_stream(spark: Any, source: Path, target: Path, checkpoints: Path) -> None:
    """Count in Spark's own stateful streaming in Python, from Parquet to Parquet, until it has caught up."""
    from pyspark.sql.functions import col, from_json
    from pyspark.sql.streaming.stateful_processor import StatefulProcessor

    class CountUsers(StatefulProcessor):
        def init(self, handle: Any) -> None:
            self._count = handle.getValueState("count", "count LONG")

        def handleInputRows(self, key: Any, rows: Any, timer_values: Any) -> Any:
            import pandas

            before = self._count.get()
            count = before[0] if before else 0
            for frame in rows:
                numbers = range(count + 1, count + len(frame) + 1)
                count += len(frame)
                yield pandas.DataFrame({"user": [key[0]] * len(frame), "count": numbers})
            self._count.update((count,))

        def close(self) -> None:
            pass

    spark.conf.set("spark.sql.shuffle.partitions", "2")
    spark.conf.set(
        "spark.sql.streaming.stateStore.providerClass",
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    )
    read = spark.readStream.schema("value BINARY").parquet(str(source))
    parsed = read.select(from_json(col("value").cast("string"), "user STRING, n INT").alias("row"))
    rows = parsed.select("row.*").where(col("n") != SKIPPED)
    counted = rows.groupBy("user").transformWithStateInPandas(
        CountUsers(), "user STRING, count LONG", "Append", "None"
    )
    query = counted.writeStream.option("checkpointLocation", str(checkpoints)).trigger(availableNow=True)
    query.start(str(target)).awaitTermination()
