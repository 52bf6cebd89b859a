"""Transactions that hang: nobody will ever end them, and what stands behind them in a partition cannot be read as committed."""

from __future__ import annotations

from typing import Any

from kafka import TopicPartition
from kafka import errors as kafka_errors

from streambench.system.kafka.settings import Settings

_LIVE = frozenset({"Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence"})


def hanging(settings: Settings, admin: Any, partition: TopicPartition) -> str | None:
    """What is to be told of a transaction that hangs at a partition, with its repair; None where there is none, or nobody can tell.

    A broker that is killed while it ends a transaction may, where a partition has but one copy, come back with the transaction ended for
    whoever asks for it, and open at the partition. ``admin``: kafka-python's.
    """
    try:
        producers = admin.describe_producers([partition])[partition].active_producers
        open_here = [each for each in producers if each.current_transaction_start_offset >= 0]
        if not open_here:
            return None
        listed = admin.list_transactions(producer_id_filters=[each.producer_id for each in open_here])
        alive = {
            each.producer_id
            for transactions in listed.values()
            for each in transactions
            if str(getattr(each.state, "value", each.state)) in _LIVE
        }
    except (kafka_errors.KafkaError, KeyError, ValueError):
        return None
    for each in open_here:
        if each.producer_id not in alive:
            start = each.current_transaction_start_offset
            return (
                f"{settings.system}.{partition.topic}.{partition.partition}: a transaction hangs at offset {start} (producer "
                f"{each.producer_id}, epoch {each.producer_epoch}): a broker was killed while it ended it, and now nobody does. What is "
                "behind it is not read before somebody aborts it: kafka-transactions.sh --bootstrap-server "
                f"{','.join(settings.servers)} abort --topic {partition.topic} --partition {partition.partition} --start-offset {start}"
            )
    return None
