"""Sending to streams and looking into them, by hand."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import orjson

from streambench.config import Config
from streambench.container.outbox import outlet
from streambench.errors import SerdeError, StreamSystemError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import OutgoingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.serde.streams import StreamSerdes
from streambench.system.api import SystemConsumer
from streambench.system.memory import MemorySystemFactory
from streambench.system.systems import Systems
from streambench_magics.errors import MagicError

_SOURCE = "by hand"
_PATIENCE_S = 10.0


def send(config: Config, stream: SystemStream, messages: Iterable[tuple[Any, Any]], partition: int | None = None) -> int:
    """Send (key, message) pairs; how many. Returns when they are durable. Raises StreambenchError; some may have been sent then."""
    systems = Systems(config)
    try:
        partitions = len(systems.metadata([stream])[stream])
        key_serde, message_serde = StreamSerdes(config).for_stream(stream)
        plain = isinstance(systems.factory(stream.system), MemorySystemFactory)
        producer = systems.producer(stream.system, MetricsRegistry())
        try:
            producer.register(_SOURCE)
            producer.start()
            put = outlet(stream, producer, partitions, key_serde, message_serde, _refuse)
            count = 0
            for key, message in messages:
                if not plain:
                    key = key if key_serde is not None else _bytes(key)
                    message = message if message_serde is not None else _bytes(message)
                put(_SOURCE, OutgoingMessageEnvelope(stream, message, key, None, partition))
                count += 1
            producer.flush(_SOURCE)
        finally:
            producer.stop()
    finally:
        systems.close()
    return count


def peek(config: Config, stream: SystemStream, *, limit: int, partition: int | None, begin: str) -> list[dict[str, Any]]:
    """Up to ``limit`` messages, evenly from the partitions (or from one), from ``begin`` on: oldest, newest (the last), or an offset."""
    systems = Systems(config)
    try:
        metadata = systems.metadata([stream])[stream]
        if partition is not None and partition not in metadata:
            raise MagicError(f"{stream} has no partition {partition}; it has {len(metadata)}, numbered from 0")
        wanted = {
            SystemStreamPartition(stream.system, stream.stream, number): each
            for number, each in sorted(metadata.items())
            if partition in (None, number) and each.newest is not None
        }
        starts = {ssp: _start(each, begin, limit) for ssp, each in wanted.items()}
        consumer = systems.consumer(stream.system, MetricsRegistry())
        try:
            found = _read(consumer, starts, limit)
        finally:
            consumer.stop()
        key_serde, message_serde = StreamSerdes(config).for_stream(stream)
        turns = sorted((index, ssp) for ssp, records in found.items() for index in range(len(records)))[:limit]
        taken = sorted((ssp, index) for index, ssp in turns)
        return [
            {
                "partition": ssp.partition,
                "offset": found[ssp][index].offset,
                "timestamp": found[ssp][index].timestamp,
                "key": _decoded(key_serde, found[ssp][index].key),
                "message": _decoded(message_serde, found[ssp][index].message),
            }
            for ssp, index in taken
        ]
    finally:
        systems.close()


def _read(consumer: SystemConsumer, starts: Mapping[SystemStreamPartition, str], limit: int) -> dict[SystemStreamPartition, list[Any]]:
    found: dict[SystemStreamPartition, list[Any]] = {ssp: [] for ssp in starts}
    for ssp, start in starts.items():
        consumer.register(ssp, start)
    consumer.start()
    deadline = time.monotonic() + _PATIENCE_S
    open_ = dict.fromkeys(starts, limit)
    while open_:
        for envelope in consumer.poll(open_, 0 if consumer.polled_by_loop else 100):
            found[envelope.ssp].append(envelope)
        open_ = {ssp: limit - len(found[ssp]) for ssp in open_ if len(found[ssp]) < limit and not consumer.at_head(ssp)}
        if time.monotonic() > deadline:
            raise StreamSystemError(f"{next(iter(open_))} did not answer within {_PATIENCE_S:g} seconds")
    return found


def _start(metadata: PartitionMetadata, begin: str, limit: int) -> str:
    oldest, newest, upcoming = metadata.oldest or "", metadata.newest or "", metadata.upcoming or ""
    if begin == "oldest":
        return oldest
    if begin != "newest":
        return begin
    return str(max(int(oldest), int(upcoming) - limit)) if oldest.isdecimal() and upcoming.isdecimal() else newest


def messages_in(value: Any, key: Any, key_field: str | None) -> list[tuple[Any, Any]]:
    """The (key, message) pairs in a value of the notebook: a list or other iterable of messages, the rows of a DataFrame, one message."""
    if hasattr(value, "to_dicts"):
        rows: Sequence[Any] = value.to_dicts()
    elif hasattr(value, "columns") and hasattr(value, "to_json"):
        rows = json.loads(value.to_json(orient="records", date_format="iso"))
    elif isinstance(value, (Mapping, str, bytes)) or not isinstance(value, Iterable):
        rows = [value]
    else:
        rows = list(value)
    if key_field is None:
        return [(key, row) for row in rows]
    for row in rows:
        if not isinstance(row, Mapping) or key_field not in row:
            raise MagicError(f"a message has no field {key_field} to take the key from: {row!r:.80}")
    return [(row[key_field], row) for row in rows]


def _bytes(value: Any) -> Any:
    if value is None or isinstance(value, bytes):
        return value
    return value.encode() if isinstance(value, str) else orjson.dumps(value)


def _decoded(serde: Any, value: Any) -> Any:
    if serde is None or value is None:
        return value
    try:
        return serde.from_bytes(value)
    except Exception:
        return value


def _refuse(source: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
    raise SerdeError(f"cannot be sent to {envelope.system_stream}: {error}") from error.__cause__
