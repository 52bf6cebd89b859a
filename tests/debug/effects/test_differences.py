"""Differences of what two versions do with the same messages: where their outputs go."""

from __future__ import annotations

from typing import Any

from streambench.model import SystemStream
from tests.container.jobs import OUT
from tests.debug.control.test_hot_swap import words
from tests.debug.control.test_time_travel import session_of


def test_replay_says_that_outputs_go_elsewhere() -> None:
    def sends(**to: Any) -> Any:
        return lambda envelope, collector, coordinator: collector.send("mem.placed", envelope.message, **to)

    session, bench = session_of(sends(partition=0), inputs=words("abc"))
    bench.streams.create(SystemStream("mem", "placed"), 2)
    session.step(3)
    swap = session.swap(sends(partition=1), replay=3)
    assert (swap.alike, len(swap.changed)) == (0, 3)
    assert str(swap.first) == "1: -> mem.placed partition 0 -> partition 1"
    swap = session.swap(sends(partition=0, key="k"), replay=3)
    assert str(swap.first) == "1: -> mem.placed key - -> key k"
    session.stop()


def test_outputs_without_a_key_may_come_in_another_turn() -> None:
    def sends(*words: str) -> Any:
        def process(envelope: Any, collector: Any, coordinator: Any) -> None:
            if envelope.message["key"] in words:
                collector.send(str(OUT), envelope.message)

        return process

    session, bench = session_of(sends("b", "c"), inputs=words("abcb"))
    bench.streams.create(OUT, 3)
    session.step(4)
    assert [each.partition for each in session.outputs()] == [0, 1, 2]
    swap = session.swap(sends("a", "b", "c"), replay=4)
    assert [each.position for each in swap.changed] == [1]
    session.stop()
