"""Settings of the endpoints of webhooks: where a system listens, what it takes and from whom."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError, UnknownStreamError
from streambench.model import SystemStream
from streambench.system.listing import named_inputs
from streambench.system.settings import Secret, SettingsTable, SystemSettings, setting
from streambench.system.webhook.credentials import Credentials

HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
"""A valid name of an HTTP header."""


@dataclass(frozen=True, kw_only=True)
class Listening(SystemSettings):
    """The address a system listens at, and its limits."""

    host: str = setting(
        "127.0.0.1",
        "the address that it listens on; one that others can reach needs token or signature.secret",
    )
    port: int = setting(8_080, "the port that it listens on; 0: any free one, which is logged", least=0)
    listen_timeout_ms: int = setting(
        5_000, "how long to wait for a port that another process still has", least=0
    )
    certificate: Path | None = setting(
        None, "a file with the certificate (PEM) of an https endpoint. Default: plain http"
    )
    certificate_key: Path | None = setting(
        None, "the file with the private key of the certificate. Default: it stands in the same file"
    )
    authentication: Literal["none"] | None = setting(
        None, "none: listen without authentication where others can reach it"
    )
    connections_max: int = setting(
        1_000,
        "how many connections there may be at once; then the oldest without a request makes way for another "
        "one, which is else answered 503",
        least=1,
    )
    header_timeout_ms: int = setting(10_000, "how long a sender may take for the head of a request", least=1)
    body_timeout_ms: int = setting(30_000, "how long a sender may take for the body of a request", least=1)
    acknowledge_timeout_ms: int = setting(
        30_000, "how long a request waits until its messages are durable; then 503", least=1
    )
    acknowledge_within_ms: int = setting(
        50,
        "how long senders wait at most for the commit that makes messages durable: it comes that often, "
        "however long task.commit.ms is",
        least=1,
    )
    pending_messages: int = setting(
        10_000, "how many messages may be on their way and not durable; further ones: 503", least=1
    )
    pending_bytes: int = setting(
        67_108_864, "how many bytes of bodies may be in memory at once; further ones: 503", least=1
    )
    idempotency_keys: int = setting(
        10_000,
        "of how many durable requests the Idempotency-Key is known, so that a repeated one is answered and "
        "not delivered again",
        least=0,
    )
    health_path: str = setting("/health", "GET of this path is answered as long as it takes messages")


@dataclass(frozen=True, kw_only=True)
class Posting(SystemSettings):
    """Limits and pauses of a system that posts."""

    post_timeout_ms: int = setting(30_000, "how long an attempt to post may take", least=1)
    post_retry_ms: int = setting(
        120_000, "how long posting is tried again where the receiver fails or is not there", least=0
    )
    post_backoff_ms: int = setting(
        200, "the pause before the second attempt; it doubles with each, and chance shortens it", least=1
    )
    post_backoff_max_ms: int = setting(
        10_000, "the longest pause, unless the receiver asks for a longer one", least=1
    )
    post_concurrency: int = setting(
        1, "how many posts of a stream are under way at once; messages of one key stay in order", least=1
    )
    post_pending_messages: int = setting(
        1_000, "how many messages may wait to be posted; then a task that sends waits", least=1
    )
    post_linger_ms: int = setting(
        50, "where post.messages is more than 1: how long a message waits for others", least=0
    )
    post_ca: Path | None = setting(
        None, "a file with the certificates (PEM) that vouch for receivers. Default: those of this machine"
    )


@dataclass(frozen=True, kw_only=True)
class Receiving(SystemSettings):
    """The requests of one stream, and what becomes of them; headers and parameters of posts, too."""

    path: str | None = setting(
        None, "the path that messages are posted to. Default: / and the name of the stream"
    )
    format: Literal["json", "raw"] = setting(
        "json", "json: bodies are JSON, one value (or, as application/x-ndjson, one per line); raw: any bytes"
    )
    split_arrays: bool = setting(False, "a body that is a JSON array is several messages: its elements")
    max_body_bytes: int = setting(
        1_048_576, "the most that the body of a request may have; larger ones: 413", least=1
    )
    key_header: str | None = setting(None, "the HTTP header that holds the key of a message")
    key_query: str | None = setting(None, "the parameter of the URL that holds the key of a message")
    key_field: str | None = setting(None, "the field of a JSON object that is the key of the message")
    headers: tuple[str, ...] = setting(
        (),
        "the HTTP headers that become headers of the message, beside Idempotency-Key; *: all but secret ones",
    )

    @property
    def is_json(self) -> bool:
        return self.format == "json"


@dataclass(frozen=True, kw_only=True)
class Signing(SystemSettings):
    """The credentials that senders show, or that posts show."""

    token: Secret | None = setting(
        None,
        "the bearer token that a sender has to show; several, separated by commas, while one replaces "
        "another",
    )
    signature_secret: Secret | None = setting(
        None, "the secret by which bodies are signed (HMAC with SHA-256); several as for token"
    )
    signature_header: str = setting(
        "X-Hub-Signature-256", "the header with the signature: sha256= and hexadecimal digits"
    )
    signature_timestamp_header: str | None = setting(
        None,
        "the header with the time (seconds since 1970) of the request; what is signed is then the time, a "
        "dot and the body, so that it cannot be repeated later",
    )
    signature_tolerance_ms: int = setting(300_000, "how far that time may be from now", least=1)


@dataclass(frozen=True, kw_only=True)
class Sending(SystemSettings):
    """The receiver of the messages of one stream."""

    url: Secret | None = setting(
        None,
        "where messages are posted to; {stream} in it stands for the stream. Default: the stream's own "
        "endpoint, where port is set",
    )
    post_messages: int = setting(
        1, "how many messages are one request at most; more than 1: as JSON lines", least=1
    )


SETTINGS = SettingsTable("webhook", system=(Listening, Posting), both=(Receiving, Signing, Sending))


class Endpoint(Struct, frozen=True, kw_only=True):
    """The endpoint of one stream. ``form``: what its requests look like."""

    stream: SystemStream
    partitions: int
    path: str
    form: Receiving
    credentials: Credentials


class WebhookSettings:
    """The configuration of one webhook system. Raises ConfigError for what is wrong."""

    def __init__(self, system: str, config: Config) -> None:
        self.system = system
        self.config = config
        self._named = {stream for stream, _, _ in SETTINGS.of_streams(config, system)}
        self._named |= {each.stream for each in named_inputs(config) if each.system == system}

    def streams(self) -> list[SystemStream]:
        """The streams that the configuration names."""
        return [SystemStream(self.system, name) for name in sorted(self._named)]

    def partitions(self, stream: SystemStream) -> int:
        """The number of partitions a stream has. Raises UnknownStreamError."""
        if stream.stream not in self._named and not self._has_url(stream):
            known = ", ".join(map(str, self.streams())) or "none"
            raise UnknownStreamError(
                f"there is no stream {stream}: a webhook stream is there when it is an input (task.inputs) "
                "or the configuration says something of it, such as "
                f"systems.{self.system}.streams.{stream.stream}.path=/{stream.stream}; there are: {known}"
            )
        return self.config.integer(f"systems.{self.system}.streams.{stream.stream}.partitions")

    def listening(self) -> Listening:
        """The address and limits. Raises ConfigError."""
        found = Listening.read(self.config, self.system)
        if found.port > 65535:
            raise self.config.error(self._key("port"), f"{found.port} is no port: give 0 to 65535")
        if found.certificate_key is not None and found.certificate is None:
            raise self.config.error(
                self._key("certificate.key"), f"there is no certificate: set {self._key('certificate')}"
            )
        return found

    def endpoint(self, stream: SystemStream) -> Endpoint:
        """The endpoint of a stream, with its credentials."""
        name = stream.stream
        form = Receiving.read(self.config, self.system, name)
        path = form.path or f"/{name}"
        if not path.startswith("/") or "{" in path:
            raise self.config.error(
                self._key("path", name), f"'{path}' is no path: it begins with a / and has no braces"
            )
        self._check_form(form, name)
        credentials = self.credentials(name)
        self._check_reach(credentials, stream)
        partitions = self.partitions(stream)
        self._header("key.header", name, form.key_header)
        return Endpoint(stream=stream, partitions=partitions, path=path, form=form, credentials=credentials)

    def _check_form(self, form: Receiving, name: str) -> None:
        """Raise ConfigError where settings of a stream contradict each other."""
        named = {"key.header": form.key_header, "key.query": form.key_query, "key.field": form.key_field}
        keys = [each for each, value in named.items() if value is not None]
        if len(keys) > 1:
            raise self.config.error(
                self._key(keys[1], name), f"{self._key(keys[0], name)} is set as well: a message has one key"
            )
        for only_json, value in (("key.field", form.key_field), ("split.arrays", form.split_arrays)):
            if not form.is_json and value:
                what = "needs format=json: in raw bytes there are neither fields nor arrays"
                raise self.config.error(self._key(only_json, name), what)
        most, room = form.max_body_bytes, self.listening().pending_bytes
        if most > room:
            what = f"{most} is more than {self._key('pending.bytes')} ({room})"
            raise self.config.error(self._key("max.body.bytes", name), what)

    def credentials(self, stream: str) -> Credentials:
        """The credentials that senders of a stream show, or that posts show."""
        found = Signing.read(self.config, self.system, stream)
        header = self._header("signature.header", stream, found.signature_header)
        timestamp = self._header("signature.timestamp.header", stream, found.signature_timestamp_header)
        return Credentials(
            tokens=self._secrets(found.token),
            secrets=self._secrets(found.signature_secret),
            signature_header=(header or "").lower(),
            timestamp_header=(timestamp or "").lower() or None,
            tolerance_s=found.signature_tolerance_ms / 1000,
        )

    def _check_reach(self, credentials: Credentials, stream: SystemStream) -> None:
        """Raise ConfigError where anyone who reaches the host could send, unless that is configured."""
        listening = self.listening()
        host = listening.host
        if credentials or is_loopback(host) or listening.authentication == "none":
            return
        token = self._key("token", stream.stream, own=False)
        raise self.config.error(
            self._key("host"),
            f"anyone who can reach {host} could send to {stream}: set {token} (or .env, .file) or "
            f"signature.secret; or, if that is meant, {self._key('authentication')}=none",
        )

    def _has_url(self, stream: SystemStream) -> bool:
        return any(
            self.config.text(f"systems.{self.system}.url{way}") is not None for way in ("", ".env", ".file")
        )

    def _key(self, name: str, stream: str | None = None, *, own: bool = True) -> str:
        """The key that sets something: the stream's own, if there is one, else the system's (or, not ``own``,
        always that)."""
        if stream is None or not own:
            return f"systems.{self.system}.{name}"
        return self.config.stream_key(self.system, stream, name)

    def _header(self, name: str, stream: str, value: str | None) -> str | None:
        """The name of a header, which stands in the setting ``name``. Raises ConfigError where it is none."""
        if value is not None and not HEADER_NAME.fullmatch(value):
            raise self.config.error(self._key(name, stream), f"'{value}' is no name of an HTTP header")
        return value

    def _secrets(self, found: Secret | None) -> tuple[str, ...]:
        if found is None:
            return ()
        secrets = tuple(each.strip() for each in found.value.split(",") if each.strip())
        if not secrets or any(not re.fullmatch(r"[!-~]+", each) for each in secrets):
            raise self.config.error(found.key, "must be printable ASCII characters without blanks")
        return secrets


def is_loopback(host: str) -> bool:
    """True if an address can be reached from this machine alone."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_all_read(
    settings: WebhookSettings, endpoints: dict[SystemStream, Endpoint], read: dict[SystemStream, set[int]]
) -> None:
    """Raise ConfigError where two streams share a path, or where not all partitions of a stream are read
    here."""
    paths: dict[str, SystemStream] = {}
    for stream, endpoint in endpoints.items():
        other = paths.setdefault(endpoint.path, stream)
        if other != stream or endpoint.path == settings.listening().health_path:
            key = f"systems.{stream.system}.streams.{stream.stream}.path"
            raise ConfigError(
                f"{key}: {endpoint.path} is the path of {other if other != stream else 'health.path'} "
                "already",
                key=key,
            )
        missing = set(range(endpoint.partitions)) - read[stream]
        if missing:
            key = f"systems.{stream.system}.streams.{stream.stream}.partitions"
            raise ConfigError(
                f"{key}: {stream} has {endpoint.partitions} partitions, of which only "
                f"{', '.join(map(str, sorted(read[stream])))} would be read by what listens here: a webhook "
                "is one endpoint, which one container reads as a whole. Give the job one container, or land "
                f"the stream (systems.{stream.system}.samza.landing)",
                key=key,
            )
