"""From ``systems.<s>.*`` to the parts of ``tcp`` and ``udp`` systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.api import Sender, SystemFactory
from streambench.system.net.datagrams import DatagramCheck
from streambench.system.net.framing import FRAMINGS
from streambench.system.net.settings import TCP, UDP, Streams, TcpSettings, UdpSettings
from streambench.system.net.tcp_consumer import TcpConsumer
from streambench.system.net.tcp_producer import TcpProducer
from streambench.system.net.udp_consumer import UdpConsumer
from streambench.system.net.udp_producer import UdpProducer
from streambench.system.numbered import UnstoredAdmin
from streambench.system.settings import SettingsTable


class _NetSystemFactory(SystemFactory):
    listens: ClassVar[bool] = True
    holds_changelogs: ClassVar[bool] = False
    creates_streams = False
    table: ClassVar[SettingsTable]

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> UnstoredAdmin:
        return UnstoredAdmin(Streams(system, config, self.table))


class TcpSystemFactory(_NetSystemFactory):
    """``systems.<s>.samza.factory=tcp``. A stream is where it is received:
    ``systems.<s>.streams.<t>.listen=127.0.0.1:7000``.

    Partition n of a stream listens on the n-th port from there on, or at the n-th of several addresses. A
    container listens for its own partitions only, and a sender chooses the partition by the port.
    ``docs/network.md`` has the protocol of senders and receivers, and its limits.

    *Safe*, here and in the answers to senders: the job has processed a message and has committed, or it is in
    a landed stream.
    """

    table = TCP
    keys: ClassVar[frozenset[str] | None] = TCP.system_names
    settings: ClassVar[tuple[Key, ...]] = TCP.keys
    settings_unconfirmed: ClassVar[Mapping[str, str] | None] = {"acknowledge": "false"}

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> TcpConsumer:
        return TcpConsumer(Streams(system, config, TCP), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> TcpProducer:
        return TcpProducer(Streams(system, config, TCP), metrics)

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        settings = TcpSettings.read(config, system, stream.stream)
        frame = FRAMINGS[settings.framing](stream, settings.max_message_bytes).frame

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            frame(envelope, key, message)

        return send


class UdpSystemFactory(_NetSystemFactory):
    """``systems.<s>.samza.factory=udp``. Streams and partitions have addresses as those of ``tcp``.

    Nothing is acknowledged, and what is lost is lost, but counted. The forms of datagrams stand in
    ``docs/network.md``.
    """

    table = UDP
    keys: ClassVar[frozenset[str] | None] = UDP.system_names
    settings: ClassVar[tuple[Key, ...]] = UDP.keys
    settings_unconfirmed: ClassVar[Mapping[str, str] | None] = {}

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> UdpConsumer:
        return UdpConsumer(Streams(system, config, UDP), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> UdpProducer:
        return UdpProducer(Streams(system, config, UDP), metrics)

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        check = DatagramCheck.of(UdpSettings.read(config, system, stream.stream)).check

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            check(f"{stream}.{partition}", message)

        return send
