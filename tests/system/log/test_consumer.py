"""The consumer of the log: chunks, order, and the first offset."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench.errors import (
    OffsetError,
)
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Chunk
from tests.system.log.parts import CLICKS, P0, Parts


def test_many_messages_to_many_partitions_keep_their_order(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "log", linger_ms=1 << 40)
    many = SystemStream("log", "many")
    parts.admin.create(many, 7)
    producer = parts.producer()
    send = producer.sender(many)
    for number in range(40_000):
        headers = {"n": b"%d" % number} if number % 1000 == 0 else None
        timestamp = number if number % 3 == 0 else None
        envelope = OutgoingMessageEnvelope(many, None, timestamp=timestamp, headers=headers)
        send("task", envelope, b"k", b"%d" % number, number % 7)
    producer.flush("task")
    ssps = [SystemStreamPartition("log", "many", partition) for partition in range(7)]
    consumer = parts.consumer(dict.fromkeys(ssps, "0"))
    seen: dict[SystemStreamPartition, list[IncomingMessageEnvelope]] = {ssp: [] for ssp in ssps}
    while not all(map(consumer.at_head, ssps)):
        for envelope in consumer.poll(dict.fromkeys(ssps, 999), 0):
            seen[envelope.ssp].append(envelope)
    for ssp in ssps:
        numbers = range(ssp.partition, 40_000, 7)
        assert [envelope.message for envelope in seen[ssp]] == [b"%d" % number for number in numbers]
        assert [envelope.offset for envelope in seen[ssp]] == [str(offset) for offset in range(len(numbers))]
        for envelope, number in zip(seen[ssp], numbers, strict=True):
            assert (envelope.headers is not None) == (number % 1000 == 0)
            assert (envelope.timestamp == number) == (number % 3 == 0)


def test_a_chunk_spans_several_batches(parts: Parts) -> None:
    producer = parts.producer()
    producer.send_columns(CLICKS, 0, None, [b"0"], [1])
    producer.send_columns(CLICKS, 0, [b"k"], [b"1"], [2], [{"h": b"1"}])
    producer.send_columns(CLICKS, 0, None, [b"2"], [3])
    (chunk,) = parts.consumer({P0: "0"}).poll_chunks({P0: 10}, 0)
    assert chunk == Chunk(
        P0, ["0", "1", "2"], [None, b"k", None], [b"0", b"1", b"2"], [1, 2, 3], [None, {"h": b"1"}, None]
    )


@pytest.mark.parametrize("offset", ["11", "-1", "1.5", "", "oldest"])
def test_a_start_outside_the_partition_is_reported_before_the_first_poll(parts: Parts, offset: str) -> None:
    parts.producer().send_columns(CLICKS, 0, None, [b"x"] * 10)
    with pytest.raises(OffsetError, match=r"log\.clicks\.0"):
        parts.consumer({P0: offset})
