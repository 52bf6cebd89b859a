"""From ``systems.<s>.*`` to the parts of a webhook system."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import MissingExtraError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.api import Sender, SystemConsumer, SystemFactory, SystemProducer
from streambench.system.numbered import UnstoredAdmin
from streambench.system.webhook.outgoing import KeyAs, beside_the_body
from streambench.system.webhook.post_settings import PostSettings
from streambench.system.webhook.settings import SETTINGS, Receiving, WebhookSettings


class WebhookSystemFactory(SystemFactory):
    """``systems.<s>.samza.factory=webhook``: ``POST http://127.0.0.1:8080/STREAM`` is an input, and what is
    sent to a stream is posted to its ``url``. A stream is there when it is an input or the configuration says
    something of it. ``docs/webhook.md`` has all of it.

    A request is answered 200 only when its messages are durable. That is after the commit that holds their
    results, or, where the stream is landed, when they are in the log. So a sender that tries again until it
    gets a 2xx loses nothing.
    """

    keys: ClassVar[frozenset[str] | None] = SETTINGS.system_names
    settings: ClassVar[tuple[Key, ...]] = SETTINGS.keys
    listens: ClassVar[bool] = True
    holds_changelogs: ClassVar[bool] = False
    creates_streams = False

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemConsumer:
        with _needing("uvicorn", "starlette"):
            from streambench.system.webhook.consumer import WebhookConsumer
        return WebhookConsumer(system, WebhookSettings(system, config), metrics)

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> SystemProducer:
        with _needing("httpx"):
            from streambench.system.webhook.producer import WebhookProducer
        return WebhookProducer(PostSettings(system, config), metrics)

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> UnstoredAdmin:
        return UnstoredAdmin(WebhookSettings(system, config))

    def get_check(
        self, system: str, config: Config, stream: SystemStream, largest: int | None = None
    ) -> Sender:
        form = Receiving.read(config, system, stream.stream)
        key_as = KeyAs(form.key_header, form.key_query)

        def send(
            source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
        ) -> None:
            beside_the_body(stream, key_as, key, message, envelope.headers)

        return send


@contextmanager
def _needing(*modules: str) -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").split(".")[0] in (*modules, "h11", "anyio", "httpcore"):
            raise MissingExtraError("a webhook", "webhook") from error
        raise
