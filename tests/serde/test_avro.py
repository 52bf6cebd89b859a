"""Avro messages, by a schema in the configuration."""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import sys
import uuid
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.config import Config
from streambench.errors import ConfigError, MissingExtraError, SerdeError
from streambench.serde.api import Serde
from streambench.serde.avro import AvroSerde
from streambench.serde.registry import serde_named

KEY = "systems.log.samza.msg.serde"

FLIGHT = {
    "type": "record",
    "name": "air.Flight",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "double"]},
        {"name": "stops", "type": {"type": "array", "items": "int"}, "default": []},
        {"name": "raw", "type": "bytes", "default": ""},
        {"name": "late", "type": "boolean", "default": False},
    ],
}
LOGICAL = {
    "type": "record", "name": "L",
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "key", "type": {"type": "string", "logicalType": "uuid"}},
    ],
}  # fmt: skip
FIXED = {"type": "fixed", "name": "F", "size": 2}
NOON = dt.datetime(2024, 1, 1, 12, tzinfo=dt.UTC)
MEASURED = {"type": "record", "name": "Measured", "fields": [{"name": "at", "type": "double"}]}
TEXTS = {"type": "array", "items": "string"}
CHAIN = {"type": "record", "name": "Chain", "fields": [{"name": "next", "type": ["null", "Chain"]}]}

FLIGHTS = st.fixed_dictionaries(
    {
        "id": st.integers(-(2**63), 2**63 - 1),
        "carrier": st.text(),
        "delay": st.none() | st.floats(allow_nan=False),
        "stops": st.lists(st.integers(-(2**31), 2**31 - 1), max_size=3),
        "raw": st.binary(),
        "late": st.booleans(),
    }
)


def configured(schema: Any, **settings: Any) -> Serde:
    prefix = "serializers.registry.flights."
    values = {
        f"{prefix}class": "avro",
        f"{prefix}schema": schema if isinstance(schema, str) else json.dumps(schema),
    }
    return serde_named(
        Config(values | {prefix + name.replace("_", "."): value for name, value in settings.items()}),
        "flights",
        key=KEY,
    )


@given(FLIGHTS)
def test_records_come_back_equal(record: dict[str, Any]) -> None:
    serde = configured(FLIGHT)
    assert serde.from_bytes(serde.to_bytes(record)) == record


@given(FLIGHTS)
def test_the_bytes_are_plain_avro(record: dict[str, Any]) -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(FLIGHT), record)
    assert configured(FLIGHT).to_bytes(record) == out.getvalue()


def test_logical_types_are_pythons_own() -> None:
    record = {
        "at": dt.datetime(2026, 1, 2, 3, 4, 5, tzinfo=dt.UTC),
        "day": dt.date(2026, 1, 2),
        "price": Decimal("12.34"),
        "key": uuid.UUID(int=5),
    }
    serde = configured(LOGICAL)
    assert serde.from_bytes(serde.to_bytes(record)) == record


def test_fields_with_a_default_may_be_missing() -> None:
    serde = configured(FLIGHT)
    read = serde.from_bytes(serde.to_bytes({"id": 1, "carrier": "AA", "delay": None}))
    assert read == {"id": 1, "carrier": "AA", "delay": None, "stops": [], "raw": b"", "late": False}


def test_messages_may_be_read_by_another_schema_than_they_were_written_by() -> None:
    gate = {"name": "g", "type": "string", "default": "?"}
    newer = {"type": "record", "name": "air.Flight", "fields": [{"name": "id", "type": "double"}, gate]}
    serde = configured(FLIGHT, reader_schema=json.dumps(newer))
    assert serde.from_bytes(serde.to_bytes({"id": 7, "carrier": "AA", "delay": None})) == {
        "id": 7.0,
        "g": "?",
    }


def test_the_header_of_confluent_is_written_and_wanted() -> None:
    serde = configured('"long"', confluent_schema_id=258)
    assert serde.to_bytes(1) == b"\0\0\0\1\2\2"
    assert serde.from_bytes(b"\0\0\0\1\2\2") == 1
    for other in (b"\0\0\0\0\1\2", b"\2", b"", b"\1\0\0\1\2\2"):
        with pytest.raises(SerdeError, match="with the id of the configured schema"):
            serde.from_bytes(other)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ("int", 2**31), ("int", 3.5), ("long", 3.7), ("long", True), ("long", "3"), ("boolean", "x"),
        ("boolean", 1), ("double", True),
        ("double", "1.5"), (MEASURED, {"at": "nan"}), ("float", 1e39), ("float", None),
        ({"type": "array", "items": "int"}, [1, 2.5]), ({"type": "map", "values": "int"}, {"a": 2.5}),
        ({"type": "long", "logicalType": "timestamp-millis"}, 3.7), (["null", "int"], 2**31),
        ("string", b"x"), ("bytes", "x"),
        (FLIGHT, {"id": 1, "carrier": "AA"}), (FLIGHT, {"id": 1, "carrier": "AA", "delay": None, "dleay": 5}),
        (FLIGHT, {"id": 1.5, "carrier": "AA", "delay": None}), (FLIGHT, "text"),
        (CHAIN, {"next": {"next": 5}}),
        ({"type": "enum", "name": "E", "symbols": ["A"]}, "B"), ("null", "lost"), (TEXTS, "abc"),
        (TEXTS, {"a": 1}), (TEXTS, iter("a")),
        ({"type": "array", "items": "int"}, b"abc"), (["null", {"type": "array", "items": "int"}], b"abc"),
        (["null", "float"], 1e39),
        (["null", MEASURED | {"fields": [{"name": "at", "type": "float"}]}], {"at": 1e39}),
        ({"type": "array", "items": ["null", "float"]}, [None, 1e39]),
        (["null", {"type": "array", "items": ["float"]}], [1e39]),
        (["null", {"type": "map", "values": "int"}], {"a": 2.5}),
    ],
)  # fmt: skip
def test_what_does_not_fit_the_schema_is_refused_and_not_changed(schema: Any, value: Any) -> None:
    with pytest.raises(Exception):  # noqa: B017
        AvroSerde(schema).to_bytes(value)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        (["null", "double", "float"], 1e39), (["float", "double"], 1e300),
        (["null", "float", "double"], 1e300),
        (["long", "float"], 2.5), (["null", "float"], math.inf), (["null", TEXTS], ["a"]),
        (["null", TEXTS, "bytes"], b"abc"), ([MEASURED, {"type": "map", "values": "string"}], {"a": "b"}),
        (["null", FIXED], b"ab"),
        ([MEASURED, {"type": "map", "values": "float"}], {"at": 2.5}),
        ({"type": "array", "items": [MEASURED, "null"]}, [None, {"at": 1.5}]),
        ([FIXED, {"type": "array", "items": ["F", "string"]}], [b"ab", "c"]),
        (["null", TEXTS, LOGICAL["fields"][0]["type"]], NOON),
    ],
)  # fmt: skip
def test_what_fits_a_branch_of_a_union_comes_back(schema: Any, value: Any) -> None:
    serde = AvroSerde(schema)
    assert serde.from_bytes(serde.to_bytes(value)) == value


def test_the_branch_of_a_union_may_be_named() -> None:
    serde = AvroSerde([MEASURED, {"type": "map", "values": "double"}])
    assert serde.from_bytes(serde.to_bytes(("map", {"at": 1.5}))) == {"at": 1.5}


def test_an_error_names_the_field() -> None:
    with pytest.raises(ValueError, match=r"^id: 1\.5 is not of the type long"):
        AvroSerde(FLIGHT).to_bytes({"id": 1.5, "carrier": "AA", "delay": None})


def test_bytes_behind_the_datum_are_another_schemas() -> None:
    with pytest.raises(SerdeError, match="2 bytes are left over"):
        AvroSerde("long").from_bytes(b"\2\2\2")


@pytest.mark.parametrize(
    "schema",
    [
        CHAIN,
        {"type": "record", "name": "T", "fields": [{"name": "of", "type": {"type": "array", "items": "T"}}]},
    ],
)
def test_messages_that_nest_too_deeply_are_refused(schema: Any) -> None:
    """In C they would end the process."""
    with pytest.raises(SerdeError, match="nests too deeply"):
        AvroSerde(schema).from_bytes(b"\2" * 100_000)
    value: dict[str, Any] = {}
    value["next"] = value
    value["of"] = [value]
    with pytest.raises(SerdeError, match="nests too deeply"):
        AvroSerde({**schema, "fields": schema["fields"]}).to_bytes(
            {schema["fields"][0]["name"]: value[schema["fields"][0]["name"]]}
        )


def test_a_chain_of_some_length_is_no_problem() -> None:
    value: dict[str, Any] = {"next": None}
    for _ in range(50):
        value = {"next": value}
    serde = configured(CHAIN)
    assert serde.from_bytes(serde.to_bytes(value)) == value


# Schemas


def test_a_schema_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "flight.avsc").write_text(json.dumps(FLIGHT))
    text = "serializers.registry.avro.schema=flight.avsc"
    serde = serde_named(Config.from_text(text, directory=tmp_path), "avro", key=KEY)
    assert serde.to_bytes({"id": 0, "carrier": "", "delay": None}) == b"\0\0\0\0\0\0"


def test_a_schema_may_name_others_in_files_beside_it(tmp_path: Path) -> None:
    (tmp_path / "air.Place.avsc").write_text(
        '{"type": "record", "name": "air.Place", "fields": [{"name": "code", "type": "string"}]}'
    )
    (tmp_path / "leg.avsc").write_text(
        '{"type": "record", "name": "air.Leg", "fields": [{"name": "to", "type": "air.Place"}]}'
    )
    serde = serde_named(
        Config.from_text("serializers.registry.avro.schema=leg.avsc", directory=tmp_path), "avro", key=KEY
    )
    assert serde.from_bytes(b"\6ZRH") == {"to": {"code": "ZRH"}}


@pytest.mark.parametrize(
    ("schema", "what"),
    [
        ("nowhere.avsc", "there is no file .*nowhere.avsc"),
        ("{", "the schema is not JSON"),
        ('{"type": "recrd"}', "not an Avro schema"),
        ("[]", "a union of nothing"),
        ('{"type": "array", "items": "null"}', "takes no bytes"),
        ('{"type": "array", "items": {"type": "record", "name": "E", "fields": []}}', "takes no bytes"),
        ('{"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]}', "part of itself"),
        ('{"type": "record", "name": "N", "fields": [{"name": "n", "type": "Other"}]}', "Other"),
        (None, "is missing"),
    ],
)
def test_what_is_no_schema_is_an_error_that_names_the_key(schema: str | None, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        serde_named(Config({"serializers.registry.avro.schema": schema}), "avro", key=KEY)
    assert raised.value.key == "serializers.registry.avro.schema"


def test_a_file_that_is_no_schema_is_named(tmp_path: Path) -> None:
    (tmp_path / "bad.avsc").write_text("{'type': 'long'}")
    with pytest.raises(ConfigError, match=r"serializers\.registry\.avro\.schema.*bad\.avsc.* is not"):
        serde_named(
            Config.from_text("serializers.registry.avro.schema=bad.avsc", directory=tmp_path), "avro", key=KEY
        )


def test_records_may_hold_each_other_through_what_takes_a_byte() -> None:
    inner = {"type": "record", "name": "B", "fields": [{"name": "a", "type": "A"}]}
    tree = {
        "type": "record",
        "name": "A",
        "fields": [{"name": "bs", "type": {"type": "array", "items": inner}}],
    }
    assert AvroSerde(tree).from_bytes(b"\2\0\0") == {"bs": [{"a": {"bs": []}}]}


@pytest.mark.parametrize(
    ("settings", "key", "what"),
    [
        ({"shcema": '"long"'}, "shcema", "did you mean serializers.registry.avro.schema"),
        ({"schema": '"long"', "confluent.schema.id": "-1"}, "confluent.schema.id", "not the id of a schema"),
        ({"schema": '"long"', "reader.schema": "{"}, "reader.schema", "not JSON"),
    ],
)
def test_wrong_settings_are_errors_that_name_them(settings: dict[str, str], key: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        serde_named(
            Config({f"serializers.registry.avro.{name}": value for name, value in settings.items()}),
            "avro",
            key=KEY,
        )
    assert raised.value.key == f"serializers.registry.avro.{key}"


def test_without_fastavro_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "streambench.serde.avro")
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'streambench\[avro\]'"):
        configured('"long"')
