"""The commits of a job that are kept, and that a rewind can go back to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.container.observe.snapshot import PartitionSnapshot


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
    made = {
        (each.generation, each.sequence): each.time_ms
        for kept in history.values()
        for each in kept
        if each.generation
    }
    return tuple(
        KeptCommit(f"{at[0]}.{at[1]}", made[at], _again(history, at, partitions))
        for at in sorted(made, reverse=True)[:most]
    )


def _again(
    history: Mapping[str, Sequence[Checkpoint]],
    at: tuple[int, int],
    partitions: Sequence[PartitionSnapshot],
) -> int | None:
    """The number of messages that were processed since a commit, of all tasks."""
    again = 0
    for each in partitions:
        for task in each.tasks:
            kept = [c for c in history.get(task, ()) if (0, 0) < (c.generation, c.sequence) <= at]
            if not kept:
                continue
            last = max(kept, key=lambda c: (c.generation, c.sequence))
            offset = last.offsets.get(each.ssp)
            start = last.starts.get(each.ssp) if offset is None else offset
            if start is None:
                continue
            if not (start.isdecimal() and each.position.isdecimal()):
                return None
            again += max(0, int(each.position) - int(start) - (offset is not None))
    return again
