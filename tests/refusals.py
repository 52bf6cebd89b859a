"""Messages that single systems refuse, each with one that they take."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple


class Refused(NamedTuple):
    """A message that a system refuses: the settings of the system, the parts of a message that it takes and
    of one that it does not, and the beginning of the error."""

    name: str
    system: Mapping[str, Any]
    good: Mapping[str, Any]
    bad: Mapping[str, Any]
    error: str

    def __str__(self) -> str:
        return self.name

    def settings(self, directory: Path) -> dict[str, Any]:
        """The settings below ``systems.out.``."""
        return {key: str(each).replace("DIRECTORY", str(directory)) for key, each in self.system.items()}


_LOG = {"samza.factory": "log", "path": "DIRECTORY/log"}
_FILE = {"samza.factory": "file", "path": "DIRECTORY"}
_UDP = {"samza.factory": "udp", "streams.out.connect": "127.0.0.1:9"}
_TCP = {"samza.factory": "tcp", "streams.out.connect": "127.0.0.1:9"}
_AMQP = {"samza.factory": "amqp", "url": "amqp://127.0.0.1:9"}
_KAFKA = {"samza.factory": "kafka", "bootstrap.servers": "127.0.0.1:9"}
_WEBHOOK = {"samza.factory": "webhook", "url": "http://127.0.0.1:9"}
_PLAIN = {"message": b"1"}

LOCAL = [
    Refused("log-object", _LOG, _PLAIN, {"message": {"n": 1}}, "must be bytes, not dict"),
    Refused(
        "log-size", {**_LOG, "max.message.bytes": 2000}, {"message": b"x" * 2000}, {"message": b"x" * 2001},
        "a message of 2001 bytes is larger than",
    ),
    Refused(
        "log-headers", {**_LOG, "max.message.bytes": 2000}, {"message": b"x", "headers": {"a": b"x" * 1998}},
        {"message": b"x", "headers": {"a": b"x" * 1999}}, "a message of 2001 bytes is larger than",
    ),
    Refused("file-newline", _FILE, {"message": b'"a"'}, {"message": b'"a"\n'}, "would be several lines"),
    Refused("file-none", _FILE, _PLAIN, {"message": None, "key": b"k"}, "tombstone|None"),
    Refused("udp-size", _UDP, {"message": b"x" * 65_507}, {"message": b"x" * 65_508}, "into a datagram"),
    Refused("udp-lines", {**_UDP, "framing": "lines"}, _PLAIN, {"message": b"1\n"}, "would be several lines"),
]  # fmt: skip
"""Of systems that need no broker and no receiver."""

REFUSED = [
    *LOCAL,
    Refused("tcp-lines", _TCP, _PLAIN, {"message": b"1\n"}, "would be several lines"),
    Refused(
        "tcp-size", {**_TCP, "streams.out.max.message.bytes": 5, "framing": "length"}, {"message": b"12345"},
        {"message": b"123456"}, "a message of 6 bytes is larger than",
    ),
    Refused(
        "tcp-envelope", {**_TCP, "max.message.bytes": 50, "framing": "envelope"}, {"message": b"1" * 10},
        {"message": b"1", "key": b"k" * 50}, "is larger than max.message.bytes",
    ),
    Refused("amqp-size", {**_AMQP, "max.message.bytes": 5}, {"message": b"12345"}, {"message": b"123456"},
            "a message of 6 bytes is larger than"),
    Refused("amqp-header", _AMQP, {**_PLAIN, "headers": {"n" * 255: b"1"}},
            {**_PLAIN, "headers": {"n" * 256: b"1"}}, "the name of a header has 256 bytes"),
    Refused("amqp-routing-key", {**_AMQP, "streams.out.exchange": "x"}, {**_PLAIN, "key": b"k"},
            {**_PLAIN, "key": b"k" * 256}, "the routing key .* has 256 bytes"),
    Refused("kafka-request", {**_KAFKA, "producer.max.request.size": 1000}, {"message": b"x" * 900},
            {"message": b"x" * 901}, "a message of 1001 bytes .* it takes 1000"),
    Refused("kafka-topic", {**_KAFKA, "streams.out.max.message.bytes": 1000}, {"message": b"x" * 900},
            {"message": b"x" * 901}, "a message of 1001 bytes .* it takes 1000"),
    Refused("kafka-timestamp", _KAFKA, {**_PLAIN, "timestamp": 0}, {**_PLAIN, "timestamp": -1}, "since 1970"),
    Refused("kafka-nothing", _KAFKA, {"message": None, "key": b"k"}, {"message": None}, "neither a key nor"),
    Refused("webhook-header", _WEBHOOK, {**_PLAIN, "headers": {"x-a": b"1"}},
            {**_PLAIN, "headers": {"two words": b"1"}}, "cannot be the name of an HTTP header"),
    Refused("webhook-key", {**_WEBHOOK, "key.header": "x-key"}, {**_PLAIN, "key": b"k"},
            {**_PLAIN, "key": "ö".encode()}, "the key cannot be an HTTP header"),
]  # fmt: skip


def sender_of(parts: Mapping[str, Any]) -> Any:
    """A task that sends a message with these parts to ``out.out`` for ``b``, a plain one for the others."""

    def process(envelope: Any, collector: Any, coordinator: Any) -> None:
        given = dict(parts if envelope.message == "b" else _PLAIN)
        collector.send("out.out", given.pop("message"), **given)

    return process
