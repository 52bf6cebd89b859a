"""Settings: what can be configured of ``tcp`` and ``udp`` systems, for the whole system and for single streams."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from msgspec import Struct

from streambench import config_keys
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import UnknownStreamError
from streambench.model import SystemStream
from streambench.system.net.address import Address, addresses

LARGEST_DATAGRAM = 65_507
NUMBERED = b"sbu1"
"""How a datagram with a number begins: these bytes, then 8 that name the sender, then its number of this datagram (8 bytes, big-endian)."""
HEADER = len(NUMBERED) + 16

_LISTEN = "partition n at the n-th port from there on, or host:port for each, by commas"

_TCP = (
    Key("framing", "text", "lines", "of tcp: what ends a message: lines, length or envelope", ("lines", "length", "envelope")),
    Key("acknowledge", "boolean", "true", "of tcp: the receiver tells its sender what is safe, and the sender waits for it"),
    Key("acknowledge.within.ms", "integer", "1000", "of tcp: how long senders wait: the job commits at least that often", least=1),
    Key("max.message.bytes", "integer", "1048576", "of tcp: the largest message; one that is larger is refused", least=1),
    Key("max.connections", "integer", "2000", "of tcp: how many connections a partition has at most", least=1),
    Key("frame.timeout.ms", "integer", "30000", "of tcp: how long one message may take to arrive; 0: for ever", least=0),
    Key("idle.timeout.ms", "integer", "600000", "of tcp: how long a connection may send nothing; 0: for ever", least=0),
    Key("unfinished.bytes", "integer", "67108864", "of tcp: memory of a partition for messages that have begun to arrive", least=1),
    Key("unacknowledged.bytes", "integer", "268435456", "of tcp: what a partition may have received that is not safe yet", least=1),
    Key("receive.buffer.bytes", "integer", "0", "of tcp: the kernel's buffer of a connection; 0: what it chooses", least=0),
    Key("listen.timeout.ms", "integer", "5000", "of tcp: how long to wait for a port that somebody else still has", least=0),
    Key("connect.timeout.ms", "integer", "30000", "of tcp: how long a sender tries to reach the receiver", least=1),
    Key("acknowledge.timeout.ms", "integer", "120000", "of tcp: how long a sender waits while nothing is acknowledged", least=1),
    Key("send.buffer.bytes", "integer", "33554432", "of tcp: how much a sender keeps until it is acknowledged", least=1),
    Key("tls.certificate", "path", None, "of tcp: the receiver's certificate chain (PEM), which makes it speak TLS"),
    Key("tls.key", "path", None, "of tcp: the private key of tls.certificate; none: in the same file"),
    Key("tls.ca", "path", None, "of tcp: the certificates (PEM) that a sender trusts, which makes it speak TLS"),
)  # fmt: skip

_UDP = (
    Key("framing", "text", "datagram", "of udp: a datagram is one message, or holds lines", ("datagram", "lines")),
    Key("max.message.bytes", "integer", "65507", "of udp: the largest message; one that is larger is refused", least=1),
    Key("receive.buffer.bytes", "integer", "4194304", "of udp: the kernel's buffer; what does not fit in it is lost", least=0),
    Key("listen.timeout.ms", "integer", "5000", "of udp: how long to wait for a port that somebody else still has", least=0),
    Key("datagram.bytes", "integer", "1400", "of udp: with lines, how much a sender puts into one datagram", least=1),
    Key("sequence", "boolean", "false", "of udp: datagrams are numbered, so that the receiver counts what is missing"),
)

_OF_STREAMS = (
    Key("listen", "text", None, f"of tcp and udp: where the consumer listens, as host:port; {_LISTEN}"),
    Key("connect", "text", None, "of tcp and udp: where the producer sends to, as host:port, likewise. Default: where listen says"),
)


def _for_people(keys: tuple[Key, ...], kind: str) -> tuple[Key, ...]:
    own = "systems.<s>.streams.<t>."
    return (
        *(key._replace(pattern=own + key.pattern) for key in _OF_STREAMS if kind == "tcp"),
        *(key._replace(pattern=f"systems.<s>.{key.pattern}") for key in keys),
        *(key._replace(pattern=own + key.pattern, default=None, meaning=f"as for the {kind} system, for one stream") for key in keys),
    )


TCP_SETTINGS = _for_people(_TCP, "tcp")
UDP_SETTINGS = _for_people(_UDP, "udp")
TCP_KEYS = frozenset(key.pattern for key in _TCP)
UDP_KEYS = frozenset(key.pattern for key in _UDP)


class Values:
    """What a configuration says of one stream: its own settings before those of its system. Raises ConfigError that names the key."""

    def __init__(self, config: Config, stream: SystemStream, known: Iterable[Key]) -> None:
        self._config = config
        self._stream = stream
        self._known = {key.pattern: key for key in known}

    def key(self, name: str) -> str:
        """Where a setting stands, or would."""
        return self._config.stream_key(self._stream.system, self._stream.stream, name)

    def text(self, name: str) -> str:
        return self._config.required(self.key(name), known=self._known[name])

    def integer(self, name: str) -> int:
        return self._config.integer(self.key(name), self._known[name])

    def boolean(self, name: str) -> bool:
        return self._config.boolean(self.key(name), self._known[name])

    def path(self, name: str) -> str | None:
        """The path of a file that is there; None where none is given."""
        key = self.key(name)
        if not self._config.get(key, "").strip():
            return None
        path = self._config.path(key)
        if not path.is_file():
            raise self._config.error(key, f"there is no file {path}")
        return str(path)


class TcpSettings(Struct, frozen=True):
    """The settings in force for one stream of a ``tcp`` system; times in seconds, 0 for none."""

    framing: str
    acknowledge: bool
    acknowledge_within_ms: int
    max_message_bytes: int
    max_connections: int
    frame_timeout_s: float
    idle_timeout_s: float
    unfinished_bytes: int
    unacknowledged_bytes: int
    receive_buffer_bytes: int
    listen_timeout_s: float
    connect_timeout_s: float
    acknowledge_timeout_s: float
    send_buffer_bytes: int
    certificate: str | None
    private_key: str | None
    ca: str | None


class UdpSettings(Struct, frozen=True):
    """The settings in force for one stream of a ``udp`` system."""

    framing: str
    max_message_bytes: int
    receive_buffer_bytes: int
    listen_timeout_s: float
    datagram_bytes: int
    sequence: bool

    @property
    def largest_datagram(self) -> int:
        """How many bytes of messages a datagram can hold."""
        return LARGEST_DATAGRAM - (HEADER if self.sequence else 0)


def tcp_settings(config: Config, stream: SystemStream) -> TcpSettings:
    """What is configured for a stream. Raises ConfigError."""
    values = Values(config, stream, _TCP)
    return TcpSettings(
        values.text("framing"), values.boolean("acknowledge"), values.integer("acknowledge.within.ms"),
        values.integer("max.message.bytes"), values.integer("max.connections"),
        values.integer("frame.timeout.ms") / 1000, values.integer("idle.timeout.ms") / 1000, values.integer("unfinished.bytes"),
        values.integer("unacknowledged.bytes"),
        values.integer("receive.buffer.bytes"), values.integer("listen.timeout.ms") / 1000, values.integer("connect.timeout.ms") / 1000,
        values.integer("acknowledge.timeout.ms") / 1000, values.integer("send.buffer.bytes"),
        values.path("tls.certificate"), values.path("tls.key"), values.path("tls.ca"),
    )  # fmt: skip


def udp_settings(config: Config, stream: SystemStream) -> UdpSettings:
    """What is configured for a stream. Raises ConfigError."""
    values = Values(config, stream, _UDP)
    settings = UdpSettings(
        values.text("framing"), values.integer("max.message.bytes"), values.integer("receive.buffer.bytes"),
        values.integer("listen.timeout.ms") / 1000, values.integer("datagram.bytes"), values.boolean("sequence"),
    )  # fmt: skip
    if settings.datagram_bytes > settings.largest_datagram:
        numbered = " beside its number (sequence=true)" if settings.sequence else ""
        key = values.key("datagram.bytes")
        raise config.error(key, f"{settings.datagram_bytes} is too much: a datagram holds {settings.largest_datagram} bytes{numbered}")
    return settings


class Streams:
    """The streams of one system, which are those that the configuration gives an address."""

    def __init__(self, system: str, config: Config, keys: frozenset[str]) -> None:
        """``keys``: the settings of this kind of system. Raises ConfigError where there is one that it does not have."""
        self.system = system
        self.config = config
        self._check(keys)

    def names(self) -> list[str]:
        """All streams, sorted."""
        below = self.config.below(f"systems.{self.system}.streams.")
        endings = (".listen", ".connect")
        return sorted({key.rpartition(".")[0] for key, value in below.items() if key.endswith(endings) and value.strip()})

    def partitions(self, stream: SystemStream) -> int:
        """How many partitions a stream has. Raises UnknownStreamError, and ConfigError where it has no such addresses."""
        if stream.stream not in self.names():
            known = ", ".join(f"{self.system}.{name}" for name in self.names()) or "none at all"
            raise UnknownStreamError(f"there is no stream {stream}: give {self.key(stream, 'listen')}=HOST:PORT; there are: {known}")
        number = self.config.integer(self.key(stream, "partitions"))
        for key in (self.key(stream, name) for name in ("listen", "connect")):
            if self.config.text(key) is not None:
                addresses(self.config, key, number)
        return number

    def listening(self, stream: SystemStream) -> list[Address]:
        """Where the partitions of a stream are listened for. Raises UnknownStreamError, ConfigError."""
        number = self.partitions(stream)
        key = self.key(stream, "listen")
        if self.config.text(key) is None:
            raise self.config.error(key, f"is missing: where {stream} is to be received, as HOST:PORT, for example 127.0.0.1:7000")
        return addresses(self.config, key, number)

    def connecting(self, stream: SystemStream) -> tuple[str, list[Address]]:
        """Where the partitions of a stream are sent to, and the key that says it. Raises UnknownStreamError, ConfigError."""
        number = self.partitions(stream)
        key = self.key(stream, "connect")
        if self.config.text(key) is None:
            key = self.key(stream, "listen")
        found = addresses(self.config, key, number)
        if any(each.port == 0 for each in found):
            raise self.config.error(key, f"nothing can be sent to port 0; give {self.key(stream, 'connect')}=HOST:PORT")
        return key, found

    def key(self, stream: SystemStream, name: str) -> str:
        """The key of a setting of a stream."""
        return f"systems.{stream.system}.streams.{stream.stream}.{name}"

    def _check(self, keys: frozenset[str]) -> None:
        prefix = f"systems.{self.system}.streams."
        known = sorted(keys | {"listen", "connect"})
        for rest in self.config.below(prefix):
            if config_keys.find(prefix + rest) is None and ".samza." not in rest and not any(rest.endswith(f".{name}") for name in known):
                near = difflib.get_close_matches(rest.partition(".")[2], known, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                raise self.config.error(prefix + rest, f"is no setting of a stream of this kind of system; {hint}")
