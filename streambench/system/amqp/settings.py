"""Settings: what is configured of one AMQP system, and what a stream of it is in the broker."""

from __future__ import annotations

import difflib
import ssl
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from streambench.config import Config, masked
from streambench.config_keys import Key
from streambench.errors import ConfigError

_URL = "where the broker is, as amqp://user:password@host:port/vhost (amqps: with TLS); options of pika follow, as ?heartbeat=30"
_OF_SYSTEMS = (
    Key("url", "text", None, f"amqp: {_URL}"),
    Key("patience.ms", "integer", "120000", "amqp: how long a broker may be away before it fails", least=1),
    Key("connect.timeout.ms", "integer", "5000", "amqp: how long a broker may take to answer at the start, and at the end", least=1),
    Key("acknowledge.ms", "integer", "250", "amqp: the container commits at least so often, so that the broker is answered", least=1),
    Key("max.message.bytes", "integer", str(128 << 20), "amqp: the most that a message may have; for the broker to allow, too", least=1),
    Key("send.buffer.bytes", "integer", "33554432", "amqp: how much a sender keeps until the broker has confirmed it", least=1),
    Key("tls.ca", "path", None, "amqp: a file with the certificates to trust. Default: those of this machine"),
    Key("tls.certificate", "path", None, "amqp: a file with this client's own certificate, and its key unless tls.key has it"),
    Key("tls.key", "path", None, "amqp: a file with the key of tls.certificate"),
    Key("tls.server.name", "text", None, "amqp: the name that the broker's certificate is for. Default: the host of the url"),
)
_OF_BOTH = (
    Key(
        "queue.type", "text", "quorum",
        "amqp: the kind of the queues: quorum or classic (shared out, acknowledged), or stream (read by offset; for whole systems only)",
        ("quorum", "classic", "stream"),
    ),
    Key(
        "prefetch", "integer", "10000",
        "amqp: how many messages a reader has at most, in memory, without acknowledging any; 0: as many as the broker lets it", least=0,
    ),
    Key("key.header", "text", "key", "amqp: the header that holds a message's key"),
)  # fmt: skip
_OF_STREAMS = (
    Key("queue", "text", None, "amqp: the name of the queue. Default: that of the stream; with an exchange, stream.group"),
    Key("exchange", "text", None, "amqp: the stream is what this exchange passes on; each group reads it from a queue of its own"),
    Key(
        "exchange.type", "text", "fanout", "amqp: the type of the exchange, where it is made here",
        ("fanout", "topic", "direct", "headers"),
    ),
    Key("group", "text", None, "amqp: with an exchange: who shares one queue. Default: the job (job.name, and job.id)"),
    Key("binding.keys", "names", None, "amqp: with an exchange: the routing keys to take. Default: of a topic #, else the empty one"),
    Key("routing.key", "text", None, "amqp: with an exchange: the routing key to send with. Default: the message's key"),
    Key("mandatory", "boolean", "true", "amqp: with an exchange: a message that no queue takes is an error, else it is gone"),
    Key("dead.letter.queue", "text", None, "amqp: when the queue is made here: where the broker puts messages that it gives up"),
    Key(
        "delivery.limit", "integer", None,
        "amqp: when the queue is made here: after so many deliveries without acknowledgement a message goes to the dead.letter.queue",
        least=1,
    ),
    Key("arguments.<n>", "text", None, "amqp: when the queue is made here: another argument of it, such as x-max-length"),
)  # fmt: skip

KEYS = (
    *(Key(f"systems.<s>.{each.pattern}", *each[1:]) for each in _OF_SYSTEMS),
    *(Key(f"systems.<s>.{each.pattern}", *each[1:]) for each in _OF_BOTH),
    *(Key(f"systems.<s>.streams.<t>.{each.pattern}", *each[1:]) for each in (*_OF_BOTH, *_OF_STREAMS)),
)
_KNOWN = {each.pattern: each for each in (*_OF_SYSTEMS, *_OF_BOTH, *_OF_STREAMS)}
_ARGUMENTS = ".arguments."

_QUOTED = "in a password, write %2F for a / and %40 for an @, %3F for a ? and %23 for a #"
_LONGEST_NAME = 255

MOST_AHEAD = 65_535
"""The largest prefetch that AMQP can express."""


class Place(Struct, frozen=True):
    """What a stream is in the broker, as it is configured.

    ``queues``: per partition, what it is read from; none where an exchange passes it on and nobody says for whom. ``exchange`` is empty
    where messages go straight to the queue; ``binding_keys`` are those with which the queue is bound to it. ``arguments``: with which the
    queues are made. ``routing_key``: fixed, or None.
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
    """What is configured for one system. Raises ConfigError that names the key."""

    def __init__(self, system: str, config: Config) -> None:
        self.system = system
        self._config = config
        self._check_names()
        self.url = config.required(f"systems.{system}.url", _URL)
        try:
            parts = urlsplit(self.url)
        except ValueError:  # which says more of the url than may be shown
            parts = urlsplit("")
        if parts.scheme not in ("amqp", "amqps"):
            raise self.error("url", f"{masked('url', self.url)} is no address of a broker: write amqp://host:port/vhost, or amqps://...")
        if "@" in parts.path + parts.fragment or ("@" in parts.query and "@" not in parts.netloc):
            raise self.error("url", f"{masked('url', self.url)}: {_QUOTED}")
        self.name = f"{parts.hostname or 'localhost'}:{_port(self, parts)}"
        self.is_tls = parts.scheme == "amqps"
        self.patience_s = self._number("patience.ms") / 1000
        self.connect_s = self._number("connect.timeout.ms") / 1000
        self.acknowledge_ms = self._number("acknowledge.ms")
        self.max_bytes = self._number("max.message.bytes")
        self.send_buffer_bytes = self._number("send.buffer.bytes")
        self.keeps = self._text("queue.type") == "stream"
        """Whether the queues of the system are streams: what was read stays, and can be read again."""

    def place(self, stream: str, partitions: int | None = None) -> Place:
        """What a stream is in the broker. ``partitions``: other than as configured; queues that are not streams know only those."""
        kind = self._text("queue.type", stream)
        if (kind == "stream") != self.keeps:
            raise self.error(
                f"streams.{stream}.queue.type",
                "a system has either streams or other queues: give another system the same url, and set queue.type there",
            )
        exchange = self._text("exchange", stream) or ""
        exchange_type = self._text("exchange.type", stream) or ""
        queue = self._text("queue", stream)
        if self.keeps and exchange:
            raise self.error(f"streams.{stream}.exchange", "is not for stream queues: everybody who reads one gets everything")
        if queue is None and exchange:
            group = self._group(stream)
            queue = group and f"{stream}.{group}"
        elif queue is None:
            queue = stream
        number = partitions or self.partitions(stream)
        prefetch = self._number("prefetch", stream)
        if prefetch > MOST_AHEAD or (self.keeps and prefetch == 0):
            least = "1" if self.keeps else "1, or 0 for as many as the broker allows,"
            raise self.error("prefetch", f"{prefetch}: give a number from {least} to {MOST_AHEAD}")
        place = Place(
            stream=stream,
            queues=self._queues(queue, number),
            exchange=exchange,
            exchange_type=exchange_type,
            binding_keys=tuple(self._config.names(self._key("binding.keys", stream))) or ("#" if exchange_type == "topic" else "",),
            routing_key=self._text("routing.key", stream),
            mandatory=not exchange or self._config.boolean(self._key("mandatory", stream), _KNOWN["mandatory"]),
            arguments=self._arguments(stream, kind or ""),
            dead_letters=self._text("dead.letter.queue", stream),
            prefetch=prefetch,
            key_header=self._text("key.header", stream) or "key",
        )  # fmt: skip
        self._check_lengths(place)
        return place

    def _check_lengths(self, place: Place) -> None:
        named = {
            "queue": place.queues, "exchange": (place.exchange,), "binding.keys": place.binding_keys, "key.header": (place.key_header,),
            "routing.key": (place.routing_key or "",), "dead.letter.queue": (place.dead_letters or "",),
        }  # fmt: skip
        for name, texts in named.items():
            longest = max((len(text.encode()) for text in texts), default=0)
            if longest > _LONGEST_NAME:
                what = f"has {longest} bytes, and AMQP allows no more than {_LONGEST_NAME} there"
                raise self.error(f"streams.{place.stream}.{name}", what)

    def _queues(self, queue: str | None, partitions: int) -> tuple[str, ...]:
        if queue is None:
            return ()
        return (queue,) * partitions if partitions == 1 or not self.keeps else tuple(f"{queue}-{at}" for at in range(partitions))

    def streams(self) -> list[str]:
        """The streams that the configuration says something of, sorted. (A broker does not tell its queues by AMQP.)"""
        found = set()
        longest_first = sorted((each.pattern for each in (*_OF_BOTH, *_OF_STREAMS)), key=len, reverse=True)
        for name in self._config.below(f"systems.{self.system}.streams."):
            for mark in (".samza.", _ARGUMENTS):
                if mark in name:
                    found.add(name.partition(mark)[0])
                    break
            else:
                ending = next((f".{each}" for each in ("partitions", *longest_first) if name.endswith(f".{each}")), None)
                if ending is not None:
                    found.add(name.removesuffix(ending))
        return sorted(found)

    def partitions(self, stream: str) -> int:
        """How many partitions are configured."""
        return self._config.integer(f"systems.{self.system}.streams.{stream}.partitions")

    def tls(self) -> ssl.SSLContext | None:
        """How to secure the connection; None where it is not to be. Raises ConfigError."""
        if not self.is_tls:
            return None
        paths = {}
        for name in ("tls.ca", "tls.certificate", "tls.key"):
            paths[name] = self._config.path(f"systems.{self.system}.{name}") if self._text(name) else None
        wrong = "tls.ca"
        try:
            context = ssl.create_default_context(cafile=paths["tls.ca"])
            wrong = "tls.certificate"
            if paths["tls.certificate"] is not None:
                context.load_cert_chain(paths["tls.certificate"], paths["tls.key"])
        except OSError as error:
            raise self.error(wrong, f"{paths[wrong]} cannot be used: {error}") from None
        return context

    @property
    def tls_name(self) -> str:
        """The name that the broker's certificate must be for."""
        return self._text("tls.server.name") or urlsplit(self.url).hostname or "localhost"

    def error(self, name: str, what: str) -> ConfigError:
        """A ConfigError that names the setting."""
        return self._config.error(f"systems.{self.system}.{name}", what)

    def no_group(self, stream: str) -> ConfigError:
        """Nobody can read what an exchange passes on without a name for the queue."""
        return self.error(f"streams.{stream}.group", "is missing, and so is job.name: who reads the exchange together?")

    def _group(self, stream: str) -> str | None:
        name, number = self._config.text("job.name"), self._config.text("job.id")
        return self._text("group", stream) or (name and (name if number == "1" else f"{name}-{number}"))

    def _arguments(self, stream: str, kind: str) -> dict[str, Any]:
        arguments: dict[str, Any] = {"x-queue-type": kind}
        dead_letters = self._text("dead.letter.queue", stream)
        if dead_letters is not None:
            if self.keeps:
                raise self.error(f"streams.{stream}.dead.letter.queue", "is not for stream queues: nothing is ever given up there")
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead_letters}
        if self._text("delivery.limit", stream) is not None:
            if kind != "quorum":
                raise self.error(f"streams.{stream}.delivery.limit", f"only quorum queues count deliveries, and this is a {kind} queue")
            if dead_letters is None:
                key = f"streams.{stream}.delivery.limit"
                raise self.error(key, "what is delivered too often would be gone without a trace: set dead.letter.queue, too")
            arguments["x-delivery-limit"] = self._number("delivery.limit", stream)
        prefix = f"systems.{self.system}.streams.{stream}{_ARGUMENTS}"
        for name, value in self._config.below(prefix).items():
            arguments[name] = int(value) if value.lstrip("-").isdecimal() else value
        return arguments

    def _key(self, name: str, stream: str | None = None) -> str:
        return f"systems.{self.system}.{name}" if stream is None else self._config.stream_key(self.system, stream, name)

    def _text(self, name: str, stream: str | None = None) -> str | None:
        return self._config.text(self._key(name, stream), _KNOWN[name])

    def _number(self, name: str, stream: str | None = None) -> int:
        return self._config.integer(self._key(name, stream), _KNOWN[name])

    def _check_names(self) -> None:
        """Unknown names are errors here: nobody else knows them."""
        of_systems = [each.pattern for each in (*_OF_SYSTEMS, *_OF_BOTH)]
        of_streams = [each.pattern for each in (*_OF_BOTH, *_OF_STREAMS)]
        for name in self._config.below(f"systems.{self.system}."):
            if name.startswith("samza.") or name in of_systems:
                continue
            if not name.startswith("streams."):
                near = difflib.get_close_matches(name, of_systems, n=1)
            elif ".samza." in name or _ARGUMENTS in name or name.endswith((".partitions", *(f".{each}" for each in of_streams))):
                continue
            else:
                near = difflib.get_close_matches(name.split(".", 2)[-1], of_streams, n=1)
            raise self.error(name, "is not a setting of an AMQP system" + (f"; did you mean {near[0]}?" if near else ""))


def _port(settings: Settings, parts: Any) -> int:
    try:
        return parts.port or (5671 if parts.scheme == "amqps" else 5672)
    except ValueError:
        raise settings.error("url", f"{masked('url', settings.url)}: its port is no number ({_QUOTED})") from None
