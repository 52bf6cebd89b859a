"""Settings of an AMQP system, and the queues and exchanges of its streams in the broker."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlsplit

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.masking import masked
from streambench.system.settings import SettingsTable, SystemSettings, required, setting

_URL = (
    "where the broker is, as amqp://user:${env:NAME}@host:port/vhost, the password quoted as in a url "
    "(amqps: with TLS); options of pika "
    "follow, as ?heartbeat=30"
)


@dataclass(frozen=True, kw_only=True)
class SizeLimit(SystemSettings):
    """The limit for the size of messages."""

    max_message_bytes: int = setting(
        128 << 20, "the most that a message may have; for the broker to allow, too", least=1
    )


@dataclass(frozen=True, kw_only=True)
class Connecting(SystemSettings):
    """The broker of a system, and how long it is waited for. The repr shows no values."""

    url: str = required(_URL)
    patience_ms: int = setting(120_000, "how long a broker may be away before it fails", least=1)
    connect_timeout_ms: int = setting(
        5_000, "how long a broker may take to answer at the start, and at the end", least=1
    )
    acknowledge_ms: int = setting(
        250, "the container commits at least so often, so that the broker is answered", least=1
    )
    send_buffer_bytes: int = setting(
        32 << 20, "how much a sender keeps until the broker has confirmed it", least=1
    )
    tls_ca: Path | None = setting(
        None, "a file with the certificates to trust. Default: those of this machine"
    )
    tls_certificate: Path | None = setting(
        None, "a file with this client's own certificate, and its key unless tls.key has it"
    )
    tls_key: Path | None = setting(None, "a file with the key of tls.certificate")
    tls_server_name: str | None = setting(
        None, "the name that the broker's certificate is for. Default: the host of the url"
    )

    def __repr__(self) -> str:
        return "<settings of an AMQP system>"


@dataclass(frozen=True, kw_only=True)
class Queues(SystemSettings):
    """The kind of the queues, and how they are read."""

    queue_type: Literal["quorum", "classic", "stream"] = setting(
        "quorum",
        "the kind of the queues: quorum or classic (shared out, acknowledged), or stream (read by offset; "
        "for whole systems only)",
    )
    prefetch: int = setting(
        10_000,
        "how many messages a reader has at most, in memory, without acknowledging any; 0: as many as the "
        "broker lets it",
        least=0,
    )
    key_header: str = setting("key", "the header that holds a message's key")


@dataclass(frozen=True, kw_only=True)
class Topology(SystemSettings):
    """The queue and the exchange of one stream."""

    queue: str | None = setting(
        None, "the name of the queue. Default: that of the stream; with an exchange, stream.group"
    )
    exchange: str | None = setting(
        None, "the stream is what this exchange passes on; each group reads it from a queue of its own"
    )
    exchange_type: Literal["fanout", "topic", "direct", "headers"] = setting(
        "fanout", "the type of the exchange, where it is made here"
    )
    group: str | None = setting(
        None, "with an exchange: who shares one queue. Default: the job (job.name, and job.id)"
    )
    binding_keys: tuple[str, ...] = setting(
        (), "with an exchange: the routing keys to take. Default: of a topic #, else the empty one"
    )
    routing_key: str | None = setting(
        None, "with an exchange: the routing key to send with. Default: the message's key"
    )
    mandatory: bool = setting(
        True, "with an exchange: a message that no queue takes is an error, else it is gone"
    )
    dead_letter_queue: str | None = setting(
        None, "when the queue is made here: where the broker puts messages that it gives up"
    )
    delivery_limit: int | None = setting(
        None,
        "when the queue is made here: after so many deliveries without acknowledgement a message goes to the "
        "dead.letter.queue",
        least=1,
    )
    arguments: dict[str, str] = setting(
        {}, "when the queue is made here: another argument of it, such as x-max-length"
    )


SETTINGS = SettingsTable("amqp", system=(Connecting, SizeLimit), both=(Queues,), streams=(Topology,))

_QUOTED = "in a password, write %2F for a / and %40 for an @, %3F for a ? and %23 for a #"
_LONGEST_NAME = 255

MOST_AHEAD = 65_535
"""The largest prefetch that AMQP can express."""


class StreamTopology(Struct, frozen=True):
    """A stream in the broker, as it is configured.

    ``queues``: per partition, what it is read from; none where an exchange passes it on and no key says for
    whom. ``exchange`` is empty where messages go straight to the queue; ``binding_keys`` are those with which
    the queue is bound to it. ``arguments``: with which the queues are made. ``routing_key``: fixed, or None.
    """

    stream: str
    queues: tuple[str, ...]
    exchange: str
    exchange_type: str
    binding_keys: tuple[str, ...]
    routing_key: str | None
    mandatory: bool
    arguments: dict[str, Any]
    dead_letters: str | None
    prefetch: int
    key_header: str


class Settings:
    """The settings of one system. Raises ConfigError that names the key."""

    def __init__(self, system: str, config: Config) -> None:
        self.system = system
        self._config = config
        SETTINGS.check(config, system)
        self._found = found = Connecting.read(config, system)
        self.url = found.url
        try:
            parts = urlsplit(self.url)
        except ValueError:  # which says more of the url than may be shown
            parts = urlsplit("")
        if parts.scheme not in ("amqp", "amqps"):
            raise self.error(
                "url",
                f"{masked('url', self.url)} is no address of a broker: write amqp://host:port/vhost, or "
                "amqps://...",
            )
        if "@" in parts.path + parts.fragment or ("@" in parts.query and "@" not in parts.netloc):
            raise self.error("url", f"{masked('url', self.url)}: {_QUOTED}")
        self.name = f"{parts.hostname or 'localhost'}:{_port(self, parts)}"
        self.is_tls = parts.scheme == "amqps"
        self.patience_s = found.patience_ms / 1000
        self.connect_s = found.connect_timeout_ms / 1000
        self.acknowledge_ms = found.acknowledge_ms
        self.max_bytes = SizeLimit.read(config, system).max_message_bytes
        self.send_buffer_bytes = found.send_buffer_bytes
        self.keeps = Queues.read(config, system).queue_type == "stream"
        """True if the queues of the system are streams: what was read stays, and can be read again."""

    def topology(self, stream: str, partitions: int | None = None) -> StreamTopology:
        """The stream in the broker. ``partitions``: other than as configured; queues that are not
        streams know only those."""
        queues = Queues.read(self._config, self.system, stream)
        found = Topology.read(self._config, self.system, stream)
        kind = queues.queue_type
        if (kind == "stream") != self.keeps:
            raise self.error(
                f"streams.{stream}.queue.type",
                "a system has either streams or other queues: give another system the same url, and set "
                "queue.type there",
            )
        exchange = found.exchange or ""
        if self.keeps and exchange:
            raise self.error(
                f"streams.{stream}.exchange",
                "is not for stream queues: every reader of one gets everything",
            )
        number = partitions or self.partitions(stream)
        prefetch = queues.prefetch
        if prefetch > MOST_AHEAD or (self.keeps and prefetch == 0):
            least = "1" if self.keeps else "1, or 0 for as many as the broker allows,"
            raise self.error("prefetch", f"{prefetch}: give a number from {least} to {MOST_AHEAD}")
        topology = StreamTopology(
            stream=stream,
            queues=self._queues(stream, found, number),
            exchange=exchange,
            exchange_type=found.exchange_type,
            binding_keys=found.binding_keys or ("#" if found.exchange_type == "topic" else "",),
            routing_key=found.routing_key,
            mandatory=not exchange or found.mandatory,
            arguments=self._arguments(stream, kind, found),
            dead_letters=found.dead_letter_queue,
            prefetch=prefetch,
            key_header=queues.key_header,
        )
        self._check_lengths(topology)
        return topology

    def _check_lengths(self, topology: StreamTopology) -> None:
        named = {
            "queue": topology.queues,
            "exchange": (topology.exchange,),
            "binding.keys": topology.binding_keys,
            "key.header": (topology.key_header,),
            "routing.key": (topology.routing_key or "",),
            "dead.letter.queue": (topology.dead_letters or "",),
        }
        for name, texts in named.items():
            longest = max((len(text.encode()) for text in texts), default=0)
            if longest > _LONGEST_NAME:
                what = f"has {longest} bytes, and AMQP allows no more than {_LONGEST_NAME} there"
                raise self.error(f"streams.{topology.stream}.{name}", what)

    def _queues(self, stream: str, found: Topology, partitions: int) -> tuple[str, ...]:
        """The queue of each partition; none where an exchange has no group."""
        queue = found.queue or stream
        if found.queue is None and found.exchange:
            group = found.group or self._job()
            if not group:
                return ()
            queue = f"{stream}.{group}"
        if partitions > 1 and self.keeps:
            return tuple(f"{queue}-{at}" for at in range(partitions))
        return (queue,) * partitions

    def streams(self) -> list[str]:
        """The streams that the configuration says something of, sorted. AMQP does not list queues."""
        return sorted({stream for stream, _, _ in SETTINGS.of_streams(self._config, self.system)})

    def partitions(self, stream: str) -> int:
        """The configured number of partitions."""
        return self._config.integer(f"systems.{self.system}.streams.{stream}.partitions")

    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings of the connection; None for none. Raises ConfigError."""
        if not self.is_tls:
            return None
        found = self._found
        paths = {"tls.ca": found.tls_ca, "tls.certificate": found.tls_certificate}
        wrong = "tls.ca"
        try:
            context = ssl.create_default_context(cafile=found.tls_ca)
            wrong = "tls.certificate"
            if found.tls_certificate is not None:
                context.load_cert_chain(found.tls_certificate, found.tls_key)
        except OSError as error:
            raise self.error(wrong, f"{paths[wrong]} cannot be used: {error}") from None
        return context

    @property
    def tls_name(self) -> str:
        """The name that the broker's certificate must be for."""
        return self._found.tls_server_name or urlsplit(self.url).hostname or "localhost"

    def error(self, name: str, what: str) -> ConfigError:
        """A ConfigError that names the setting."""
        return self._config.error(f"systems.{self.system}.{name}", what)

    def no_group(self, stream: str) -> ConfigError:
        """The error where the queue of an exchange has no name."""
        return self.error(
            f"streams.{stream}.group", "is missing, and so is job.name: who reads the exchange together?"
        )

    def _job(self) -> str | None:
        name, number = self._config.text("job.name"), self._config.text("job.id")
        return name and (name if number == "1" else f"{name}-{number}")

    def _arguments(self, stream: str, kind: str, found: Topology) -> dict[str, Any]:
        arguments: dict[str, Any] = {"x-queue-type": kind}
        dead_letters = found.dead_letter_queue
        if dead_letters is not None:
            if self.keeps:
                raise self.error(
                    f"streams.{stream}.dead.letter.queue",
                    "is not for stream queues: nothing is ever given up there",
                )
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letters}
        if found.delivery_limit is not None:
            if kind != "quorum":
                raise self.error(
                    f"streams.{stream}.delivery.limit",
                    f"only quorum queues count deliveries, and this is a {kind} queue",
                )
            if dead_letters is None:
                raise self.error(
                    f"streams.{stream}.delivery.limit",
                    "what is delivered too often would be gone without a trace: set dead.letter.queue, too",
                )
            arguments["x-delivery-limit"] = found.delivery_limit
        for name, value in found.arguments.items():
            arguments[name] = int(value) if value.lstrip("-").isdecimal() else value
        return arguments


def _port(settings: Settings, parts: Any) -> int:
    try:
        return parts.port or (5671 if parts.scheme == "amqps" else 5672)
    except ValueError:
        raise settings.error(
            "url", f"{masked('url', settings.url)}: its port is no number ({_QUOTED})"
        ) from None
