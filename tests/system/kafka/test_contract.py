"""A Kafka system keeps the contract of a system, on a real broker."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from streambench.system.systems import Systems
from streambench.testing.brokers.kafka import KafkaNodes
from streambench.testing.systems import SystemContract
from tests.system.kafka.cluster import config


class TestKafka(SystemContract):
    @pytest.fixture(autouse=True)
    def empty_kafka(self, kafka: KafkaNodes) -> None:
        """The streams of the contract always have the same names."""
        self.kafka = kafka
        systems = Systems(config(kafka))
        admin = systems.admin("k")
        for stream in admin.streams():
            admin.delete(stream)
        systems.close()

    def settings(self, directory: Path) -> Mapping[str, Any]:
        assert self.kafka.cluster is not None
        large = {"streams.stream.max.message.bytes": 10 << 20}
        return {"samza.factory": "kafka", "bootstrap.servers": self.kafka.cluster.servers, **large}
