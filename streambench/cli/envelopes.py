"""Messages as JSON objects, one per line: printed by ``peek --json``, taken by ``send --envelopes``, without
any loss in between."""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from typing import Any

import orjson

from streambench.errors import SerdeError, class_name, described, shortened
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.serde.builtin import BytesSerde
from streambench.serde.json_text import json_bytes, json_value
from streambench.serde.plain import plain

_BASE64 = "_base64"
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_WRITTEN = ("key", "message", "timestamp", "headers", "partition")
_FIELDS = (*_WRITTEN, "key_base64", "message_base64", "headers_base64", "offset", "error")

Serdes = tuple[Serde | None, Serde | None]


def json_row(row: Mapping[str, Any]) -> bytes:
    """A row as JSON. What JSON cannot hold (bytes, NaN, ...) stands there as text."""
    try:
        return json_bytes(row)
    except (TypeError, ValueError):  # names that are bytes, numbers that are none, ...
        return orjson.dumps(plain(row))


def add_base64(row: dict[str, Any], raw: Mapping[str, Any], serdes: Mapping[str, Serde | None]) -> None:
    """Add to a row the bytes of its key, message and headers of which the JSON does not hold everything:
    ``message_base64``, ...

    ``raw``: key and message as they were read, by these names."""
    headers = row.get("headers") or {}
    if headers:
        row["headers"] = plain(headers)
    shown = json_value(json_row(row))
    for what, data in raw.items():
        if isinstance(data, bytes) and not _is_lossless(shown[what], data, serdes[what]):
            row[what + _BASE64] = base64.b64encode(data).decode()
    hidden = {
        name: base64.b64encode(value).decode()
        for name, value in headers.items()
        if not _is_lossless(shown["headers"][name], value, None)
    }
    if hidden:
        row["headers" + _BASE64] = hidden


def envelope_of(
    line: bytes, stream: SystemStream, serdes: Serdes, partition: int | None
) -> OutgoingMessageEnvelope:
    """The message in a line; ``partition``: where it goes whatever the line says. Raises SerdeError."""
    try:
        row = json_value(line)
    except ValueError as error:
        raise SerdeError(f"this is not JSON: {error}") from None
    if not isinstance(row, dict):
        raise SerdeError(f"an envelope is a JSON object with a message, not {class_name(type(row))}")
    unknown = next((name for name in row if name not in _FIELDS), None)
    if unknown is not None:
        raise SerdeError(f"an envelope has no field '{unknown}'; it has {', '.join(_WRITTEN)}")
    if "message" not in row and "message_base64" not in row:
        raise SerdeError("there is no message in this envelope (a message of null is a tombstone)")
    if "error" in row and "message_base64" not in row and "key_base64" not in row:
        raise SerdeError(f"this message could not be decoded where it was read ({shortened(row['error'])})")
    key_serde, message_serde = serdes
    to = row.get("partition") if partition is None else partition
    if to is not None and (type(to) is not int or to < 0):
        raise SerdeError(f"the partition is {shortened(to)}, not a number from 0 on")
    key = _bytes_of(row, "key", key_serde)
    message = _bytes_of(row, "message", message_serde)
    time = None if row.get("timestamp") is None else milliseconds(row["timestamp"])
    return OutgoingMessageEnvelope(stream, message, key, None, to, time, _headers(row) or None)


def encoded(serde: Serde | None, value: Any, what: str) -> bytes | None:
    """A value of JSON as bytes; without a serde (or with that of bytes) text as UTF-8, anything else as JSON.
    Raises SerdeError."""
    if value is None:
        return None
    try:
        if serde is None or isinstance(serde, BytesSerde):
            return value.encode() if isinstance(value, str) else json_bytes(value)
        return serde.to_bytes(value)
    except Exception as error:
        raise SerdeError(
            f"the {what} {value!r} cannot be encoded with {type(serde).__name__}: {described(error)}"
        ) from error


def milliseconds(value: Any) -> int:
    """A timestamp: milliseconds since 1970, or an ISO 8601 text with a time zone. Raises SerdeError."""
    if type(value) is int:
        if not -(2**63) <= value < 2**63:
            raise SerdeError(f"{value} milliseconds is no time")
        return value
    try:
        time = dt.datetime.fromisoformat(value)
        since = time - _EPOCH
    except (TypeError, ValueError):
        raise SerdeError(
            f"{shortened(value)} is no time: give milliseconds since 1970, or ISO 8601 with a time zone "
            "(2026-01-02T12:00:00Z)"
        ) from None
    number, rest = divmod(since, dt.timedelta(milliseconds=1))
    if rest:
        raise SerdeError(f"{value} is finer than the milliseconds of a timestamp")
    return number


def _bytes_of(row: Mapping[str, Any], what: str, serde: Serde | None) -> bytes | None:
    data = row.get(what + _BASE64)
    return encoded(serde, row.get(what), what) if data is None else _decoded(data, what + _BASE64)


def _headers(row: Mapping[str, Any]) -> dict[str, bytes]:
    headers, hidden = row.get("headers") or {}, row.get("headers_base64") or {}
    if (
        not isinstance(headers, dict)
        or not isinstance(hidden, dict)
        or not all(isinstance(each, str) for each in headers.values())
    ):
        raise SerdeError("headers are an object of names and texts")
    return {name: value.encode() for name, value in headers.items()} | {
        name: _decoded(value, f"headers_base64.{name}") for name, value in hidden.items()
    }


def _decoded(data: Any, what: str) -> bytes:
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, TypeError, ValueError) as error:
        raise SerdeError(f"{what} is not base64: {error}") from None


def _is_lossless(shown: Any, data: bytes, serde: Serde | None) -> bool:
    """True where the shown value makes the same bytes again, or at least bytes that mean the same."""
    try:
        again = encoded(serde, shown, "")
        if again == data or serde is None or isinstance(serde, BytesSerde) or again is None:
            return again == data
        return repr(serde.from_bytes(again)) == repr(serde.from_bytes(data))
    except Exception:  # a serde may raise anything
        return False
