"""The end of a stream queue, requested on a connection that is in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pika

from streambench.system.amqp.broker import STREAM_OFFSET
from streambench.system.amqp.settings import MOST_AHEAD


def probe_end(connection: Any, queue: str, answer: Callable[[int | None], None]) -> None:
    """Have ``answer`` called with the offset of the last message, None where there is none; ``bounds`` says
    why this is so."""
    newest: list[int] = []
    steps = 2

    def opened(channel: Any) -> None:
        channel.basic_qos(prefetch_count=MOST_AHEAD)
        channel.basic_consume(queue, note, arguments={STREAM_OFFSET: "last"})
        again(channel)

    def note(_: Any, __: Any, properties: pika.BasicProperties, ___: bytes) -> None:
        newest[:] = [int(properties.headers[STREAM_OFFSET])]

    def again(channel: Any) -> None:
        channel.basic_consume(queue, lambda *_: None, arguments={STREAM_OFFSET: "next"})
        channel.queue_declare(queue, passive=True, callback=lambda _: counted(channel))

    def counted(channel: Any) -> None:
        nonlocal steps
        steps -= 1
        if steps:
            again(channel)
            return
        channel.close()
        answer(newest[0] if newest else None)

    connection.channel(on_open_callback=opened)
