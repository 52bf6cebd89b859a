"""The limit of the size of messages of a topic."""

from __future__ import annotations

from streambench.system.kafka.admin import KafkaAdmin
from streambench.system.kafka.settings import Settings

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

    def known(self, topic: str) -> int | None:
        """The limit where it was asked for, else None."""
        return self._limits.get(topic)
