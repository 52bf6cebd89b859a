"""The serdes that every configuration can name: bytes, string, json, integer, long, double.

They run once per message. Where a builtin does the work, it is the serde's method itself and not called by
one. Then mypy objects to the names of its parameters: serdes are called by position.
"""

from __future__ import annotations

import codecs
import struct
from collections.abc import Callable
from typing import Any

from streambench.errors import shortened
from streambench.serde.api import Serde
from streambench.serde.json_text import json_bytes, json_value, sorted_json_bytes


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


# Python's codecs that give back what was encoded, whatever it is. Others may not: idna writes small letters,
# for example.
_EXACT_ENCODINGS = frozenset(
    {"ascii", "iso8859-1", "iso8859-15", "cp1252", "utf-8-sig", "utf-16", "utf-16-le", "utf-32", "utf-32-le"}
)


class EncodedStringSerde(Serde):
    """Text in another encoding than UTF-8. Text that would come back changed is refused."""

    def __init__(self, encoding: str) -> None:
        self.encoding = encoding
        self._is_exact = codecs.lookup(encoding).name in _EXACT_ENCODINGS

    def to_bytes(self, value: Any) -> bytes:
        if not isinstance(value, str):
            raise TypeError(f"a str is wanted, not {type(value).__name__}")
        data = value.encode(self.encoding)
        if not self._is_exact and data.decode(self.encoding) != value:
            raise ValueError(
                f"the text {shortened(value)} would come back from {self.encoding} as "
                f"{shortened(data.decode(self.encoding))}"
            )
        return data

    def from_bytes(self, data: bytes) -> str:
        return data.decode(self.encoding)


class JsonSerde(Serde):
    """JSON, and as JSON text: dates and times (ISO 8601), UUIDs, the values of enums, dataclasses as objects,
    tuples as lists.

    Refused are names in objects that are not str (``{1: "a"}`` would be read as ``{"1": "a"}``). So are NaN
    and infinities, which JSON does not know, text with lone surrogates, and numpy's numbers. Integers of any
    size are kept, and read as integers. Other numbers are doubles: what is read is the nearest one, and what
    is beyond their range is refused. Of equal names in an object the last one counts.

    The bytes are orjson's own: each keeps a buffer of 4 KiB for as long as it lives, whatever its length. For
    a message on its way that is nothing, and a copy costs 40 ns; a store, which keeps them for long, copies
    them.
    """

    to_bytes = staticmethod(json_bytes)
    from_bytes = staticmethod(json_value)


class _NumberSerde(Serde):
    """A number of fixed width, big-endian. Out of range: OverflowError; not such a number: TypeError,
    ValueError."""

    def __init__(self, layout: str) -> None:
        self._pack = struct.Struct(layout).pack
        self._unpack = struct.Struct(layout).unpack
        self._size = struct.calcsize(layout)

    def to_bytes(self, value: Any) -> bytes:
        # struct takes True for 1, which would come back as 1.
        if type(value) is not int and (not hasattr(value, "__index__") or _is_boolean(value)):
            raise TypeError(f"takes whole numbers, not {type(value).__name__} ({shortened(value)})")
        try:
            return self._pack(value)
        except struct.error:
            bits = 8 * self._size
            raise OverflowError(f"{shortened(value)} does not fit into {bits} bits") from None

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
    """A number as an IEEE 754 double in 8 bytes, big-endian. An int is taken where a double holds it exactly,
    and comes back as float."""

    def __init__(self) -> None:
        super().__init__(">d")

    def to_bytes(self, value: Any) -> bytes:
        if type(value) is not float and not isinstance(value, float):
            _check_double(value)
        return self._pack(value)


def _check_double(value: Any) -> None:
    """Refuse what is no number, or one that is not exactly a double: struct would take the nearest."""
    if _is_boolean(value) or not (hasattr(value, "__index__") or hasattr(value, "__float__")):
        raise TypeError(f"takes numbers, not {type(value).__name__} ({shortened(value)})")
    if float(value) != value:
        raise ValueError(f"no double is exactly {shortened(value)}: {float(value)!r} would come back")


def _is_boolean(value: Any) -> bool:
    """True, False, and those of numpy."""
    return isinstance(value, bool) or type(value).__name__ in ("bool", "bool_")


def key_encoder(serde: Serde) -> Callable[[Any], bytes]:
    """Return the key encoder of a serde: JSON with sorted names, so that equal dicts are equal keys; else as
    it encodes anything."""
    return sorted_json_bytes if type(serde) is JsonSerde else serde.to_bytes
