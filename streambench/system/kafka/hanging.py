"""Transactions that hang: nobody will ever end them, and what stands behind them in a partition cannot be read as committed.

A broker that is killed while it ends a transaction may, where a partition has but one copy, come back with the transaction ended for
whoever asks for it, and open at the partition.
"""

from __future__ import annotations

from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors
from kafka.admin import AbortTransactionSpec
from msgspec import Struct

_LIVE = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class Hanging(Struct, frozen=True):
    """A transaction that hangs at a partition, from offset ``start`` on."""

    partition: TopicPartition
    start: int
    producer: int
    epoch: int
    coordinator_epoch: int

    def told(self, system: str) -> str:
        """What is the matter, and what to do."""
        topic, number = self.partition
        return (
            f"{system}.{topic}.{number}: a transaction hangs at offset {self.start} (producer {self.producer}, epoch {self.epoch}): a "
            "broker was killed while it ended it, and now nobody does. What is behind it is not read before somebody ends it: streambench "
            f"kafka repair {system}.{topic} -c JOB.properties, or kafka-transactions.sh abort --topic {topic} --partition {number} "
            f"--start-offset {self.start}"
        )

    def abort(self, admin: Any) -> None:
        """End it. ``admin``: kafka-python's, whose errors this raises."""
        admin.abort_transaction(AbortTransactionSpec(self.partition, self.producer, self.epoch, self.coordinator_epoch))


def find_hanging(admin: Any, partition: TopicPartition) -> list[Hanging]:
    """The transactions that hang at a partition; none where nobody can tell. ``admin``: kafka-python's."""
    try:
        producers = admin.describe_producers([partition])[partition].active_producers
        open_here = [each for each in producers if each.current_transaction_start_offset >= 0]
        if not open_here:
            return []
        listed = admin.list_transactions(producer_id_filters=[each.producer_id for each in open_here])
    except (kafka_errors.KafkaError, KeyError, ValueError):
        return []
    alive = {each.producer_id for found in listed.values() for each in found if each.state.value in _LIVE}
    return [
        Hanging(partition, each.current_transaction_start_offset, each.producer_id, each.producer_epoch, each.coordinator_epoch)
        for each in open_here
        if each.producer_id not in alive
    ]
