"""What the tests of AMQP systems share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streambench.testing.brokers.rabbitmq import RabbitServer
from tests.system.amqp.broker import Amqp


@pytest.fixture
def amqp(rabbitmq: RabbitServer) -> Iterator[Callable[..., Amqp]]:
    """Makes systems, with settings below ``systems.q.``, in which STREAM stands for the name of the stream.
    """
    made: list[Amqp] = []

    def make(**settings: Any) -> Amqp:
        made.append(Amqp(rabbitmq.url, **settings))
        return made[-1]

    yield make
    for each in made:
        each.close()
