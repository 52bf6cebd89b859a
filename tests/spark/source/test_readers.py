"""The readers of a stream in this process: the same rows as the log's own reader, whatever is pushed down."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streambench import (
    Config,
    ConfigError,
    OffsetError,
    SerdeError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
)

pytest.importorskip("pyspark")

from pyspark.sql.datasource import DataSourceReader, EqualTo, Filter, GreaterThan, In, LessThanOrEqual, Not
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import (
    ArrayType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from streambench.spark.source.data_source import StreamDataSource
from streambench.spark.source.options import METADATA, as_options
from tests.spark.source.streams import Message, as_rows, config_of, everything, write

TIMES = itertools.count(1_700_000_000_000)


def source(config: Config, stream: str = "log.in", **options: str) -> StreamDataSource:
    return StreamDataSource({**as_options(config), "stream": stream, **options})


def rows(source: StreamDataSource, *filters: Filter, schema: StructType | None = None) -> list[Any]:
    """What Spark would read with these filters, apart from those that are left to it."""
    reader = source.reader(schema or source.schema())
    if filters:
        assert list(reader.pushFilters(list(filters))) == [each for each in filters if isinstance(each, In)]
    return tuples(reader.read(each) for each in reader.partitions())


def tuples(read: Iterator[Iterator[pa.RecordBatch]]) -> list[Any]:
    found = []
    for batch in itertools.chain.from_iterable(read):
        columns = []
        for field, column in zip(batch.schema, batch.columns, strict=True):
            if pa.types.is_timestamp(field.type):
                assert str(field.type) == "timestamp[us, tz=UTC]"
                column = column.cast(pa.int64())
                columns.append([None if each is None else each // 1000 for each in column.to_pylist()])
            elif pa.types.is_map(field.type):
                columns.append([None if each is None else dict(each) or None for each in column.to_pylist()])
            else:
                columns.append(column.to_pylist())
        found += zip(*columns, strict=True)
    return found


def dealt(reader: Any) -> list[list[tuple[int, str, str]]]:
    """The ranges of each task."""
    return [[(part.partition, part.start, part.end) for part in each.ranges] for each in reader.partitions()]


def fields(**types: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def message(text: bytes | None, key: bytes | None = None, at: int | None = None) -> Message:
    return key, text, next(TIMES) if at is None else at, None


MESSAGES = st.tuples(
    st.none() | st.binary(max_size=4),
    st.none() | st.binary(max_size=20),
    st.integers(0, 1 << 42),
    st.none() | st.dictionaries(st.text("abc", min_size=1, max_size=3), st.binary(max_size=3), max_size=2),
)
PARTITIONS = st.lists(
    st.lists(st.lists(MESSAGES, min_size=1, max_size=6), max_size=4), min_size=1, max_size=4
)


@settings(max_examples=30)
@given(PARTITIONS, st.data())
def test_a_frame_is_what_the_log_itself_gives(
    partitions: list[list[list[Message]]], data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        write(Path(directory), "in", partitions)
        config = config_of(Path(directory))
        known = everything(config, "log.in")
        wanted = [row for each in known.values() for row in as_rows(each)]
        parts = data.draw(st.integers(1, 6), "minPartitions")
        assert rows(source(config, minPartitions=str(parts))) == wanted
        low, high = sorted((data.draw(st.integers(-1, 30), "low"), data.draw(st.integers(-1, 30), "high")))
        number = data.draw(st.integers(0, 4), "partition")
        filters = [
            GreaterThan(("offset",), low),
            LessThanOrEqual(("offset",), high),
            Not(EqualTo(("partition",), number)),
        ]
        assert rows(source(config, pushdown="true"), *filters) == [
            row for row in wanted if low < row[3] <= high and row[2] != number
        ]


def test_nothing_is_pushed_down_unless_it_is_asked_for(tmp_path: Path) -> None:
    """Spark looks whether the method is overridden."""
    write(tmp_path, "in", [[[message(b"1")]]])
    for pushdown in (False, True):
        made = source(config_of(tmp_path), pushdown=str(pushdown).lower())
        kept = type(made.reader(made.schema())).pushFilters is DataSourceReader.pushFilters
        assert kept is not pushdown


def test_offsets_and_partitions_are_pushed_down(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"%d" % n) for n in range(100)]] for _ in range(3)])
    made = source(config_of(tmp_path), pushdown="true")
    reader = made.reader(made.schema())
    left = reader.pushFilters([In(("offset",), (7, 9)), EqualTo(("partition",), 1), EqualTo(("key",), b"k")])
    assert [type(each) for each in left] == [In, EqualTo]
    assert dealt(reader) == [[(1, "7", "10")]]


def test_small_partitions_share_a_task(tmp_path: Path) -> None:
    large = b"x" * 6_000_000
    messages = [message(large if number < 3 else b"1") for number in range(6)]
    write(tmp_path, "in", [[[each], [each]] for each in messages])
    parts = {number: (number, "0", "2") for number in range(6)}

    def tasks(**options: str) -> list[list[tuple[int, str, str]]]:
        made = source(config_of(tmp_path), **options)
        return dealt(made.reader(made.schema()))

    assert tasks() == [[parts[0], parts[1]], [parts[number] for number in range(2, 6)]]
    assert tasks(minPartitions="5") == [[parts[0], parts[1]], *([parts[number]] for number in range(2, 6))]
    assert len(tasks(minPartitions="6")) == 6


def test_partitions_are_chosen_by_an_option(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"%d" % n)]] for n in range(4)])
    made = source(config_of(tmp_path), columns="message,partition", partitions="3,1")
    assert rows(made) == [(b"1", 1), (b"3", 3)]
    reader = made.streamReader(made.schema())
    assert reader.latestOffset(reader.initialOffset(), ReadAllAvailable()) == {"1": "1", "3": "1"}
    with pytest.raises(UnknownStreamError, match="log.in has no partition 4"):
        rows(source(config_of(tmp_path), partitions="4"))


def test_a_field_of_the_message_is_not_taken_for_an_offset(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b'{"offset": 7}')]]])
    made = source(config_of(tmp_path, **{"systems.log.samza.msg.serde": "json"}), pushdown="true")
    reader = made.reader(fields(offset=LongType()))
    left = EqualTo(("offset",), 7)
    assert list(reader.pushFilters([left])) == [left]
    assert tuples(reader.read(each) for each in reader.partitions()) == [(7,)]


def test_bounds_are_offsets_or_times_of_each_partition(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"m", at=1000 * n) for n in range(10)]] for _ in range(2)])
    config = config_of(tmp_path)
    ranges = [(1, each) for each in range(3, 7)]
    some = source(
        config, columns="partition,offset", start='{"0": "upcoming", "1": "timestamp:2500"}', end="7"
    )
    with pytest.raises(OffsetError, match=r"log.in.0: .*"):
        rows(source(config, start="11"))
    assert rows(source(config, columns="partition,offset", start="timestamp:1970-01-01T00:00:08")) == [
        (0, 8), (0, 9), (1, 8), (1, 9)
    ]  # fmt: skip
    assert rows(some) == ranges
    with pytest.raises(UnknownStreamError, match="log.in has no partition 2; it has 2"):
        rows(source(config, start='{"2": "oldest"}'))


def test_keys_and_messages_are_of_the_types_of_their_serdes(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[(b"\0\0\0\7", b'{"a":1}', 5, None), (None, None, 6, None)]]])
    serdes = {"systems.log.samza.key.serde": "integer", "systems.log.samza.msg.serde": "json"}
    made = source(config_of(tmp_path, **serdes), columns="key,message,timestamp")
    assert made.schema() == fields(key=IntegerType(), message=StringType(), timestamp=TimestampType())
    assert rows(made) == [(7, '{"a":1}', 5), (None, None, 6)]
    assert source(config_of(tmp_path)).schema().names == list(METADATA)


@pytest.mark.parametrize("serde", ["json", "msgpack"])
def test_a_schema_names_fields_of_the_messages(tmp_path: Path, serde: str) -> None:
    config = config_of(tmp_path, **{"systems.log.samza.msg.serde": serde})
    from streambench.serde.registry import serde_named

    encode = serde_named(config, serde, key="k").to_bytes
    objects = [{"delay": 5, "tags": ["a", "b"], "more": 1}, {"delay": None}, {"tags": []}]
    write(tmp_path, "in", [[[message(encode(each), b"k") for each in objects]]])
    schema = fields(offset=LongType(), delay=IntegerType(), tags=ArrayType(StringType()), key=StringType())
    assert rows(source(config, columns="offset,key"), schema=schema) == [
        (0, 5, ["a", "b"], "k"),
        (1, None, None, "k"),
        (2, None, [], "k"),
    ]
    with pytest.raises(ConfigError, match="'partition' is not in the schema of log.in"):
        source(config, columns="partition").reader(schema)


def test_what_cannot_be_decoded_is_named_by_its_offset(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"1"), message(b'{"a":')], [message(b"\xff")]]])
    config = config_of(tmp_path, **{"systems.log.samza.msg.serde": "json"})
    with pytest.raises(SerdeError, match=r"log.in.0@1.*cannot decode"):
        rows(source(config), schema=fields(a=IntegerType()))
    with pytest.raises(SerdeError, match=r"log.in.0@2.*cannot decode"):
        rows(source(config))


def test_streams_that_executors_cannot_read_are_refused(tmp_path: Path) -> None:
    config = config_of(tmp_path).with_values(
        {
            "systems.m.samza.factory": "memory",
            "systems.u.samza.factory": "udp",
            "systems.u.streams.in.listen": "127.0.0.1:0",
        }
    )
    with pytest.raises(StreamSystemError, match=r"m.in lies in the memory of one process"):
        source(config, "m.in").schema()
    with pytest.raises(StreamSystemError, match=r"u.in: .* land it in a log \(systems.u.samza.landing\)"):
        source(config, "u.in").schema()


def test_a_stream_that_is_landed_is_read_from_its_log(tmp_path: Path) -> None:
    landed = {"systems.u.samza.factory": "udp", "systems.u.streams.in.listen": "127.0.0.1:0"}
    config = config_of(tmp_path, **landed, **{"systems.u.samza.landing": "log"})
    write(tmp_path, "u.in", [[[message(b"1"), message(b"2")]]])
    assert rows(source(config, "u.in", columns="message,offset")) == [(b"1", 0), (b"2", 1)]


def test_a_file_is_read_as_well(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("one\ntwo\nthree\n")
    config = Config({"systems.f.samza.factory": "file", "systems.f.path": tmp_path})
    made = source(config, "f.in", columns="message,offset")
    assert rows(made) == [(b"one", 3), (b"two", 7), (b"three", 13)]
    reader = made.streamReader(made.schema())
    assert reader.latestOffset({"0": "0"}, ReadMaxRows(2)) == {"0": "8"}
    assert tuples(reader.read(each) for each in reader.partitions({"0": "8"}, {"0": "14"})) == [
        (b"three", 13)
    ]


def test_a_stream_goes_on_in_steps_from_offset_to_offset(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"%d" % n) for n in range(10)]], [[message(b"x")]]])
    made = source(config_of(tmp_path), maxMessagesPerTrigger="4", columns="partition,offset")
    reader = made.streamReader(made.schema())
    at, seen = reader.initialOffset(), []
    assert at == {"0": "0", "1": "0"}
    while (end := reader.latestOffset(at, reader.getDefaultReadLimit())) != at:
        step = tuples(reader.read(each) for each in reader.partitions(at, end))
        assert 0 < len(step) <= 4
        seen += step
        at = end
    assert sorted(seen) == [(0, n) for n in range(10)] + [(1, 0)]
    assert at == reader.latestOffset({"0": "3", "1": "0"}, ReadAllAvailable()) == {"0": "10", "1": "1"}


def test_available_now_ends_where_the_stream_ended_at_its_start(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"1")]]])
    made = source(config_of(tmp_path))
    reader = made.streamReader(made.schema())
    reader.prepareForTriggerAvailableNow()
    from streambench.system.log import open_log

    with open_log(tmp_path) as log:
        log.partition("in", 0).append(None, [b"2"])
        log.grow("in", 2)
    assert reader.latestOffset({"0": "0"}, ReadAllAvailable()) == {"0": "1", "1": "0"}


def test_an_older_pyspark_reads_but_does_not_follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streambench.spark.source.data_source.find_spec", lambda name: None)
    write(tmp_path, "in", [[[message(b"1")]]])
    made = source(config_of(tmp_path), columns="message")
    assert rows(made) == [(b"1",)]
    with pytest.raises(StreambenchError, match="readStream needs PySpark 4.2 or newer, and this is"):
        made.streamReader(made.schema())


def test_a_stream_that_ends_before_what_was_read_is_an_error(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"1")]]])
    made = source(config_of(tmp_path))
    reader = made.streamReader(made.schema())
    with pytest.raises(OffsetError, match=r"log.in.0 ends at 1, but .* up to 5: it was deleted"):
        reader.latestOffset({"0": "5"}, ReadAllAvailable())


def test_a_partition_that_is_added_is_read_from_its_oldest(tmp_path: Path) -> None:
    write(tmp_path, "in", [[[message(b"1")]], [[message(b"2")]]])
    made = source(config_of(tmp_path), columns="partition,offset")
    reader = made.streamReader(made.schema())
    end = reader.latestOffset({"0": "1"}, ReadAllAvailable())
    assert end == {"0": "1", "1": "1"}
    assert tuples(reader.read(each) for each in reader.partitions({"0": "1"}, end)) == [(1, 0)]
