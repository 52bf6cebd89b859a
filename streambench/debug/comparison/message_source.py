"""The messages to compare versions over, as a recording that was never a file."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import zip_longest
from typing import Any

from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.planning.plan import all_inputs, job_name, plan
from streambench.recording.file import Row
from streambench.recording.header import Header, TaskStart, new_header
from streambench.recording.recording import Recording, value_columns
from streambench.serde.streams import StreamSerdes
from streambench.system.copying import detached
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems

GivenMessages = Iterable[Any] | Mapping[str, Mapping[int, Sequence[Any]]]
"""Messages, or (key, message) pairs, or envelopes; or per ``system.stream`` and partition such messages."""

DEFAULT_INPUT = SystemStream("memory", "in")
_MOST = 200_000
_RANGE = re.compile(r"(?P<stream>[^@]+)(@(?P<first>[^.]*)\.\.(?P<last>[^.]*))?")


def recording_of(messages: GivenMessages, config: Config, factory: Any) -> Recording:
    """A recording of messages in this order, those of several partitions round robin, for a job that begins
    with them. Raises ConfigError, SerdeError."""
    envelopes = list(_envelopes(messages, config))
    if not envelopes:
        raise StreambenchError("there are no messages to compare over")
    config = config.with_values(_inputs(config, envelopes))
    name = job_name(config, factory)
    offsets: dict[SystemStreamPartition, list[str]] = {}
    for each in envelopes:
        offsets.setdefault(each.ssp, []).append(each.offset)
    metadata: dict[SystemStream, dict[int, PartitionMetadata]] = {}
    for ssp, known in sorted(offsets.items()):
        of_stream = metadata.setdefault(ssp.system_stream, {})
        of_stream[ssp.partition] = PartitionMetadata(known[0], known[-1], None)
    model = plan(config.with_values({"job.container.count": 1}), name, metadata)
    # Each task begins at the first of the messages of its partitions.
    tasks = [
        TaskStart(
            name=task.name,
            number=task.number,
            partitions=[str(ssp) for ssp in task.partitions],
            starts={str(ssp): offsets[ssp][0] for ssp in task.partitions},
        )
        for task in model.containers[0].tasks
    ]
    header = new_header("recording", config, name, 0, factory, tasks, now_ms=0, after_init=False)
    return _Unwritten(header, envelopes)


def read_range(named: str, config: Config) -> list[IncomingMessageEnvelope]:
    """The messages of a stream or a partition up to its present end, or between two offsets:
    ``log.flights``, ``log.flights.0@100..200``. Raises StreambenchError."""
    found = _RANGE.fullmatch(named)
    if found is None:
        raise StreambenchError(f"'{named}' is no stream and no range of one: write log.flights.0@100..200")
    with closing(Systems(config)) as systems:
        stream, partition = _stream_named(found["stream"], found["first"] is not None)
        admin = systems.admin(stream.system)
        metadata = systems.metadata([stream])[stream]
        starts = {
            SystemStreamPartition(stream.system, stream.stream, number): found["first"] or each.oldest
            for number, each in sorted(metadata.items())
            if partition in (None, number) and each.newest is not None
        }
        read = read_to_head(
            systems.consumer(stream.system, MetricsRegistry()),
            {ssp: start for ssp, start in starts.items() if start is not None},
            at_most=_MOST + 1,
        )
        last = found["last"]
        if last:
            # The reader may have gone past the end; offsets that cannot be compared count as before it.
            read = {
                ssp: [each for each in messages if (admin.compare(each.offset, last) or 0) <= 0]
                for ssp, messages in read.items()
            }
    if not any(read.values()):
        raise StreambenchError(
            f"there is no message to compare over in {named}: send some, or name another stream or range"
        )
    if any(len(messages) > _MOST for messages in read.values()):
        raise StreambenchError(
            f"{named} holds more than {_MOST:,} messages in a partition: name a range of offsets, such as "
            f"{stream}.0@0..{_MOST - 1}"
        )
    return list(_round_robin(read.values()))


class _Unwritten(Recording):
    """A recording of messages in memory: as they are, whatever objects they are."""

    def __init__(self, header: Header, messages: Sequence[IncomingMessageEnvelope]) -> None:
        keys, key_forms = value_columns([each.key for each in messages])
        values, forms = value_columns([each.message for each in messages])
        rows = [
            Row(
                "message", number, None, str(each.ssp), each.offset, key, value, each.timestamp,
                each.headers, key_form, form,
            )
            for number, (each, key, value, key_form, form) in enumerate(
                zip(messages, keys, values, key_forms, forms, strict=True), start=1
            )
        ]  # fmt: skip
        super().__init__(header, [*rows, Row("end", len(messages))])
        self.messages, self.notes = messages, ()

    def only(self, places: Sequence[int]) -> Recording:
        return _Unwritten(self.header, [self.messages[place] for place in sorted(places)])


def _envelopes(messages: GivenMessages, config: Config) -> Iterator[IncomingMessageEnvelope]:
    if isinstance(messages, Mapping):
        yield from _round_robin(
            list(_of_partition(SystemStream.parse(name), number, each, config))
            for name, partitions in messages.items()
            for number, each in sorted(partitions.items())
        )
        return
    messages = list(messages)
    given = [each for each in messages if isinstance(each, IncomingMessageEnvelope)]
    if given and len(given) != len(messages):
        raise StreambenchError("messages to compare over are all envelopes, or none of them is one")
    inputs = list(all_inputs(config)) if config.names("task.inputs") else []
    yield from given or _of_partition(inputs[0] if inputs else DEFAULT_INPUT, 0, messages, config)


def _of_partition(
    stream: SystemStream, partition: int, messages: Iterable[Any], config: Config
) -> Iterator[IncomingMessageEnvelope]:
    """Messages as a producer would have written them."""
    ssp = SystemStreamPartition(stream.system, stream.stream, partition)
    key_serde, message_serde = StreamSerdes(config).for_stream(stream)
    for number, entry in enumerate(messages):
        key, message = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        yield IncomingMessageEnvelope(
            ssp, str(number), _encoded(key_serde, key), _encoded(message_serde, message)
        )


def _encoded(serde: Any, value: Any) -> Any:
    """A key or message as it would have been read."""
    if value is None or isinstance(value, bytes):
        return value
    return detached(value) if serde is None else serde.to_bytes(value)


def _round_robin(
    partitions: Iterable[Sequence[IncomingMessageEnvelope]],
) -> Iterator[IncomingMessageEnvelope]:
    for row in zip_longest(*partitions):
        yield from (each for each in row if each is not None)


def _inputs(config: Config, envelopes: Sequence[IncomingMessageEnvelope]) -> dict[str, Any]:
    """The inputs of the job: those that have messages."""
    streams = {str(each.ssp.system_stream) for each in envelopes}
    broadcast = [each for each in config.names("task.broadcast.inputs") if each.partition("#")[0] in streams]
    plain = streams - {each.partition("#")[0] for each in broadcast}
    return {
        "task.inputs": ",".join(sorted(plain)) or None,
        "task.broadcast.inputs": ",".join(broadcast) or None,
    }


def _stream_named(text: str, has_range: bool) -> tuple[SystemStream, int | None]:
    """A stream, and its partition where one is named."""
    head, _, last = text.rpartition(".")
    if last.isdecimal() and "." in head and has_range:
        ssp = SystemStreamPartition.parse(text)
        return ssp.system_stream, ssp.partition
    return SystemStream.parse(text), None
