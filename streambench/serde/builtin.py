"""The serdes that are always there."""

from __future__ import annotations

import struct
from typing import Any

import orjson

from streambench.serde.api import Serde


class BytesSerde(Serde):
    """Bytes as they are; anything else is refused."""

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, (bytes, bytearray, memoryview)):
            raise TypeError(f"bytes are wanted, not {type(value).__name__}")
        return bytes(value)

    def from_bytes(self, data: bytes) -> bytes:
        return data


class StringSerde(Serde):
    """Text as UTF-8."""

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a str is wanted, not {type(value).__name__}")
        return value.encode()

    def from_bytes(self, data: bytes) -> str:
        return data.decode()


class JsonSerde(Serde):
    """JSON as UTF-8, by orjson: dicts with str keys, lists, str, int, float, bool, None, dataclasses, datetimes.

    The methods are orjson's own functions: they are called with every message.
    """

    to_bytes = staticmethod(orjson.dumps)  # type: ignore[assignment]
    from_bytes = staticmethod(orjson.loads)  # type: ignore[assignment]


class NumberSerde(Serde):
    """A number of fixed size, big-endian, as Java (hence Samza and Kafka) writes it."""

    def __init__(self, layout: str) -> None:
        """``layout``: the number as the ``struct`` module names it, for example ``>q``."""
        self._struct = struct.Struct(layout)

    def to_bytes(self, value: Any) -> bytes:
        return self._struct.pack(value)

    def from_bytes(self, data: bytes) -> Any:
        return self._struct.unpack(data)[0]


BUILTIN = {
    "bytes": BytesSerde(),
    "string": StringSerde(),
    "json": JsonSerde(),
    "integer": NumberSerde(">i"),
    "long": NumberSerde(">q"),
    "double": NumberSerde(">d"),
}
"""The serdes by the names that a configuration uses: integer has 4 bytes, long and double have 8."""
