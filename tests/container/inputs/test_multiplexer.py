"""With a thousand partitions, a message costs about what it costs with one: nothing goes over all of them
again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streambench.model import SystemStreamPartition
from streambench.system.api import Chunk
from streambench.system.memory import MemoryConsumer, MemoryStreams, MemorySystemFactory
from streambench.testing import ManualClock
from tests.container.jobs import Bench, ignore


class Counted(MemoryConsumer):
    """Counts of how many partitions it was asked for news, in all."""

    asked = 0

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        self.asked += len(wanted)
        return super().poll_chunks(wanted, timeout_ms)


class Asked(MemorySystemFactory):
    """The factory of one such consumer."""

    def __init__(self, streams: MemoryStreams) -> None:
        super().__init__(streams)
        self.consumer = Counted(streams)

    def get_consumer(self, system: str, config: Any, metrics: Any) -> Counted:
        return self.consumer


def bench(
    partitions: Mapping[int, list[Any]], task: Any = ignore, clock: ManualClock | None = None
) -> tuple[Bench, Counted]:
    streams = MemoryStreams()
    factory = Asked(streams)
    return Bench(task, {"mem.a": partitions}, factory=factory, streams=streams, clock=clock), factory.consumer


@pytest.mark.parametrize("partitions", [50, 1000])
def test_partitions_that_run_dry_together_are_looked_at_once_for_all(partitions: int) -> None:
    job, consumer = bench({number: ["x", "y"] for number in range(partitions)})
    container = job.started()
    assert container.run("caught-up") == 2 * partitions
    container.stop()
    assert consumer.asked <= 8 * partitions


def test_among_many_idle_partitions_a_busy_one_goes_on_and_news_is_noticed() -> None:
    """Each of the 300 messages takes 10 ms: with 50 ms from look to look there would be 60 of them."""
    clock = ManualClock()
    seen: list[Any] = []

    def slow(envelope, collector, coordinator):
        clock.advance(10)
        seen.append(envelope.message)
        if len(seen) == 100:
            job.put("mem.a.999", "news")

    job, consumer = bench({0: list(range(300)), 999: []}, slow, clock)
    container = job.started()
    before = consumer.asked
    container.step(300)
    container.stop()
    assert consumer.asked - before <= 20 * 1000
    assert 100 <= seen.index("news") <= 125


def test_few_partitions_are_looked_at_as_often_as_configured() -> None:
    clock = ManualClock()
    seen: list[Any] = []

    def slow(envelope, collector, coordinator):
        clock.advance(10)
        seen.append(envelope.message)
        if len(seen) == 100:
            job.put("mem.a.9", "news")

    job, _ = bench({0: list(range(200)), 9: []}, slow, clock)
    container = job.started()
    container.run("caught-up")
    container.stop()
    assert 100 <= seen.index("news") <= 105
