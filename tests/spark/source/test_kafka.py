"""DataFrames of Kafka topics: the readers and writers in this process, on a real broker."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.datasource import EqualTo, GreaterThanOrEqual
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import BinaryType, IntegerType, StructField, StructType

from streambench import SystemStream
from streambench.errors import ConfigError
from streambench.spark import register
from streambench.spark.source.data_source import StreamDataSource
from streambench.spark.source.options import as_options, parse
from streambench.spark.source.writers import StreamWriting
from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from tests.spark.conftest import Job
from tests.spark.source.streams import as_rows, everything, run_to_its_end
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
    at_once = parse({**options, "guarantee": "at-least-once"})
    written = StreamWriting(at_once, schema, overwrite=False).run(iter([rows]), "write", 0, task=1)
    assert written.messages == 100
    made = StreamDataSource({**options, "columns": "message,partition,offset", "pushdown": "true"})
    known = [row[1:4] for each in everything(settings, "k.frames").values() for row in as_rows(each)]
    assert read(made) == known and len(known) == 100
    assert read(made, EqualTo(("partition",), 1), GreaterThanOrEqual(("offset",), 47)) == known[-3:]
    followed = StreamDataSource({**options, "columns": "message"})
    reader = followed.streamReader(followed.schema())
    assert reader.latestOffset({"0": "0", "1": "40"}, ReadMaxRows(12)) == {"0": "10", "1": "42"}


def test_a_guarantee_that_is_not_there_is_refused(job: Job) -> None:
    def writing(**options: str) -> StreamWriting:
        given = {**as_options(job.config), **options}
        schema = StructType([StructField("message", BinaryType())])
        return StreamWriting(parse(given), schema, overwrite=False)

    with pytest.raises(ConfigError, match="option guarantee: a log is always written exactly once"):
        writing(stream="log.out", guarantee="at-least-once")
    files = {"systems.f.samza.factory": "file", "systems.f.path": str(job.directory), "stream": "f.out"}
    with pytest.raises(ConfigError, match="a system of the kind file has no transactions"):
        writing(guarantee="exactly-once", **files)
    with pytest.raises(ConfigError, match="option guarantee: 'twice' is none"):
        writing(stream="log.out", guarantee="twice")


def test_a_micro_batch_to_a_topic_is_written_once_however_often_it_is_made(
    spark: Any, kafka: KafkaNodes, job: Job, tmp_path: Path
) -> None:
    settings = config(kafka)
    name = f"once-{uuid.uuid4().hex[:12]}"
    systems = Systems(settings)
    systems.create(SystemStream("k", name), 2)
    systems.close()
    sql = register(spark)

    def copy() -> None:
        reader = sql.readStream.format("streambench").options(**as_options(job.config))
        reader = reader.options(maxMessagesPerTrigger=40, columns="key,message,partition", stream="log.in")
        writer = reader.load().writeStream.format("streambench").options(**as_options(settings))
        writer = writer.options(stream=f"k.{name}", checkpointLocation=str(tmp_path / "checkpoint"))
        run_to_its_end(writer.trigger(availableNow=True).start)

    def numbers() -> list[int]:
        found = everything(settings, f"k.{name}").values()
        return sorted(int(each.message) for envelopes in found for each in envelopes)

    job.send(0, 100)
    copy()
    assert numbers() == list(range(100))
    # Spark died before it noted that the last batch is done.
    commits = tmp_path / "checkpoint" / "commits"
    for path in (commits / "2", commits / ".2.crc"):
        path.unlink(missing_ok=True)
    job.send(100, 104)
    copy()
    assert numbers() == list(range(104))


def read(source: StreamDataSource, *filters: Any) -> list[Any]:
    reader = source.reader(source.schema())
    assert list(reader.pushFilters(list(filters))) == []
    return [
        tuple(row.values())
        for each in reader.partitions()
        for batch in reader.read(each)
        for row in batch.to_pylist()
    ]
