"""Settings of webhooks: where it listens, what it takes and from whom, and where and how it posts."""

from __future__ import annotations

import difflib
import ipaddress
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from msgspec import Struct

from streambench import config_keys
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import ConfigError, UnknownStreamError
from streambench.model import SystemStream
from streambench.system.webhook.credentials import Credentials

_OF_SYSTEMS = (
    Key("host", "text", "127.0.0.1", "the address that it listens on; one that others can reach needs token or signature.secret"),
    Key("port", "integer", "8080", "the port that it listens on; 0: any free one, which is logged", least=0),
    Key("listen.timeout.ms", "integer", "5000", "how long to wait for a port that somebody else still has", least=0),
    Key("certificate", "path", None, "a file with the certificate (PEM) of an https endpoint. Default: plain http"),
    Key("certificate.key", "path", None, "the file with the private key of the certificate. Default: it stands in the same file"),
    Key("authentication", "text", None, "none: listen where others can reach it although nobody has to prove who he is", ("none",)),
    Key("connections.max", "integer", "1000", "how many connections there may be at once; further ones are answered 503", least=1),
    Key("header.timeout.ms", "integer", "10000", "how long a sender may take for the head of a request", least=1),
    Key("body.timeout.ms", "integer", "30000", "how long a sender may take for the body of a request", least=1),
    Key("acknowledge.timeout.ms", "integer", "30000", "how long a request waits until its messages are durable; then 503", least=1),
    Key("acknowledge.within.ms", "integer", "50", "how long senders wait at most for the commit that makes messages durable: it comes that "
        "often, however long task.commit.ms is", least=1),
    Key("pending.messages", "integer", "10000", "how many messages may be on their way and not durable; further ones: 503", least=1),
    Key("pending.bytes", "integer", "67108864", "how many bytes of bodies may be in memory at once; further ones: 503", least=1),
    Key("idempotency.keys", "integer", "10000", "of how many durable requests the Idempotency-Key is known, so that a repeated one "
        "is answered and not delivered again", least=0),
    Key("health.path", "text", "/health", "GET of this path is answered as long as it takes messages"),
    Key("post.timeout.ms", "integer", "30000", "how long an attempt to post may take", least=1),
    Key("post.retry.ms", "integer", "120000", "how long posting is tried again where the receiver fails or is not there", least=0),
    Key("post.backoff.ms", "integer", "200", "the pause before the second attempt; it doubles with each, and chance shortens it", least=1),
    Key("post.backoff.max.ms", "integer", "10000", "the longest pause, unless the receiver asks for a longer one", least=1),
    Key("post.concurrency", "integer", "1", "how many posts of a stream are under way at once; messages of one key stay in order", least=1),
    Key("post.pending.messages", "integer", "1000", "how many messages may wait to be posted; then a task that sends waits", least=1),
    Key("post.linger.ms", "integer", "50", "where post.messages is more than 1: how long a message waits for others", least=0),
    Key("post.ca", "path", None, "a file with the certificates (PEM) that vouch for receivers. Default: those known to everybody"),
)  # fmt: skip

_OF_STREAMS = (
    Key("path", "text", None, "the path that messages are posted to. Default: / and the name of the stream"),
    Key("format", "text", "json", "json: bodies are JSON, one value (or, as application/x-ndjson, one per line); raw: any bytes",
        ("json", "raw")),
    Key("split.arrays", "boolean", "false", "a body that is a JSON array is several messages: its elements"),
    Key("max.body.bytes", "integer", "1048576", "the most that the body of a request may have; larger ones: 413", least=1),
    Key("key.header", "text", None, "the HTTP header that holds the key of a message"),
    Key("key.query", "text", None, "the parameter of the URL that holds the key of a message"),
    Key("key.field", "text", None, "the field of a JSON object that is the key of the message"),
    Key("headers", "names", None, "the HTTP headers that become headers of the message, beside Idempotency-Key; *: all but secret ones"),
    Key("token", "text", None, "the bearer token that a sender has to show; several, separated by commas, while one replaces another"),
    Key("token.env", "text", None, "the environment variable that holds the token"),
    Key("token.file", "path", None, "the file that holds the token"),
    Key("signature.secret", "text", None, "the secret by which bodies are signed (HMAC with SHA-256); several as for token"),
    Key("signature.secret.env", "text", None, "the environment variable that holds the secret"),
    Key("signature.secret.file", "path", None, "the file that holds the secret"),
    Key("signature.header", "text", "X-Hub-Signature-256", "the header with the signature: sha256= and hexadecimal digits"),
    Key("signature.timestamp.header", "text", None, "the header with the time (seconds since 1970) of the request; what is signed is then "
        "the time, a dot and the body, so that nobody can repeat it later"),
    Key("signature.tolerance.ms", "integer", "300000", "how far that time may be from now", least=1),
    Key("url", "text", None, "where messages are posted to; {stream} in it stands for the stream. Default: the stream's own endpoint, "
        "where port is set"),
    Key("url.env", "text", None, "the environment variable that holds the url"),
    Key("url.file", "path", None, "the file that holds the url"),
    Key("post.messages", "integer", "1", "how many messages are one request at most; more than 1: as JSON lines", least=1),
)  # fmt: skip

_NAMED = {each.pattern: each for each in (*_OF_SYSTEMS, *_OF_STREAMS)}
HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""What HTTP allows as the name of a header."""

_NO_URL = (
    "is no URL of http or https, like https://example.org:8443/path; in a name or password in it, : / # ? @ and % are written %3A, %2F..."
)

SYSTEM_KEYS = frozenset(_NAMED)
STREAM_KEYS = frozenset(each.pattern for each in _OF_STREAMS)

KEYS = (
    *(each._replace(pattern=f"systems.<s>.{each.pattern}", meaning=f"of a webhook system: {each.meaning}") for each in _NAMED.values()),
    *(
        each._replace(pattern=f"systems.<s>.streams.<t>.{each.pattern}", default=None, meaning="as for the webhook system")
        for each in _OF_STREAMS
    ),
)
"""All settings, for people."""


class Listening(Struct, frozen=True, kw_only=True):
    """Where a system listens, and what it takes at most."""

    host: str
    port: int
    listen_timeout_s: float
    certificate: Path | None
    certificate_key: Path | None
    connections: int
    header_timeout_s: float
    body_timeout_s: float
    acknowledge_timeout_s: float
    acknowledge_within_ms: int
    pending_messages: int
    pending_bytes: int
    idempotency_keys: int
    health_path: str


class Endpoint(Struct, frozen=True, kw_only=True):
    """How messages of one stream are taken."""

    stream: SystemStream
    partitions: int
    path: str
    is_json: bool
    split_arrays: bool
    max_body_bytes: int
    key_header: str | None
    key_query: str | None
    key_field: str | None
    headers: tuple[str, ...]
    credentials: Credentials


class Posting(Struct, frozen=True, kw_only=True):
    """How a system posts."""

    timeout_s: float
    retry_s: float
    backoff_s: float
    backoff_max_s: float
    concurrency: int
    linger_s: float
    pending_messages: int
    ca: Path | None


class Target(Struct, frozen=True, kw_only=True):
    """Where messages of one stream are posted to."""

    stream: SystemStream
    url: str
    is_json: bool
    messages: int
    key_header: str | None
    key_query: str | None
    credentials: Credentials

    def __repr__(self) -> str:
        return f"<{self.stream} at {self.place}>"

    @property
    def place(self) -> str:
        """The URL as it may be told: paths and queries of webhooks are often secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class WebhookSettings:
    """What the configuration says of one webhook system. Raises ConfigError for what is wrong."""

    def __init__(self, system: str, config: Config) -> None:
        self.system = system
        self.config = config
        self._named = dict(self._configured())
        for name in (*config.names("task.inputs"), *(each.split("#")[0] for each in config.names("task.broadcast.inputs"))):
            if name.startswith(f"{system}."):
                self._named.setdefault(name.removeprefix(f"{system}."), name)

    def streams(self) -> list[SystemStream]:
        """The streams that the configuration names."""
        return [SystemStream(self.system, name) for name in sorted(self._named)]

    def partitions(self, stream: SystemStream) -> int:
        """How many partitions a stream has. Raises UnknownStreamError."""
        if stream.stream not in self._named and not self._has_url(stream):
            known = ", ".join(map(str, self.streams())) or "none"
            raise UnknownStreamError(
                f"there is no stream {stream}: a webhook stream is there when it is an input (task.inputs) or the configuration says "
                f"something of it, such as systems.{self.system}.streams.{stream.stream}.path=/{stream.stream}; there are: {known}"
            )
        return self.config.integer(f"systems.{self.system}.streams.{stream.stream}.partitions")

    def listening(self) -> Listening:
        port = self._integer("port")
        if port > 65535:
            raise self.config.error(self._key("port"), f"{port} is no port: give 0 to 65535")
        certificate, private = self._path("certificate"), self._path("certificate.key")
        if private is not None and certificate is None:
            raise self.config.error(self._key("certificate.key"), f"there is no certificate: set {self._key('certificate')}")
        return Listening(
            host=self._text("host") or "",
            port=port,
            listen_timeout_s=self._integer("listen.timeout.ms") / 1000,
            certificate=certificate,
            certificate_key=private,
            connections=self._integer("connections.max"),
            header_timeout_s=self._integer("header.timeout.ms") / 1000,
            body_timeout_s=self._integer("body.timeout.ms") / 1000,
            acknowledge_timeout_s=self._integer("acknowledge.timeout.ms") / 1000,
            acknowledge_within_ms=self._integer("acknowledge.within.ms"),
            pending_messages=self._integer("pending.messages"),
            pending_bytes=self._integer("pending.bytes"),
            idempotency_keys=self._integer("idempotency.keys"),
            health_path=self._text("health.path") or "",
        )

    def endpoint(self, stream: SystemStream) -> Endpoint:
        """How to take messages of a stream, from whom."""
        name = stream.stream
        path = self._text("path", name) or f"/{name}"
        if not path.startswith("/") or "{" in path:
            raise self.config.error(self._key("path", name), f"'{path}' is no path: it begins with a / and has no braces")
        is_json = self._text("format", name) == "json"
        keys = [each for each in ("key.header", "key.query", "key.field") if self._text(each, name) is not None]
        if len(keys) > 1:
            raise self.config.error(self._key(keys[1], name), f"{self._key(keys[0], name)} is set as well: a message has one key")
        for only_json in ("key.field", "split.arrays"):
            if not is_json and self._text(only_json, name) not in (None, "false"):
                raise self.config.error(self._key(only_json, name), "needs format=json: in raw bytes there are neither fields nor arrays")
        most, room = self._integer("max.body.bytes", name), self._integer("pending.bytes")
        if most > room:
            raise self.config.error(self._key("max.body.bytes", name), f"{most} is more than {self._key('pending.bytes')} ({room})")
        credentials = self.credentials(name)
        self._check_reach(credentials, stream)
        return Endpoint(
            stream=stream,
            partitions=self.partitions(stream),
            path=path,
            is_json=is_json,
            split_arrays=self._boolean("split.arrays", name),
            max_body_bytes=most,
            key_header=self._header("key.header", name),
            key_query=self._text("key.query", name),
            key_field=self._text("key.field", name),
            headers=tuple(each.lower() for each in self.config.names(self._key("headers", name))),
            credentials=credentials,
        )

    def posting(self) -> Posting:
        return Posting(
            timeout_s=self._integer("post.timeout.ms") / 1000,
            retry_s=self._integer("post.retry.ms") / 1000,
            backoff_s=self._integer("post.backoff.ms") / 1000,
            backoff_max_s=self._integer("post.backoff.max.ms") / 1000,
            concurrency=self._integer("post.concurrency"),
            linger_s=self._integer("post.linger.ms") / 1000,
            pending_messages=self._integer("post.pending.messages"),
            ca=self._path("post.ca"),
        )

    def target(self, stream: SystemStream) -> Target:
        """Where to post messages of a stream. Raises UnknownStreamError."""
        name = stream.stream
        self.partitions(stream)
        is_json = self._text("format", name) == "json"
        messages = self._integer("post.messages", name)
        if messages > 1 and not is_json:
            raise self.config.error(self._key("post.messages", name), f"{messages} messages in one request need format=json")
        return Target(
            stream=stream,
            url=self._url(stream),
            is_json=is_json,
            messages=messages,
            key_header=self._header("key.header", name),
            key_query=self._text("key.query", name),
            credentials=self.credentials(name),
        )

    def check_urls(self, is_url: Callable[[str], bool]) -> None:
        """Raise ConfigError where a URL that is configured, for all streams or for one, is none that can be posted to.

        ``is_url``: whether what posts can read it."""
        for name in ("", *sorted(self._named)):
            key, found = self._secret_of("url", name)
            if found is not None:
                url = self._checked_url(key, found, name)
                if not is_url(url):
                    raise self.config.error(key, _NO_URL)

    def credentials(self, stream: str) -> Credentials:
        """How senders of a stream prove who they are, or how we do."""
        return Credentials(
            tokens=self._secrets("token", stream),
            secrets=self._secrets("signature.secret", stream),
            signature_header=(self._header("signature.header", stream) or "").lower(),
            timestamp_header=(self._header("signature.timestamp.header", stream) or "").lower() or None,
            tolerance_s=self._integer("signature.tolerance.ms", stream) / 1000,
        )

    def _check_reach(self, credentials: Credentials, stream: SystemStream) -> None:
        """Nobody takes messages from everybody without knowing it."""
        host = self._text("host") or ""
        if credentials or is_loopback(host) or self._text("authentication") == "none":
            return
        token = self._key("token", stream.stream, own=False)
        raise self.config.error(
            self._key("host"),
            f"whoever can reach {host} could send to {stream}: set {token} (or .env, .file) or signature.secret; or, if that is meant, "
            f"{self._key('authentication')}=none",
        )

    def _url(self, stream: SystemStream) -> str:
        key, found = self._secret_of("url", stream.stream)
        if found is None:
            return self._own_url(stream)
        return self._checked_url(key, found, stream.stream)

    def _checked_url(self, key: str, found: str, stream: str) -> str:
        """Errors do not tell the URL, not even a part: where it is wrong, any part may be the secret."""
        url = found.replace("{stream}", stream)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise self.config.error(key, _NO_URL) from None
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or re.search(r"[\s\x00-\x1f]", url):
            raise self.config.error(key, _NO_URL)
        if parts.username is not None and self._secrets("token", stream):
            raise self.config.error(key, f"has a name or a password in it, and {self._key('token', stream)} is set: give one of them")
        return url

    def _own_url(self, stream: SystemStream) -> str:
        here = self.listening()
        if self._key("port") not in self.config or not here.port:
            key = f"systems.{self.system}.streams.{stream.stream}.url"
            raise self.config.error(key, f"is missing (where messages of {stream} are posted to)")
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(here.host, f"[{here.host}]" if ":" in here.host else here.host)
        return f"{'https' if here.certificate else 'http'}://{host}:{here.port}{self._text('path', stream.stream) or '/' + stream.stream}"

    def _has_url(self, stream: SystemStream) -> bool:
        return any(self.config.text(f"systems.{self.system}.url{way}") is not None for way in ("", ".env", ".file"))

    def _configured(self) -> Iterator[tuple[str, str]]:
        """The streams that keys name. Raises ConfigError for a key that there is not."""
        prefix = f"systems.{self.system}.streams."
        longest_first = sorted(STREAM_KEYS, key=len, reverse=True)
        for rest in self.config.below(prefix):
            key = prefix + rest
            setting = next((each for each in longest_first if rest.endswith(f".{each}")), None)
            if setting is not None:
                yield rest.removesuffix(f".{setting}"), key
            elif ".samza." in rest:
                yield rest.partition(".samza.")[0], key
            elif config_keys.find(key) is not None:
                yield rest.rpartition(".")[0], key
            else:
                near = difflib.get_close_matches(rest.partition(".")[2], STREAM_KEYS, n=1)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(STREAM_KEYS))}"
                raise self.config.error(key, f"is no setting of a stream of webhooks; {hint}")

    def _key(self, name: str, stream: str | None = None, *, own: bool = True) -> str:
        """The key that sets something: the stream's own, if there is one, else the system's (or, not ``own``, always that)."""
        return f"systems.{self.system}.{name}" if stream is None or not own else self.config.stream_key(self.system, stream, name)

    def _text(self, name: str, stream: str | None = None) -> str | None:
        return self.config.text(self._key(name, stream), _NAMED[name])

    def _integer(self, name: str, stream: str | None = None) -> int:
        return self.config.integer(self._key(name, stream), _NAMED[name])

    def _boolean(self, name: str, stream: str) -> bool:
        return self.config.boolean(self._key(name, stream), _NAMED[name])

    def _path(self, name: str) -> Path | None:
        key = self._key(name)
        return self.config.path(key) if self.config.text(key) is not None else None

    def _header(self, name: str, stream: str) -> str | None:
        value = self._text(name, stream)
        if value is not None and not HEADER_NAME.fullmatch(value):
            raise self.config.error(self._key(name, stream), f"'{value}' is no name of an HTTP header")
        return value

    def _secrets(self, name: str, stream: str) -> tuple[str, ...]:
        key, found = self._secret_of(name, stream)
        if found is None:
            return ()
        secrets = tuple(each.strip() for each in found.split(",") if each.strip())
        if not secrets or any(not re.fullmatch(r"[!-~]+", each) for each in secrets):
            raise self.config.error(key, "must be printable ASCII characters without blanks")
        return secrets

    def _secret_of(self, name: str, stream: str) -> tuple[str, str | None]:
        """A secret of the stream, else of the system, and the key that it belongs to."""
        for key in (f"systems.{self.system}.streams.{stream}.{name}", f"systems.{self.system}.{name}"):
            found = self.config.secret(key)
            if found is not None:
                return key, found
        return f"systems.{self.system}.{name}", None


def is_loopback(host: str) -> bool:
    """Whether an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_all_read(settings: WebhookSettings, endpoints: dict[SystemStream, Endpoint], read: dict[SystemStream, set[int]]) -> None:
    """Raise ConfigError where two streams share a path, or where not all partitions of a stream are read here."""
    paths: dict[str, SystemStream] = {}
    for stream, endpoint in endpoints.items():
        other = paths.setdefault(endpoint.path, stream)
        if other != stream or endpoint.path == settings.listening().health_path:
            key = f"systems.{stream.system}.streams.{stream.stream}.path"
            raise ConfigError(f"{key}: {endpoint.path} is the path of {other if other != stream else 'health.path'} already", key=key)
        missing = set(range(endpoint.partitions)) - read[stream]
        if missing:
            key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
            raise ConfigError(
                f"{key}: {stream} has {endpoint.partitions} partitions, of which only {', '.join(map(str, sorted(read[stream])))} would be "
                f"read by what listens here: a webhook is one endpoint, which one container reads as a whole. Give the job one container, "
                f"or land the stream (systems.{stream.system}.samza.landing)",
                key=key,
            )
