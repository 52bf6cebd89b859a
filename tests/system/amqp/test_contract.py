"""An AMQP system keeps the contract of a system, on a real RabbitMQ."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambench.testing.brokers.rabbitmq import RabbitServer
from streambench.testing.systems import SystemContract


class _Amqp(SystemContract):
    lists = grows = False
    kind: str

    @pytest.fixture(autouse=True)
    def broker(self, rabbitmq: RabbitServer) -> None:
        self.rabbitmq = rabbitmq

    def settings(self, directory: Path) -> Mapping[str, Any]:
        # The streams of the contract always have the same names.
        names = {
            f"streams.{name}.queue": f"{directory.parent.name}-{directory.name}-{name}"
            for name in ("stream", "other", "new")
        }
        return {"samza.factory": "amqp", "url": self.rabbitmq.url, "queue.type": self.kind, **names}


class TestStreamQueues(_Amqp):
    kind = "stream"
    most_partitions = 4


class _Queues(_Amqp):
    replayable = chooses_partitions = False
    redelivers = True


class TestQuorumQueues(_Queues):
    kind = "quorum"


class TestClassicQueues(_Queues):
    kind = "classic"
