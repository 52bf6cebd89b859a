"""The data source itself: what Spark makes of ``format("streambench")`` and its options."""

from __future__ import annotations

from collections.abc import MutableMapping
from contextlib import closing
from importlib.util import find_spec

import pyspark
from pyspark.sql.datasource import DataSource, DataSourceStreamReader
from pyspark.sql.types import StructType

from streambench.errors import StreambenchError
from streambench.spark.source.layout import StreamFormat, default_schema
from streambench.spark.source.options import parse
from streambench.spark.source.ranges import check_readable, has_numbers
from streambench.spark.source.readers import BatchReader, FilteringReader
from streambench.spark.source.stores import StoreReader, store_schema
from streambench.spark.source.writers import BatchWriter, StreamingWriter
from streambench.system.systems import Systems

NAME = "streambench"
"""The name of the format."""


class StreamDataSource(DataSource):
    """A stream of any system that stores messages, as a DataFrame.

    Spark makes one for each DataFrame, in a process of its own on the driver, and sends it to the tasks."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._options = parse(options)
        self._has_default_schema = False

    @classmethod
    def name(cls) -> str:
        return NAME

    def schema(self) -> StructType:
        options = self._options
        if options.store is not None:
            return store_schema(options)
        stream = options.required_stream()
        with closing(Systems(options.config)) as systems:
            check_readable(options.config, systems, stream)
            systems.admin(stream.system).partition_count(stream)  # raises where there is no such stream
            numbers = has_numbers(systems, stream)
        self._has_default_schema = True
        return default_schema(StreamFormat.of(options.config, stream), numbers, options.columns)

    def reader(self, schema: StructType) -> BatchReader | StoreReader:
        if self._options.store is not None:
            self._options.check_use("read of a store")
            return StoreReader(self._options, schema)
        self._options.check_use("read")
        kind = FilteringReader if self._options.pushdown else BatchReader
        return kind(self._options, schema, self._metadata(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Raises StreambenchError where this PySpark cannot read a stream up to a limit."""
        if find_spec("pyspark.sql.streaming.datasource") is None:
            raise StreambenchError(
                f"readStream needs PySpark 4.2 or newer, and this is {pyspark.__version__}: pip install -U "
                "pyspark; read, write and writeStream work with both"
            )
        from streambench.spark.source.stream_reader import StreamReader

        self._options.check_use("readStream")
        return StreamReader(self._options, schema, self._metadata(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        self._options.check_use("write")
        return BatchWriter(self._options, schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamingWriter:
        self._options.check_use("writeStream")
        return StreamingWriter(self._options, schema, overwrite)

    def _metadata(self, schema: StructType) -> tuple[str, ...]:
        """The columns that are no fields of the message."""
        if self._has_default_schema:
            return tuple(schema.names)
        return self._options.columns or ()
