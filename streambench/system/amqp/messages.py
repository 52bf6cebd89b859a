"""Messages as AMQP has them: properties and a body, from and to envelopes.

What AMQP has no place for goes into headers: the key into one that is configured; the timestamp, which AMQP counts in seconds, in
milliseconds into ``timestamp_in_ms``, where RabbitMQ itself puts it. Headers are bytes here. What comes with a message beside its
headers is among them: ``amqp.routing.key`` (of an exchange), ``amqp.content.type``, ``amqp.correlation.id``, ``amqp.reply.to``,
``amqp.message.id``, ``amqp.type``, ``amqp.app.id``, and ``amqp.redelivered`` of a message that was delivered before; a message that is
sent with one of the first seven has it so.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import orjson
import pika

from streambench.errors import SerdeError
from streambench.model import SystemStream

_OURS = "amqp."
_MILLISECONDS = "timestamp_in_ms"
_NONE = "streambench.none"
_PERSISTENT = 2

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


def received(properties: Any, body: bytes, key_header: str) -> tuple[Any, Any, int | None, dict[str, bytes]]:
    """Key, message, timestamp and headers, as an envelope has them."""
    key: bytes | None = None
    message: bytes | None = body
    timestamp: int | None = None if properties.timestamp is None else int(properties.timestamp) * 1000
    headers: dict[str, bytes] = {}
    for name, value in (properties.headers or {}).items():
        if name == key_header:
            key = _as_bytes(value)
        elif name == _MILLISECONDS:
            timestamp = int(value)
        elif name == _NONE:
            message = None
        else:
            headers[name] = _as_bytes(value)
    for name, attribute in _PROPERTIES.items():
        value = getattr(properties, attribute)
        if value is not None:
            headers[name] = _as_bytes(value)
    return key, message, timestamp, headers


def to_send(
    stream: SystemStream, key: Any, message: Any, timestamp: int | None, headers: Mapping[str, bytes] | None, key_header: str
) -> tuple[pika.BasicProperties, bytes]:
    """What goes to the broker. Raises SerdeError where key or message are not bytes."""
    table: dict[str, Any] = {}
    properties: Any = pika.BasicProperties(delivery_mode=_PERSISTENT)
    for name, value in (headers or {}).items():
        if type(name) is not str or type(value) is not bytes:
            raise SerdeError(f"{stream}: the header '{name}' must map a name to bytes, not to {type(value).__name__}")
        if not name.startswith(_OURS):
            table[name] = value
        elif name in _PROPERTIES:
            setattr(properties, _PROPERTIES[name], value.decode(errors="replace"))
    if key is not None:
        table[key_header] = _checked(stream, key, "key")
    if message is None:
        table[_NONE] = True
    if timestamp is not None:
        table[_MILLISECONDS] = timestamp
        properties.timestamp = max(0, timestamp // 1000)
    if table:
        properties.headers = table
    return properties, b"" if message is None else _checked(stream, message, "msg")


def _checked(stream: SystemStream, value: Any, part: str) -> bytes:
    if type(value) is not bytes:
        raise SerdeError(
            f"{stream}: what goes to a broker must be bytes, and this {'key' if part == 'key' else 'message'} is a "
            f"{type(value).__name__}: set a serde, for example systems.{stream.system}.samza.{part}.serde=json"
        )
    return value


def _as_bytes(value: Any) -> bytes:
    """A header of whatever type: texts as UTF-8, numbers as written, tables as JSON."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode(errors="surrogateescape")
    if isinstance(value, (dict, list)):
        return orjson.dumps(value, default=_plain, option=orjson.OPT_NON_STR_KEYS)
    if isinstance(value, bool):
        return b"true" if value else b"false"
    if isinstance(value, datetime):
        return value.isoformat().encode()
    return b"" if value is None else b"%d" % value if isinstance(value, int) else str(value).encode()


def _plain(value: Any) -> Any:
    return int(value) if isinstance(value, int) else value.decode(errors="replace") if isinstance(value, bytes) else str(value)
