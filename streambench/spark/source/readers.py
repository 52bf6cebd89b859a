"""The readers of a stream: a batch between two bounds, and a stream in steps from offset to offset.

``partitions`` is called on the driver, ``read`` in the tasks. Both open the systems of the configuration for
themselves; a reader that travels between them holds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from streambench.errors import OffsetError
from streambench.model import PartitionMetadata, SystemStreamPartition
from streambench.spark.source.admission import limited
from streambench.spark.source.filters import Pushdown
from streambench.spark.source.layout import Layout, StreamFormat
from streambench.spark.source.options import StreamOptions
from streambench.spark.source.ranges import (
    OffsetRange,
    TaskRanges,
    check_bounds,
    check_readable,
    chosen,
    has_numbers,
    point,
    ranges,
    read_range,
    tasks_of,
)
from streambench.system.systems import Systems

Offsets = dict[str, str]
"""Per partition the first offset that is not read yet, as Spark keeps it in JSON."""


class _Rows:
    """The rows of ranges of a stream."""

    def __init__(self, options: StreamOptions, schema: StructType, metadata: Sequence[str]) -> None:
        self.options = options
        self.schema = schema
        self.metadata = metadata
        self._layout()  # a wrong schema is an error on the driver

    def read(self, each: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read the ranges of one task. Spark makes a task without any where a plan is empty."""
        if not isinstance(each, TaskRanges):
            return
        layout = self._layout()
        options = self.options
        for part in each.ranges:
            for pieces in read_range(options.config, options.required_stream(), part):
                yield layout.batch(pieces)

    def _layout(self) -> Layout:
        stream = self.options.required_stream()
        return Layout(self.schema, self.metadata, StreamFormat.of(self.options.config, stream), stream)


class BatchReader(DataSourceReader):
    """Reads what a stream holds between two bounds, which are looked up once, when the query is planned."""

    def __init__(self, options: StreamOptions, schema: StructType, metadata: Sequence[str]) -> None:
        self._options = options
        self._rows = _Rows(options, schema, metadata)
        self._pushdown: Pushdown | None = None

    def partitions(self) -> list[InputPartition]:
        options = self._options
        stream = options.required_stream()
        with _opened(options) as systems:
            found = ranges(systems, options)
            if self._pushdown is not None:
                found = self._pushdown.apply(found)
            return list(tasks_of(systems, stream, found, options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class FilteringReader(BatchReader):
    """A BatchReader that takes conditions on partitions and offsets from the query.

    For a frame that is used in one query only: Spark 4.3 keeps what it planned with the first conditions, and
    uses it for other queries of the frame as well, which lack rows then."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        with _opened(self._options) as systems:
            numbers = has_numbers(systems, self._options.required_stream())
        own = {"partition", "offset"} if numbers else {"partition"}
        self._pushdown = Pushdown(own & set(self._rows.metadata))
        return self._pushdown.take(filters)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads a stream in steps, each from the offsets where the last one ended.

    Partitions that are added while a query runs are read from their oldest message on."""

    def __init__(self, options: StreamOptions, schema: StructType, metadata: Sequence[str]) -> None:
        self._options = options
        self._stream = options.required_stream()
        self._rows = _Rows(options, schema, metadata)
        self._ends: Offsets | None = None
        with _opened(options):  # which checks that the stream can be read
            pass

    def initialOffset(self) -> Offsets:
        with _opened(self._options) as systems:
            metadata = self._metadata(systems)
            check_bounds(self._stream, metadata, self._options.start)
            return {
                str(number): point(systems, self._ssp(number), here, self._options.start, "oldest")
                for number, here in sorted(metadata.items())
            }

    def getDefaultReadLimit(self) -> ReadLimit:
        most = self._options.max_messages
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        with _opened(self._options) as systems:
            metadata = self._metadata(systems)
            begin = self._started(start, metadata)
            ends = self._ends or self._upcoming(metadata)
            self._check_not_behind(systems, begin, ends)
            if not isinstance(limit, ReadMaxRows):
                return {**begin, **ends}
            options = self._options
            return limited(options.config, systems, self._stream, begin, {**begin, **ends}, limit.max_rows)

    def prepareForTriggerAvailableNow(self) -> None:
        with _opened(self._options) as systems:
            self._ends = self._upcoming(self._metadata(systems))

    def reportLatestOffset(self) -> Offsets:
        with _opened(self._options) as systems:
            return self._upcoming(self._metadata(systems))

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        with _opened(self._options) as systems:
            if start.keys() != end.keys():
                start = self._started(start, self._metadata(systems))
            found = [OffsetRange(int(number), start[number], upto) for number, upto in end.items()]
            return list(tasks_of(systems, self._stream, found, self._options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)

    def _metadata(self, systems: Systems) -> dict[int, PartitionMetadata]:
        return chosen(self._stream, systems.metadata([self._stream])[self._stream], self._options)

    def _ssp(self, number: int) -> SystemStreamPartition:
        return SystemStreamPartition(self._stream.system, self._stream.stream, number)

    def _check_not_behind(self, systems: Systems, begin: Offsets, ends: Offsets) -> None:
        """Raise OffsetError where a partition ends before what the query has read of it."""
        compare = systems.admin(self._stream.system).compare
        for number, end in ends.items():
            if (compare(end, begin[number]) or 0) < 0:
                raise OffsetError(
                    f"{self._ssp(int(number))} ends at {end}, but the query has read it up to "
                    f"{begin[number]}: it was deleted and created again. Begin with a new checkpointLocation"
                )

    def _started(self, start: Offsets, metadata: dict[int, PartitionMetadata]) -> Offsets:
        new = {str(number): here.oldest or here.upcoming or "0" for number, here in metadata.items()}
        return {**new, **start}

    def _upcoming(self, metadata: dict[int, PartitionMetadata]) -> Offsets:
        return {str(number): here.upcoming or "0" for number, here in sorted(metadata.items())}


@contextmanager
def _opened(options: StreamOptions) -> Iterator[Systems]:
    """The systems of the configuration, of which that of the stream can be read by executors."""
    systems = Systems(options.config)
    try:
        check_readable(options.config, systems, options.required_stream())
        yield systems
    finally:
        systems.close()
