"""A run of messages by the column: what it holds, decoded or not, and what it says where it cannot."""

from __future__ import annotations

import dataclasses
import datetime as dt
from typing import Any

import msgspec
import orjson
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.batch import MessageBatch
from streambench.chunk import ArrowChunk, Chunk, Messages
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde, StringSerde
from streambench.serde.typed import MsgspecSerde

P0 = SystemStreamPartition("log", "in", 0)
HEADERS = pa.map_(pa.string(), pa.binary())
SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.int64()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", HEADERS),
    ]
)

ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 5),
        st.none() | st.sampled_from([b"k", b"l"]),
        st.none() | st.sampled_from([b"1", b'{"a":1}', b'{"a":"x","b":[1]}']),
        st.none() | st.dictionaries(st.sampled_from("hi"), st.binary(max_size=1), min_size=1, max_size=2),
    ),
    min_size=1,
    max_size=6,
)


def lists(rows: list[tuple[Any, ...]], start: int = 0) -> Chunk:
    timestamps, keys, messages, headers = (list(column) for column in zip(*rows, strict=True))
    return Chunk(P0, [str(start + at) for at in range(len(rows))], keys, messages, timestamps, headers)


def arrow(rows: list[tuple[Any, ...]], start: int = 0) -> ArrowChunk:
    timestamps, keys, messages, headers = (list(column) for column in zip(*rows, strict=True))
    named = [None if each is None else list(each.items()) for each in headers]
    columns = [list(range(start, start + len(rows))), timestamps, keys, messages, named]
    return ArrowChunk(
        P0,
        pa.record_batch(
            [pa.array(each, field.type) for each, field in zip(columns, SCHEMA, strict=True)], schema=SCHEMA
        ),
    )


@given(ROWS, st.sets(st.integers(1, 5)), st.lists(st.booleans(), min_size=6, max_size=6))
def test_however_it_was_read_and_cut_it_is_the_same(
    rows: list[tuple[Any, ...]], cuts: set[int], as_arrow: list[bool]
) -> None:
    edges = [0, *sorted(cut for cut in cuts if cut < len(rows)), len(rows)]
    pieces: list[Messages] = [
        (arrow if as_arrow[at] else lists)(rows[start:stop], start)
        for at, (start, stop) in enumerate(zip(edges, edges[1:], strict=False))
    ]
    batch, whole = MessageBatch(pieces), MessageBatch([lists(rows)])
    assert list(batch) == list(whole)
    assert batch.to_arrow().to_pydict() == whole.to_arrow().to_pydict()
    assert batch.to_arrow().schema == whole.to_arrow().schema
    assert (len(batch), batch.first_offset, batch.last_offset) == (len(rows), "0", str(len(rows) - 1))
    for start in range(len(rows)):
        assert batch.offset(start) == str(start)
        assert list(batch.part(start, len(rows))) == list(whole)[start:]


def test_what_a_log_gives_in_one_piece_is_not_copied() -> None:
    piece = arrow([(None, b"k", b"message", None)])
    given_, shown = piece.batch.column(3).buffers(), MessageBatch([piece]).to_arrow()["message"].buffers()
    assert [each and each.address for each in given_] == [each and each.address for each in shown]


def test_columns_name_the_serdes_that_read_them() -> None:
    batch = MessageBatch(
        [arrow([(None, b"k", b"1", None)]), lists([(None, b"k", b"2", None)], 1)], serdes=(None, "json")
    )
    for each in (batch, batch.part(0, 1)):
        noted = {field.name: field.metadata for field in each.to_arrow().schema}
        assert noted == {
            "offset": None,
            "timestamp": None,
            "key": None,
            "message": {b"streambench.serde": b"json"},
            "headers": None,
        }


def test_offsets_that_are_no_numbers_are_text() -> None:
    batch = MessageBatch([Chunk(P0, ["a-1", "a-2"], [None, None], [b"1", b"2"])])
    assert batch.to_arrow()["offset"].to_pylist() == ["a-1", "a-2"]
    assert batch.to_arrow()["timestamp"].null_count == 2


def json_batch(*messages: Any, **options: Any) -> MessageBatch:
    return MessageBatch(
        [lists([(at, b"k%d" % at, message, None) for at, message in enumerate(messages)])],
        None,
        JsonSerde(),
        **options,
    )


SCALARS = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=4)
TIMES = st.sampled_from(["2024-01-01", "2024-01-01 10:00:00", "2024-01-01T10:00:00Z", "10:00"])


@given(st.data())
def test_a_table_holds_what_the_serde_would_give(data: st.DataObject) -> None:
    """Of each field the values of one type, as a table needs it; some fields are missing in some messages."""
    kinds = {
        "i": st.integers(-(2**63), 2**63 - 1),
        "s": st.text(max_size=5) | TIMES,
        "b": st.booleans(),
        "l": st.lists(TIMES, max_size=2),
    }
    nested = st.fixed_dictionaries({}, optional={"t": TIMES, "n": st.integers(0, 9)})
    objects = st.fixed_dictionaries({}, optional={**kinds, "o": nested, "é": st.none() | st.text(max_size=2)})
    messages = data.draw(st.lists(st.none() | objects, min_size=1, max_size=6))
    as_bytes = [None if message is None else orjson.dumps(message) for message in messages]
    rows = json_batch(*as_bytes).table("offset").to_pylist()
    assert [row.pop("offset") for row in rows] == list(range(len(messages)))
    assert list(map(bare, rows)) == [bare(message or {}) for message in messages]


def bare(value: Any) -> Any:
    """Without what is null or holds nothing: a column has no missing fields, only nulls."""
    if isinstance(value, dict):
        kept = {name: bare(each) for name, each in value.items()}
        return {name: each for name, each in kept.items() if each not in (None, {})}
    return value


PIECES = [
    b'{"a":',
    b"1}",
    b"{}",
    b"}",
    b"{",
    b'{"a":{}',
    b'{"a":1}\n',
    b' {"a":2}',
    b"",
    b"{}{}",
    b'{"a":"}',
    b"\xff",
    b'{"a":"\xff"}',
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=4))
def test_no_message_of_a_table_runs_into_the_next_or_counts_twice(messages: list[bytes]) -> None:
    try:
        decoded = list(map(orjson.loads, messages))
    except orjson.JSONDecodeError:
        with pytest.raises(SerdeError, match="cannot decode this message"):
            json_batch(*messages).table()
    else:
        rows = json_batch(*messages).table("offset").to_pylist()
        assert rows == [
            {"offset": at} | dict.fromkeys(rows[0].keys() - {"offset"}) | each
            for at, each in enumerate(decoded)
        ]


@pytest.mark.parametrize("text", [b'{"a":NaN}', b'{"a":[1.5,-Infinity]}', b'{"a":1,"b": Inf}'])
def test_a_number_for_pyarrow_that_is_none_for_the_serde_is_no_message(text: bytes) -> None:
    for schema in (None, pa.schema([("a", pa.float64())])):
        with pytest.raises(SerdeError, match="cannot decode this message"):
            json_batch(b'{"a":1.5}', text).table(schema=schema)


def test_text_may_speak_of_what_is_no_number() -> None:
    assert json_batch(b'{"a":"NaN, Inf"}', b'{"a":", NaN"}').table()["a"].to_pylist() == ["NaN, Inf", ", NaN"]


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (b'{"a":1.5}', pa.int64()),
        (b'{"a":[1,1.5]}', pa.list_(pa.int8())),
        (b'{"a":{"b":-0.5}}', pa.struct([("b", pa.uint8())])),
    ],
)
def test_no_fraction_is_cut_off_for_a_schema(message: bytes, kind: pa.DataType) -> None:
    with pytest.raises(SerdeError, match="they do not fit the schema"):
        json_batch(message).table(schema=pa.schema([("a", kind)]))


@pytest.mark.parametrize("text", ["1e400", '"\\ud800"', "01", "-01", ".5", "5.", "+5", "0x10", "tru", "[1,]",
                                  '"\n"', "/**/1", "-0",
                                  "12345678901234567890123", '{"x":1,"x":2}'])  # fmt: skip
def test_a_table_takes_and_gives_what_the_serde_does(text: str) -> None:
    batch = json_batch(f'{{"a":{text}}}'.encode())
    try:
        messages = batch.messages()
    except SerdeError as error:
        with pytest.raises(SerdeError, match="cannot decode this message"):
            json_batch(f'{{"a":{text}}}'.encode()).table()
        assert "cannot decode" in str(error)
        return
    try:
        assert batch.table().to_pylist() == messages
    except SerdeError as error:
        assert "give table() a schema" in str(error) and "12345678901234567890123" in text


@pytest.mark.parametrize("values", [[2**63], [2**53 + 1, 1.5], [{"deep": [2**64 - 1]}]])
def test_no_whole_number_is_rounded_without_a_word(values: list[Any]) -> None:
    with pytest.raises(SerdeError, match="give table\\(\\) a schema"):
        json_batch(*(orjson.dumps({"a": value}) for value in values)).table()


def test_a_schema_says_which_fields_with_which_types() -> None:
    schema = pa.schema([("n", pa.float64()), ("gone", pa.string())])
    for messages in ([b'{"n":1,"x":2}', None], [b'{"n":1,"x":2}', b"null"]):
        assert json_batch(*messages).table(schema=schema).to_pydict() == {
            "n": [1.0, None],
            "gone": [None, None],
        }


def test_values_that_are_not_of_one_type_make_no_table() -> None:
    with pytest.raises(SerdeError, match="give table\\(\\) a schema"):
        json_batch(b'{"n":1}', b'{"n":"x"}').table()


def test_columns_stand_beside_the_fields() -> None:
    table = json_batch(b'{"n":1}', b'{"n":2}').table("key", "timestamp")
    assert table.to_pydict() == {"key": [b"k0", b"k1"], "timestamp": [0, 1], "n": [1, 2]}
    with pytest.raises(SerdeError, match="have a field 'key' themselves"):
        json_batch(b'{"key":1}').table("key")
    with pytest.raises(ValueError, match="there is no column message"):
        json_batch(b'{"n":1}').table("message")


def test_columns_beside_the_fields_lack_what_was_left_out() -> None:
    batch = json_batch(b'{"n":1}', b"{", b'{"n":3}', undecodable=lambda raw, error: None)
    assert batch.table("key").to_pydict() == {"key": [b"k0", b"k2"], "n": [1, 3]}
    assert (len(batch), batch.to_arrow().num_rows) == (3, 3)
    assert (
        json_batch(b"{", b"[", undecodable=lambda raw, error: None).table("offset", "key").to_pylist() == []
    )


def test_messages_without_fields_are_rows_all_the_same() -> None:
    """Deletions, say: nothing but keys."""
    pieces: list[Messages] = [lists([(None, b"k", None, None), (None, b"l", b"null", None)])]
    for serde in (JsonSerde(), MsgspecSerde(msgspec.json)):
        assert MessageBatch(pieces, None, serde).table("key").to_pylist() == [{"key": b"k"}, {"key": b"l"}]


class Reading(msgspec.Struct):
    sensor: str
    at: dt.datetime | None = None
    parts: list[Part] = []


@dataclasses.dataclass
class Part:
    value: float


def test_messages_of_a_type_have_its_fields() -> None:
    serde = MsgspecSerde(msgspec.json, Reading)
    messages = [
        b'{"sensor":"a","at":"2024-01-01T10:00:00Z"}',
        None,
        b'{"sensor":"b","parts":[{"value":1.5}]}',
    ]
    table = MessageBatch([lists([(None, None, message, None) for message in messages])], None, serde).table()
    assert table.to_pylist() == [
        {"sensor": "a", "at": dt.datetime(2024, 1, 1, 10, tzinfo=dt.UTC), "parts": []},
        {"sensor": None, "at": None, "parts": None},
        {"sensor": "b", "at": None, "parts": [{"value": 1.5}]},
    ]


def test_messages_of_another_serde_make_a_column() -> None:
    batch = MessageBatch([arrow([(None, None, b"a", None), (None, None, None, None)])], None, StringSerde())
    assert batch.table().to_pydict() == {"message": ["a", None]}


def test_keys_and_messages_are_decoded_each_by_its_serde() -> None:
    batch = MessageBatch([arrow([(3, b"k", b"[1]", {"h": b""})])], StringSerde(), JsonSerde())
    assert list(batch) == [IncomingMessageEnvelope(P0, "0", "k", [1], 3, {"h": b""})]
    assert batch.messages() == [[1]]


def test_what_cannot_be_decoded_names_its_place_after_what_came_before() -> None:
    batch = json_batch(b"1", b"{", b"3")
    seen = []
    with pytest.raises(
        SerdeError, match=r"log\.in\.0@1, key b'k1': cannot decode this message: JSONDecodeError"
    ):
        for envelope in batch:
            seen.append(envelope.message)
    assert seen == [1]
    assert [each.message for each in batch.peek()] == [1, b"{", 3]


@pytest.mark.parametrize("serde", [JsonSerde(), MsgspecSerde(msgspec.json)])
def test_what_was_left_out_for_its_key_is_missing_however_it_is_read(serde: Serde) -> None:
    left_out: list[str] = []
    pieces: list[Messages] = [lists([(None, b"\xff", b'{"a":1}', None), (None, b"k", b'{"a":2}', None)])]
    batch = MessageBatch(pieces, StringSerde(), serde, lambda raw, error: left_out.append(raw.offset))
    assert [each.key for each in batch] == ["k"]
    assert (batch.messages(), batch.table("offset").to_pylist()) == ([{"a": 2}], [{"offset": 1, "a": 2}])
    assert left_out == ["0"]


def test_whoever_looks_on_leaves_nothing_out_and_is_told_nothing() -> None:
    told: list[str] = []
    batch = json_batch(b"1", b"{", undecodable=lambda raw, error: told.append(raw.offset))
    assert [each.message for each in batch.peek()] == [1, b"{"]
    assert told == []
    assert [batch.messages(), batch.messages(), told] == [[1], [1], ["1"]]
    assert [each.message for each in batch.peek()] == [1]


def test_a_batch_to_try_a_task_out_with() -> None:
    envelopes = [IncomingMessageEnvelope(P0, str(at), None, {"n": at}) for at in range(3)]
    batch = MessageBatch.of(envelopes)
    assert list(batch) == envelopes
    assert batch.table("offset").to_pydict() == {"offset": [0, 1, 2], "n": [0, 1, 2]}
    assert repr(batch) == "<MessageBatch log.in.0@0..2: 3 messages>"
    with pytest.raises(ValueError, match="one partition, and at least one"):
        MessageBatch.of([])


def test_objects_that_make_no_column_can_still_be_gone_over() -> None:
    batch = MessageBatch.of(
        [IncomingMessageEnvelope(P0, "0", None, {"n": 1}), IncomingMessageEnvelope(P0, "1", None, "text")]
    )
    with pytest.raises(SerdeError, match="go over the batch one by one"):
        batch.to_arrow()
    assert batch.messages() == [{"n": 1}, "text"]


@pytest.mark.parametrize(
    "piece",
    [
        Chunk(P0, ["0"], [None], [b"1"], None, [{"a": 1}]),  # type: ignore[dict-item]
        Chunk(P0, ["0"], [None], [b"1"], ["now"]),  # type: ignore[list-item]
        Chunk(P0, [str(2**64)], [None], [b"1"]),
    ],
)
def test_whatever_makes_no_column_is_said_with_its_place(piece: Chunk) -> None:
    with pytest.raises(SerdeError, match="log.in.0@.*make no column"):
        MessageBatch([piece]).to_arrow()
