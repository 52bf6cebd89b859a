"""Connections that survive what pika cannot read: a message with a time in its headers that is beyond the calendar."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pika
from pika import data, frame, spec

_START = struct.Struct(">BHL")
_HEADER = struct.Struct(">HHQ")
_NO_HEADERS = 0xFFFF ^ spec.BasicProperties.FLAG_HEADERS


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """As pika's, which would lose the connection over such a message, and get it again over the next one."""

    def _read_frame(self) -> Any:
        try:
            return super()._read_frame()
        except (ArithmeticError, ValueError, OSError):
            kind, channel, size = _START.unpack_from(self._frame_buffer)
            if kind != spec.FRAME_HEADER:
                raise
            content = self._frame_buffer[_START.size : _START.size + size]
            _, _, body_size = _HEADER.unpack_from(content)
            read = frame.Header(channel, body_size, _properties(content[_HEADER.size :]))
            return _START.size + size + spec.FRAME_END_SIZE, read


def _properties(encoded: bytes) -> Any:
    (flags,) = struct.unpack_from(">H", encoded)
    start = 2
    for flag in (spec.BasicProperties.FLAG_CONTENT_TYPE, spec.BasicProperties.FLAG_CONTENT_ENCODING):
        if flags & flag:
            _, start = data.decode_short_string(encoded, start)
    headers, end = _table(encoded, start)
    properties: Any = spec.BasicProperties()
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
    kind = encoded[at : at + 1]
    if kind == b"F":
        return _table(encoded, at + 1)
    if kind == b"A":
        at, end = _range(encoded, at + 1)
        values = []
        while at < end:
            value, at = _value(encoded, at)
            values.append(value)
        return values, end
    if kind == b"T":
        (seconds,) = struct.unpack_from(">Q", encoded, at + 1)
        return _time(seconds), at + 9
    found: tuple[Any, int] = data.decode_value(encoded, at)
    return found


def _time(seconds: int) -> Any:
    try:
        return datetime.fromtimestamp(seconds, UTC)
    except (ArithmeticError, ValueError, OSError):
        return f"{seconds} s"


def _range(encoded: bytes, start: int) -> tuple[int, int]:
    (size,) = struct.unpack_from(">I", encoded, start)
    return start + 4, start + 4 + size
