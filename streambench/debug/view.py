"""A snapshot as a rich renderable: what the terminal draws, and the text of a notebook's panel.

Displays show a snapshot and nothing else, so that a picture can be late but never wrong. What no single snapshot holds, the
rates, is worked out from successive ones by ``Rates``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence

from msgspec import Struct
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from streambench.chooser.explanation import closed
from streambench.container.rejects import PassedOver
from streambench.container.snapshot import ContainerSnapshot, PartitionSnapshot
from streambench.container.state import RestoreProgress
from streambench.errors import shortened
from streambench.model import SystemStream, SystemStreamPartition

Place = tuple[int, SystemStreamPartition]
"""A partition as one container reads it: a broadcast partition is read by several."""

Snapshots = ContainerSnapshot | Sequence[ContainerSnapshot]

MAX_ROWS = 24
"""More partitions than this are shown as one row per stream."""

_STATES = {"new": "dim", "running": "green", "paused": "yellow", "stopped": "blue", "failed": "bold red", "restarting": "yellow"}


class Rates:
    """Messages per second, per partition and in all, over the last ``over_ms`` milliseconds of the snapshots it is shown.

    Times are those of the snapshots. A rate is None until two of them are some time apart.
    """

    def __init__(self, over_ms: int = 3000) -> None:
        self._over_ms = over_ms
        self._seen: dict[int, deque[tuple[int, int, Mapping[SystemStreamPartition, int]]]] = {}

    def add(self, snapshots: Snapshots) -> None:
        """Take a newer snapshot (of each container) into account. Of containers that are not there any more nothing is known."""
        present = all_of(snapshots)
        self._seen = {each.container: self._seen.get(each.container, deque()) for each in present}
        for snapshot in present:
            seen = self._seen[snapshot.container]
            partitions = {each.ssp: each.processed for each in snapshot.partitions}
            if seen and (snapshot.processed < seen[-1][1] or not _continues(partitions, seen[-1][2])):
                seen.clear()
            if seen and seen[-1][0] >= snapshot.time_ms:
                seen.pop()
            seen.append((snapshot.time_ms, snapshot.processed, partitions))
            while len(seen) > 2 and seen[1][0] <= snapshot.time_ms - self._over_ms:
                seen.popleft()

    def of(self, ssp: SystemStreamPartition, container: int = 0) -> float | None:
        """Messages per second of a partition."""
        seen = self._seen.get(container)
        if not seen:
            return None
        (start, _, before), (end, _, now) = seen[0], seen[-1]
        return _rate(now.get(ssp, 0) - before.get(ssp, 0), end - start)

    def total(self) -> float | None:
        """Messages per second of all containers together."""
        known = [_rate(seen[-1][1] - seen[0][1], seen[-1][0] - seen[0][0]) for seen in self._seen.values() if seen]
        rates = [rate for rate in known if rate is not None]
        return sum(rates) if rates else None


class Row(Struct, frozen=True):
    """A line of the table: a partition, or a stream with all of its partitions (``folded`` says how many; 0 for a partition)."""

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


def counted(number: int, what: str) -> str:
    """A number of things, in words: "1 message", "1,000 messages"."""
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def all_of(snapshots: Snapshots) -> Sequence[ContainerSnapshot]:
    """The snapshots as a sequence, whether one was given or several."""
    return [snapshots] if isinstance(snapshots, ContainerSnapshot) else snapshots


def rows(snapshots: Snapshots, rates: Rates | None = None, *, max_rows: int = MAX_ROWS) -> list[Row]:
    """The lines of the table: one per partition, or one per stream where there would be more than ``max_rows``."""
    every = [_row(snapshot.container, each, rates) for snapshot in all_of(snapshots) for each in snapshot.partitions]
    every.sort(key=lambda row: (row.stream, row.partition or 0, row.container))
    return every if len(every) <= max_rows else _folded(every)


def snapshot_table(
    snapshots: Snapshots, rates: Rates | None = None, *, max_rows: int = MAX_ROWS, elapsed_s: float | None = None
) -> RenderableType:
    """The table of a container's inputs (or of several containers of one job) with a line of totals above and the last choice,
    with its reasons, below."""
    several = len(all_of(snapshots)) > 1
    shown = rows(snapshots, rates, max_rows=max_rows)
    folded = any(row.folded for row in shown)
    table = Table(box=None, pad_edge=False, header_style="dim", expand=False)
    table.add_column("stream", overflow="fold")
    table.add_column("partitions" if folded else "partition", justify="right")
    if several and not folded:
        table.add_column("container", justify="right")
    names = ("lag", "rate", "waiting", "status") if folded else ("oldest", "position", "upcoming", "lag", "rate", "checkpoint", "status")
    for name in names:
        table.add_column(name, justify="left" if name == "status" else "right", overflow="fold" if name == "status" else "ellipsis")
    for row in shown:
        cells = [str(row.stream), str(row.folded or row.partition)]
        if several and not folded:
            cells.append(str(row.container))
        lag, rate = _figure(row.lag), _figure(row.rate)
        if folded:
            cells += [lag, rate, _figure(row.waiting), row.status]
        else:
            cells += [row.oldest or "-", row.position or "-", row.upcoming or "-", lag, rate, row.checkpointed or "-", row.standing]
        table.add_row(*map(Text, cells))
    parts: list[RenderableType] = [headline(snapshots, rates, elapsed_s=elapsed_s), table]
    return Group(*parts, *(_choice_lines(each) for each in all_of(snapshots) if each.choices or each.gate))


def headline(snapshots: Snapshots, rates: Rates | None = None, *, elapsed_s: float | None = None) -> Text:
    """One line: the job, its state, how many messages were processed, how many are left, how fast it goes."""
    every = all_of(snapshots)
    if not every:
        return Text("starting", style="dim")
    line = Text(every[0].job, style="bold")
    _append_states(line, every)
    line.append(f"  {_figure(sum(each.processed for each in every))} processed")
    if passed_over := sum((each.passed_over for each in every), PassedOver()):
        line.append(f"  {passed_over}", style="yellow")
    if restoring := [each.restoring for each in every if each.restoring is not None]:
        line.append(f"  {restored(restoring)}", style="cyan")
    line.append(f"  lag {_lag(every)}")
    rate = rates.total() if rates is not None else None
    if rate is not None:
        line.append(f"  {_figure(rate)}/s")
    if elapsed_s is not None:
        line.append(f"  {elapsed_s:.1f} s")
    for each in every:
        if each.reason and each.state != "restarting":  # a warning has told it
            line.append(f"\n{each.reason}", style="red" if each.state == "failed" else "dim")
    return line


def _append_states(line: Text, every: Sequence[ContainerSnapshot]) -> None:
    """The state of the job; of several containers, which of them are in another one."""
    states = [each.state for each in every]
    common = "running" if "running" in states else states[0]
    line.append("  ").append(common, style=_STATES.get(common, ""))
    if len(every) > 1:
        line.append(f"  {len(every)} containers")
    for each in every:
        if each.state != common:
            what = "restoring" if each.restoring is not None else "starting" if each.state == "new" else each.state
            line.append(f"; container {each.container} ").append(what, style=_STATES.get(each.state, ""))


def _lag(every: Sequence[ContainerSnapshot]) -> str:
    """How many messages are left; where a container is away, how many there are at least."""
    if not any(each.is_away for each in every):
        return _figure(total_lag(every))
    known = sum(each.lag or 0 for each in every)
    return f"at least {known:,}" if known else "?"


def restored(progress: Sequence[RestoreProgress]) -> str:
    """How far a restore of state has come, in words."""
    done = _figure(sum(each.restored for each in progress))
    totals = [each.total for each in progress]
    if None in totals:
        return f"restoring state: {done} changes read"
    return f"restoring state: {done} of {_figure(sum(total for total in totals if total is not None))} changes read"


def total_lag(snapshots: Snapshots) -> int | None:
    """How many messages are left in all; None where a partition cannot tell."""
    lags = [each.lag for each in all_of(snapshots)]
    return None if None in lags else sum(lag for lag in lags if lag is not None)


def _row(container: int, each: PartitionSnapshot, rates: Rates | None) -> Row:
    return Row(
        each.ssp.system_stream, each.ssp.partition, container, each.oldest, each.position, each.upcoming, each.lag,
        rates.of(each.ssp, container) if rates is not None else None, each.waiting, each.checkpointed, each.status, turn=each.turn,
    )  # fmt: skip


def _folded(every: Iterable[Row]) -> list[Row]:
    streams: dict[SystemStream, list[Row]] = {}
    for row in every:
        streams.setdefault(row.stream, []).append(row)
    return [
        Row(
            stream, None, 0, None, None, None, _sum([row.lag for row in of_stream]), _sum_of_known([row.rate for row in of_stream]),
            sum(row.waiting for row in of_stream), None, _statuses(of_stream), len({row.partition for row in of_stream}),
        )
        for stream, of_stream in streams.items()
    ]  # fmt: skip


def _statuses(of_stream: Sequence[Row]) -> str:
    counts: dict[str, int] = {}
    for row in of_stream:
        counts[row.status] = counts.get(row.status, 0) + 1
    return ", ".join(f"{count} {status}" for status, count in sorted(counts.items(), key=lambda entry: -entry[1]))


def _sum(values: Sequence[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


def _sum_of_known(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _continues(now: Mapping[SystemStreamPartition, int], before: Mapping[SystemStreamPartition, int]) -> bool:
    """Whether the same partitions are counted on; not anew, as after a start with others."""
    return now.keys() == before.keys() and all(count >= before[ssp] for ssp, count in now.items())


def _rate(messages: int, milliseconds: int) -> float | None:
    return messages * 1000 / milliseconds if milliseconds > 0 else None


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"


def _choice_lines(snapshot: ContainerSnapshot) -> Text:
    """The last choice and why; that the gate is closed, even when nothing was chosen yet."""
    lines = []
    why = None
    if snapshot.choices:
        last = snapshot.choices[-1]
        why = last.explanation
        key = "" if last.key is None else f", key {shortened(last.key)}"
        lines.append(f"last chosen: {last.ssp}@{last.offset}{key}" + (f" ({last.rule})" if last.rule else ""))
    if why is not None:
        lines += [f"  {line}" for line in why.others()]
    lines += closed(snapshot.gate)
    return Text("\n".join(lines), style="dim", overflow="ellipsis", no_wrap=True)
