"""Settings: what can be configured of ``tcp`` and ``udp`` systems, for the whole system and for single
streams."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from streambench.config import Config
from streambench.errors import UnknownStreamError
from streambench.model import SystemStream
from streambench.system.address import Address, addresses
from streambench.system.settings import SettingsTable, SystemSettings, setting

LARGEST_DATAGRAM = 65_507
NUMBERED = b"sbu1"
"""Head of a datagram with a number: these bytes, then 8 that name the sender, then its number of this
datagram (8 bytes, big-endian)."""
HEADER = len(NUMBERED) + 16

_LISTEN = "partition n at the n-th port from there on, or host:port for each, by commas"


@dataclass(frozen=True, kw_only=True)
class _Addresses(SystemSettings):
    listen: str | None = setting(None, f"where the consumer listens, as host:port; {_LISTEN}")
    connect: str | None = setting(
        None, "where the producer sends to, as host:port, likewise. Default: where listen says"
    )


@dataclass(frozen=True, kw_only=True)
class TcpSettings(SystemSettings):
    """The settings in force for one stream of a ``tcp`` system; times of 0 for none."""

    framing: Literal["lines", "length", "envelope"] = setting(
        "lines", "what ends a message: lines, length or envelope"
    )
    acknowledge: bool = setting(
        True, "the receiver reports to its sender what is safe, and the sender waits for it"
    )
    acknowledge_within_ms: int = setting(
        1_000, "how long senders wait: the job commits at least that often", least=1
    )
    max_message_bytes: int = setting(1_048_576, "the largest message; one that is larger is refused", least=1)
    max_connections: int = setting(2_000, "how many connections a partition has at most", least=1)
    frame_timeout_ms: int = setting(30_000, "how long one message may take to arrive; 0: for ever", least=0)
    idle_timeout_ms: int = setting(600_000, "how long a connection may send nothing; 0: for ever", least=0)
    unfinished_bytes: int = setting(
        67_108_864, "memory of a partition for messages that have begun to arrive", least=1
    )
    unacknowledged_bytes: int = setting(
        268_435_456, "what a partition may have received that is not safe yet", least=1
    )
    receive_buffer_bytes: int = setting(0, "the kernel's buffer of a connection; 0: what it chooses", least=0)
    listen_timeout_ms: int = setting(
        5_000, "how long to wait for a port that another process still has", least=0
    )
    connect_timeout_ms: int = setting(30_000, "how long a sender tries to reach the receiver", least=1)
    acknowledge_timeout_ms: int = setting(
        120_000, "how long a sender waits while nothing is acknowledged", least=1
    )
    send_buffer_bytes: int = setting(33_554_432, "how much a sender keeps until it is acknowledged", least=1)
    tls_certificate: Path | None = setting(
        None, "the receiver's certificate chain (PEM), which makes it speak TLS"
    )
    tls_key: Path | None = setting(None, "the private key of tls.certificate; none: in the same file")
    tls_ca: Path | None = setting(
        None, "the certificates (PEM) that a sender trusts, which makes it speak TLS"
    )


@dataclass(frozen=True, kw_only=True)
class UdpSettings(SystemSettings):
    """The settings in force for one stream of a ``udp`` system."""

    framing: Literal["datagram", "lines"] = setting("datagram", "a datagram is one message, or holds lines")
    max_message_bytes: int = setting(65_507, "the largest message; one that is larger is refused", least=1)
    receive_buffer_bytes: int = setting(
        4_194_304, "the kernel's buffer; what does not fit in it is lost", least=0
    )
    listen_timeout_ms: int = setting(
        5_000, "how long to wait for a port that another process still has", least=0
    )
    datagram_bytes: int = setting(1_400, "with lines, how much a sender puts into one datagram", least=1)
    sequence: bool = setting(False, "datagrams are numbered, so that the receiver counts what is missing")

    @property
    def largest_datagram(self) -> int:
        """The number of bytes of messages that a datagram can hold."""
        return LARGEST_DATAGRAM - (HEADER if self.sequence else 0)


TCP = SettingsTable("tcp", both=(TcpSettings,), streams=(_Addresses,))
UDP = SettingsTable("udp", both=(UdpSettings,), streams=(_Addresses,))


def tcp_settings(config: Config, stream: SystemStream) -> TcpSettings:
    """Return the settings of a stream. Raises ConfigError."""
    settings = TcpSettings.read(config, stream.system, stream.stream)
    for name in ("tls.certificate", "tls.key", "tls.ca"):
        path = getattr(settings, name.replace(".", "_"))
        if path is not None and not path.is_file():
            key = config.stream_key(stream.system, stream.stream, name)
            raise config.error(key, f"there is no file {path}")
    return settings


def udp_settings(config: Config, stream: SystemStream) -> UdpSettings:
    """Return the settings of a stream. Raises ConfigError."""
    settings = UdpSettings.read(config, stream.system, stream.stream)
    if settings.datagram_bytes > settings.largest_datagram:
        numbered = " beside its number (sequence=true)" if settings.sequence else ""
        raise config.error(
            config.stream_key(stream.system, stream.stream, "datagram.bytes"),
            f"{settings.datagram_bytes} is too much: a datagram holds {settings.largest_datagram} "
            f"bytes{numbered}",
        )
    return settings


class Streams:
    """The streams of one system, which are those that the configuration gives an address."""

    def __init__(self, system: str, config: Config, table: SettingsTable) -> None:
        """``table``: the settings of this kind of system. Raises ConfigError where there is one that it does
        not have."""
        self.system = system
        self.config = config
        list(table.of_streams(config, system))

    def names(self) -> list[str]:
        """All streams, sorted."""
        below = self.config.below(f"systems.{self.system}.streams.")
        endings = (".listen", ".connect")
        return sorted(
            {
                key.rpartition(".")[0]
                for key, value in below.items()
                if key.endswith(endings) and value.strip()
            }
        )

    def streams(self) -> list[SystemStream]:
        return [SystemStream(self.system, name) for name in self.names()]

    def partitions(self, stream: SystemStream) -> int:
        """The partitions of a stream. Raises UnknownStreamError, and ConfigError where it has no such
        addresses."""
        if stream.stream not in self.names():
            known = ", ".join(f"{self.system}.{name}" for name in self.names()) or "none at all"
            raise UnknownStreamError(
                f"there is no stream {stream}: give {self.key(stream, 'listen')}=HOST:PORT; there are: "
                f"{known}"
            )
        number = self.config.integer(self.key(stream, "partitions"))
        for key in (self.key(stream, name) for name in ("listen", "connect")):
            if self.config.text(key) is not None:
                addresses(self.config, key, number)
        return number

    def listening(self, stream: SystemStream) -> list[Address]:
        """Addresses to receive the partitions of a stream at. Raises UnknownStreamError, ConfigError."""
        number = self.partitions(stream)
        key = self.key(stream, "listen")
        if self.config.text(key) is None:
            raise self.config.error(
                key, f"is missing: where {stream} is to be received, as HOST:PORT, for example 127.0.0.1:7000"
            )
        return addresses(self.config, key, number)

    def connecting(self, stream: SystemStream) -> tuple[str, list[Address]]:
        """The addresses of the partitions of a stream to send to, and their key. Raises UnknownStreamError,
        ConfigError."""
        number = self.partitions(stream)
        key = self.key(stream, "connect")
        if self.config.text(key) is None:
            key = self.key(stream, "listen")
        found = addresses(self.config, key, number)
        if any(each.port == 0 for each in found):
            raise self.config.error(
                key, f"nothing can be sent to port 0; give {self.key(stream, 'connect')}=HOST:PORT"
            )
        return key, found

    def key(self, stream: SystemStream, name: str) -> str:
        """The key of a setting of a stream."""
        return f"systems.{stream.system}.streams.{stream.stream}.{name}"
