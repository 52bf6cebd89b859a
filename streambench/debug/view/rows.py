"""The inputs of a snapshot as rows: one per partition, or one per stream where there are many."""

from __future__ import annotations

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


class Row(Struct, frozen=True):
    """A line of the table: a partition, or a stream with all of its partitions (``folded`` says how many; 0
    for a partition)."""

    stream: SystemStream
    partition: int | None
    container: int
    oldest: str | None
    position: str | None
    upcoming: str | None
    lag: int | None
    rate: float | None
    waiting: int
    checkpointed: str | None
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
        each.ssp.system_stream,
        each.ssp.partition,
        container,
        each.oldest,
        each.position,
        each.upcoming,
        each.lag,
        rates.of(each.ssp, container) if rates is not None else None,
        each.waiting,
        each.checkpointed,
        each.status,
        turn=each.turn,
    )


def _folded(every: Iterable[Row]) -> list[Row]:
    streams: dict[SystemStream, list[Row]] = {}
    for row in every:
        streams.setdefault(row.stream, []).append(row)
    # A row of a whole stream has sums, and no partition, position or status of its own.
    return [
        Row(
            stream,
            None,
            0,
            None,
            None,
            None,
            sum_known(row.lag for row in of_stream),
            _sum_of_known([row.rate for row in of_stream]),
            sum(row.waiting for row in of_stream),
            None,
            _statuses(of_stream),
            len({row.partition for row in of_stream}),
        )
        for stream, of_stream in streams.items()
    ]


def _statuses(of_stream: Sequence[Row]) -> str:
    counts: dict[str, int] = {}
    for row in of_stream:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(
        f"{count:,} {status}" for status, count in sorted(counts.items(), key=lambda entry: -entry[1])
    )


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None
