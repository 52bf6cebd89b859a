"""The head of a partition of a simple plug-in: what its own bounds tell decides, and not one call that
brought nothing."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.container.inputs import consumers
from streambench.errors import StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStreamPartition
from streambench.system import reader
from streambench.system.pull import StreamConsumer, StreamMessage
from streambench.system.pull import consumer as pulling
from tests.system import listed
from tests.system.pull.noting import Noting, seen


class Halting(listed.ListConsumer):
    """Has nothing at the first calls, and nothing between any two messages."""

    def __init__(self, partition: list[StreamMessage], at: int) -> None:
        super().__init__(partition, at)
        self.left = 5

    def get_message(self) -> StreamMessage | None:
        if self.left:
            self.left -= 1
            return None
        self.left = 3
        return super().get_message()


class _Halts(listed.Opaque):
    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        messages = listed.streams[stream][partition]
        kind = Halting if stream.startswith("slow") else listed.ListConsumer
        return kind(messages, 0 if offset is None else self.index(messages, offset))


class HaltingBounded(_Halts, listed.Bounded):
    pass


class HaltingCompared(_Halts, listed.Compared):
    pass


class HaltingNumbered(_Halts, listed.Numbered):
    pass


class WithoutNewest(HaltingNumbered):
    """Knows where the next message will stand, and not which the last one is."""

    def bounds(self, system: str, stream: str, partition: int, config: Config) -> PartitionMetadata:
        messages = listed.streams[stream][partition]
        upcoming = str(int(messages[-1].offset_id) + 1) if messages else "0"
        return PartitionMetadata(messages[0].offset_id if messages else None, None, upcoming)


class Growing(listed.Compared):
    """Offsets as those of Redis; a message comes with each one that is read, so that there is always another
    one. The tenth is removed before it can be read."""

    def offset(self, at: int) -> str:
        return f"1700-{at:04}"

    def compare(self, offset: str, other: str) -> int | None:
        return (offset > other) - (offset < other)

    def consumer(
        self, system: str, stream: str, partition: int, offset: str | None, config: Config
    ) -> StreamConsumer:
        reading = super().consumer(system, stream, partition, offset, config)
        get_message = reading.get_message

        def grow() -> StreamMessage | None:
            put(Growing, stream, 1)
            message = get_message()
            return get_message() if message and message.offset_id == self.offset(9) else message

        reading.get_message = grow  # type: ignore[method-assign]
        return reading


class Promising(listed.Numbered):
    """Tells of a message that never comes."""

    def bounds(self, system: str, stream: str, partition: int, config: Config) -> PartitionMetadata:
        return PartitionMetadata("1", "99", None)


class Breaking(HaltingNumbered):
    """Cannot be asked how far it goes, once the job has begun to read."""

    asked = 0

    def bounds(self, system: str, stream: str, partition: int, config: Config) -> PartitionMetadata:
        type(self).asked += 1
        if 2 < self.asked < 6:
            raise StreamSystemError("the server is away")
        return super().bounds(system, stream, partition, config)


KINDS = [HaltingBounded, HaltingCompared, HaltingNumbered, WithoutNewest]


@pytest.fixture(autouse=True)
def not_asked_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    # Halting consumers have nothing most of the time, after which a reader rests.
    monkeypatch.setattr(pulling, "_LONGEST_REST_S", 0.005)
    monkeypatch.setattr(consumers, "_READER_POLL_MS", 10)
    Breaking.asked = 0


def put(kind: type[listed.Opaque], stream: str, count: int, partitions: int = 1) -> None:
    partition = listed.streams.setdefault(stream, [[] for _ in range(partitions)])[0]
    for number in range(count):
        partition.append(StreamMessage(b"%d" % number, kind().offset(len(partition))))


def config(directory: Path, kind: type[listed.Opaque], inputs: str, **more: Any) -> Config:
    return Config(
        {
            "job.name": "pulled",
            "task.inputs": inputs,
            "systems.sys.samza.factory": f"{__name__}.{kind.__name__}",
            "systems.sys.samza.offset.default": "oldest",
            "systems.log.samza.factory": "log",
            "systems.log.path": directory / "log",
            **more,
        }
    )


def caught_up(settings: Config) -> int:
    container = Container.from_config(settings, Noting)
    container.start()
    try:
        return container.run("caught-up")
    finally:
        container.stop()


@pytest.mark.parametrize("kind", KINDS)
def test_a_partition_with_nothing_for_a_moment_has_not_caught_up(
    tmp_path: Path, kind: type[listed.Opaque]
) -> None:
    put(kind, "slow", 10)
    settings = config(tmp_path, kind, "sys.slow")
    assert caught_up(settings) == 10
    assert caught_up(settings) == 0, "the next start begins behind the newest"
    put(kind, "slow", 3)
    assert caught_up(settings) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_slow_bootstrap_stream_holds_the_others_until_its_end(
    tmp_path: Path, kind: type[listed.Opaque]
) -> None:
    put(kind, "quick", 20)
    put(kind, "slow", 10)
    assert (
        caught_up(
            config(
                tmp_path, kind, "sys.quick,sys.slow", **{"systems.sys.streams.slow.samza.bootstrap": "true"}
            )
        )
        == 30
    )
    assert [stream for stream, _ in seen] == ["slow"] * 10 + ["quick"] * 20


def test_each_system_compares_its_own_offsets_for_the_bootstrap_gate(tmp_path: Path) -> None:
    put(Growing, "ids", 10)
    put(listed.Numbered, "quick", 20)
    more = {
        "systems.other.samza.factory": "tests.system.listed.Numbered",
        "systems.other.samza.offset.default": "oldest",
        "systems.sys.streams.ids.samza.bootstrap": "true",
    }
    container = Container.from_config(config(tmp_path, Growing, "sys.ids,other.quick", **more), Noting)
    container.start()
    try:
        assert container.run(40) == 40
    finally:
        container.stop()
    streams = [stream for stream, _ in seen]
    assert streams[:10] == ["ids"] * 10, (
        "nine that were there at the start, and the one behind the newest of then"
    )
    assert streams[10:].count("quick") >= 10


@pytest.mark.parametrize("kind", KINDS)
def test_an_empty_partition_is_at_its_head(tmp_path: Path, kind: type[listed.Opaque]) -> None:
    put(kind, "slow", 2, partitions=3)
    assert caught_up(config(tmp_path, kind, "sys.slow")) == 2


def test_what_is_looked_at_goes_to_the_head_that_bounds_tell() -> None:
    put(HaltingNumbered, "slow", 7)
    ssp = SystemStreamPartition("sys", "slow", 0)
    consumer = HaltingNumbered().get_consumer("sys", Config(), MetricsRegistry())
    assert len(reader.read_to_head(consumer, {ssp: "oldest"})[ssp]) == 7


def test_a_message_that_never_comes_is_told_of(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.system.pull.consumer._SAID_AFTER_S", 0.0)
    put(Promising, "a", 2)
    ssp = SystemStreamPartition("sys", "a", 0)
    consumer = Promising().get_consumer("sys", Config(), MetricsRegistry())
    consumer.register(ssp, "oldest")
    consumer.start()
    try:
        while not caplog.messages:
            consumer.poll({ssp: 10}, 100)
        assert not consumer.at_head(ssp)
    finally:
        consumer.stop()
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "sys.a.0: get_message returns nothing behind 3, but bounds() names a newest message 99"
    )


def test_bounds_that_fail_for_a_while_are_told_of_and_asked_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(Breaking, "slow", 4)
    with caplog.at_level(logging.WARNING):
        assert caught_up(config(tmp_path, Breaking, "sys.slow")) == 4
    assert [each for each in caplog.messages if "the server is away" in each] == [
        "sys.slow.0: whether it is read to its end is not known now: the server is away"
    ]
