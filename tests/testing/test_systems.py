"""The contract of systems notices systems that break it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import UnknownStreamError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Chunk, PartitionAppenders, Sender
from streambench.system.memory import (
    MemoryAdmin,
    MemoryConsumer,
    MemoryProducer,
    MemoryStreams,
    MemorySystemFactory,
    memory_streams,
)
from streambench.testing.systems import SystemContract

Wanted = Mapping[SystemStreamPartition, int]


class Consumer(MemoryConsumer):
    def poll_chunks(self, wanted: Wanted, timeout_ms: int) -> list[Chunk]:
        polled: dict[SystemStreamPartition, list[IncomingMessageEnvelope]] = {}
        for each in self.poll(wanted, timeout_ms):
            polled.setdefault(each.ssp, []).append(each)
        return [Chunk.of(ssp, envelopes) for ssp, envelopes in polled.items()]

    def poll(self, wanted: Wanted, timeout_ms: int) -> list[IncomingMessageEnvelope]:
        return [each for chunk in super().poll_chunks(wanted, timeout_ms) for each in chunk.envelopes()]


class Greedy(Consumer):
    def poll(self, wanted: Wanted, timeout_ms: int) -> list[IncomingMessageEnvelope]:
        return super().poll({ssp: at_most + 1 for ssp, at_most in wanted.items()}, timeout_ms)


class Forgetful(Consumer):
    """Reads all partitions, whatever is wanted, and forgets what is not."""

    def poll(self, wanted: Wanted, timeout_ms: int) -> list[IncomingMessageEnvelope]:
        return [
            each
            for each in super().poll(dict.fromkeys(self._positions, 1_000) | dict(wanted), timeout_ms)
            if each.ssp in wanted
        ]


class Stubborn(Consumer):
    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        super().register(ssp, "0")


class Exclusive(Consumer):
    """Begins behind the offset."""

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        super().register(
            ssp, str(min(int(offset) + 1, len(self._streams.partition(ssp.system_stream, ssp.partition))))
        )


class Confident(Consumer):
    def at_head(self, ssp: SystemStreamPartition) -> bool:
        return True


class Backwards(Consumer):
    def poll(self, wanted: Wanted, timeout_ms: int) -> list[IncomingMessageEnvelope]:
        return super().poll(wanted, timeout_ms)[::-1]


class Repeating(Consumer):
    def poll(self, wanted: Wanted, timeout_ms: int) -> list[IncomingMessageEnvelope]:
        half = {ssp: at_most // 2 for ssp, at_most in wanted.items()}
        return [each for one in super().poll(half, timeout_ms) for each in (one, one)]


class OneOffset(Consumer):
    def poll(self, wanted: Wanted, timeout_ms: int) -> list[IncomingMessageEnvelope]:
        return [
            IncomingMessageEnvelope(each.ssp, "0", each.key, each.message)
            for each in super().poll(wanted, timeout_ms)
        ]


class Accepting(Consumer):
    """Reads nothing of what is not there."""

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        try:
            super().register(ssp, offset)
        except UnknownStreamError:
            self._streams.grow(ssp.system_stream, ssp.partition + 1)
            super().register(ssp, offset)


class Lazy(MemoryProducer):
    """Says that it has written what it keeps back."""

    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        self.kept = envelope

    def sender(self, stream: SystemStream) -> Sender:
        return lambda source, envelope, key, message, partition: None


class Keyless(MemoryProducer):
    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        super().send(
            source,
            OutgoingMessageEnvelope(envelope.system_stream, envelope.message, partition=envelope.partition),
        )


class OnePartition(MemoryProducer):
    def send(self, source: str, envelope: OutgoingMessageEnvelope) -> None:
        super().send(
            source,
            OutgoingMessageEnvelope(envelope.system_stream, envelope.message, envelope.key, partition=0),
        )


class AppendsElsewhere(MemoryProducer):
    def appends(self, stream: SystemStream) -> PartitionAppenders | None:
        return PartitionAppenders([[].append], 100, list)


class Still(MemoryAdmin):
    def after(self, offset: str) -> str:
        return offset


class Reversed(MemoryAdmin):
    def compare(self, offset: str, other: str) -> int | None:
        return super().compare(other, offset)


class Mute(MemoryAdmin):
    def compare(self, offset: str, other: str) -> int | None:
        return 0 if offset == other else None


class Early(MemoryAdmin):
    """Says of partitions that they end one message earlier."""

    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        def early(here: PartitionMetadata) -> PartitionMetadata:
            return here if here.newest is None else PartitionMetadata(here.oldest, here.newest, here.newest)

        return {
            stream: {number: early(here) for number, here in partitions.items()}
            for stream, partitions in super().metadata(streams).items()
        }


class Creating(MemoryAdmin):
    def metadata(self, streams: Iterable[SystemStream]) -> dict[SystemStream, dict[int, PartitionMetadata]]:
        wanted = list(streams)
        for stream in wanted:
            if stream not in self._streams.partitions:
                self._streams.create(stream, 1)
        return super().metadata(wanted)


class Broken(MemorySystemFactory):
    """A memory system with one part replaced."""

    part: type[Any] = MemoryConsumer

    def _made(self, kind: type[Any], system: str) -> Any:
        streams: MemoryStreams = memory_streams(system)
        return self.part(streams) if issubclass(self.part, kind) else kind(streams)

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryConsumer:
        return self._made(MemoryConsumer, system)  # type: ignore[no-any-return]

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        return self._made(MemoryProducer, system)  # type: ignore[no-any-return]

    def get_admin(self, system: str, config: Config, metrics: MetricsRegistry | None = None) -> MemoryAdmin:
        return self._made(MemoryAdmin, system)  # type: ignore[no-any-return]


class Memory(SystemContract):
    survives = False

    def settings(self, directory: Path) -> Mapping[str, Any]:
        memory_streams("sys").partitions.clear()
        return {"samza.factory": f"{__name__}.Broken"}


@pytest.mark.parametrize(
    ("part", "test"),
    [
        (Greedy, "a_poll_returns_no_more_than_is_wanted"),
        (Forgetful, "a_partition_that_is_not_wanted_returns_nothing_loses_nothing_and_stops_no_other"),
        (Stubborn, "reading_begins_at_any_offset_and_behind_any"),
        (Exclusive, "reading_begins_at_any_offset_and_behind_any"),
        (Confident, "a_partition_is_not_at_its_head_while_something_is_left"),
        (Backwards, "what_was_sent_is_read_in_its_order"),
        (Repeating, "what_was_sent_is_read_in_its_order"),
        (OneOffset, "what_was_sent_is_read_in_its_order"),
        (Accepting, "a_partition_that_is_not_there_is_an_error_that_names_its_stream"),
        (Lazy, "what_was_flushed_is_there_whatever_becomes_of_its_producer"),
        (Keyless, "keys_come_back_as_they_were"),
        (OnePartition, "every_partition_has_its_own_order"),
        (AppendsElsewhere, "what_is_appended_by_partition_stands_among_what_was_sent"),
        (Still, "a_new_consumer_goes_on_where_one_was_stopped_in_the_middle"),
        (Reversed, "offsets_are_in_the_order_of_their_messages"),
        (Mute, "offsets_are_in_the_order_of_their_messages"),
        (Early, "reading_begins_at_the_oldest_the_newest_and_the_upcoming_offset"),
        (Creating, "a_stream_that_is_not_there_is_an_error_that_names_it"),
    ],
)
def test_a_broken_part_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, part: type[Any], test: str
) -> None:
    contract = Memory()
    getattr(contract, f"test_{test}")(tmp_path)
    monkeypatch.setattr(Broken, "part", part)
    with pytest.raises((AssertionError, LookupError)):
        getattr(contract, f"test_{test}")(tmp_path)


def test_tests_of_what_a_system_lacks_are_left_out_and_return_with_it() -> None:
    class Bare(Memory):
        keys = ordered = False
        most_partitions = 1

    class Keyed(Bare):
        keys = True

    assert Memory.test_keys_come_back_as_they_were is not None
    assert Bare.test_keys_come_back_as_they_were is None
    assert Bare.test_there_may_be_many_partitions is None
    assert Keyed.test_keys_come_back_as_they_were is SystemContract.test_keys_come_back_as_they_were
    assert Keyed.test_offsets_are_in_the_order_of_their_messages is None
