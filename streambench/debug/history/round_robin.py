"""The numbers of outputs that go to the partitions of their stream round robin, as they have no key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streambench.container.outputs.outgoing_batch import OutgoingBatch, goes_by_column
from streambench.container.trace import Sent

if TYPE_CHECKING:
    from streambench.model import SystemStream
    from streambench.serde.streams import StreamSerdes


class _RoundRobinNumber(int):
    """The number of an output among those of its stream that go to the partitions round robin."""


def is_round_robin(partition_key: Any) -> bool:
    """True where an output went to the partitions round robin; its partition key is then its number."""
    return isinstance(partition_key, _RoundRobinNumber)


def with_round_robin_number(sent: Sent, counts: dict[SystemStream, int], serdes: StreamSerdes) -> Sent:
    """An output with its number, where it goes to the partitions round robin. ``counts``: per stream, those
    before it; it is added. Those of a batch are added without a number each."""
    if isinstance(sent.message, OutgoingBatch):
        counts[sent.stream] = counts.get(sent.stream, 0) + _count_in_turn(sent.message, serdes)
        return sent
    if sent.partition is not None or sent.key is not None or sent.partition_key is not None:
        return sent
    count = counts.get(sent.stream, 0)
    counts[sent.stream] = count + 1
    sent.partition_key = _RoundRobinNumber(count)
    return sent


def _count_in_turn(batch: OutgoingBatch, serdes: StreamSerdes) -> int:
    """The number of messages in a batch that take their turn with single messages."""
    if goes_by_column(batch, *serdes.for_stream(batch.stream)):
        return 0
    return sum(
        1 for each in batch.envelopes()
        if each.key is None and each.partition_key is None and each.partition is None
    )  # fmt: skip
