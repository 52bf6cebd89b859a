"""The limit of the size of messages of a topic."""

from __future__ import annotations

from collections.abc import Mapping

from streambench.errors import MessageTooLargeError
from streambench.model import SystemStreamPartition
from streambench.rows import check_headers
from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.settings import Settings

_OVERHEAD = 100
"""More bytes than a batch of one message has beside key, value and headers."""

_LIMIT = (1 << 20) + 12  # Kafka's own default of max.message.bytes


class SizeLimits:
    """The limits of topics, each asked for once. One message that the broker finds too large spoils all that
    follow: so it is not sent."""

    def __init__(self, settings: Settings, admin: KafkaAdmin) -> None:
        self._largest_request = int(settings.producer["max_request_size"])
        self._admin = admin
        self._limits: dict[str, int] = {}

    def of(self, topic: str) -> int:
        """The most bytes that a message takes with its key, its headers and what a batch of one has beside
        them."""
        limit = self._limits.get(topic)
        if limit is None:
            # A broker that does not answer now raises, so that what is kept is always an answer.
            limit = self._limits[topic] = min(
                self._admin.largest_message(topic) or _LIMIT, self._largest_request
            )
        return limit

    def size(
        self,
        ssp: SystemStreamPartition,
        key: bytes | None,
        message: bytes | None,
        headers: Mapping[str, bytes] | None,
    ) -> int:
        """The bytes that a message takes, at most. Raises SerdeError where a header cannot be sent."""
        size = _OVERHEAD + (len(key) if key else 0) + (len(message) if message else 0)
        return size + check_headers(ssp, headers) + 10 * len(headers) if headers else size

    def too_large(self, ssp: SystemStreamPartition, size: int) -> MessageTooLargeError:
        """The error for a message of this size."""
        return MessageTooLargeError(
            f"{ssp}: a message of {size} bytes (key, value and headers); it takes {self.of(ssp.stream)}, by "
            f"the topic's max.message.bytes or by systems.{ssp.system}.producer.max.request.size"
        )
