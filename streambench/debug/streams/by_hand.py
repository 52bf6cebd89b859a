"""Sending to streams and looking into them, by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa

from streambench.chunk import Undecodable
from streambench.config import Config
from streambench.container.outputs.direct_writer import writing
from streambench.debug.streams.errors import ByHandError
from streambench.debug.streams.frames import is_frame, is_series, rows_of, values_of
from streambench.errors import SerdeError, UnknownStreamError, described, no_partition, shortened
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.serde.api import Serde
from streambench.serde.arrow import ArrowSerde
from streambench.serde.json_text import json_bytes
from streambench.serde.letters import REASON
from streambench.serde.streams import StreamSerdes, readable
from streambench.system.api import SystemAdmin
from streambench.system.reader import read_to_head, start_in
from streambench.system.systems import Systems, abilities_of
from streambench.wording import command

_SOURCE = "by hand"
_PATIENCE_S = 10.0


def send(
    config: Config, stream: SystemStream, messages: Iterable[tuple[Any, Any]], partition: int | None = None
) -> int:
    """Send (key, message) pairs; how many. Returns when they are durable, where the system confirms it
    (``is_confirmed``). Raises StreambenchError; some may have been sent then."""
    unconfirmed = abilities_of(config, stream.system).settings_unconfirmed or {}
    prefix = f"systems.{stream.system}.streams.{stream.stream}."
    config = config.with_values({f"{prefix}{name}": value for name, value in unconfirmed.items()})
    with closing(Systems(config)) as systems:
        partitions = len(systems.metadata([stream])[stream])
        if partition is not None and partition >= partitions:
            raise ByHandError(str(no_partition(stream, partition, partitions)))
        serdes = StreamSerdes(config).for_stream(stream)
        plain = systems.factory(stream.system).in_process
        keep_key, keep_message = (plain or serde is not None for serde in serdes)
        given = list(messages)
        with writing(systems, stream, partitions, _SOURCE, serdes) as writer:
            try:
                # What has no serde goes as bytes, unless the system keeps objects.
                writer.send(
                    OutgoingMessageEnvelope(
                        stream,
                        message if keep_message else _bytes(message),
                        key if keep_key else _bytes(key),
                        None,
                        partition,
                    )
                    for key, message in given
                )
            except (SerdeError, ByHandError) as error:
                if len(given) == 1 or writer.sent >= len(given):
                    raise
                raise _of_element(error, writer.sent, given, stream) from error
    return writer.sent


def _of_element(
    error: SerdeError | ByHandError, at: int, given: Sequence[tuple[Any, Any]], stream: SystemStream
) -> SerdeError | ByHandError:
    """The error of one of several messages, with its place among them."""
    look = command(f"peek {stream} --from newest")
    before = f"; the {at:,} before it may have been sent: '{look}' shows what is there" if at else ""
    return type(error)(f"element [{at}] of {len(given):,}, {shortened(given[at][1])}: {error}{before}")


def is_confirmed(config: Config, stream: SystemStream) -> bool:
    """True where sending waits until what was sent is durable. Over a network it does not: the receiver may
    be a job of this notebook, which continues only when the cell that sends has ended."""
    return abilities_of(config, stream.system).settings_unconfirmed is None


def partitions_of(
    config: Config, streams: Iterable[SystemStream], *, all_there: bool = True
) -> list[dict[str, Any]]:
    """A record for each partition. Raises UnknownStreamError, or passes over what is not there; and what else
    the systems raise."""
    records: list[dict[str, Any]] = []
    with closing(Systems(config)) as systems:
        for stream in streams:
            try:
                found = systems.metadata([stream])[stream]
            except UnknownStreamError:
                if all_there:
                    raise
                continue
            kept = systems.admin(stream.system).replayable
            for number, at in sorted(found.items()):
                offsets = {
                    "oldest": at.oldest,
                    "newest": at.newest,
                    "upcoming": at.upcoming if kept else None,
                }
                records.append({"stream": str(stream), "partition": number, **offsets})
    return records


def peek(
    config: Config, stream: SystemStream, *, limit: int, partition: int | None, begin: str
) -> list[dict[str, Any]]:
    """Up to ``limit`` messages, evenly from the partitions (or from one), from ``begin`` on: oldest, newest
    (the last), or an offset."""
    with closing(Systems(config)) as systems:
        metadata = systems.metadata([stream])[stream]
        if partition is not None and partition not in metadata:
            raise ByHandError(str(no_partition(stream, partition, len(metadata))))
        starts = _starts(systems.admin(stream.system), stream, metadata, partition, begin, limit)
        found = read_to_head(
            systems.consumer(stream.system, MetricsRegistry()), starts, at_most=limit, patience_s=_PATIENCE_S
        )
        key_serde, message_serde = StreamSerdes(config).for_stream(stream)
        in_rotation = sorted((index, ssp) for ssp, records in found.items() for index in range(len(records)))
        taken = sorted((ssp, index) for index, ssp in in_rotation[:limit])
        return [
            {
                "partition": ssp.partition,
                "offset": found[ssp][index].offset,
                "timestamp": found[ssp][index].timestamp,
                **_readable(found[ssp][index], key_serde, message_serde),
                **_headers(found[ssp][index]),
            }
            for ssp, index in taken
        ]


def _starts(
    admin: SystemAdmin,
    stream: SystemStream,
    metadata: Mapping[int, PartitionMetadata],
    partition: int | None,
    begin: str,
    limit: int,
) -> dict[SystemStreamPartition, str]:
    """The offsets to read from. Raises ByHandError where there is no message from ``begin`` on."""
    wanted = {
        SystemStreamPartition(stream.system, stream.stream, number): each
        for number, each in sorted(metadata.items())
        if partition in (None, number) and (each.newest is not None or not admin.replayable)
    }
    if not admin.replayable:
        if begin not in ("oldest", "newest"):
            raise ByHandError(
                f"{stream}: this kind of system has no offsets to begin at; leave out --from {begin}"
            )
        return dict.fromkeys(wanted, "0")
    places = {
        ssp: _start(admin, ssp, each, begin, limit, exactly=partition is not None)
        for ssp, each in wanted.items()
    }
    starts = {ssp: place for ssp, place in places.items() if place is not None}
    if wanted and not starts:
        ends = ", ".join(f"{number} at {each.upcoming}" for number, each in sorted(metadata.items()))
        raise ByHandError(
            f"{stream}: {begin} is beyond the end of all partitions, which is (the next offset): "
            f"partition {ends}. Write --from "
            "oldest, newest, or an offset before the end"
        )
    return starts


def _readable(
    envelope: IncomingMessageEnvelope, key_serde: Serde | None, message_serde: Serde | None
) -> dict[str, Any]:
    if isinstance(envelope, Undecodable):
        return {"key": envelope.key, "message": envelope.message, "reason": str(envelope.error)}
    return {"key": readable(key_serde, envelope.key), "message": readable(message_serde, envelope.message)}


def _headers(envelope: IncomingMessageEnvelope) -> dict[str, Any]:
    """The headers of a message that has any; of a dead letter also, by itself, why it is one."""
    headers = dict(envelope.headers or {})
    reason = headers.get(REASON)
    return {
        **({"headers": headers} if headers else {}),
        **({"reason": reason.decode(errors="replace")} if reason is not None else {}),
    }


def _start(
    admin: SystemAdmin,
    ssp: SystemStreamPartition,
    metadata: PartitionMetadata,
    begin: str,
    limit: int,
    *,
    exactly: bool,
) -> str | None:
    if begin != "newest":
        return start_in(admin, ssp, metadata, begin, exactly=exactly)
    oldest, newest, upcoming = metadata.oldest or "", metadata.newest or "", metadata.upcoming or ""
    return (
        str(max(int(oldest), int(upcoming) - limit))
        if oldest.isdecimal() and upcoming.isdecimal()
        else newest
    )


def takes_tables(config: Config, stream: SystemStream) -> bool:
    """True where a message of the stream is a whole table of Arrow."""
    serdes = StreamSerdes(config)
    return isinstance(serdes.for_stream(stream)[1], ArrowSerde) or (
        abilities_of(config, stream.system).in_process and serdes.names_for(stream)[1] is None
    )


def messages_in(
    value: Any, key: Any, key_field: str | None, *, whole_tables: bool = True
) -> list[tuple[Any, Any]]:
    """The (key, message) pairs in a value of the notebook: a list or other iterable of messages, the rows of
    a DataFrame, one message.

    A table of Arrow is one message, or its rows, if not ``whole_tables``."""
    rows: Sequence[Any]
    if is_frame(value) or (isinstance(value, (pa.RecordBatch, pa.Table)) and not whole_tables):
        rows = rows_of(value)
    elif is_series(value):
        rows = values_of(value)
    elif isinstance(value, (bytearray, memoryview)):
        rows = [bytes(value)]
    elif isinstance(value, (Mapping, str, bytes, pa.RecordBatch, pa.Table)) or not isinstance(
        value, Iterable
    ):
        rows = [value]
    else:
        rows = list(value)
    if key_field is None:
        return [(key, row) for row in rows]
    for row in rows:
        if not isinstance(row, Mapping) or key_field not in row:
            raise ByHandError(f"a message has no field {key_field} to take the key from: {row!r:.80}")
    return [(row[key_field], row) for row in rows]


def _bytes(value: Any) -> Any:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    try:
        return json_bytes(value)
    except (TypeError, ValueError) as error:
        raise ByHandError(f"this cannot be sent as JSON: {shortened(value)}: {described(error)}") from error
