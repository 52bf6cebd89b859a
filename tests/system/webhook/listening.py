"""A webhook consumer at work, for tests of what it answers."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import httpx

from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.systems import Systems
from streambench.system.webhook.consumer import WebhookConsumer

STREAM = SystemStream("hook", "events")


class Listener:
    """A consumer of ``hook.events`` on a free port. A thread polls it, and acknowledges what it gets as long
    as ``acknowledging`` is set; whoever holds ``polling`` keeps it from polling."""

    def __init__(self, settings: Mapping[str, Any] | None = None, directory: Path | None = None) -> None:
        config = configured({"port": 0, **(settings or {})}, directory)
        systems = Systems(config)
        self.partitions = len(systems.metadata([STREAM])[STREAM])
        self.metrics = MetricsRegistry()
        consumer = systems.consumer("hook", self.metrics)
        assert isinstance(consumer, WebhookConsumer)
        self.consumer = consumer
        self.received: list[IncomingMessageEnvelope] = []
        self.changed = threading.Condition()
        self.acknowledging = threading.Event()
        self.acknowledging.set()
        self.polling = threading.Lock()
        self._stopping = False
        self._acknowledged: dict[SystemStreamPartition, str] = {}
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Listener:
        for ssp in self.ssps:
            self.consumer.register(ssp, "0")
        self.consumer.start()
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{self.consumer.port}", trust_env=False, timeout=60
        )
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping = True
        self._thread.join()
        self.consumer.stop()
        self.http.close()

    @property
    def ssps(self) -> list[SystemStreamPartition]:
        return [SystemStreamPartition("hook", "events", number) for number in range(self.partitions)]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.consumer.port}/events"

    def post(
        self, body: bytes, headers: Mapping[str, str] | None = None, path: str = "/events", **what: Any
    ) -> httpx.Response:
        return self.http.post(path, content=body, headers=headers, **what)

    def posting(self, *bodies: bytes, headers: Mapping[str, str] | None = None) -> Posts:
        """Posts that go on by themselves, each on a thread."""
        return Posts([lambda body=body: self.post(body, headers) for body in bodies])  # type: ignore[misc]

    def wait_for(self, count: int) -> list[IncomingMessageEnvelope]:
        """Return when so many messages have been received."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.received) >= count, 60)
            return list(self.received)

    @property
    def messages(self) -> list[Any]:
        return [each.message for each in self.received]

    def _read(self) -> None:
        while not self._stopping:
            with self.polling:
                polled = self.consumer.poll(dict.fromkeys(self.ssps, 100), 5)
            with self.changed:
                self.received += polled
                self.changed.notify_all()
            self._acknowledged.update({each.ssp: each.offset for each in polled})
            if self.acknowledging.is_set():
                self.consumer.acknowledge(self._acknowledged)


class Posts:
    """Requests under way, each on a thread of its own. ``answers``: those that have come, in this order."""

    def __init__(self, calls: list[Any]) -> None:
        self.answers: list[httpx.Response] = []
        self._threads = [threading.Thread(target=self._call, args=(call,)) for call in calls]
        for each in self._threads:
            each.start()

    def _call(self, call: Any) -> None:
        self.answers.append(call())

    def join(self) -> list[httpx.Response]:
        for each in self._threads:
            each.join()
        return self.answers


def configured(settings: Mapping[str, Any], directory: Path | None = None) -> Config:
    """The configuration of the system ``hook`` with one stream; settings of it begin with ``events.``."""
    named = {
        f"systems.hook.{'streams.' if name.startswith('events.') else ''}{name}": value
        for name, value in settings.items()
    }
    values = {"systems.hook.samza.factory": "webhook", "task.inputs": "hook.events", **named}
    return Config.from_text("\n".join(f"{key}={value}" for key, value in values.items()), directory=directory)
