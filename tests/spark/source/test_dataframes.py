"""DataFrames of streams on a real Spark. The tests of this file share the session."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streambench.spark import read, register
from streambench.spark.source.options import as_options
from tests.spark.conftest import Job
from tests.spark.source.streams import everything, run_to_its_end


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


def test_the_format_is_registered_once_in_each_session(sql: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark warns where a format is registered twice."""
    registered: list[Any] = []
    monkeypatch.setattr(type(sql.dataSource), "register", lambda self, kind: registered.append(kind))
    for session in (sql, another := sql.newSession(), another):
        register(session)
    assert len(registered) == 1


def test_a_frame_is_used_in_many_queries(sql: Any, job: Job, properties: str) -> None:
    frame = read(job.config, "log.in", columns="partition,offset")
    parts = [frame.where(f"partition = {number}") for number in (0, 1)]
    assert frame.where("offset < 3").count() == 6
    assert parts[0].union(parts[1]).groupBy("partition").count().orderBy("partition").collect() == [
        (0, 50), (1, 50)
    ]  # fmt: skip
    assert read(job.config, "log.in", partitions="1", start="47").count() == 3


def test_filters_that_are_pushed_down_never_reach_spark(sql: Any, job: Job, properties: str) -> None:
    frame = read(job.config, "log.in", columns="partition,offset,message", pushdown=True)
    found = frame.where("partition = 1 and offset >= 48 and message like '9%'")
    assert found.selectExpr("message").collect() == [("97",), ("99",)]
    left = plan_of(found).partition(" Filter ")[2].partition("\n")[0]
    assert "StartsWith(message" in left and "offset" not in left and "partition" not in left


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

    def follow() -> Any:
        return start(sql, properties, tmp_path, lambda frame, number: steps.append(numbers(frame)))

    query = run_to_its_end(follow)
    assert [len(each) for each in steps] == [40, 40, 20]
    assert sorted(sum(steps, [])) == list(range(100))
    # A trigger that finds nothing may be reported behind the last step.
    last = [each for each in query.recentProgress if each["numInputRows"]][-1]
    assert last["sources"][0]["endOffset"] == '{"0": "50", "1": "50"}'
    job.send(100, 110)
    run_to_its_end(follow)
    assert sorted(steps[-1]) == list(range(100, 110))


def start(sql: Any, properties: str, directory: Path, each: Callable[[Any, int], Any]) -> Any:
    stream = sql.readStream.format("streambench").options(config=properties, maxMessagesPerTrigger=40)
    writer = stream.load("log.in").writeStream.foreachBatch(each).trigger(availableNow=True)
    return writer.option("checkpointLocation", str(directory / "checkpoint")).start()


def numbers(frame: Any) -> list[int]:
    return [int(row.message) for row in frame.collect()]


def test_a_frame_is_appended_to_a_stream(sql: Any, job: Job, properties: str) -> None:
    frame = read(job.config, "log.in", columns="key,message,timestamp,partition")
    frame = frame.where("CAST(message AS INT) < 20").withColumn("headers", header())
    save(frame, properties, "log.out")
    assert job.numbers() == list(range(20))
    rows = job.read()
    assert [number for _, number in rows[1]] == list(range(1, 20, 2))
    first = everything(job.config, "log.out")[0][0]
    assert (first.key, first.headers) == (b"k0", {"from": b"spark"})
    assert first.timestamp == everything(job.config, "log.in")[0][0].timestamp


def header() -> Any:
    from pyspark.sql import functions

    return functions.expr("map('from', CAST('spark' AS BINARY))")


def save(frame: Any, properties: str, stream: str, **options: Any) -> None:
    frame.write.format("streambench").options(config=properties, **options).mode("append").save(stream)


def test_columns_are_fields_of_the_messages_and_keys_place_them(sql: Any, job: Job, properties: str) -> None:
    frame = sql.range(6).selectExpr("CAST(id % 3 AS STRING) AS key", "id", "array(id) AS list")
    save(frame, properties, "log.out", columns="key")
    found = job.read()
    assert sorted((row["id"], row["list"]) for rows in found.values() for _, row in rows) == [
        (n, [n]) for n in range(6)
    ]
    keys = [{key for key, _ in rows} for rows in found.values()]
    assert not keys[0] & keys[1]


def test_a_write_that_fails_leaves_nothing(sql: Any, job: Job, properties: str) -> None:
    frame = sql.range(0, 100, 1, 4).selectExpr("IF(id < 99, id, raise_error('no')) AS n")
    with pytest.raises(Exception, match="no"):
        save(frame, properties, "log.out")
    assert job.numbers() == []
    assert [path for path in job.directory.glob("streams/.staging/**/*") if path.is_file()] == []


def test_a_named_write_is_there_once_however_often_it_is_made(sql: Any, job: Job, properties: str) -> None:
    for _ in range(2):
        save(sql.range(5).selectExpr("id AS n"), properties, "log.out", writeId="load-1")
    assert sorted(row["n"] for rows in job.read().values() for _, row in rows) == list(range(5))


def test_what_cannot_be_written_is_refused(sql: Any, job: Job, properties: str) -> None:
    frame = sql.range(1)
    with pytest.raises(Exception, match="the column 'x' is no part of a message"):
        save(frame.selectExpr("'a' AS message", "1 AS x"), properties, "log.out")
    with pytest.raises(Exception, match="a stream is only appended to"):
        writer = frame.selectExpr("'a' AS message").write.format("streambench")
        writer.option("config", properties).mode("overwrite").save("log.out")
    with pytest.raises(Exception, match="partition 7 is out of range: log.out has 2"):
        save(frame.selectExpr("'1' AS message", "7 AS partition"), properties, "log.out")


def test_a_micro_batch_that_is_repeated_is_written_once(
    sql: Any, job: Job, properties: str, tmp_path: Path
) -> None:
    def copy() -> None:
        reader = sql.readStream.format("streambench").options(config=properties, maxMessagesPerTrigger=40)
        frame = reader.option("columns", "key,message,partition").load("log.in")
        writer = frame.writeStream.format("streambench").options(config=properties, stream="log.out")
        writer = writer.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(availableNow=True)
        run_to_its_end(writer.start)

    copy()
    assert job.numbers() == list(range(100))
    # Spark died before it noted that the last batch is done.
    commits = tmp_path / "checkpoint" / "commits"
    for path in (commits / "2", commits / ".2.crc"):
        path.unlink(missing_ok=True)
    copy()
    assert job.numbers() == list(range(100))
    job.send(100, 104)
    copy()
    assert job.numbers() == list(range(104))


def test_a_secret_of_the_configuration_is_in_no_plan(sql: Any, job: Job, properties: str) -> None:
    config = job.config.with_values({"job.password": "hunter2"})
    frame = read(config, "log.in")
    assert "streambench" in (shown := frame._jdf.queryExecution().toString())
    assert "hunter2" not in shown
    failed = sql.createDataFrame([("a", 1)], "message STRING, x INT")
    with pytest.raises(Exception, match="the column 'x' is no part of a message") as raised:
        failed.write.format("streambench").options(**as_options(config)).mode("append").save("log.out")
    assert "hunter2" not in str(raised.value)
