"""DataFrames of Kafka topics: the readers and writers in this process, on a real broker."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from streambench import SystemStream
from streambench.spark.source.data_source import StreamDataSource
from streambench.spark.source.options import as_options, parse
from streambench.spark.source.writers import StreamWriting
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.spark.source.streams import as_rows, everything
from tests.system.kafka.cluster import config


def test_a_topic_is_written_and_read_as_a_frame(kafka: KafkaNodes) -> None:
    settings = config(kafka)
    systems = Systems(settings)
    systems.create(SystemStream("k", "frames"), 2)
    systems.close()
    options = {**as_options(settings), "stream": "k.frames"}
    schema = StructType([StructField("message", BinaryType()), StructField("partition", IntegerType())])
    rows = pa.RecordBatch.from_pydict(
        {"message": [b"%d" % n for n in range(100)], "partition": [n % 2 for n in range(100)]},
        schema=pa.schema([("message", pa.binary()), ("partition", pa.int32())]),
    )
    written = StreamWriting(parse(options), schema, overwrite=False).run(iter([rows]), "write", 0, task=1)
    assert written.messages == 100
    made = StreamDataSource({**options, "columns": "message,partition,offset", "pushdown": "true"})
    known = [row[1:4] for each in everything(settings, "k.frames").values() for row in as_rows(each)]
    assert read(made) == known and len(known) == 100
    assert read(made, EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 47)) == known[-3:]
    reader = made.streamReader(made.schema())
    assert reader.latestOffset({"0": "0", "1": "40"}, ReadMaxRows(12)) == {"0": "10", "1": "42"}


def read(source: StreamDataSource, *filters: Any) -> list[Any]:
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(list(filters))) == []
    return [
        tuple(row.values())
        for each in reader.partitions()
        for batch in reader.read(each)
        for row in batch.to_pylist()
    ]
