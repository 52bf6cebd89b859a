"""The builtin serdes."""

from __future__ import annotations

import struct
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.config import Config
from streambench.serde.api import Serde
from streambench.serde.builtin import key_encoder
from streambench.serde.registry import serde_named

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)
VALUES = {
    "bytes": st.binary(),
    "string": st.text(),
    "json": JSON,
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False),
    "msgpack": JSON | st.binary() | st.datetimes(timezones=st.just(UTC)),
}


def serde(name: str) -> Serde:
    return serde_named(Config(), name, key="systems.log.samza.msg.serde")


@pytest.mark.parametrize("name", sorted(VALUES))
@given(data=st.data())
def test_what_was_encoded_comes_back_equal(name: str, data: st.DataObject) -> None:
    value = data.draw(VALUES[name])
    encoded = serde(name).to_bytes(value)
    assert type(encoded) is bytes
    assert serde(name).from_bytes(encoded) == value


@pytest.mark.parametrize(
    ("name", "value", "encoded"),
    [
        ("bytes", bytearray(b"ab"), b"ab"),
        ("string", "zürich", b"z\xc3\xbcrich"),
        ("json", {"b": 1, "a": [None, 1.5]}, b'{"b":1,"a":[null,1.5]}'),
        ("integer", -2, b"\xff\xff\xff\xfe"),
        ("long", 258, b"\0\0\0\0\0\0\x01\x02"),
        ("double", 1.0, b"\x3f\xf0\0\0\0\0\0\0"),
    ],
)
def test_the_bytes_are_those_of_samza(name: str, value: Any, encoded: bytes) -> None:
    assert serde(name).to_bytes(value) == encoded


@pytest.mark.parametrize(
    ("name", "value"),
    [("bytes", "text"), ("bytes", 5), ("string", 5), ("string", b"x"), ("json", {1: "a"}), ("json", object()),
     ("integer", 2**31),
     ("integer", 1.5), ("long", "1"), ("double", "1")],
)  # fmt: skip
def test_values_of_another_kind_are_refused(name: str, value: Any) -> None:
    with pytest.raises((TypeError, OverflowError)):
        serde(name).to_bytes(value)


@pytest.mark.parametrize(("name", "bits"), [("integer", 32), ("long", 64)])
def test_numbers_that_are_too_large_are_named(name: str, bits: int) -> None:
    for number in (2 ** (bits - 1), -(2**bits), 10**100):
        with pytest.raises(OverflowError, match=f"does not fit into {bits} bits"):
            serde(name).to_bytes(number)


@pytest.mark.parametrize(
    ("name", "data"),
    [("string", b"\xff"), ("json", b"{"), ("integer", b"\0"), ("long", b""), ("double", b"\0" * 9)],
)
def test_bytes_of_another_kind_are_refused(name: str, data: bytes) -> None:
    with pytest.raises((ValueError, struct.error)):
        serde(name).from_bytes(data)


def test_equal_dicts_are_equal_json_keys() -> None:
    encode = key_encoder(serde("json"))
    assert encode({"a": 1, "b": 2}) == encode({"b": 2, "a": 1})


def test_keys_of_other_serdes_are_encoded_as_ever() -> None:
    assert key_encoder(serde("long"))(1) == serde("long").to_bytes(1)
