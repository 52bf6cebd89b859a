"""The commits of a job that are kept, and that a rewind can go back to."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.container.observe.snapshot import PartitionSnapshot

_Since = tuple[tuple[int, int], Checkpoint]
"""A checkpoint behind the generation and sequence from which on it is the last one."""


class KeptCommit(Struct, frozen=True):
    """``name``: as ``%stream rewind`` takes it (``3.17``). ``again``: the messages to process again after a
    rewind to it; None where offsets are no numbers."""

    name: str
    time_ms: int
    again: int | None


def kept_commits(
    history: Mapping[str, Sequence[Checkpoint]], partitions: Sequence[PartitionSnapshot], most: int = 12
) -> tuple[KeptCommit, ...]:
    """The newest commits, the newest first. ``history``: per task, the checkpoints that are kept.
    ``partitions``: where the job stands."""
    tasks = {task: _in_order(kept) for task, kept in history.items()}
    times = {at: each.time_ms for since in tasks.values() for at, each in since if not each.rewound}
    return tuple(
        KeptCommit(f"{at[0]}.{at[1]}", times[at], _again(tasks, at, partitions))
        for at in sorted(times, reverse=True)[:most]
    )


def _in_order(kept: Sequence[Checkpoint]) -> list[_Since]:
    """The checkpoints of commits and of rewinds, in their order."""
    since = [(each.since, each) for each in kept if each.since > (0, 0)]
    return sorted(since, key=lambda pair: pair[0])


def _again(
    tasks: Mapping[str, Sequence[_Since]], at: tuple[int, int], partitions: Sequence[PartitionSnapshot]
) -> int | None:
    """The number of messages that were processed since a commit, of all tasks."""
    again = 0
    for each in partitions:
        for task in each.tasks:
            since = tasks.get(task, ())
            number = bisect_right(since, at, key=lambda pair: pair[0])
            if not number:
                continue
            last = since[number - 1][1]
            offset = last.offsets.get(each.ssp)
            start = last.starts.get(each.ssp) if offset is None else offset
            if start is None:
                continue
            if not (start.isdecimal() and each.position.isdecimal()):
                return None
            again += max(0, int(each.position) - int(start) - (offset is not None))
    return again
