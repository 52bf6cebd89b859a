"""The reader of a stream in steps, from offset to offset. It needs what PySpark 4.1 does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streambench.errors import OffsetError
from streambench.model import PartitionMetadata
from streambench.spark.source.admission import limited
from streambench.spark.source.options import StreamOptions
from streambench.spark.source.ranges import OffsetRange, check_bounds, chosen, point, tasks_of
from streambench.spark.source.readers import RangeRows, opened
from streambench.system.systems import Systems

Offsets = dict[str, str]
"""Per partition the first offset that is not read yet, as Spark keeps it in JSON."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in steps, each from the offsets where the last one ended.

    Partitions that are added while a query runs are read from their oldest message on."""

    def __init__(self, options: StreamOptions, schema: StructType, metadata: Sequence[str]) -> None:
        self._options = options
        self._stream = options.required_stream()
        self._rows = RangeRows(options, schema, metadata)
        self._ends: Offsets | None = None
        with opened(options):  # which checks that the stream can be read
            pass

    def initialOffset(self) -> Offsets:
        with opened(self._options) as systems:
            metadata, start = self._metadata(systems), self._options.start
            check_bounds(self._stream, metadata, start)
            return {
                str(number): point(systems, self._stream.partition(number), here, start, "oldest")
                for number, here in sorted(metadata.items())
            }

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        with opened(self._options) as systems:
            metadata = self._metadata(systems)
            begin = self._started(start, metadata)
            ends = self._ends or self._upcoming(metadata)
            self._check_not_behind(systems, begin, ends)
            if not isinstance(limit, ReadMaxRows):
                return {**begin, **ends}
            options = self._options
            return limited(options.config, systems, self._stream, begin, {**begin, **ends}, limit.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        with opened(self._options) as systems:
            self._ends = self._upcoming(self._metadata(systems))

    def reportLatestOffset(self) -> Offsets:
        with opened(self._options) as systems:
            return self._upcoming(self._metadata(systems))

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with opened(self._options) as systems:
            if start.keys() != end.keys():
                start = self._started(start, self._metadata(systems))
            found = [OffsetRange(int(number), start[number], upto) for number, upto in end.items()]
            return list(tasks_of(systems, self._stream, found, self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def _metadata(self, systems: Systems) -> dict[int, PartitionMetadata]:
        return chosen(self._stream, systems.metadata([self._stream])[self._stream], self._options)

    def _check_not_behind(self, systems: Systems, begin: Offsets, ends: Offsets) -> None:
        """Raise OffsetError where a partition ends before what the query has read of it."""
        compare = systems.admin(self._stream.system).compare
        for number, end in ends.items():
            if (compare(end, begin[number]) or 0) < 0:
                raise OffsetError(
                    f"{self._stream.partition(int(number))} ends at {end}, but the query has read it up to "
                    f"{begin[number]}: it was deleted and created again. Begin with a new checkpointLocation"
                )

    def _started(self, start: Offsets, metadata: dict[int, PartitionMetadata]) -> Offsets:
        new = {str(number): here.oldest or here.upcoming or "0" for number, here in metadata.items()}
        return {**new, **start}

    def _upcoming(self, metadata: dict[int, PartitionMetadata]) -> Offsets:
        return {str(number): here.upcoming or "0" for number, here in sorted(metadata.items())}
