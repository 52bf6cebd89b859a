"""The check of single messages for a log: keys and messages are bytes, and not too many."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambench.errors import MessageTooLargeError, SerdeError
from streambench.model import SystemStream
from streambench.rows import check_headers


class MessageCheck:
    """Checks messages for the streams of a system. ``largest``: the most bytes of key, message and headers
    together."""

    def __init__(self, system: str, largest: int) -> None:
        self.largest = largest
        self._system = system

    def header_bytes(
        self,
        stream: SystemStream,
        partition: str,
        key: Any,
        message: Any,
        headers: Mapping[str, bytes] | None,
    ) -> int:
        """The bytes of the headers of a message. Raises SerdeError and MessageTooLargeError."""
        size = 0
        if key is not None:
            if type(key) is not bytes:
                raise _not_bytes(stream, "key", key)
            size = len(key)
        if message is not None:
            if type(message) is not bytes:
                raise _not_bytes(stream, "message", message)
            size += len(message)
        of_headers = check_headers(stream, headers) if headers else 0
        if size + of_headers > self.largest:
            raise self.too_large(partition, size + of_headers)
        return of_headers

    def too_large(self, partition: str, size: int) -> MessageTooLargeError:
        """The error for a message of this size."""
        return MessageTooLargeError(
            f"{partition}: a message of {size} bytes is larger than "
            f"systems.{self._system}.max.message.bytes={self.largest}; "
            "nothing of it was written. Raise the limit, or send less at once"
        )


def _not_bytes(stream: SystemStream, what: str, value: object) -> SerdeError:
    setting = "samza.key.serde" if what == "key" else "samza.msg.serde"
    return SerdeError(
        f"{stream}: a {what} that goes to a log must be bytes, not {type(value).__name__}; set "
        f"systems.{stream.system}.{setting} "
        f"or systems.{stream.system}.streams.{stream.stream}.{setting}, to json for example"
    )
