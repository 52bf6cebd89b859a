"""A broker of these tests' own, which is reached through proxies that they can have do harm."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from streambench.system.kafka.nodes import free_ports
from tests.conftest import kafka_nodes
from tests.faults.kafka.proxy import FaultProxy
from tests.faults.kafka.table import Broker

PROXIES = 6


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """One node with several proxies before it, each of which leads its clients to nothing but itself."""
    free = free_ports(2 * PROXIES + 2, set())[2:]  # the node takes the first two
    pairs = list(zip(free[:PROXIES], free[PROXIES:], strict=True))

    def add_listeners(number: int, settings: dict[str, object]) -> None:
        for at, (outside, inside) in enumerate(pairs):
            settings["listeners"] = f"{settings['listeners']},PROXIED{at}://127.0.0.1:{inside}"
            settings["advertised.listeners"] = f"{settings['advertised.listeners']},PROXIED{at}://127.0.0.1:{outside}"
            protocols = "listener.security.protocol.map"
            settings[protocols] = f"{settings[protocols]},PROXIED{at}:PLAINTEXT"

    nodes = kafka_nodes(tmp_path_factory.mktemp("proxied"), add_listeners)
    nodes.start(1, 0)
    proxies = [FaultProxy(outside, inside) for outside, inside in pairs]
    yield Broker(nodes, proxies)
    for proxy in proxies:
        proxy.close()
    nodes.stop()
