"""From ``systems.<s>.*`` to the parts of ``tcp`` and ``udp`` systems."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.metrics.registry import MetricsRegistry
from streambench.system.api import SystemFactory
from streambench.system.net.settings import TCP, UDP, Streams
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

    **Partitions**: partition n of a stream listens on the n-th port from there on, or at the n-th of several
    addresses. So a container listens for its own partitions only, and a sender chooses the partition by the
    port. A producer connects to ``connect`` (else ``listen``), to each partition once; keys go to partitions
    as everywhere.

    **The protocol.** The sender connects and sends messages; ``framing`` says what ends one: ``lines``: a
    newline, which is not part of it. ``length``: 4 bytes before it, big-endian, hold the number of its bytes.
    ``envelope``: these 4 bytes are followed by a MessagePack map of ``message``, ``key`` (bin or nil),
    ``timestamp`` (milliseconds) and ``headers`` (str to bin). With the other two there is the message alone.
    The receiver says nothing but lines of text::

        17                      so many messages of this connection, from the first on, are safe
                                (with acknowledge=true)
        error: message 18: ...  what was sent cannot be taken; nothing behind it is read, and the
                                connection is closed
        busy: ...               the connection is closed; come again

    Safe: the job has processed them all and has committed, or they are in a landed stream. A sender that
    keeps what is not acknowledged, and sends it again over a new connection, loses nothing, and what it sends
    may come twice. One that does not care (``nc``) need not read. A sender that has shut down its side is
    answered until all it sent is safe.

    **Limits**: ``max.message.bytes``, ``max.connections`` (of a partition), ``unfinished.bytes`` (of a
    partition, for messages that have begun to arrive), ``frame.timeout.ms`` and ``idle.timeout.ms``. What a
    task does not keep up with stays in the kernel's buffers.
    """

    table = TCP
    keys: ClassVar[frozenset[str] | None] = TCP.system_names
    settings: ClassVar[tuple[Key, ...]] = TCP.keys
    settings_unconfirmed: ClassVar[Mapping[str, str] | None] = {"acknowledge": "false"}

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> TcpConsumer:
        return TcpConsumer(Streams(system, config, TCP), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> TcpProducer:
        return TcpProducer(Streams(system, config, TCP), metrics)


class UdpSystemFactory(_NetSystemFactory):
    """``systems.<s>.samza.factory=udp``. Streams and partitions have addresses as those of ``tcp``.

    A datagram is a message. With ``framing=lines`` it holds several, with newlines between them; one at
    the end may be missing. A producer ends each message with a newline, and fills datagrams up to
    ``datagram.bytes``. Nothing is acknowledged, and what is lost is lost, but counted. The kernel drops what
    its buffer (``receive.buffer.bytes``) has no room for. With ``sequence=true``, on both sides, what never
    arrived is counted, too. Each datagram then begins with the bytes ``sbu1``, followed by 8 bytes that its
    sender has chosen at its start. Its number, from 0 on, is next (8 bytes, big-endian). What is missing is
    counted from the first number on that arrives of a sender.
    """

    table = UDP
    keys: ClassVar[frozenset[str] | None] = UDP.system_names
    settings: ClassVar[tuple[Key, ...]] = UDP.keys
    settings_unconfirmed: ClassVar[Mapping[str, str] | None] = {}

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> UdpConsumer:
        return UdpConsumer(Streams(system, config, UDP), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> UdpProducer:
        return UdpProducer(Streams(system, config, UDP), metrics)
