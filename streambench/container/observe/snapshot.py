"""A snapshot of a container between two messages: immutable, the source of every display."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct

from streambench.chooser.explanation import Explanation
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.restore import RestoreProgress
from streambench.counts import sum_known
from streambench.model import SystemStreamPartition


class PartitionSnapshot(Struct, frozen=True):
    """An input partition.

    ``position``: the first offset that is not processed yet. ``lag``: how many messages are left up to
    ``upcoming``, None where offsets are no numbers, or the end is unknown. ``checkpointed``: the last offset
    in a checkpoint. ``waiting``: messages in memory. ``processed``: messages since the start. ``status``:
    what the chooser has to say of it, in a word or two. ``turn``: the number of choices until its next
    message is chosen if no others arrive, 1 for the next one. It is None where nothing waits, it is held
    back, or the chooser does not say. ``at_head``: nothing waits, and there was nothing more when it was last
    asked, which is all that is known of an input without ``lag``.
    """

    ssp: SystemStreamPartition
    tasks: tuple[str, ...]
    oldest: str | None
    position: str
    newest: str | None
    upcoming: str | None
    lag: int | None
    checkpointed: str | None
    waiting: int
    processed: int
    status: str
    turn: int | None = None
    at_head: bool = False


class Choice(Struct, frozen=True):
    """A message that was chosen: the ``number``-th since the start, and why (None where choices were not
    explained)."""

    number: int
    ssp: SystemStreamPartition
    offset: str
    key: Any
    explanation: Explanation | None = None

    @property
    def rule(self) -> str:
        """The rule that decided, in a few words; empty where choices were not explained."""
        return self.explanation.rule if self.explanation is not None else ""


class ContainerSnapshot(Struct, frozen=True):
    """A container as it was at ``time_ms``. ``state`` is one of new, running, stopped, failed, restarting
    (its process died, and another is to come); ``reason`` says why it stands still.

    ``counts``: how many messages were processed, and all counters by ``group.name``, those of the tasks added
    up. ``gate``: what all other inputs wait for, empty while the bootstrap gate is open. ``error_counts``:
    what was dropped, dead-lettered or ignored. ``restoring``: how far it is with bringing back the state of
    its stores; None where it is not at that. ``has_share``: it has partitions to read, unlike a member of a
    group of more members than tasks."""

    job: str
    container: int
    state: str
    reason: str
    time_ms: int
    processed: int
    partitions: tuple[PartitionSnapshot, ...]
    choices: tuple[Choice, ...]
    checkpoints: Mapping[str, Mapping[SystemStreamPartition, str]]
    counts: Mapping[str, float]
    gate: str = ""
    error_counts: ErrorCounts = ErrorCounts()
    restoring: RestoreProgress | None = None
    has_share: bool = True

    @property
    def is_away(self) -> bool:
        """True before it reads its inputs, also where it stopped or failed there, and after it lost them with
        its process.

        Its figures are then the last known ones, if any. Without a share of the partitions it has nothing to
        read, and never anything left."""
        if not self.has_share:
            return False
        return self.state == "restarting" or (self.state != "running" and not self.partitions)

    @property
    def lag(self) -> int | None:
        """The number of messages left in all inputs; None where it is unknown of one of them, or they are not
        read now."""
        if self.is_away:
            return None
        return sum_known([each.lag for each in self.partitions])

    @property
    def is_caught_up(self) -> bool:
        """True where nothing is known to be left in any input."""
        return not self.is_away and all(
            each.at_head if each.lag is None else each.lag == 0 for each in self.partitions
        )


def lag_between(position: str, upcoming: str | None) -> int | None:
    """The number of messages from ``position`` to ``upcoming``; None where these are no numbers."""
    if upcoming is None or not (position.isdecimal() and upcoming.isdecimal()):
        return None
    return max(0, int(upcoming) - int(position))


def left_until(places: Iterable[tuple[str, str | None]]) -> tuple[int | None, int]:
    """Of positions with their ends: the number of messages left, and how many are at their ends. The first is
    None where offsets are no numbers, or where there is no position yet."""
    lags = [0 if position == end else lag_between(position, end) for position, end in places]
    return sum_known(lags) if lags else None, lags.count(0)
