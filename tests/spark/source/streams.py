"""Streams of a log for DataFrames, and what the log's own reader gives of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from streambench import Config, SystemStream, SystemStreamPartition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope
from streambench.system.log import open_log
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems

Message = tuple[bytes | None, bytes | None, int, dict[str, bytes] | None]
"""Key, message, timestamp and headers."""


def config_of(directory: Path, **more: str) -> Config:
    """A configuration with a log in ``directory``."""
    return Config({"systems.log.samza.factory": "log", "systems.log.path": directory, **more})


def write(directory: Path, stream: str, partitions: Sequence[Sequence[Sequence[Message]]]) -> None:
    """Write a stream: per partition its batches."""
    with open_log(directory) as log:
        log.create(stream, len(partitions))
        for number, batches in enumerate(partitions):
            for batch in batches:
                keys, messages, timestamps, headers = zip(*batch, strict=True)
                log.partition(stream, number).append(keys, messages, timestamps, headers)


def everything(config: Config, stream: str) -> dict[int, list[IncomingMessageEnvelope]]:
    """Per partition, what the system's own reader gives of a stream."""
    systems = Systems(config)
    try:
        named = SystemStream.parse(stream)
        found = {}
        for number, here in systems.metadata([named])[named].items():
            ssp = SystemStreamPartition(named.system, named.stream, number)
            consumer = systems.consumer(named.system, MetricsRegistry())
            found[number] = read_to_head(consumer, {ssp: here.oldest or "0"})[ssp]
        return found
    finally:
        systems.close()


def as_rows(envelopes: Sequence[IncomingMessageEnvelope]) -> list[tuple[Any, ...]]:
    """Key, message, partition, offset, timestamp (ms) and headers of each."""
    return [
        (each.key, each.message, each.ssp.partition, int(each.offset), each.timestamp, each.headers or None)
        for each in envelopes
    ]


def run_to_its_end(begin: Callable[[], Any]) -> Any:
    """Begin a query of a stream and wait for its end; the query.

    It is begun again, from its checkpoint, where a Python process of Spark has not answered within ten
    seconds. No setting changes that, and a busy machine takes longer."""
    while True:
        query = begin()
        try:
            query.awaitTermination()
        except Exception as error:
            if "Python worker failed to connect back" not in str(error):
                raise
        else:
            return query
