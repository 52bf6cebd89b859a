"""DataFrames of streams on a real Spark. The tests of this file share the session."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streambench.spark import read, register
from tests.spark.conftest import Job
from tests.spark.source.streams import everything


@pytest.fixture(scope="module")
def sql(spark: Any) -> Any:
    """The session of the module, which knows the format."""
    return register(spark)


@pytest.fixture
def properties(job: Job) -> str:
    """The properties file of the job; its input has 100 messages."""
    job.send(0, 100)
    path = job.directory / "job.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in job.config.items()))
    return str(path)


def plan_of(frame: Any) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        frame.explain()
    return printed.getvalue()


def test_a_stream_is_read_as_a_frame(sql: Any, job: Job, properties: str) -> None:
    frame = sql.read.format("streambench").option("config", properties).load("log.in")
    wanted = [
        (each.key.decode(), each.message.decode(), number, int(each.offset), each.timestamp)
        for number, envelopes in everything(job.config, "log.in").items()
        for each in envelopes
    ]
    found = frame.selectExpr("key", "message", "partition", "offset", "unix_millis(timestamp)").collect()
    assert sorted(map(tuple, found), key=lambda row: row[2:4]) == wanted


def test_filters_on_offsets_and_partitions_never_reach_spark(sql: Any, job: Job, properties: str) -> None:
    frame = read(job.config, "log.in", columns="partition,offset,message")
    found = frame.where("partition = 1 and offset >= 48 and message like '9%'")
    assert found.selectExpr("message").collect() == [("97",), ("99",)]
    left = plan_of(found).partition(" Filter ")[2].partition("\n")[0]
    assert "StartsWith(message" in left and "offset" not in left and "partition" not in left
    assert " Filter " not in plan_of(frame.where("partition in (0, 2) and offset < 3"))


def test_keys_given_as_options_keep_their_case(sql: Any, job: Job, properties: str) -> None:
    job.write_objects("In", [1])
    serde = {"systems.log.streams.In.samza.msg.serde": "integer"}
    reader = sql.read.format("streambench").options(config=properties, **serde)
    assert dict(reader.load("log.In").dtypes)["message"] == "int"


def test_fields_of_the_messages_are_columns_and_join(sql: Any, job: Job, properties: str) -> None:
    numbers = sql.read.format("streambench").schema("n INT, offset LONG").options(
        config=properties, stream="log.Objects", columns="offset"
    )  # fmt: skip
    with pytest.raises(Exception, match="there is no stream log.Objects"):
        numbers.load().collect()
    job.write_objects("Objects", [{"n": n, "more": [n]} for n in range(5)])
    joined = numbers.load().join(sql.range(3).withColumnRenamed("id", "n"), "n")
    assert sorted(map(tuple, joined.collect())) == [(0, 0), (1, 1), (2, 2)]


def test_a_stream_is_followed_in_steps(sql: Any, job: Job, properties: str, tmp_path: Path) -> None:
    steps: list[list[int]] = []
    query = start(sql, properties, tmp_path, lambda frame, number: steps.append(numbers(frame)))
    query.awaitTermination()
    assert [len(each) for each in steps] == [40, 40, 20]
    assert sorted(sum(steps, [])) == list(range(100))
    assert query.lastProgress["sources"][0]["endOffset"] == '{"0": "50", "1": "50"}'
    job.send(100, 110)
    start(sql, properties, tmp_path, lambda frame, number: steps.append(numbers(frame))).awaitTermination()
    assert sorted(steps[-1]) == list(range(100, 110))


def start(sql: Any, properties: str, directory: Path, each: Callable[[Any, int], Any]) -> Any:
    stream = sql.readStream.format("streambench").options(config=properties, maxMessagesPerTrigger=40)
    writer = stream.load("log.in").writeStream.foreachBatch(each).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start()


def numbers(frame: Any) -> list[int]:
    return [int(row.message) for row in frame.collect()]
