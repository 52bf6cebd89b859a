"""Connections that survive what pika cannot read, a message with a time in its headers that is beyond the calendar, and that do not do
with every message what need not be done."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from typing import Any

import pika
from pika import data, frame, spec

_START = struct.Struct(">BHL")
_HEADER = struct.Struct(">HHQ")
_START_OF_HEADER = struct.Struct(">BHLHHQ")
_END = bytes([spec.FRAME_END])
_REMEMBERED = 100
_SHORT = 64
_NO_HEADERS = 0xFFFF ^ spec.BasicProperties.FLAG_HEADERS


class Connection(pika.SelectConnection):  # type: ignore[misc]
    """As pika's, which would lose the connection over such a message, and get it again over the next one."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        self._remembered: dict[bytes, Any] = {}
        super().__init__(*arguments, **options)

    def _read_frame(self) -> Any:
        buffer = self._frame_buffer
        try:
            if buffer[0] != spec.FRAME_HEADER or len(buffer) < _START_OF_HEADER.size:
                return frame.decode_frame(buffer)
            return self._read_header(buffer)
        except (ArithmeticError, ValueError, OSError):
            kind, channel, size = _START.unpack_from(self._frame_buffer)
            if kind != spec.FRAME_HEADER:
                raise
            content = self._frame_buffer[_START.size : _START.size + size]
            _, _, body_size = _HEADER.unpack_from(content)
            read = frame.Header(channel, body_size, _properties(content[_HEADER.size :]))
            return _START.size + size + spec.FRAME_END_SIZE, read

    def _read_header(self, buffer: bytes) -> Any:
        """As pika does it; but the messages of a stream mostly have the same properties, which are then decoded once, not each time.
        Not those with headers, which whoever reads them may change."""
        _, channel, size, _, _, body_size = _START_OF_HEADER.unpack_from(buffer)
        end = _START.size + size
        encoded = buffer[_START_OF_HEADER.size : end]
        known = self._remembered.get(encoded)
        if known is not None and buffer[end : end + 1] == _END:
            return end + spec.FRAME_END_SIZE, frame.Header(channel, body_size, known)
        consumed, read = frame.decode_frame(buffer)
        if read is not None and read.properties.headers is None and size <= _SHORT:
            if len(self._remembered) >= _REMEMBERED:
                self._remembered.clear()
            self._remembered[encoded] = read.properties
        return consumed, read

    def _process_callbacks(self, frame_value: Any) -> Any:
        # Nobody is called back for any of these, and pika takes a tenth of all its time to find that out.
        if not isinstance(frame_value, frame.Method) or isinstance(frame_value.method, spec.Basic.Deliver):
            return False
        return super()._process_callbacks(frame_value)


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
