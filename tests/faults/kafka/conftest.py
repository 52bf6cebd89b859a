"""The broker of the tests, reached through proxies that these tests can have do harm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streambench.testing.brokers.kafka import KafkaNodes
from tests.faults.kafka.proxy import FaultProxy
from tests.faults.kafka.table import Broker


@pytest.fixture(scope="module")
def broker(kafka: KafkaNodes, kafka_doors: list[tuple[int, int]]) -> Iterator[Broker]:
    """A proxy before each of its doors: it leads its clients to nothing but itself."""
    proxies = [FaultProxy(outside, inside) for inside, outside in kafka_doors]
    yield Broker(kafka, proxies)
    for proxy in proxies:
        proxy.close()
