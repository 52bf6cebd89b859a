"""Settings of the posts of webhooks: where a system posts to, and how."""

from __future__ import annotations

import re
from collections.abc import Callable
from urllib.parse import urlsplit

from msgspec import Struct

from streambench.model import SystemStream
from streambench.system.settings import Secret
from streambench.system.webhook.credentials import Credentials
from streambench.system.webhook.outgoing import KeyAs
from streambench.system.webhook.settings import Posting, Receiving, Sending, Signing, WebhookSettings

_NO_URL = (
    "is no URL of http or https, like https://example.org:8443/path; in a name or password in it, "
    ": / # ? @ and % are written %3A, %2F..."
)


class Target(Struct, frozen=True, kw_only=True):
    """The place that messages of one stream are posted to."""

    stream: SystemStream
    url: str
    is_json: bool
    messages: int
    key_as: KeyAs
    credentials: Credentials

    def __repr__(self) -> str:
        return f"<{self.stream} at {self.place}>"

    @property
    def place(self) -> str:
        """The URL as it may be shown: paths and queries of webhooks are often secret."""
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


class PostSettings(WebhookSettings):
    """Settings of a webhook system that posts. Raises ConfigError for what is wrong."""

    def posting(self) -> Posting:
        """The limits and pauses. Raises ConfigError."""
        return Posting.read(self.config, self.system)

    def target(self, stream: SystemStream) -> Target:
        """Return the place to post messages of a stream to. Raises UnknownStreamError."""
        name = stream.stream
        self.partitions(stream)
        form = Receiving.read(self.config, self.system, name)
        messages = Sending.read(self.config, self.system, name).post_messages
        if messages > 1 and not form.is_json:
            raise self.config.error(
                self._key("post.messages", name), f"{messages} messages in one request need format=json"
            )
        return Target(
            stream=stream,
            url=self._url(stream),
            is_json=form.is_json,
            messages=messages,
            key_as=KeyAs(self._header("key.header", name, form.key_header), form.key_query),
            credentials=self.credentials(name),
        )

    def check_urls(self, is_url: Callable[[str], bool]) -> None:
        """Raise ConfigError where a URL that is configured, for all streams or for one, is none that can be
        posted to.

        ``is_url``: true for a URL that the HTTP client can read."""
        for name in ("", *sorted(self._named)):
            found = Sending.read(self.config, self.system, name or None).url
            if found is not None and not is_url(self._checked_url(found, name)):
                raise self.config.error(found.key, _NO_URL)

    def _url(self, stream: SystemStream) -> str:
        found = Sending.read(self.config, self.system, stream.stream).url
        return self._own_url(stream) if found is None else self._checked_url(found, stream.stream)

    def _checked_url(self, found: Secret, stream: str) -> str:
        """Check a URL. Errors never show a part of it: where it is wrong, any part may be secret."""
        key, url = found.key, found.value.replace("{stream}", stream)
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError:
            raise self.config.error(key, _NO_URL) from None
        if (
            parts.scheme not in ("http", "https")
            or not parts.hostname
            or port == 0
            or re.search(r"[\s\x00-\x1f]", url)
        ):
            raise self.config.error(key, _NO_URL)
        token = Signing.read(self.config, self.system, stream or None).token
        if parts.username is not None and self._secrets(token):
            raise self.config.error(
                key,
                f"has a name or a password in it, and {self._key('token', stream)} is set: give one of them",
            )
        return url

    def _own_url(self, stream: SystemStream) -> str:
        here = self.listening()
        if self._key("port") not in self.config or not here.port:
            key = f"systems.{self.system}.streams.{stream.stream}.url"
            raise self.config.error(key, f"is missing (where messages of {stream} are posted to)")
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(
            here.host, f"[{here.host}]" if ":" in here.host else here.host
        )
        path = Receiving.read(self.config, self.system, stream.stream).path or f"/{stream.stream}"
        return f"{'https' if here.certificate else 'http'}://{host}:{here.port}{path}"
