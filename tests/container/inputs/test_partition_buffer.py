"""The buffer of one partition: its only task, and the messages in work as they were read."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from streambench.chunk import Chunk
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.builtin import JsonSerde
from tests.container.jobs import Bench, ignore

SSP = SystemStreamPartition("mem", "a", 0)
RULES = SystemStreamPartition("mem", "rules", 0)
JSON = {"systems.mem.samza.msg.serde": "json"}
DROP = JSON | {"task.drop.deserialization.errors": "true"}


class Batches:
    def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
        """Takes batches, and does nothing with them."""


def partition_of(bench: Bench, ssp: SystemStreamPartition = SSP) -> PartitionBuffer:
    """A partition of a container, which is started for it."""
    container = bench.started()
    assert container.status.multiplexer is not None
    return container.status.multiplexer.partitions[ssp]


# The only task


def test_the_only_task_of_a_partition_is_its_sole_subscription() -> None:
    partition = partition_of(Bench(ignore, {"mem.a": {0: [], 1: []}}))
    assert partition.sole_subscription is not None
    assert partition.sole_subscription is partition.subscriptions[0]
    assert partition.sole_subscription.task.name == "Partition 0"


def test_a_broadcast_partition_has_no_sole_subscription() -> None:
    inputs = {"mem.a": {0: [], 1: []}, "mem.rules": {0: []}}
    partition = partition_of(Bench(ignore, inputs, {"task.broadcast.inputs": "mem.rules#0"}), RULES)
    assert [each.task.name for each in partition.subscriptions] == ["Partition 0", "Partition 1"]
    assert partition.sole_subscription is None


def test_a_task_that_begins_later_is_no_sole_subscription_until_then() -> None:
    partition = partition_of(Bench(ignore, {"mem.a": {0: []}}))
    (only,) = partition.subscriptions
    only.skip_before = "5"
    partition.find_sole_subscription()
    assert partition.sole_subscription is None
    only.skip_before = None
    partition.find_sole_subscription()
    assert partition.sole_subscription is only


def test_while_an_undecodable_message_waits_there_is_no_sole_subscription() -> None:
    bench = Bench(ignore, {"mem.a": {0: [b"1", b"{", b"{", b"4"]}}, DROP)
    partition = partition_of(bench)
    found = []
    for _ in range(4):
        found.append((partition.undecodable, partition.sole_subscription is not None))
        bench.container.step()
    assert found == [(2, False), (2, False), (1, False), (0, True)]


def test_a_task_of_batches_is_no_sole_subscription_and_bounds_what_is_read() -> None:
    partition = partition_of(Bench(Batches, {"mem.a": {0: []}}, {"task.batch.messages": 7}))
    assert partition.sole_subscription is None
    assert partition.buffer is partition.waiting
    assert partition.fetch_limit == 7
    partition.take_batches(1000, 20)
    assert partition.fetch_limit == 20


# Messages as they were read


def raw(first: int, count: int) -> Chunk:
    offsets = [str(first + number) for number in range(count)]
    return Chunk(SSP, offsets, [None] * count, [offset.encode() for offset in offsets])


def decoding() -> PartitionBuffer:
    """A partition whose messages are decoded, with its originals kept."""
    partition = PartitionBuffer(SSP, "0", 10)
    partition.message_serde = JsonSerde()
    partition.keep_originals()
    return partition


def test_what_is_not_decoded_is_its_own_original() -> None:
    partition = PartitionBuffer(SSP, "0", 10)
    partition.keep_originals()
    assert partition.kept is None
    envelope = IncomingMessageEnvelope(SSP, "0", None, b"0")
    assert partition.original(envelope) is envelope


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 6)), min_size=1, max_size=12))
def test_the_originals_of_all_that_waits_or_is_in_work_are_kept(steps: list[tuple[int, int]]) -> None:
    partition, taken, count = decoding(), list[IncomingMessageEnvelope](), 0
    for arrives, leaves in steps:
        chunk = raw(count, arrives)
        partition.keep(chunk)
        partition.decoded.extend(chunk.envelopes_of(chunk.keys, list(range(count, count + arrives))))
        count += arrives
        for envelope in (*taken[-2:], *partition.decoded):
            assert partition.original(envelope).message == envelope.offset.encode()
        taken += [partition.decoded.popleft() for _ in range(min(leaves, len(partition.decoded)))]


def test_chunks_of_which_nothing_waits_or_is_in_work_are_dropped() -> None:
    partition = decoding()
    chunks = [raw(0, 3), raw(3, 3), raw(6, 3)]
    for chunk in chunks:
        partition.keep(chunk)
    assert partition.kept is not None
    assert list(partition.kept) == chunks[1:]
    gone = IncomingMessageEnvelope(SSP, "0", None, 0)
    assert partition.original(gone) is gone
