"""The producer of webhooks: posts messages, in order, until each has been taken."""

from __future__ import annotations

import ssl
from functools import cache

import httpx

from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.api import SystemProducer
from streambench.system.partitioner import partition_for
from streambench.system.webhook.http_sender import HttpSender, Message
from streambench.system.webhook.outgoing import beside_the_body
from streambench.system.webhook.post_settings import PostSettings, Target


class WebhookProducer(SystemProducer):
    """Posts on a thread of its own; a flush returns when every message got a 2xx.

    The messages of a stream are posted one after the other (with ``post.concurrency``: those of one key), so
    that they arrive in order. An attempt that fails is repeated, with growing pauses and the same
    Idempotency-Key, until ``post.retry.ms`` are over. Once a receiver has refused a message for good, nothing
    more is posted and every flush raises: the job stops at its last commit.

    Headers of a message become HTTP headers. One called ``idempotency-key`` is used instead of a random one.
    It is for a task that can name what it sends in such a way that a restart names it alike. Keys are sent
    where ``key.header`` or ``key.query`` says how.
    """

    def __init__(self, settings: PostSettings, metrics: MetricsRegistry) -> None:
        self._settings = settings
        self._posting = settings.posting()
        self._targets: dict[SystemStream, Target] = {}
        self._queues: dict[SystemStream, int] = {}
        settings.check_urls(_is_url)
        self._sender = HttpSender(self._posting, self._certificates())
        system = settings.system
        metrics.gauge(f"{system}-posts", "webhook", lambda: self._sender.posts)
        metrics.gauge(f"{system}-posts-repeated", "webhook", lambda: self._sender.repeated)

    def start(self) -> None:
        self._sender.start()

    def stop(self) -> None:
        self._sender.stop()

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        stream = envelope.system_stream
        target = self._targets.get(stream)
        if target is None:
            target = self._targets[stream] = self._settings.target(stream)
            self._queues[stream] = 0
        key, message = envelope.key, envelope.message
        headers, query = beside_the_body(stream, target.key_as, key, message, envelope.headers)
        self._sender.put(Message(target, message, headers, query), self._queue(stream, key))

    def flush(self, source: str) -> None:
        self._sender.flush()

    def _queue(self, stream: SystemStream, key: bytes | None) -> int:
        queues = self._posting.post_concurrency
        if queues == 1:
            return 0
        if key is not None:
            return partition_for(key, queues)
        self._queues[stream] += 1
        return self._queues[stream] % queues

    def _certificates(self) -> ssl.SSLContext:
        ca = self._posting.post_ca
        if ca is None:
            return _known_certificates()
        try:
            return ssl.create_default_context(cafile=ca)
        except (OSError, ssl.SSLError) as error:
            key = f"systems.{self._settings.system}.post.ca"
            raise self._settings.config.error(key, f"{ca} cannot be used: {error}") from None


@cache
def _known_certificates() -> ssl.SSLContext:
    """The usual certificate authorities, which take a while to be read."""
    return httpx.create_ssl_context()


def _is_url(text: str) -> bool:
    try:
        httpx.URL(text)
    except httpx.InvalidURL:
        return False
    return True
