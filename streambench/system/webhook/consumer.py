"""The consumer of webhooks: an HTTP endpoint for each stream."""

from __future__ import annotations

from collections.abc import Mapping

from streambench.errors import no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.api import SystemConsumer, nothing_to_look_at
from streambench.system.webhook.endpoint import Endpoints
from streambench.system.webhook.inbox import Inbox
from streambench.system.webhook.server import Server
from streambench.system.webhook.settings import Endpoint, WebhookSettings, check_all_read


class WebhookConsumer(SystemConsumer):
    """Listens from ``start`` to ``stop``. A request is answered 200 once its messages are acknowledged, that
    is durable, and else with an error that has its sender try again. What was delivered and not acknowledged
    when this ends, its sender sends again.

    There is nothing to begin at: offsets are counted from 0 on, and what ``register`` is given makes no
    difference.
    """

    def __init__(self, system: str, settings: WebhookSettings, metrics: MetricsRegistry) -> None:
        self._system = system
        self._settings = settings
        self._listening = settings.listening()
        self.acknowledge_within_ms = self._listening.acknowledge_within_ms
        self._partitions: dict[SystemStream, set[int]] = {}
        self._endpoints: dict[SystemStream, Endpoint] = {}
        self._inbox = Inbox(self._listening.pending_messages, self._listening.pending_bytes)
        self._server: Server | None = None
        metrics.gauge(f"{system}-messages-pending", "webhook", lambda: self._inbox.messages)
        metrics.gauge(f"{system}-bytes-pending", "webhook", lambda: self._inbox.bytes)
        self._metrics = metrics

    @property
    def port(self) -> int:
        """The address it listens at, once it is started."""
        return self._listening.port if self._server is None else self._server.port

    def look_only(self, at_most: int | None) -> None:
        if at_most is not None:
            raise nothing_to_look_at(self._system)

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        stream = ssp.system_stream
        if stream not in self._endpoints:
            self._endpoints[stream] = self._settings.endpoint(stream)
        partitions = self._endpoints[stream].partitions
        if not 0 <= ssp.partition < partitions:
            raise no_partition(ssp.system_stream, ssp.partition, partitions)
        self._partitions.setdefault(stream, set()).add(ssp.partition)

    def start(self) -> None:
        check_all_read(self._settings, self._endpoints, self._partitions)
        self._inbox.open(
            SystemStreamPartition(stream.system, stream.stream, partition)
            for stream, partitions in self._partitions.items()
            for partition in partitions
        )
        endpoints = Endpoints(list(self._endpoints.values()), self._inbox, self._listening)
        server = self._server = Server(
            self._system, self._settings.config, self._listening, endpoints, self._inbox.fail
        )
        server.start()
        self._metrics.gauge(f"{self._system}-connections", "webhook", lambda: server.connections)
        self._metrics.gauge(f"{self._system}-requests", "webhook", lambda: endpoints.answered)
        self._metrics.gauge(f"{self._system}-requests-refused", "webhook", lambda: endpoints.refused)

    def stop(self) -> None:
        if self._server is not None:
            self._server.stop()

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        return self._inbox.take(wanted, timeout_ms)

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return self._inbox.at_head(ssp)

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        self._inbox.acknowledge(offsets)
