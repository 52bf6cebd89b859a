"""The inputs of a snapshot as rows: one per partition, or one per stream where there are many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

from streambench.counts import sum_known
from streambench.debug.view.rates import Rates, all_of
from streambench.model import SystemStream

if TYPE_CHECKING:
    from streambench.container.observe.snapshot import PartitionSnapshot
    from streambench.debug.view.rates import Snapshots

MAX_ROWS = 24
"""More partitions than this are shown as one row per stream."""


class Row(Struct, frozen=True, kw_only=True):
    """A line of the table: a partition, or a stream with all of its partitions (``folded`` says how many; 0
    for a partition). A row of a whole stream has sums, and no partition or position of its own."""

    stream: SystemStream
    partition: int | None = None
    container: int = 0
    oldest: str | None = None
    position: str | None = None
    upcoming: str | None = None
    lag: int | None
    rate: float | None
    waiting: int
    checkpointed: str | None = None
    status: str
    folded: int = 0
    turn: int | None = None

    @property
    def standing(self) -> str:
        """Its status, or when its turn comes if nothing else comes."""
        return f"next in {self.turn}" if self.turn is not None else self.status


def rows(snapshots: Snapshots, rates: Rates | None = None, *, max_rows: int = MAX_ROWS) -> list[Row]:
    """The lines of the table: one per partition, or one per stream where there would be more than
    ``max_rows``."""
    every = [
        _row(snapshot.container, each, rates)
        for snapshot in all_of(snapshots)
        for each in snapshot.partitions
    ]
    every.sort(key=lambda row: (row.stream, row.partition or 0, row.container))
    return every if len(every) <= max_rows else _folded(every)


def _row(container: int, each: PartitionSnapshot, rates: Rates | None) -> Row:
    return Row(
        stream=each.ssp.system_stream, partition=each.ssp.partition, container=container,
        oldest=each.oldest, position=each.position, upcoming=each.upcoming, lag=each.lag,
        rate=None if rates is None else rates.of(each.ssp, container), waiting=each.waiting,
        checkpointed=each.checkpointed, status=each.status, turn=each.turn,
    )  # fmt: skip


def _folded(every: Iterable[Row]) -> list[Row]:
    streams: dict[SystemStream, list[Row]] = {}
    for row in every:
        streams.setdefault(row.stream, []).append(row)
    # A row of a whole stream has sums.
    return [
        Row(
            stream=stream,
            lag=sum_known(row.lag for row in of_stream),
            rate=_sum_of_known([row.rate for row in of_stream]),
            waiting=sum(row.waiting for row in of_stream),
            status=_statuses(of_stream),
            folded=len({row.partition for row in of_stream}),
        )
        for stream, of_stream in streams.items()
    ]


def _statuses(of_stream: Sequence[Row]) -> str:
    counts = Counter(row.status for row in of_stream if row.status)  # in the past some have none
    return ", ".join(f"{count:,} {status}" for status, count in counts.most_common())


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
