"""One partition of a log, and its rows as tuples."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
from hypothesis import strategies as st

from streambench.system.log import Partition, open_log
from streambench.system.log.segment import segments

Row = tuple[int, int | None, bytes | None, bytes | None, dict[str, bytes] | None]

some_bytes = st.none() | st.binary(max_size=20)


def open_partition(directory: Path, partitions: int = 1, **settings: object) -> Partition:
    log = open_log(directory, **settings)
    log.create("clicks", partitions)
    return log.partition("clicks", 0)


def rows(batches: list[pa.RecordBatch]) -> list[Row]:
    return [
        (
            row["offset"],
            row["timestamp"],
            row["key"],
            row["value"],
            None if row["headers"] is None else dict(row["headers"]),
        )
        for batch in batches
        for row in batch.to_pylist()
    ]


def all_rows(partition: Partition) -> list[Row]:
    return rows(partition.read(partition.bounds()[0]))


def values_of(partition: Partition) -> list[bytes | None]:
    return [row[3] for row in all_rows(partition)]


def files_of(partition: Partition, directory: Path) -> list[str]:
    return [segment.path.name for segment in segments(directory / "clicks" / "0")]
