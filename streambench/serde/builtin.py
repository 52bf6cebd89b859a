"""The serdes that every configuration can name: bytes, string, json, integer, long, double.

They run once per message. Where what does the work is a builtin, it is the serde's method itself and not called by one (mypy objects to
the names of its parameters: serdes are called by position).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial
from typing import Any

import orjson

from streambench.serde.api import Serde


class BytesSerde(Serde):
    """Bytes as they are. It takes nothing else: text, say, would need an encoding."""

    def to_bytes(self, value: Any) -> bytes:
        if isinstance(value, bytes):
            return value
        if isinstance(value, (bytearray, memoryview)):
            return bytes(value)
        raise TypeError(f"takes bytes, not {type(value).__name__}")

    def from_bytes(self, data: bytes) -> bytes:
        return data


class StringSerde(Serde):
    """Text as UTF-8. It takes nothing but str."""

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a str is wanted, not {type(value).__name__}")
        return value.encode()

    from_bytes = staticmethod(bytes.decode)  # type: ignore[assignment]


class EncodedStringSerde(Serde):
    """Text in another encoding than UTF-8."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a str is wanted, not {type(value).__name__}")
        return value.encode(self.encoding)

    def from_bytes(self, data: bytes) -> str:
        return data.decode(self.encoding)


class JsonSerde(Serde):
    """JSON, with what orjson adds to it: dataclasses, dates, UUIDs, enums are encoded, and come back as dicts and text.

    Names in objects must be str: ``{1: "a"}`` would come back as ``{"1": "a"}``, so it is refused. NaN and infinities, which JSON
    does not know, become null.

    The bytes are orjson's own: each keeps a buffer of 4 KiB for as long as it lives, whatever its length. For a message on its way that
    is nothing, and a copy costs 40 ns; whoever keeps them for long (a store) copies them.
    """

    to_bytes = staticmethod(orjson.dumps)  # type: ignore[assignment]
    from_bytes = staticmethod(orjson.loads)  # type: ignore[assignment]


class _NumberSerde(Serde):
    """A number of fixed width, big-endian. Out of range, or not a number: struct.error."""

    def __init__(self, layout: str) -> None:
        self._pack = struct.Struct(layout).pack
        self._unpack = struct.Struct(layout).unpack

    def to_bytes(self, value: Any) -> bytes:
        return self._pack(value)

    def from_bytes(self, data: bytes) -> Any:
        return self._unpack(data)[0]


class IntegerSerde(_NumberSerde):
    """A whole number in 4 bytes, big-endian, signed."""

    def __init__(self) -> None:
        super().__init__(">i")


class LongSerde(_NumberSerde):
    """A whole number in 8 bytes, big-endian, signed."""

    def __init__(self) -> None:
        super().__init__(">q")


class DoubleSerde(_NumberSerde):
    """A number as an IEEE 754 double in 8 bytes, big-endian."""

    def __init__(self) -> None:
        super().__init__(">d")


def key_encoder(serde: Serde) -> Callable[[Any], bytes]:
    """How a serde encodes keys. As JSON with sorted names, so that equal dicts are equal keys; else as it encodes anything."""
    return partial(orjson.dumps, option=orjson.OPT_SORT_KEYS) if type(serde) is JsonSerde else serde.to_bytes
