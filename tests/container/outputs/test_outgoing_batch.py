"""``collector.send_batch``: messages by the column arrive as they would have one by one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.container.outputs.outgoing_batch import (
    ColumnarWriter,
    OutgoingBatch,
    RowReport,
    skip_oversized,
)
from streambench.errors import MessageTooLargeError, SerdeError, TaskError, WrongThreadError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import JobRun, run_job

OUT = SystemStream("mem", "out")
Send = Callable[[MessageCollector], None]


def sending(send: Send, **config: Any) -> JobRun:
    """A job that has one message and sends by it."""

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        send(collector)

    return run_job(process, config, {"mem.in": {0: ["go"]}})


KEYS = st.none() | st.sampled_from([b"a", b"b", b"", b"long key"])
ROWS = st.lists(
    st.tuples(
        st.none() | st.binary(max_size=3),
        KEYS,
        st.none() | st.sampled_from(["x", "y"]),
        st.none() | st.integers(-1, 4),
        st.none() | st.integers(0, 9),
        st.none() | st.dictionaries(st.sampled_from(["h", "i"]), st.binary(max_size=2), max_size=2),
    ),
    max_size=8,
)
NAMES = ("keys", "partition_keys", "partitions", "timestamps", "headers")


@given(ROWS, st.integers(1, 4), st.sets(st.sampled_from(NAMES)), st.booleans(), st.booleans())
def test_columns_arrive_as_messages_one_by_one_would(
    rows: list[tuple[Any, ...]], partitions: int, given_columns: set[str], serdes: bool, as_arrow: bool
) -> None:
    values: dict[str, Any] = {name: [row[at] for row in rows] for at, name in enumerate(("messages", *NAMES))}
    columns = {name: values[name] for name in NAMES if name in given_columns}
    if as_arrow:
        kinds = {
            "keys": pa.binary(),
            "partition_keys": pa.string(),
            "partitions": pa.int64(),
            "timestamps": pa.int64(),
        }
        columns = {
            name: pa.array(column, kinds[name]) if name in kinds else column
            for name, column in columns.items()
        }

    def by_column(collector: MessageCollector) -> None:
        for _ in range(2):
            collector.send_batch(OUT, values["messages"], **columns)

    def one_by_one(collector: MessageCollector) -> None:
        for _ in range(2):
            for row in rows:
                message, key, partition_key, partition, timestamp, headers = (
                    value if name == "messages" or name in given_columns else None
                    for name, value in zip(("messages", *NAMES), row, strict=True)
                )
                collector.send(
                    OutgoingMessageEnvelope(OUT, message, key, partition_key, partition, timestamp, headers)
                )

    config: dict[str, Any] = {
        "systems.mem.streams.out.partitions": partitions,
        "task.drop.serialization.errors": True,
    }
    if serdes:
        config |= {
            "systems.mem.streams.out.samza.key.serde": "bytes",
            "systems.mem.streams.out.samza.msg.serde": "bytes",
        }
    first, second = sending(by_column, **config), sending(one_by_one, **config)
    if given_columns >= {"keys"} and all(row[1] is not None for row in rows):
        assert first.outputs == second.outputs
    else:
        assert all_of(first) == all_of(second)  # whose turn it is may differ where something was dropped
    names = ("producers.sends", "producers.serialization-errors")
    assert [first.metrics.get(name) for name in names] == [second.metrics.get(name) for name in names]
    assert [call for call in first.calls if call.event == "send"] == [
        call for call in second.calls if call.event == "send"
    ]


def all_of(run: JobRun) -> list[str]:
    return sorted(str(entry) for partition in run.outputs.get("mem.out", {}).values() for entry in partition)


@given(st.lists(st.tuples(KEYS, st.binary(max_size=3)), max_size=20), st.integers(1, 3))
def test_a_log_gets_columns_and_single_messages_in_order(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Any], partitions: int
) -> None:
    def mixed(collector: MessageCollector) -> None:
        for at in range(0, len(rows), 5):
            (key, message), *others = rows[at : at + 5]
            collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), message, key or b"k"))
            collector.send_batch(
                SystemStream("log", "out"),
                [message for _, message in others],
                [key or b"k" for key, _ in others],
            )

    def single(collector: MessageCollector) -> None:
        for key, message in rows:
            collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), message, key or b"k"))

    found = []
    for send in (mixed, single):
        config = log_config(tmp_path_factory.mktemp("log")) | {
            "systems.log.streams.out.partitions": partitions
        }
        sending(send, **config)
        found.append(read(config) if rows else {})
    assert found[0] == found[1]


def log_config(path: Path) -> dict[str, Any]:
    return {
        "systems.log.samza.factory": "log",
        "systems.log.path": path,
        "systems.log.samza.offset.default": "oldest",
    }


def read(config: dict[str, Any], stream: str = "out") -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        found.setdefault(str(envelope.ssp), []).append((envelope.offset, envelope.key, envelope.message))

    run_job(
        process,
        config | {"task.inputs": f"log.{stream}", "task.checkpoint.system": "file", "job.name": "reader"},
    )
    return found


def test_what_came_in_goes_on_with_key_timestamp_and_headers() -> None:
    headers = pa.array([[("h", b"1")]], pa.map_(pa.string(), pa.binary()))
    batch = pa.table({"offset": [7], "timestamp": [5], "key": [b"k"], "message": [b"m"], "headers": headers})
    got: list[IncomingMessageEnvelope] = []

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == "go":
            collector.send_batch(SystemStream("mem", "in"), batch)
        else:
            got.append(envelope)

    run_job(process, None, {"mem.in": {0: ["go"]}})
    assert [(each.key, each.message, each.timestamp, dict(each.headers or {})) for each in got] == [
        (b"k", b"m", 5, {"h": b"1"})
    ]


JSON = {"systems.mem.streams.out.samza.msg.serde": "json"}


def test_a_table_without_messages_is_objects() -> None:
    frame = pl.DataFrame({"user": ["a", "b"], "n": [1, None]})
    run = sending(lambda collector: collector.send_batch(OUT, frame, frame["user"]), **JSON)
    assert run.outputs["mem.out"] == {0: [(b"a", {"user": "a", "n": 1}), (b"b", {"user": "b", "n": None})]}


def test_a_list_of_objects_is_encoded_one_by_one() -> None:
    run = sending(lambda collector: collector.send_batch(OUT, [{"a": 1}, "text", None, 2]), **JSON)
    assert run.outputs["mem.out"] == {0: [(None, {"a": 1}), (None, "text"), (None, None), (None, 2)]}


def test_bytes_are_taken_to_be_encoded_whatever_the_serde() -> None:
    frame = pl.DataFrame({"a": [1]}).select(pl.struct("a").struct.json_encode().cast(pl.Binary))
    run = sending(lambda collector: collector.send_batch(OUT, frame.to_series()), **JSON)
    assert run.outputs["mem.out"] == {0: [(None, {"a": 1})]}


PASSED_ON = {
    "serializers.registry.order.class": "json",
    "serializers.registry.order.type": "tests.container.outputs.test_outgoing_batch:Order",
    "serializers.registry.raw.class": "bytes",
}
Order = dict[str, int]


def passing_on(
    read: str | None, written: str | None, part: str, send: Callable[[MessageCollector, Any], None]
) -> JobRun:
    """A job that sends its batches on, to a stream with another serde of keys or messages."""

    class Task:
        def process_batch(
            self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            send(collector, batch)

    serdes = {
        f"systems.mem.streams.{stream}.samza.{part}.serde": serde
        for stream, serde in (("in", read), ("out", written))
        if serde
    }
    given_ = {"key": b"k", "msg": b"m"} | ({part: {"a": 1}} if read else {})
    return run_job(Task, PASSED_ON | serdes, {"mem.in": {0: [(given_["key"], given_["msg"])]}})


@pytest.mark.parametrize(
    "read, written", [("json", "msgpack"), ("msgpack", "json"), ("order", "msgpack"), ("json", "string")]
)
@pytest.mark.parametrize("part, what", [("key", "key"), ("msg", "message")])
def test_columns_of_one_serde_are_refused_by_a_stream_of_another(
    read: str, written: str, part: str, what: str
) -> None:
    with pytest.raises(SerdeError) as caught:
        passing_on(read, written, part, lambda collector, batch: collector.send_batch(OUT, batch.to_arrow()))
    for said in (
        f"'{what}' of {read} bytes",
        "mem.out",
        f"{what} serde is {written}",
        "batch.table()",
        "mem.in.0@0",
    ):
        assert said in str(caught.value)


@pytest.mark.parametrize(
    "read, written",
    [
        ("json", "json"),
        ("json", "order"),
        ("order", "json"),
        ("json", None),
        ("json", "bytes"),
        ("json", "raw"),
    ],
)
@pytest.mark.parametrize("part", ["key", "msg"])
def test_columns_go_on_to_a_stream_that_can_hold_them(read: str, written: str | None, part: str) -> None:
    run = passing_on(
        read, written, part, lambda collector, batch: collector.send_batch(OUT, batch.part(0, 1).to_arrow())
    )
    sent = run.outputs["mem.out"][0][0][part == "msg"]
    assert sent == ({"a": 1} if written in ("json", "order") else b'{"a":1}')


def test_what_was_read_without_a_serde_is_taken_to_be_encoded() -> None:
    run = passing_on(
        None, "string", "msg", lambda collector, batch: collector.send_batch(OUT, batch.to_arrow())
    )
    assert run.outputs["mem.out"] == {0: [(b"k", "m")]}


def test_decoded_columns_and_columns_by_themselves_go_to_any_stream() -> None:
    def send(collector: MessageCollector, batch: Any) -> None:
        collector.send_batch(OUT, batch.table())
        columns = batch.to_arrow()
        collector.send_batch(OUT, pa.array([b"\x81\xa1a\x02"]), columns["key"])
        collector.send_batch(
            OUT, columns.drop_columns("message").append_column("message", pa.array([b"\x81\xa1a\x03"]))
        )

    run = passing_on("json", "msgpack", "msg", send)
    assert [message for _, message in run.outputs["mem.out"][0]] == [{"a": 1}, {"a": 2}, {"a": 3}]


def test_text_for_a_json_stream_is_refused() -> None:
    with pytest.raises(SerdeError, match="cast it to binary"):
        sending(lambda collector: collector.send_batch(OUT, pa.array(["{}"])), **JSON)


@pytest.mark.parametrize("serde", ["string", None])
def test_text_goes_as_utf_8(serde: str | None) -> None:
    config = {"systems.mem.streams.out.samza.msg.serde": serde} if serde else {}
    run = sending(lambda collector: collector.send_batch(OUT, pl.Series(["ä"])), **config)
    assert run.outputs["mem.out"] == {0: [(None, "ä" if serde else "ä".encode())]}


def test_objects_go_to_a_system_that_takes_them() -> None:
    run = sending(lambda collector: collector.send_batch(OUT, [{"a": 1}], keys=[5]))
    assert run.outputs["mem.out"] == {0: [(5, {"a": 1})]}


def test_what_cannot_be_encoded_ends_the_job_with_the_place_or_is_left_out() -> None:
    def send(collector: MessageCollector) -> None:
        collector.send_batch(OUT, [1, object(), 3], keys=pa.array([b"a", b"b", b"c"]))

    with pytest.raises(SerdeError, match=r"cannot be sent \(key b'b'"):
        sending(send, **JSON)
    run = sending(send, **JSON, **{"task.drop.serialization.errors": True})
    assert run.outputs["mem.out"] == {0: [(b"a", 1), (b"c", 3)]}
    assert (run.metrics["producers.sends"], run.metrics["producers.serialization-errors"]) == (2, 1)


@pytest.mark.parametrize(
    "wrong",
    [
        {"partition_keys": [2**70, "x"]},
        {"partition_keys": pa.array([2**63, 1], pa.uint64())},
        {"partitions": ["zero", 1]},
        {"partitions": [3, 1], "partition_keys": ["x", 2**70]},
    ],
)
def test_what_names_no_partition_is_left_out_as_a_single_message_is(wrong: dict[str, Any]) -> None:
    def send(collector: MessageCollector) -> None:
        collector.send_batch(OUT, [b"1", b"2"], **wrong)

    config = JSON | {"systems.mem.streams.out.partitions": 3}
    with pytest.raises(SerdeError, match="message b'1'"):
        sending(send, **config)
    run = sending(send, **config, **{"task.drop.serialization.errors": True})
    assert [message for partition in run.outputs["mem.out"].values() for _, message in partition] == [2]
    assert (run.metrics["producers.sends"], run.metrics["producers.serialization-errors"]) == (1, 1)


def test_partition_keys_of_any_type_mean_the_same_as_for_single_messages() -> None:
    keys: list[Any] = [1.5, True, None, "x", [1, 2]]
    config = {"systems.mem.streams.out.partitions": 3}

    def one_by_one(collector: MessageCollector) -> None:
        for at, key in enumerate(keys):
            collector.send(OutgoingMessageEnvelope(OUT, b"%d" % at, partition_key=key))

    batch = sending(
        lambda collector: collector.send_batch(OUT, [b"%d" % at for at in range(5)], partition_keys=keys),
        **config,
    )
    assert batch.outputs == sending(one_by_one, **config).outputs


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((OUT, [b"1"], [b"a", b"b"]), "1 messages cannot be sent with 2 keys"),
        (("mem.out", [b"1"]), "takes a SystemStream"),
        ((OUT, None), "not None"),
        ((OUT, b"123"), "must be an Arrow array, a Series or a list, not bytes"),
        ((OUT, np.array([b"1"])), r"not numpy\.ndarray"),
        ((OUT, pd.Series([1j])), "cannot be read as Arrow"),
    ],
)
def test_what_is_no_batch_is_an_error_of_the_task_that_sends_it(
    arguments: tuple[Any, ...], says: str
) -> None:
    with pytest.raises(TaskError, match=says):
        sending(lambda collector: collector.send_batch(*arguments))


def test_a_message_that_is_too_large_for_the_log_ends_the_job(tmp_path: Path) -> None:
    config = log_config(tmp_path) | {"systems.log.max.message.bytes": 1000}
    with pytest.raises(MessageTooLargeError, match=r"2000 bytes.*mem\.in\.0@0"):
        sending(
            lambda collector: collector.send_batch(SystemStream("log", "out"), [b"small", b"x" * 2000]),
            **config,
        )


def timestamps_of(message: Any, timestamps: Any) -> list[int | None]:
    """With what timestamps two such messages arrive. Bytes go by the column, other objects one by one."""
    got: list[int | None] = []

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.key == b"go":
            collector.send_batch(SystemStream("mem", "in"), [message] * 2, timestamps=timestamps)
        else:
            got.append(envelope.timestamp)

    run_job(process, None, {"mem.in": {0: [(b"go", b"")]}})
    return got


TIMES = [datetime(2024, 1, 1, 0, 0, 0, 5999, UTC), None]


@pytest.mark.parametrize("message", [b"by the column", "one by one"])
@pytest.mark.parametrize(
    "timestamps",
    [
        TIMES,
        [1704067200005, None],
        pl.Series(TIMES),
        pd.Series(TIMES),
        pd.Series([1704067200005, None], dtype="Int64"),
        pa.array(TIMES, pa.timestamp("us", "Europe/Berlin")),
        pa.array([1704067200005999999, None], pa.timestamp("ns")),
    ],
    ids=["datetimes", "numbers", "polars", "pandas", "pandas numbers", "arrow", "arrow without a zone"],
)
def test_times_of_any_kind_become_milliseconds_on_either_way(message: Any, timestamps: Any) -> None:
    assert timestamps_of(message, timestamps) == [1704067200005, None]


@pytest.mark.parametrize("message", [b"by the column", "one by one"])
@pytest.mark.parametrize(
    ("timestamps", "named"),
    [
        ([True, False], "bool"),
        (pa.array([True, False]), "bool"),
        ([timedelta(1)] * 2, r"datetime\.timedelta"),
        (pa.array([timedelta(1)] * 2), r"duration\[us\]"),
        ([TIMES[0], 5], r"datetime\.datetime and int"),
        ([date(2024, 1, 1)] * 2, r"datetime\.date"),
        (pl.Series(["5", "6"]), "string"),
    ],
)
def test_what_is_neither_a_number_nor_a_time_is_no_timestamp_on_either_way(
    message: Any, timestamps: Any, named: str
) -> None:
    with pytest.raises(TaskError, match=f"whole numbers of milliseconds.*, not (large_)?{named}"):
        timestamps_of(message, timestamps)


def test_a_table_may_have_times_as_timestamps() -> None:
    got: list[int | None] = []

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == b"go":
            collector.send_batch(
                SystemStream("mem", "in"), pl.DataFrame({"message": [b"a", b"b"], "timestamp": TIMES})
            )
        else:
            got.append(envelope.timestamp)

    run_job(process, None, {"mem.in": {0: [b"go"]}})
    assert got == [1704067200005, None]


@pytest.mark.parametrize(
    ("series", "arrives"),
    [
        (pd.Series([b"a", None]), [b"a", None]),
        (pd.Series(["a", float("nan")]), [b"a", None]),
        (pd.Series(["a", "b"], dtype="category", index=[7, 5]), [b"a", b"b"]),
        (pd.Series([1, 2]), [1, 2]),
        (pd.Series([{"a": 1}, {"b": 2}]), [{"a": 1}, {"b": 2}]),
    ],
    ids=["bytes", "text", "categories", "numbers", "dicts"],
)
def test_a_column_may_be_a_pandas_series(series: Any, arrives: list[Any]) -> None:
    run = sending(lambda collector: collector.send_batch(OUT, series, pd.Series([b"k", b"l"])))
    assert run.outputs["mem.out"] == {0: list(zip([b"k", b"l"], arrives, strict=True))}


class Taken:
    """A stream of three partitions that takes no message that begins with ``x``."""

    def __init__(self, *, by_column: bool) -> None:
        report = RowReport(lambda source, envelope, error: self.refused.append(envelope.message))
        self.refused: list[Any] = []
        columns = skip_oversized(OUT, self.send if by_column else None, self.send_one, report)
        self.put = ColumnarWriter(OUT, columns, self.single, 3, None, None, report).put

    def send(self, source: str, partition: int, rows: pa.RecordBatch) -> None:
        for message in rows.column(1).to_pylist():
            self.check(message)

    def send_one(self, source: str, envelope: Any, key: Any, message: Any, partition: int) -> None:
        self.check(message)

    def single(self, source: str, envelope: Any) -> None:
        raise AssertionError(envelope)

    def check(self, message: bytes) -> None:
        if message.startswith(b"x"):
            raise MessageTooLargeError("too large")


@given(st.lists(st.tuples(st.sampled_from("xy"), st.integers(0, 3))), st.booleans(), st.booleans())
def test_a_batch_notes_which_of_its_rows_are_refused(
    rows: list[tuple[str, int]], keyed: bool, by_column: bool
) -> None:
    messages = [f"{first}{row}".encode() for row, (first, _) in enumerate(rows)]
    partitions = [partition for _, partition in rows]
    where = {"partition_keys": partitions} if keyed else {"partitions": partitions}
    batch, taken = OutgoingBatch(OUT, messages, **where), Taken(by_column=by_column)
    taken.put("a task", batch)
    refused = [messages[row] for row in batch.refused]
    assert refused == taken.refused == batch.rows(batch.refused).messages.to_pylist()
    left = batch.without(batch.refused).messages.to_pylist()
    assert sorted(refused + left) == sorted(messages)
    assert not any(message.startswith(b"x") for message in left)


def test_exactly_once_holds_columns_back_until_the_commit() -> None:
    fails = [True]

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send_batch(OUT, [envelope.message] * 2)
        if envelope.offset == "1" and fails:
            raise ValueError(fails.pop())

    config = {"task.processing.guarantee": "exactly-once"}
    with pytest.raises(TaskError) as caught:
        run_job(process, config, {"mem.in": {0: [b"a", b"b"]}})
    failed: JobRun = caught.value.job_run  # type: ignore[attr-defined]
    assert failed.outputs.get("mem.out", {0: []}) == {0: []}
    assert run_job(process, config, previous=failed).outputs["mem.out"] == {
        0: [(None, b"a"), (None, b"a"), (None, b"b"), (None, b"b")]
    }


def test_the_collector_belongs_to_the_threads_of_the_loop() -> None:
    from concurrent.futures import ThreadPoolExecutor

    def send(collector: MessageCollector) -> None:
        with ThreadPoolExecutor(1) as pool:
            pool.submit(collector.send_batch, OUT, [b"1"]).result()

    with pytest.raises(TaskError) as caught:
        sending(send)
    assert isinstance(caught.value.__cause__, WrongThreadError)
