"""The part that the consumers of tcp and udp share: the ports at which they listen."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Generic, Protocol, TypeVar

from streambench.errors import do_all, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.adapters import ChunkConsumer
from streambench.system.address import Address, listen
from streambench.system.api import nothing_to_look_at
from streambench.system.net.settings import Streams, TcpSettings, UdpSettings
from streambench.system.numbered import to_number


class Port(Protocol):
    """The receiver of one partition."""

    address: Address
    at_head: bool

    @property
    def settings(self) -> TcpSettings | UdpSettings: ...

    def open(self) -> None:
        """Listen. Raises OSError."""

    def close(self) -> None: ...


_Port = TypeVar("_Port", bound=Port)


class ListeningConsumer(ChunkConsumer, Generic[_Port]):
    """A consumer that stores nothing: it counts the messages of each partition from an offset on. Each
    partition has a port of its own."""

    kind: ClassVar[str]
    """The kind of the system, which is the group of its metrics."""

    def __init__(self, streams: Streams, metrics: MetricsRegistry) -> None:
        self._streams = streams
        self._metrics = metrics
        self._wanted: dict[SystemStreamPartition, int] = {}
        self._ports: dict[SystemStreamPartition, _Port] = {}

    @property
    def addresses(self) -> dict[SystemStreamPartition, Address]:
        """Its addresses, with the ports that were chosen where 0 was configured; empty before ``start``
        and after ``stop``."""
        return {ssp: port.address for ssp, port in self._ports.items()}

    def look_only(self, at_most: int | None) -> None:
        if at_most is not None:
            raise nothing_to_look_at(self._streams.system)

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wanted[ssp] = to_number(offset, ssp)

    def start(self) -> None:
        for ssp, offset in self._wanted.items():
            addresses = self._streams.listening(ssp.system_stream)
            if ssp.partition >= len(addresses):
                raise no_partition(ssp.system_stream, ssp.partition, len(addresses))
            port = self._ports[ssp] = self._port(ssp, addresses[ssp.partition], offset)
            patience_s = port.settings.listen_timeout_ms / 1000
            key = self._streams.key(ssp.system_stream, "listen")
            listen(port.open, patience_s, self._streams.config, key, port.address)
            name = f"{ssp.system}-{ssp.stream}-{ssp.partition}-port"
            self._metrics.gauge(name, self.kind).set(port.address.port)

    def stop(self) -> None:
        ports, self._ports = self._ports, {}
        do_all([port.close for port in ports.values()])

    def at_head(self, ssp: SystemStreamPartition) -> bool:
        port = self._ports.get(ssp)
        return port is not None and port.at_head

    @abstractmethod
    def _port(self, ssp: SystemStreamPartition, address: Address, offset: int) -> _Port:
        """The receiver of a partition, whose next message gets this offset."""
