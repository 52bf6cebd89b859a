"""How large the messages of a topic may be."""

from __future__ import annotations

from collections.abc import Mapping

from streambench.errors import MessageTooLargeError
from streambench.model import SystemStreamPartition
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.settings import Settings

OVERHEAD = 100
"""More bytes than a batch of one message has beside key, value and headers."""

_LIMIT = (1 << 20) + 12  # Kafka's own default of max.message.bytes


class Limits:
    """The limits of topics, each asked for once. One message that the broker finds too large spoils all that follow: so it is not sent."""

    def __init__(self, settings: Settings, admin: KafkaAdmin) -> None:
        self._largest_request = int(settings.producer["max_request_size"])
        self._admin = admin
        self._limits: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """The most bytes that a message takes with its key, its headers and OVERHEAD."""
        limit = self._limits.get(topic)
        if limit is None:
            limit = self._limits[topic] = min(self._admin.largest_message(topic) or _LIMIT, self._largest_request)
        return limit

    def too_large(self, ssp: SystemStreamPartition, size: int) -> MessageTooLargeError:
        """The error for a message of this size."""
        return MessageTooLargeError(
            f"{ssp}: a message of {size} bytes (key, value and headers); it takes {self.of(ssp.stream)}, by the topic's max.message.bytes "
            f"or by systems.{ssp.system}.producer.max.request.size"
        )


def size_of_headers(headers: Mapping[str, bytes]) -> int:
    """How many bytes they take, at most."""
    return sum(len(name.encode()) + len(value) + 10 for name, value in headers.items())
