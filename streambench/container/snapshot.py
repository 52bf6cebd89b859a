"""A picture of a container between two messages: immutable, and all that any display is drawn from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from streambench.chooser.explanation import Explanation
from streambench.container.rejects import PassedOver
from streambench.container.state import RestoreProgress
from streambench.metrics.registry import Counter
from streambench.model import SystemStreamPartition

if TYPE_CHECKING:
    from streambench.container.container import Container


class PartitionSnapshot(Struct, frozen=True):
    """An input partition.

    ``position``: the first offset that is not processed yet. ``lag``: how many messages are left up to ``upcoming``, None where offsets are
    no numbers, or nobody knows what is still to come. ``checkpointed``: the last offset in a checkpoint. ``waiting``: messages in memory.
    ``processed``: messages since the start.
    ``status``: what the chooser has to say of it, in a word or two. ``turn``: how many choices from now its next message comes if nothing
    else comes, 1 for the next one; None where nothing waits, it is held back, or the chooser does not tell. ``at_head``: nothing waits, and
    there was nothing more when it was last asked, which is all that is known of an input without ``lag``.
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
    """A message that was chosen: the ``number``-th since the start, and why (None where nobody was looking)."""

    number: int
    ssp: SystemStreamPartition
    offset: str
    key: Any
    explanation: Explanation | None = None

    @property
    def rule(self) -> str:
        """What decided, in a few words; empty where nobody was looking."""
        return self.explanation.rule if self.explanation is not None else ""


class ContainerSnapshot(Struct, frozen=True):
    """A container as it was at ``time_ms``. ``state`` is one of new, running, stopped, failed, restarting (its process died, and another is
    to come); ``reason`` says why it stands still.

    ``counts``: how many messages were processed, and all counters by ``group.name``, those of the tasks added up. ``gate``: what all other
    inputs wait for, empty while the bootstrap gate is open. ``passed_over``: what was dropped, dead-lettered or ignored. ``restoring``: how
    far it is with bringing back the state of its stores; None where it is not at that."""

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
    passed_over: PassedOver = PassedOver()
    restoring: RestoreProgress | None = None

    @property
    def is_away(self) -> bool:
        """Whether it has not come to its inputs yet, or lost them with its process: its figures are those of before, if any."""
        return self.state == "restarting" or (self.state == "new" and not self.partitions)

    @property
    def lag(self) -> int | None:
        """How many messages are left in all inputs; None where one of them cannot tell, or nobody looks at them now."""
        if self.is_away:
            return None
        lags = [each.lag for each in self.partitions]
        return None if None in lags else sum(lag for lag in lags if lag is not None)

    @property
    def is_caught_up(self) -> bool:
        """Whether nothing is left in any input, as far as it can be told."""
        return not self.is_away and all(each.at_head if each.lag is None else each.lag == 0 for each in self.partitions)


def lag_between(position: str, upcoming: str | None) -> int | None:
    """How many messages from ``position`` to ``upcoming``; None where these are no numbers."""
    if upcoming is None or not (position.isdecimal() and upcoming.isdecimal()):
        return None
    return max(0, int(upcoming) - int(position))


def take_snapshot(container: Container) -> ContainerSnapshot:
    """A picture of a container: on the thread that drives it, or while nobody does."""
    return ContainerSnapshot(
        job=container.name,
        container=container.number,
        state=container.state,
        reason=container.reason,
        time_ms=container._clock.now_ms(),
        processed=container.processed,
        partitions=partition_snapshots(container),
        choices=_choices(container),
        checkpoints={task.name: dict(task.committed) for task in container.tasks},
        counts=_counts(container),
        gate=container._multiplexer.explain(None, None).gate if container.state == "running" else "",
        passed_over=container.passed_over,
        restoring=container.restoring,
    )


def partition_snapshots(container: Container) -> tuple[PartitionSnapshot, ...]:
    """The input partitions of a container; of one that is closed, as they were when it closed."""
    if container.state != "running":
        return container.last_partitions
    multiplexer = container._multiplexer
    container.seen.update(container._systems.glance({ssp.system_stream for ssp in multiplexer.lanes}))
    metadata = container.seen
    served = container._loop.awaiting_refill
    stands = multiplexer.explain(None, served)
    turns = {each.ssp: turn for turn, each in enumerate(stands.queue, start=1)}
    shown = []
    for ssp, lane in multiplexer.lanes.items():
        admin = container._systems.admin(ssp.system)
        offsets = [each.offset for each in lane.subscriptions]
        position = lane.start if None in offsets else admin.after(_least(offsets, admin.compare))
        waiting, chosen = multiplexer.counts(lane, served)
        unfinished = container._loop.unfinished
        unprocessed = container._loop.unfinished_count if unfinished is not None and unfinished.ssp == ssp else 0
        here = metadata[ssp.system_stream][ssp.partition]
        upcoming = here.upcoming if admin.replayable else None
        checkpointed = [each.task.committed.get(ssp) for each in lane.subscriptions]
        status = stands.held.get(ssp, "waiting" if waiting else "empty")
        shown.append(
            PartitionSnapshot(
                ssp, tuple(each.task.name for each in lane.subscriptions), here.oldest, position, here.newest, upcoming,
                lag_between(position, upcoming), None if None in checkpointed else _least(checkpointed, admin.compare),
                waiting, chosen - unprocessed, status, turns.get(ssp),
                not waiting and not unprocessed and multiplexer.is_at_head(lane),
            )
        )  # fmt: skip
    return tuple(shown)


def _counts(container: Container) -> dict[str, float]:
    counts: dict[str, float] = {"processed": container.processed}
    for registry in (container.metrics, *(task.metrics for task in container.tasks)):
        for each in registry.readings(Counter):
            name = f"{each.group}.{each.name}"
            counts[name] = counts.get(name, 0) + each.value
    return counts


def _least(offsets: Sequence[str | None], compare: Callable[[str, str], int | None]) -> str:
    least, *others = (offset for offset in offsets if offset is not None)
    for offset in others:
        if (compare(offset, least) or 0) < 0:
            least = offset
    return least


def _choices(container: Container) -> tuple[Choice, ...]:
    why = dict(container.explanations)
    if container.state == "running" and container.choices:
        last = container.choices[-1]
        why.setdefault((last.ssp, last.offset), container._multiplexer.explain(last, container._loop.awaiting_refill))
    first = container.chosen - len(container.choices)
    return tuple(
        Choice(number, each.ssp, each.offset, each.key, why.get((each.ssp, each.offset)))
        for number, each in enumerate(container.choices, start=first + 1)
    )
