"""The readers of a stream between two bounds.

``partitions`` is called on the driver, ``read`` in the tasks. Both open the systems of the configuration for
themselves; a reader that travels between them holds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.types import StructType

from streambench.spark.source.filters import Pushdown
from streambench.spark.source.layout import Layout, StreamFormat
from streambench.spark.source.options import StreamOptions
from streambench.spark.source.ranges import (
    TaskRanges,
    check_readable,
    has_numbers,
    ranges,
    read_range,
    tasks_of,
)
from streambench.system.systems import Systems


class RangeRows:
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
        with closing(Systems(options.config)) as systems:
            for part in each.ranges:
                for pieces in read_range(systems, options.required_stream(), part):
                    yield layout.batch(pieces)

    def _layout(self) -> Layout:
        stream = self.options.required_stream()
        return Layout(self.schema, self.metadata, StreamFormat.of(self.options.config, stream), stream)


class BatchReader(DataSourceReader):
    """Reads what a stream holds between two bounds, which are looked up once, when the query is planned."""

    def __init__(self, options: StreamOptions, schema: StructType, metadata: Sequence[str]) -> None:
        self._options = options
        self._rows = RangeRows(options, schema, metadata)
        self._pushdown: Pushdown | None = None

    def partitions(self) -> list[InputPartition]:
        options = self._options
        stream = options.required_stream()
        with opened(options) as systems:
            found = ranges(systems, options)
            if self._pushdown is not None:
                found = self._pushdown.apply(found)
            return list(tasks_of(systems, stream, found, options.min_partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows.read(partition)


class FilteringReader(BatchReader):
    """A BatchReader that takes conditions on partitions and offsets from the query.

    It is for a frame that is used in one query only. Spark 4.3 keeps what it planned with the first
    conditions, and uses it for other queries of the frame, which then lack rows."""

    def pushFilters(self, filters: list[Filter]) -> list[Filter]:
        with opened(self._options) as systems:
            numbers = has_numbers(systems, self._options.required_stream())
        own = {"partition", "offset"} if numbers else {"partition"}
        self._pushdown = Pushdown(own & set(self._rows.metadata))
        return self._pushdown.take(filters)


@contextmanager
def opened(options: StreamOptions) -> Iterator[Systems]:
    """The systems of the configuration, of which that of the stream can be read by executors."""
    with closing(Systems(options.config)) as systems:
        check_readable(options.config, systems, options.required_stream())
        yield systems
