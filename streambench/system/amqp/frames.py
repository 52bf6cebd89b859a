"""Connections that decode headers which pika cannot, and that do less work per message."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pika
from pika import data, frame, spec

_START_OF_HEADER = struct.Struct(">BHLHHQ")
_END = bytes([spec.FRAME_END])
_REMEMBERED = 100
_SHORT = 64
_NO_HEADERS = 0xFFFF ^ spec.BasicProperties.FLAG_HEADERS


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """A connection as pika's, but for the headers of messages.

    pika makes whole numbers of all numbers. Over a time beyond the calendar it loses the connection, and
    loses the new one over the next such time."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._remembered: dict[bytes, Any] = {}
        super().__init__(*arguments, **options)

    def _read_frame(self) -> Any:
        buffer = self._frame_buffer
        if buffer[0] != spec.FRAME_HEADER or len(buffer) < _START_OF_HEADER.size:
            return frame.decode_frame(buffer)
        _, channel, size, _, _, body_size = _START_OF_HEADER.unpack_from(buffer)
        end = spec.FRAME_HEADER_SIZE + size
        if buffer[end : end + 1] != _END:
            return frame.decode_frame(buffer)  # it is not complete yet, or none
        encoded = buffer[_START_OF_HEADER.size : end]
        properties = self._remembered.get(encoded)
        if properties is None:
            properties = _properties(encoded)
            # The messages of a stream mostly have the same ones. Not those with headers: a reader of these
            # may change them.
            if properties.headers is None and size <= _SHORT:
                if len(self._remembered) >= _REMEMBERED:
                    self._remembered.clear()
                self._remembered[encoded] = properties
        return end + spec.FRAME_END_SIZE, frame.Header(channel, body_size, properties)

    def _process_callbacks(self, frame_value: Any) -> Any:
        # None of these has a callback, and pika takes a tenth of all its time to find that out.
        if not isinstance(frame_value, frame.Method) or isinstance(frame_value.method, spec.Basic.Deliver):
            return False
        return super()._process_callbacks(frame_value)


def _properties(encoded: bytes) -> Any:
    properties: Any = spec.BasicProperties()
    (flags,) = struct.unpack_from(">H", encoded)
    if not flags & spec.BasicProperties.FLAG_HEADERS:
        return properties.decode(encoded)
    start = 2
    for flag in (spec.BasicProperties.FLAG_CONTENT_TYPE, spec.BasicProperties.FLAG_CONTENT_ENCODING):
        if flags & flag:
            _, start = data.decode_short_string(encoded, start)
    headers, end = _table(encoded, start)
    properties.decode(struct.pack(">H", flags & _NO_HEADERS) + encoded[2:start] + encoded[end:])
    properties.headers = headers
    return properties


def _table(encoded: bytes, start: int) -> tuple[dict[Any, Any], int]:
    at, end = _range(encoded, start)
    found = {}
    while at < end:
        name, at = data.decode_short_string(encoded, at)
        found[name], at = _value(encoded, at)
    return found, end


def _value(encoded: bytes, at: int) -> tuple[Any, int]:
    read = _OWN.get(encoded[at : at + 1])
    if read is not None:
        return read(encoded, at + 1)
    found: tuple[Any, int] = data.decode_value(encoded, at)
    return found


def _list(encoded: bytes, at: int) -> tuple[Any, int]:
    at, end = _range(encoded, at)
    values = []
    while at < end:
        value, at = _value(encoded, at)
        values.append(value)
    return values, end


def _time(encoded: bytes, at: int) -> tuple[Any, int]:
    (seconds,) = struct.unpack_from(">Q", encoded, at)
    try:
        return datetime.fromtimestamp(seconds, UTC), at + 8
    except (ArithmeticError, ValueError, OSError):
        return f"{seconds} s", at + 8


def _single(encoded: bytes, at: int) -> tuple[Any, int]:
    return struct.unpack_from(">f", encoded, at)[0], at + 4


def _double(encoded: bytes, at: int) -> tuple[Any, int]:
    return struct.unpack_from(">d", encoded, at)[0], at + 8


def _range(encoded: bytes, start: int) -> tuple[int, int]:
    (size,) = struct.unpack_from(">I", encoded, start)
    return start + 4, start + 4 + size


_OWN = {b"F": _table, b"A": _list, b"T": _time, b"f": _single, b"d": _double}
