"""The consumer of ``tcp``: all connections of all its partitions on the one thread that polls."""

from __future__ import annotations

import logging
import selectors
import ssl
import time
from collections.abc import Iterable, Mapping

from streambench import descriptors
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.system.address import Address
from streambench.system.api import Chunk
from streambench.system.net.consumer import ListeningConsumer
from streambench.system.net.framing import FRAMINGS
from streambench.system.net.listener import Counters, Listener
from streambench.system.net.settings import Streams, TcpSettings, tcp_settings
from streambench.system.numbered import to_number

log = logging.getLogger(__name__)

_HELD_S = 0.05


class TcpConsumer(ListeningConsumer[Listener]):
    """Listens for partitions of one system, each on a port of its own.

    Back-pressure: sockets are read in ``poll`` alone, and only those of partitions that it wants. Whatever
    there is no room for waits in the kernel's buffers, and then with its sender. Time-outs stand still
    meanwhile.
    """

    kind = "tcp"

    def __init__(self, streams: Streams, metrics: MetricsRegistry) -> None:
        super().__init__(streams, metrics)
        self._counters = Counters(streams.system, metrics)
        self._selector: selectors.BaseSelector | None = None
        self._watched: frozenset[SystemStreamPartition] = frozenset()
        of_streams = [
            tcp_settings(streams.config, SystemStream(streams.system, name)) for name in streams.names()
        ]
        self.acknowledge_within_ms = min(
            (each.acknowledge_within_ms for each in of_streams if each.acknowledge), default=None
        )

    def start(self) -> None:
        connections = sum(
            tcp_settings(self._streams.config, ssp.system_stream).max_connections for ssp in self._wanted
        )
        if (most := descriptors.allow(connections)) < connections + descriptors.RESERVE:
            log.warning(
                "%d connections may be open, but no more than %d files: raise the limit (ulimit -n)",
                connections,
                most,
            )
        super().start()
        self._selector = selectors.DefaultSelector()
        gauge = self._metrics.gauge(f"{self._streams.system}-connections", "tcp")
        gauge.source = lambda: sum(len(listener.connections) for listener in self._ports.values())

    def stop(self) -> None:
        super().stop()
        if self._selector is not None:
            self._selector.close()
            self._selector = None
            self._watched = frozenset()

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        assert self._selector is not None
        listeners = [(self._ports[ssp], at_most) for ssp, at_most in wanted.items() if at_most > 0]
        until = time.monotonic() + timeout_ms / 1000
        while True:
            chunks = [
                chunk for listener, at_most in listeners if (chunk := listener.take(at_most)) is not None
            ]
            left = until - time.monotonic()
            if chunks or left <= 0:
                return chunks
            free = [listener for listener, _ in listeners if not listener.is_held]
            self._watch(free)
            # Nothing wakes it when something is acknowledged.
            longest = _HELD_S if len(free) < len(listeners) else left
            self._selector.select(min([left, longest, *(listener.tick_s for listener in free)]))

    def acknowledge(self, offsets: Mapping[SystemStreamPartition, str]) -> None:
        """Acknowledge to the senders. May be called on another thread than the other methods."""
        listeners = self._ports
        for ssp, offset in offsets.items():
            listener = listeners.get(ssp)
            if listener is not None:
                listener.acknowledge(to_number(offset, ssp))

    def _port(self, ssp: SystemStreamPartition, address: Address, offset: int) -> Listener:
        settings = tcp_settings(self._streams.config, ssp.system_stream)
        framing = FRAMINGS[settings.framing](ssp.system_stream, settings.max_message_bytes)
        tls = self._tls(ssp, settings)
        return Listener(ssp, address, offset, settings, framing, tls, self._counters)

    def _tls(self, ssp: SystemStreamPartition, settings: TcpSettings) -> ssl.SSLContext | None:
        if settings.tls_certificate is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(settings.tls_certificate, settings.tls_key)
        except (OSError, ssl.SSLError) as error:
            key = self._streams.config.stream_key(ssp.system, ssp.stream, "tls.certificate")
            raise self._streams.config.error(
                key, f"{settings.tls_certificate} holds no certificate with its key: {error}"
            ) from error
        return context

    def _watch(self, listeners: Iterable[Listener]) -> None:
        """Wait from now on for these partitions alone."""
        assert self._selector is not None
        wanted = {listener.ssp: listener for listener in listeners}
        if wanted.keys() != self._watched:
            for ssp in self._watched - wanted.keys():
                self._selector.unregister(self._ports[ssp].selector)
            for ssp in wanted.keys() - self._watched:
                self._selector.register(wanted[ssp].selector, selectors.EVENT_READ)
            self._watched = frozenset(wanted)
