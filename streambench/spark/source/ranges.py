"""Ranges of offsets, and what one Spark task reads of them."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence

from pyspark.sql.datasource import InputPartition

from streambench.chunk import Messages
from streambench.config import Config
from streambench.container.inputs.starting_offsets import start_point
from streambench.errors import StreamSystemError, no_partition
from streambench.metrics.registry import MetricsRegistry
from streambench.model import PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.spark.source.options import Bounds, StreamOptions
from streambench.system.api import SystemConsumer
from streambench.system.capabilities import Sized
from streambench.system.numbered import NumberedAdmin
from streambench.system.systems import Systems, abilities_of

_AT_ONCE = 10_000
_WAIT_MS = 250
_PAUSE_S = 0.01

# A task takes Spark 20 ms of CPU, and about so many bytes take it half a second.
_TASK_BYTES = 32 << 20
# Of messages whose size is not known.
_MESSAGE_BYTES = 8 << 10


class OffsetRange(InputPartition):
    """Messages of one partition, from ``start`` (inclusively) up to, but not, ``end``."""

    def __init__(self, partition: int, start: str, end: str) -> None:
        super().__init__(partition)
        self.partition = partition
        self.start = start
        self.end = end

    def __repr__(self) -> str:
        return f"OffsetRange({self.partition}: {self.start} to {self.end})"


class TaskRanges(InputPartition):
    """The ranges that one task reads, one after the other."""

    def __init__(self, ranges: Sequence[OffsetRange]) -> None:
        super().__init__(tuple(ranges))
        self.ranges = tuple(ranges)

    def __repr__(self) -> str:
        return f"TaskRanges{self.ranges}"


def has_numbers(systems: Systems, stream: SystemStream) -> bool:
    """True where the offsets of a stream are whole numbers."""
    return isinstance(systems.admin(stream.system), NumberedAdmin)


def check_reachable(config: Config, stream: SystemStream) -> None:
    """Raise StreamSystemError where a stream is in the memory of this process."""
    if abilities_of(config, stream.system).in_process:
        raise StreamSystemError(
            f"{stream} lies in the memory of one process, and Spark's executors are others: use a system of "
            f"another kind (systems.{stream.system}.samza.factory=log)"
        )


def check_readable(config: Config, systems: Systems, stream: SystemStream) -> None:
    """Raise StreamSystemError where executors could not read a stream, or not twice the same."""
    check_reachable(config, stream)
    if not systems.admin(stream.system).replayable:
        raise StreamSystemError(
            f"{stream}: this kind of system does not store messages, and Spark may read them twice: land it "
            f"in a log (systems.{stream.system}.samza.landing)"
        )


def ranges(systems: Systems, options: StreamOptions) -> list[OffsetRange]:
    """One range for each partition of the stream, within the bounds of the options."""
    stream = options.required_stream()
    metadata = systems.metadata([stream])[stream]
    check_bounds(stream, metadata, options.start)
    check_bounds(stream, metadata, options.end)
    found = []
    for number, here in sorted(chosen(stream, metadata, options).items()):
        ssp = stream.partition(number)
        start = point(systems, ssp, here, options.start, "oldest")
        end = point(systems, ssp, here, options.end, "upcoming")
        found.append(OffsetRange(number, start, end))
    return found


def chosen(
    stream: SystemStream, metadata: dict[int, PartitionMetadata], options: StreamOptions
) -> dict[int, PartitionMetadata]:
    """The partitions that the options select. Raises UnknownStreamError where one of them is not there."""
    if options.partitions is None:
        return metadata
    check_bounds(stream, metadata, dict.fromkeys(options.partitions, ""))
    return {number: metadata[number] for number in options.partitions}


def check_bounds(stream: SystemStream, metadata: dict[int, PartitionMetadata], bounds: Bounds) -> None:
    """Raise UnknownStreamError where bounds name a partition that is not there."""
    for number in bounds:
        if number is not None and number not in metadata:
            raise no_partition(str(stream), number, len(metadata))


def point(
    systems: Systems, ssp: SystemStreamPartition, here: PartitionMetadata, bounds: Bounds, default: str
) -> str:
    """The offset that bounds mean in a partition."""
    where = bounds.get(ssp.partition, bounds.get(None, default))
    return start_point(systems, ssp, here, where)


def not_empty(each: OffsetRange, compare: Callable[[str, str], int | None]) -> bool:
    """True where a range may have messages."""
    return (compare(each.start, each.end) or 0) < 0


def tasks_of(
    systems: Systems, stream: SystemStream, found: Sequence[OffsetRange], at_least: int
) -> list[TaskRanges]:
    """Deal the ranges that may have messages to tasks, to at least so many where offsets are whole
    numbers."""
    admin = systems.admin(stream.system)
    found = [each for each in found if not_empty(each, admin.compare)]
    if not isinstance(admin, NumberedAdmin):
        return [TaskRanges([each]) for each in found]

    def size(each: OffsetRange) -> int:
        if isinstance(admin, Sized):
            ssp = stream.partition(each.partition)
            return admin.bytes_between(ssp, each.start, each.end)
        return (int(each.end) - int(each.start)) * _MESSAGE_BYTES

    return packed(split(found, at_least), at_least, size)


def packed(
    found: Sequence[OffsetRange], at_least: int, size: Callable[[OffsetRange], int]
) -> list[TaskRanges]:
    """Put consecutive small ranges into one task, in at least so many tasks if there are so many ranges."""
    dealt: list[list[OffsetRange]] = []
    held = 0
    for number, each in enumerate(found):
        bytes_of_it = size(each)
        can_join = len(dealt) + len(found) - number > at_least
        if dealt and can_join and held + bytes_of_it <= _TASK_BYTES:
            dealt[-1].append(each)
            held += bytes_of_it
        else:
            dealt.append([each])
            held = bytes_of_it
    return [TaskRanges(each) for each in dealt]


def split(found: Sequence[OffsetRange], at_least: int) -> list[OffsetRange]:
    """The same messages in at least so many ranges, if there are so many. Offsets are whole numbers."""
    total = sum(int(each.end) - int(each.start) for each in found)
    if not total or len(found) >= at_least:
        return list(found)
    parts = []
    for each in found:
        first, last = int(each.start), int(each.end)
        count = max(1, -(-at_least * (last - first) // total))
        cuts = [first + (last - first) * at // count for at in range(count + 1)]
        parts += [
            OffsetRange(each.partition, str(start), str(end))
            for start, end in zip(cuts, cuts[1:], strict=False)
            if start < end
        ]
    return parts


def read_range(systems: Systems, stream: SystemStream, each: OffsetRange) -> Iterator[Sequence[Messages]]:
    """The messages of a range as they were read, some at a time."""
    ssp = stream.partition(each.partition)
    consumer = systems.consumer(stream.system, MetricsRegistry())
    try:
        consumer.register(ssp, each.start)
        consumer.start()
        yield from _up_to(consumer, ssp, each.end, systems.admin(stream.system).compare)
    finally:
        consumer.stop()


def _up_to(
    consumer: SystemConsumer, ssp: SystemStreamPartition, end: str, compare: Callable[[str, str], int | None]
) -> Iterator[Sequence[Messages]]:
    wait_ms = 0 if consumer.polled_by_loop else _WAIT_MS
    while True:
        arrived = consumer.poll_batches({ssp: _AT_ONCE}, wait_ms)
        before, ended = [], False
        for piece in arrived:
            count, last = len(piece), piece.offset(len(piece) - 1)
            if _order(ssp, last, end, compare) >= 0:
                # Only the last of all pieces is searched: a look at an offset takes Arrow a microsecond.
                count = bisect_left(
                    range(count), 0, key=lambda at: _order(ssp, piece.offset(at), end, compare)
                )
            ended = count < len(piece)
            if count:
                before.append(piece.part(0, count) if ended else piece)
            if ended:
                break
            ended = _follows(last, end)
        if before:
            yield before
        if ended or consumer.at_head(ssp):
            return
        if not arrived and consumer.polled_by_loop:
            time.sleep(_PAUSE_S)


def _order(
    ssp: SystemStreamPartition, offset: str, end: str, compare: Callable[[str, str], int | None]
) -> int:
    order = compare(offset, end)
    if order is None:
        raise StreamSystemError(f"{ssp}: the offsets {offset} and {end} cannot be compared")
    return order


def _follows(offset: str, end: str) -> bool:
    return offset.isdecimal() and end.isdecimal() and int(offset) + 1 == int(end)
