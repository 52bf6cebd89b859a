"""The check of single messages for Kafka: their types, and their size against the limit of their topic."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streambench.errors import MessageTooLargeError, SerdeError, shortened
from streambench.model import SystemStreamPartition
from streambench.rows import check_headers

_OVERHEAD = 100
"""More bytes than a batch of one message has beside key, value and headers."""


def checked_size(
    ssp: SystemStreamPartition,
    key: Any,
    message: Any,
    time_ms: Any,
    headers: Mapping[str, bytes] | None,
    limit: int,
) -> int:
    """The bytes that a message takes, at most. Raises SerdeError, and MessageTooLargeError for more than
    ``limit``."""
    if type(key) is not bytes and key is not None:
        raise _no_bytes(ssp, "key", key)
    if type(message) is not bytes and message is not None:
        raise _no_bytes(ssp, "message", message)
    if time_ms is not None and (type(time_ms) is not int or not 0 <= time_ms < 1 << 63):
        what = f"not {shortened(time_ms)} ({type(time_ms).__name__})"
        raise SerdeError(f"{ssp}: Kafka takes a timestamp in whole milliseconds since 1970, {what}")
    size = message_size(ssp, key, message, headers)
    if size > limit:
        raise too_large(ssp, size, limit)
    if key is None and message is None:
        raise SerdeError(
            f"{ssp}: a message with neither a key nor a value cannot be sent to Kafka from here; "
            "give it an empty value"
        )
    return size


def message_size(
    ssp: SystemStreamPartition,
    key: bytes | None,
    message: bytes | None,
    headers: Mapping[str, bytes] | None,
) -> int:
    """The bytes that a message takes, at most. Raises SerdeError where a header cannot be sent."""
    size = _OVERHEAD + (len(key) if key else 0) + (len(message) if message else 0)
    return size + check_headers(ssp, headers) + 10 * len(headers) if headers else size


def too_large(ssp: SystemStreamPartition, size: int, limit: int) -> MessageTooLargeError:
    """The error for a message of this size."""
    return MessageTooLargeError(
        f"{ssp}: a message of {size} bytes (key, value and headers); it takes {limit}, by "
        f"the topic's max.message.bytes or by systems.{ssp.system}.producer.max.request.size"
    )


def _no_bytes(ssp: SystemStreamPartition, what: str, value: object) -> SerdeError:
    return SerdeError(
        f"{ssp}: Kafka takes bytes, and this {what} is a {type(value).__name__}; name its samza.key.serde "
        "or samza.msg.serde"
    )
