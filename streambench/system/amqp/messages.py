"""Messages as AMQP has them: properties and a body, from and to envelopes.

Headers take what AMQP has no field for. The key is in one that is configured. The timestamp, which AMQP
counts in seconds, is in milliseconds in ``timestamp_in_ms``, where RabbitMQ itself puts it. Headers are bytes
here. Headers also have what a message carries beside its own: ``amqp.routing.key`` (of an exchange),
``amqp.content.type``, ``amqp.correlation.id``, ``amqp.reply.to``, ``amqp.message.id``, ``amqp.type`` and
``amqp.app.id``. A message that was delivered before has ``amqp.redelivered``. A message that is sent with one
of the first seven has the property. What another program sends as a time and is none stays a header:
``timestamp_in_ms``, ``amqp.timestamp``.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from operator import attrgetter
from typing import Any

import orjson
import pika

from streambench.errors import SerdeError
from streambench.model import SystemStream

_OURS = "amqp."
_MILLISECONDS = "timestamp_in_ms"
_TIMESTAMP = "amqp.timestamp"
_NONE = "streambench.none"
_PERSISTENT = 2

_LONGEST_NAME = 255
_LARGEST = (1 << 63) - 1
# Of a frame, for what describes the headers; names and values of headers have so many bytes more each.
_AROUND_HEADERS = 64
_AROUND_HEADER = 6

REDELIVERED = "amqp.redelivered"
RESENT = "amqp.resent"
ROUTING_KEY = "amqp.routing.key"

_PROPERTIES = {
    "amqp.content.type": "content_type",
    "amqp.correlation.id": "correlation_id",
    "amqp.reply.to": "reply_to",
    "amqp.message.id": "message_id",
    "amqp.type": "type",
    "amqp.app.id": "app_id",
}

_beside_the_body = attrgetter("headers", "timestamp", *_PROPERTIES.values())
_NOTHING = (None, None, *(None for _ in _PROPERTIES))


def received(properties: Any, body: bytes, key_header: str) -> tuple[Any, Any, int | None, dict[str, bytes]]:
    """Key, message, timestamp and headers of a delivery, as an envelope has them."""
    if _beside_the_body(properties) == _NOTHING:
        return None, body, None, {}
    key: bytes | None = None
    message: bytes | None = body
    timestamp: int | None = None
    headers: dict[str, bytes] = {}
    if properties.timestamp is not None:
        timestamp = _timestamp(properties.timestamp * 1000)
        if timestamp is None:
            headers[_TIMESTAMP] = _as_bytes(properties.timestamp)
    for name, value in (properties.headers or {}).items():
        if name == key_header:
            key = _as_bytes(value)
        elif name == _MILLISECONDS and (milliseconds := _timestamp(value)) is not None:
            timestamp = milliseconds
        elif name == _NONE:
            message = None
        else:
            headers[as_name(name)] = _as_bytes(value)
    for name, attribute in _PROPERTIES.items():
        value = getattr(properties, attribute)
        if value is not None:
            headers[name] = _as_bytes(value)
    return key, message, timestamp, headers


def to_send(
    stream: SystemStream,
    key: Any,
    message: Any,
    timestamp: int | None,
    headers: Mapping[str, bytes] | None,
    key_header: str,
    most: int | None,
) -> tuple[pika.BasicProperties, bytes, int]:
    """A message for the broker, and its approximate size in bytes. ``most``: so many of them may stand beside
    the body; None where that is not known.

    Raises SerdeError for all that AMQP cannot express: were it found out when it is sent, there would be no
    connection any more.
    """
    properties: Any = pika.BasicProperties(delivery_mode=_PERSISTENT)
    table, size = _headers(stream, headers or {}, properties)
    if key is not None:
        table[key_header] = _checked(stream, key, "key")
        size += _AROUND_HEADER + len(key_header) + len(key)
    if message is None:
        table[_NONE] = True
    if timestamp is not None:
        if type(timestamp) is not int or not -_LARGEST <= timestamp <= _LARGEST:
            what = "is not a number of milliseconds (a whole one, of 64 bits)"
            raise SerdeError(f"{stream}: the timestamp {timestamp!r} {what}")
        table[_MILLISECONDS] = timestamp
        properties.timestamp = max(0, timestamp // 1000)
    if most is not None and size > most:
        raise SerdeError(
            f"{stream}: key and headers have about {size:,} bytes, and the broker takes no more than "
            f"{most:,} of them"
        )
    if table:
        properties.headers = table
    body = b"" if message is None else _checked(stream, message, "msg")
    return properties, body, size + len(body)


def _headers(
    stream: SystemStream, headers: Mapping[str, bytes], properties: Any
) -> tuple[dict[str, Any], int]:
    """The headers of a message as a table, and about how many bytes they take; what is a property of AMQP is
    set there."""
    table: dict[str, Any] = {}
    size = _AROUND_HEADERS
    for name, value in headers.items():
        if type(name) is not str or type(value) is not bytes:
            raise SerdeError(
                f"{stream}: the header '{name}' must map a name to bytes, not to {type(value).__name__}"
            )
        if not name.startswith(_OURS):
            table[name] = value
            size += _AROUND_HEADER + short(stream, "the name of a header", name) + len(value)
        elif name in _PROPERTIES:
            text = value.decode(errors="replace")
            size += short(stream, f"the header '{name}'", text)
            setattr(properties, _PROPERTIES[name], text)
    return table, size


def short(stream: SystemStream, what: str, text: str) -> int:
    """The length of a text in bytes. Raises SerdeError where it is more than AMQP allows a name to have."""
    try:
        length = len(text) if text.isascii() else len(text.encode())
    except UnicodeEncodeError as error:
        raise SerdeError(f"{stream}: {what} cannot be encoded: {error.reason}") from None
    if length > _LONGEST_NAME:
        raise SerdeError(
            f"{stream}: {what} has {length:,} bytes, and AMQP allows no more than {_LONGEST_NAME} there"
        )
    return length


def _checked(stream: SystemStream, value: Any, part: str) -> bytes:
    if type(value) is not bytes:
        what = f"{'key' if part == 'key' else 'message'} is a {type(value).__name__}"
        raise SerdeError(
            f"{stream}: what goes to a broker must be bytes, and this {what}: set a serde, for example "
            f"systems.{stream.system}.samza.{part}.serde=json"
        )
    return value


def _timestamp(value: Any) -> int | None:
    """Milliseconds, as an envelope has them; None where this is no time, or one too far away."""
    if isinstance(value, datetime):
        value = round(value.timestamp() * 1000)
    elif isinstance(value, (str, bytes)) and value.isdigit() and len(value) < len(str(_LARGEST)):
        value = int(value)
    is_number = isinstance(value, (int, float)) and type(value) is not bool
    return int(value) if is_number and -_LARGEST <= value <= _LARGEST else None


def as_name(name: str | bytes) -> str:
    """A name as a text: one that is no UTF-8 comes as bytes."""
    return name if isinstance(name, str) else name.decode(errors="backslashreplace")


def _as_bytes(value: Any) -> bytes:
    """A header of whatever type: texts as UTF-8, numbers as written, tables as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, (dict, list)):
        try:
            return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
        except TypeError:
            return repr(value).encode()  # a name in it is no text, or it is too deep
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, datetime):
        return value.isoformat().encode()
    if isinstance(value, int):
        return b"%d" % value
    return b"" if value is None else str(value).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, int):
        return int(value)
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)
