"""Outgoing messages of a stream: routing key, properties and body, or the error that refuses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from streambench.errors import MessageTooLargeError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.amqp.messages import ROUTING_KEY, short, to_send


class Routing(NamedTuple):
    """The routing of the messages of a stream, as it is configured. ``fixed``: the routing key of all of
    them; ``key_header``: the header that holds the key of a message."""

    exchange: str
    fixed: str | None
    key_header: str


class Outgoing(NamedTuple):
    """A message as it is published. ``routing_key``: that of an exchange; else empty. ``size``: about the
    bytes that it takes."""

    routing_key: str
    properties: Any
    body: bytes
    size: int


Encode = Callable[[OutgoingMessageEnvelope, Any, Any], Outgoing]
"""Takes a message, its key and its message as encoded. Raises SerdeError and MessageTooLargeError."""


def encoder(stream: SystemStream, routing: Routing, largest: int, most_beside: int | None) -> Encode:
    """The encoder of the messages to a stream. ``largest``: the most bytes of a body; ``most_beside``: those
    beside it, by the agreement with the broker, None where there is none."""
    exchange, fixed, key_header = routing

    def encode(envelope: OutgoingMessageEnvelope, key: Any, message: Any) -> Outgoing:
        headers = envelope.headers
        properties, body, size = to_send(
            stream, key, message, envelope.timestamp, headers, key_header, most_beside
        )
        if len(body) > largest:
            limit = f"systems.{stream.system}.max.message.bytes={largest}"
            raise MessageTooLargeError(f"{stream}: a message of {len(body):,} bytes is larger than {limit}")
        routing_key = ""
        if exchange:
            routing_key = _routing_key(fixed, headers.get(ROUTING_KEY) if headers else None, key)
            what = "the routing key (the message's key, unless something else is configured)"
            short(stream, what, routing_key)
        return Outgoing(routing_key, properties, body, size)

    return encode


def _routing_key(fixed: str | None, given: bytes | None, key: Any) -> str:
    """The routing key of a message: as configured, else the one that its headers name, else its key."""
    if fixed is not None:
        return fixed
    routing_key = given if given is not None else key
    return "" if routing_key is None else routing_key.decode("utf-8", "replace")
