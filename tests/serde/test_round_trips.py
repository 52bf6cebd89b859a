"""What a serde writes comes back equal and of its documented type, or is refused: nothing is changed without
a word."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import json
import math
from decimal import Decimal
from typing import Any, NamedTuple
from uuid import UUID

import msgspec
import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import streambench as sb
from streambench.config import Config
from streambench.errors import ConfigError, SerdeError
from streambench.serde.api import Serde
from streambench.serde.avro import AvroSerde
from streambench.serde.builtin import key_encoder
from streambench.serde.registry import serde_named
from streambench.testing import run_job


@dataclasses.dataclass
class Reading:
    at: Any
    _raw: int = 7


class Level(enum.Enum):
    NONE = math.nan
    HIGH = 3


class Pair(NamedTuple):
    a: int
    b: int


class Sample(msgspec.Struct):
    value: float | None = None
    rest: Any = None


class Text(str):
    pass


NAMES = st.text() | st.integers() | st.booleans() | st.none() | st.binary(max_size=3)
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(),
    st.text(st.characters(codec=None)),
    st.binary(),
    st.decimals().filter(lambda number: not number.is_snan()),  # has no hash
    st.datetimes(),
    st.datetimes(timezones=st.timezones()),
    st.dates(),
    st.times(),
    st.timedeltas(),
    st.uuids(),
    st.sampled_from(
        [
            np.float64(0.1),
            np.int64(5),
            np.bool_(True),
            pd.Timestamp(1),
            pd.NaT,
            pd.NA,
            Level.NONE,
            Level.HIGH,
            Text("x"),
        ]
    ),
)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(NAMES, inner, max_size=3),
        st.tuples(inner, inner),
        st.builds(Reading, inner),
        st.frozensets(SCALARS, max_size=2),
    ),
    max_leaves=6,
)


def serde(name: str, **settings: str) -> Serde:
    given = {f"serializers.registry.{name}.{setting}": value for setting, value in settings.items()}
    return serde_named(Config(given), name, key="systems.log.samza.msg.serde")


def as_json(value: Any) -> Any:
    """What a value comes back as from JSON, as documented."""
    match value:
        case enum.Enum():
            return as_json(value.value)
        case dt.datetime() | dt.date() | dt.time():
            return value.isoformat()
        case UUID():
            return str(value)
        case str():
            return str(value)
        case list() | tuple():
            return [as_json(each) for each in value]
        case dict():
            return {name: as_json(each) for name, each in value.items()}
        case Reading():
            return {"at": as_json(value.at), "_raw": value._raw}
    return value


def as_msgpack(value: Any) -> Any:
    """What a value comes back as from MessagePack, as documented."""
    match value:
        case enum.Enum():
            return as_msgpack(value.value)
        case dt.datetime() if value.tzinfo is not None:
            return value.astimezone(dt.UTC)
        case dt.datetime() | dt.date() | dt.time() | dt.timedelta() | Decimal() | UUID():
            return msgspec.to_builtins(value)
        case list() | tuple() | set() | frozenset():
            return [as_msgpack(each) for each in value]
        case dict():
            return {name: as_msgpack(each) for name, each in value.items()}
        case Reading():
            return {"at": as_msgpack(value.at), "_raw": value._raw}
    return value


def same(a: Any, b: Any) -> bool:
    """Equal in value and type, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(map(same, a.values(), b.values()))
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return repr(a) == repr(b)


def comes_back(serde: Serde, value: Any, expected: Any) -> bool:
    """Whether it came back as expected; False where it was refused."""
    try:
        data = serde.to_bytes(value)
    except Exception:
        return False
    found = serde.from_bytes(data)
    assert same(found, expected), f"{value!r} came back as {found!r}"
    return True


@given(ANYTHING)
def test_json_gives_back_what_it_took(value: Any) -> None:
    comes_back(serde("json"), value, as_json(value))
    encode = key_encoder(serde("json"))
    try:
        key = encode(value)
    except Exception:
        return
    assert serde("json").from_bytes(key) == as_json(value)


@given(ANYTHING)
def test_msgpack_gives_back_what_it_took(value: Any) -> None:
    try:
        expected = as_msgpack(value)
    except (OverflowError, TypeError, ValueError):
        return
    comes_back(serde("msgpack"), value, expected)


@pytest.mark.parametrize("name", ["integer", "long", "double", "string", "bytes"])
@given(value=ANYTHING)
def test_simple_serdes_give_back_what_they_took(name: str, value: Any) -> None:
    try:
        data = serde(name).to_bytes(value)
    except Exception:
        return
    back = serde(name).from_bytes(data)
    assert back == value or (name == "double" and math.isnan(back) and math.isnan(value))
    assert not isinstance(value, (bool, np.bool_))


@pytest.mark.parametrize(
    "encoding", ["latin-1", "utf-16", "utf-8-sig", "utf-7", "idna", "raw_unicode_escape", "shift_jis", "gbk"]
)
@given(value=st.text() | st.sampled_from(["\\u0041", "Straße", "\ufeffx", "ÄÖ"]))
def test_text_in_any_encoding_comes_back_or_is_refused(encoding: str, value: str) -> None:
    comes_back(serde("string", encoding=encoding), value, value)


@given(st.builds(Sample, st.none() | st.floats(), ANYTHING))
def test_a_typed_object_comes_back_equal_or_is_refused(value: Sample) -> None:
    typed = serde("json", type=f"{__name__}:Sample")
    try:
        data = typed.to_bytes(value)
    except Exception:
        return
    back = typed.from_bytes(data)
    assert same(back.value, value.value)
    assert (b"null" in data) == (b"null" in msgspec.json.encode(back))
    assert not (back.rest is None and value.rest is not None)


@pytest.mark.parametrize(
    "value", [2**64, -(2**63) - 1, 10**300, [{"a": (2**64, 1.5)}], {"b": [Reading(2**80)]}]
)
def test_json_keeps_integers_of_any_size(value: Any) -> None:
    assert comes_back(serde("json"), value, as_json(value))


@pytest.mark.parametrize(
    "value",
    [
        dt.datetime(1890, 1, 1, tzinfo=dt.timezone(dt.timedelta(seconds=2048))),
        {"t": dt.time(1, 2, 3, 4)},
        Reading(1.5),
    ],
)
def test_json_keeps_what_orjson_cuts_off(value: Any) -> None:
    assert comes_back(serde("json"), value, as_json(value))


@pytest.mark.parametrize(
    ("value", "place"),
    [(math.nan, "no nan:"), ({"a": [None, -math.inf]}, r"no -inf \(at \['a'\]\[1\]\)"),
     ([None, Level.NONE], r"no nan \(at \[1\]"),
     ((1, Reading(math.inf), 2**70), r"no inf \(at \[1\]\['at'\]\)")],
)  # fmt: skip
def test_json_refuses_what_would_become_null_and_names_its_place(value: Any, place: str) -> None:
    with pytest.raises(ValueError, match=place):
        serde("json").to_bytes(value)
    with pytest.raises(ValueError, match=place):
        key_encoder(serde("json"))(value)


def test_null_and_text_that_speaks_of_it_are_no_reason_to_refuse() -> None:
    for value in (None, [None, 1.5], {"null": "null"}, {"a": {"b": (None, [None])}}):
        assert comes_back(serde("json"), value, as_json(value))


@pytest.mark.parametrize(
    ("text", "value"),
    [("123456789012345678901", 123456789012345678901), ("[-9223372036854775809]", [-9223372036854775809]),
     ("-0", 0), ("-0.0", -0.0),
     ("1e308", 1e308), ("18446744073709551616.0", 2.0**64), ('{"a":1,"a":2}', {"a": 2}), ("1.0", 1.0),
     ('"\\ud83d\\ude00"', "😀")],
)  # fmt: skip
def test_json_text_is_read_exactly(text: str, value: Any) -> None:
    assert same(serde("json").from_bytes(text.encode()), value)


@pytest.mark.parametrize(
    "text",
    [
        b"1e400",
        b"-1e400",
        b"NaN",
        b"Infinity",
        b'"\\ud800"',
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b"01",
        b"[1,]",
        b"",
        b"[" * 9_999,
    ],
)
def test_json_text_that_has_no_value_is_refused(text: bytes) -> None:
    with pytest.raises((ValueError, SerdeError)):
        serde("json").from_bytes(text)


FLOATS = st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | FLOATS | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
def test_json_text_is_read_as_python_reads_it(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode()
    assert same(serde("json").from_bytes(text), json.loads(text))


@pytest.mark.parametrize(
    ("name", "value"),
    [("long", True), ("long", np.bool_(True)), ("integer", Decimal(1)), ("double", True),
     ("double", 2**53 + 1), ("double", Decimal("0.1")), ("long", 1.0)],
)  # fmt: skip
def test_numbers_that_would_come_back_as_others_are_refused(name: str, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        serde(name).to_bytes(value)


def test_an_encoding_of_what_is_no_text_is_an_error_that_names_the_key() -> None:
    for encoding in ("hex", "rot13", "undefined"):
        with pytest.raises(ConfigError, match=f"there is no encoding '{encoding}'"):
            serde("string", encoding=encoding)


MILLIS = {"type": "long", "logicalType": "timestamp-millis"}
NOON = dt.datetime(2026, 1, 2, 12, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("schema", "value"),
    [(MILLIS, NOON.replace(microsecond=1)), (MILLIS, NOON.replace(tzinfo=None)),
     (["null", MILLIS], NOON.replace(microsecond=1)),
     ({"type": "long", "logicalType": "local-timestamp-micros"}, NOON),
     ({"type": "int", "logicalType": "date"}, NOON),
     ({"type": "int", "logicalType": "time-millis"}, dt.time(1, 2, 3, 4)),
     ({"type": "int", "logicalType": "time-millis"}, dt.time(1, tzinfo=dt.UTC)),
     ({"type": "string", "logicalType": "uuid"}, "no uuid"), ("double", 2**53 + 1),
     (["null", "double"], 2**53 + 1), ("float", 2**24 + 1),
     ("double", Decimal("0.1"))],
)  # fmt: skip
def test_avro_refuses_what_its_schema_has_no_place_for(schema: Any, value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        AvroSerde(schema).to_bytes(value)


@given(st.datetimes(timezones=st.just(dt.UTC)))
def test_avro_times_come_back_equal_or_are_refused(value: dt.datetime) -> None:
    value = value.replace(fold=0)
    comes_back(AvroSerde({"type": "long", "logicalType": "timestamp-micros"}), value, value)
    assert comes_back(AvroSerde(MILLIS), value, value) == (value.microsecond % 1000 == 0)


JSON = {"systems.mem.samza.msg.serde": "json", "systems.mem.samza.key.serde": "json"}


def test_a_number_beyond_64_bits_passes_a_job_unchanged() -> None:
    def process(envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        collector.send(
            sb.OutgoingMessageEnvelope(sb.SystemStream("mem", "out"), envelope.message, envelope.key)
        )

    run = run_job(process, JSON, {"mem.in": {0: [(b"%d" % 2**70, b'{"n":123456789012345678901}')]}} | {})
    assert run.outputs["mem.out"][0] == [(2**70, {"n": 123456789012345678901})]


def test_a_nan_that_is_sent_or_stored_ends_the_job_with_its_place() -> None:
    def send(envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("mem", "out"), {"mean": math.nan}, "k"))

    with pytest.raises(SerdeError, match=r"JSON has no nan \(at \['mean'\]\)"):
        run_job(send, JSON, {"mem.in": {0: [1]}})

    class Store(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.store = context.store("s")

        def process(
            self, envelope: Any, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator
        ) -> None:
            self.store.put("k", math.nan)

    with pytest.raises(sb.StreambenchError, match="JSON has no nan") as caught:
        run_job(
            Store,
            JSON | {"stores.s.factory": "memory", "stores.s.msg.serde": "json", "stores.s.key.serde": "json"},
            {"mem.in": {0: [1]}},
        )
    assert "'k'" in str(caught.value) and "mem.in.0@0" in str(caught.value)
