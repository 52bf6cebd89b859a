"""Reading from outside of a container: a look into streams that moves no position."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager

from streambench.errors import OffsetError, StreamSystemError
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStreamPartition
from streambench.system.api import SystemAdmin, SystemConsumer

_AT_ONCE = 10_000
_FOLLOWED_AT_ONCE = 1000
_WAIT_MS = 250

Found = dict[SystemStreamPartition, list[IncomingMessageEnvelope]]
"""Per partition, its messages in order."""


def read_to_head(
    consumer: SystemConsumer,
    starts: Mapping[SystemStreamPartition, str],
    *,
    at_most: int | None = None,
    patience_s: float | None = None,
) -> Found:
    """The messages of partitions of one system, each from its start (inclusively) up to its head, or
    ``at_most`` messages of each.

    The consumer is new, and is stopped afterwards. ``patience_s``: StreamSystemError where it takes longer
    than so many seconds; else there is no end to the waiting. Raises what the consumer raises.
    """
    found: Found = {ssp: [] for ssp in starts}
    began = time.monotonic()
    with _started(consumer, starts, at_most) as wait_ms:
        wanted = dict.fromkeys(starts, at_most or _AT_ONCE)
        while wanted:
            for envelope in consumer.poll(wanted, wait_ms):
                found[envelope.ssp].append(envelope)
            left = {ssp: _AT_ONCE if at_most is None else at_most - len(found[ssp]) for ssp in wanted}
            wanted = {ssp: number for ssp, number in left.items() if number > 0 and not consumer.at_head(ssp)}
            if wanted and patience_s is not None and time.monotonic() - began > patience_s:
                raise StreamSystemError(f"{next(iter(wanted))} did not answer within {patience_s:g} seconds")
    return found


def count_between(
    consumer: SystemConsumer,
    ssp: SystemStreamPartition,
    start: str,
    end: str,
    compare: Callable[[str, str], int | None],
) -> int:
    """Count the messages of a partition from ``start`` (inclusively) up to, but not, ``end``.

    The consumer is new, and is stopped afterwards. Raises what the consumer raises."""
    count = 0
    with _started(consumer, {ssp: start}, None) as wait_ms:
        while True:
            for chunk in consumer.poll_chunks({ssp: _AT_ONCE}, wait_ms):
                offsets = [chunk.offset(at) for at in range(len(chunk))]
                before = [each for each in offsets if (compare(each, end) or 0) < 0 and each != end]
                count += len(before)
                if len(before) < len(offsets):
                    return count
            if consumer.at_head(ssp):
                return count


def start_in(
    admin: SystemAdmin, ssp: SystemStreamPartition, here: PartitionMetadata, start: str, *, exactly: bool
) -> str | None:
    """The starting offset in a partition, for ``oldest``, ``newest`` (its last message) or an offset; None
    where the partition ends before it. Raises OffsetError for what is no offset of it; with ``exactly`` also
    for one that it does not hold."""
    oldest = here.oldest or here.upcoming or "0"
    if not admin.replayable and start not in ("oldest", "newest"):
        raise OffsetError(
            f"{ssp}: this kind of system keeps nothing, reading begins with what comes next: leave out "
            f"--from {start}"
        )
    held = f"{oldest} to {here.upcoming}"
    if start in ("oldest", "newest"):
        return (here.newest if start == "newest" else None) or oldest
    before = admin.compare(start, oldest)
    after = 0 if here.upcoming is None else admin.compare(start, here.upcoming)
    if before is None or after is None:
        raise OffsetError(
            f"{ssp}: '{start}' is no offset of it; it holds {held}. Write oldest, newest or such an offset"
        )
    if exactly and (before < 0 or after > 0):
        raise OffsetError(f"{ssp}: {start} is outside of what it holds: {held} (the next)")
    return oldest if before < 0 else None if after > 0 else start


def follow(
    consumer: SystemConsumer, starts: Mapping[SystemStreamPartition, str]
) -> Generator[list[IncomingMessageEnvelope], None, None]:
    """The messages that arrive in partitions of one system, each from its start (inclusively) on, without
    end: list by list, some of them empty.

    The consumer is new, and is stopped when the generator is closed. Raises what the consumer raises.
    """
    with _started(consumer, starts, None) as wait_ms:
        wanted = dict.fromkeys(starts, _FOLLOWED_AT_ONCE)
        while True:
            arrived = consumer.poll(wanted, wait_ms)
            yield arrived
            if not arrived and consumer.polled_by_loop:
                # Such a consumer answers at once.
                time.sleep(_WAIT_MS / 1000)


@contextmanager
def _started(
    consumer: SystemConsumer, starts: Mapping[SystemStreamPartition, str], at_most: int | None
) -> Iterator[int]:
    """The consumer at work; how many milliseconds a poll of it may wait."""
    try:
        consumer.look_only(at_most)
        for ssp, offset in starts.items():
            consumer.register(ssp, offset)
        consumer.start()
        yield 0 if consumer.polled_by_loop else _WAIT_MS
    finally:
        consumer.stop()
