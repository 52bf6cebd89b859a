"""Writers of a stream as Spark calls them, in this process: no session."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.sql.types import BinaryType, StructField, StructType

from streambench.errors import ConfigError
from streambench.spark.source.options import as_options, parse
from streambench.spark.source.writers import BatchWriter, StreamWriting, Written
from streambench.system.systems import Systems
from tests.spark.conftest import Job

SCHEMA = StructType([StructField("message", BinaryType())])


def writing(job: Job, **options: str) -> StreamWriting:
    return StreamWriting(parse({**as_options(job.config), **options}), SCHEMA, overwrite=False)


def test_a_write_to_kafka_without_a_name_is_never_called_exactly_once(
    job: Job, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Systems, "created", lambda systems, stream: 2)
    kafka = {"systems.k.samza.factory": "kafka", "systems.k.bootstrap.servers": "127.0.0.1:1"}
    given = {**as_options(job.config), **kafka, "stream": "k.out"}

    def write(**more: str) -> None:
        BatchWriter(parse({**given, **more}), SCHEMA, False)

    with pytest.raises(ConfigError, match="option guarantee: without a name k.out is .*option writeId"):
        write(guarantee="exactly-once")
    write(guarantee="exactly-once", writeId="load")
    write(guarantee="at-least-once")
    write()


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"message": [b"%d" % number for number in numbers]})


def test_a_write_that_is_aborted_leaves_what_another_staged_under_its_name(job: Job) -> None:
    one, other = (writing(job, stream="log.out", writeId="load") for _ in range(2))
    staged = [each.run(iter([batch(1, 2, 3)]), "load", 0, 0) for each in (one, other)]
    other.abort("load", 0, [staged[1]])
    one.commit([staged[0]], 0)
    assert job.numbers() == [1, 2, 3]


def test_a_task_that_fails_leaves_nothing_of_a_named_write(job: Job) -> None:
    def rows() -> Iterator[pa.RecordBatch]:
        yield batch(1, 2)
        raise ValueError("no")

    load = writing(job, stream="log.out", writeId="load")
    done = load.run(iter([batch(3)]), "load", 0, 0)
    with pytest.raises(ValueError, match="no"):
        load.run(rows(), "load", 0, 1)
    found = [path for path in job.directory.glob("streams/.staging/**/*") if path.is_file()]
    assert isinstance(done, Written) and len(found) == 1
