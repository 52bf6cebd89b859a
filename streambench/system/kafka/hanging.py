"""Transactions that are open at a partition, and those of them that hang.

One that hangs will never end, and what follows it in the partition cannot be read as committed.

It can happen when a broker is killed while it ends a transaction, where a partition has only one copy. The
broker then returns with the transaction ended for every process that asks for it, but open at the partition.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from kafka import TopicPartition
from kafka.admin import AbortTransactionSpec
from msgspec import Struct

_LIVE = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


class OpenTransaction(Struct, frozen=True):
    """A transaction that is open at a partition, from offset ``start`` on.

    Its coordinator gives ``identity`` (the ``transactional.id``) and ``state`` of its producer, both None
    where no broker knows it."""

    partition: TopicPartition
    start: int
    producer: int
    epoch: int
    coordinator_epoch: int
    identity: str | None
    state: str | None

    @property
    def is_live(self) -> bool:
        """True where its coordinator or its producer will end it."""
        return self.state in _LIVE

    def is_same(self, other: OpenTransaction) -> bool:
        """True where another look has found the same transaction."""
        mine, others = ((each.partition, each.start, each.producer, each.epoch) for each in (self, other))
        return mine == others

    def described(self, system: str) -> str:
        """The state of it and the remedy, as one line."""
        topic, number = self.partition
        who, where = f"(producer {self.producer}, epoch {self.epoch})", f"{system}.{topic}.{number}"
        if self.is_live:
            return (
                f"{where}: the transaction of {self.identity} is open from offset {self.start} on {who}: "
                f"its producer has died, or takes long. What is behind it can be read when {self.identity} "
                "is started again, or after its producer.transaction.timeout.ms, when Kafka ends it"
            )
        repair = (
            f"streambench kafka repair {system}.{topic} -c JOB.properties, or kafka-transactions.sh abort "
            f"--topic {topic} --partition {number} --start-offset {self.start}"
        )
        if self.state is None:
            return (
                f"{where}: a transaction is open at offset {self.start} {who}, and no broker says whose it "
                "is: it hangs, or this user may not describe its transactional id. What is behind it is not "
                "read before it ends. Look with a user who has the right DESCRIBE on all transactional ids. "
                f"If it hangs, end it: {repair} (the first with --force)"
            )
        return (
            f"{where}: a transaction hangs at offset {self.start} {who}: a broker was killed while it ended "
            f"it, and now it does not end. What is behind it is not read before it is ended: {repair}"
        )

    def abort(self, admin: Any) -> None:
        """End it. ``admin``: kafka-python's, whose errors this raises."""
        admin.abort_transaction(
            AbortTransactionSpec(self.partition, self.producer, self.epoch, self.coordinator_epoch)
        )


def find_open(admin: Any, partitions: Collection[TopicPartition]) -> list[OpenTransaction]:
    """The transactions that are open at partitions. ``admin``: kafka-python's, whose errors this raises.

    Partitions are looked at first and coordinators second, so that a transaction that has ended in between
    seems to hang. So only what two looks have found hangs (``still_hanging``)."""
    described = admin.describe_producers(list(partitions)) if partitions else {}
    found = [
        (partition, each)
        for partition, state in described.items()
        for each in state.active_producers
        if each.current_transaction_start_offset >= 0
    ]
    if not found:
        return []
    listed = admin.list_transactions(producer_id_filters=sorted({each.producer_id for _, each in found}))
    known = {each.producer_id: each for of_broker in listed.values() for each in of_broker}
    # A producer that no coordinator lists any more has left its transaction open.
    return [
        OpenTransaction(
            partition,
            each.current_transaction_start_offset,
            each.producer_id,
            each.producer_epoch,
            each.coordinator_epoch,
            None if (open_one := known.get(each.producer_id)) is None else open_one.transactional_id,
            None if open_one is None else open_one.state.value,
        )
        for partition, each in found
    ]


def still_hanging(before: Iterable[OpenTransaction], now: Iterable[OpenTransaction]) -> list[OpenTransaction]:
    """Those transactions that an earlier look has found with no process to end them, and this one has, too.

    That they had ended for their coordinator was known before the second look at the partition, where they
    must have ended before that."""
    suspected = [each for each in before if not each.is_live]
    return [each for each in now if not each.is_live and any(each.is_same(other) for other in suspected)]
