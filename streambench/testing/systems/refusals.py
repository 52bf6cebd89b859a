"""Tests of the messages that a producer refuses itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streambench.errors import MessageTooLargeError, SerdeError, StreamSystemError
from streambench.model import OutgoingMessageEnvelope
from streambench.system.api import Sender
from streambench.system.capabilities import Checking, SizeLimited
from streambench.testing.systems.harness import SOURCE, SYSTEM, Harness, SystemUnderTest

_MESSAGES: list[dict[str, Any]] = [
    {"message": message, "key": key}
    for message in (b"1", None, b"", b"1\n2", "text", {"n": 1}, [b"1"], open)
    for key in (None, b"k", b"", b"\xff\n", "text", 5, b"k" * 300)
] + [{"message": b"1", "key": b"k" * 40_000}]
_HEADERS: list[dict[str, Any]] = [
    {"message": b"1", "headers": {name: value}}
    for name in ("a", "", "two words", "n" * 300, "é", "amqp.type", "host")
    for value in (b"1", b"", b" ", b"\xff", b"a\nb", b"v" * 300)
]
_TIMES: list[dict[str, Any]] = [{"message": b"1", "timestamp": each} for each in (0, 5, -1, (1 << 63) - 1)]


class Refusals(Harness):
    """A replay refuses what a producer refuses, where the factory has ``get_check``."""

    def test_the_check_refuses_what_the_producer_refuses(self, tmp_path: Path) -> None:
        with self._opened(tmp_path) as system:
            if not isinstance(system.systems.factory(SYSTEM), Checking):
                return
            send, check = system.producer.sender(system.stream), self._check(system)
            for each in (*_MESSAGES, *_HEADERS, *_TIMES):
                assert _refused(check, system, each) == _refused(send, system, each), each

    def _check(self, system: SystemUnderTest) -> Sender:
        producer = system.producer
        limit = producer.largest_message(system.stream) if isinstance(producer, SizeLimited) else None
        return system.systems.check(system.stream, limit)


def _refused(send: Sender, system: SystemUnderTest, parts: dict[str, Any]) -> str | None:
    """The error with which a message is refused; None where it is not."""
    envelope = OutgoingMessageEnvelope(system.stream, partition=0, **parts)
    try:
        send(SOURCE, envelope, envelope.key, envelope.message, 0)
    except (SerdeError, MessageTooLargeError) as error:
        return f"{type(error).__name__}: {error}"
    except StreamSystemError:
        return None  # the system itself fails at it
    return None
