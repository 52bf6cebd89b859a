"""Snapshots: taken on the thread that drives the container, or between two runs."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.observe.snapshot import (
    Choice,
    ContainerSnapshot,
    PartitionSnapshot,
    lag_between,
)
from streambench.container.observe.status import ContainerStatus
from streambench.metrics.registry import Counter

log = logging.getLogger(__name__)


def take_snapshot(container: ContainerStatus) -> ContainerSnapshot:
    """Snapshots of a container: on the thread that drives it, or while it stands still."""
    return ContainerSnapshot(
        job=container.name,
        container=container.number,
        state=container.state,
        reason=container.reason,
        time_ms=container.clock.now_ms(),
        processed=container.progress.processed,
        partitions=partition_snapshots(container),
        choices=_choices(container),
        checkpoints={task.name: dict(task.committed) for task in container.tasks},
        counts=_counts(container),
        gate=_gate(container),
        error_counts=container.count_errors(),
        restoring=container.restoring,
        has_share=container.has_share,
    )


def partition_snapshots(container: ContainerStatus) -> tuple[PartitionSnapshot, ...]:
    """The input partitions of a container; of one that is closed, as they were when it closed."""
    multiplexer = container.multiplexer
    if container.state != "running" or multiplexer is None:
        return container.last_partitions
    metadata = container.seen
    for stream, of_stream in container.systems.glance(multiplexer.partitions).items():
        metadata[stream] = {**metadata[stream], **of_stream}
    served = container.progress.last_chosen
    stands = multiplexer.explain(None, served)
    turns = {each.ssp: turn for turn, each in enumerate(stands.queue, start=1)}
    shown = []
    for ssp, partition in multiplexer.partitions.items():
        admin = container.systems.admin(ssp.system)
        offsets = [each.offset for each in partition.subscriptions]
        position = partition.start if None in offsets else admin.after(_least(offsets, admin.compare))
        waiting, chosen = multiplexer.counts(partition, served)
        unfinished = container.progress.unfinished
        unprocessed = (
            container.progress.unfinished_count if unfinished is not None and unfinished.ssp == ssp else 0
        )
        here = metadata[ssp.system_stream][ssp.partition]
        upcoming = here.upcoming if admin.replayable else None
        checkpointed = [each.task.committed.get(ssp) for each in partition.subscriptions]
        is_at_head = not waiting and not unprocessed and multiplexer.is_at_head(partition)
        lag = lag_between(position, upcoming)
        at_end = "caught up" if is_at_head or lag == 0 else "not fetched"
        status = stands.held.get(ssp, "waiting" if waiting else at_end)
        shown.append(
            PartitionSnapshot(
                ssp,
                tuple(each.task.name for each in partition.subscriptions),
                here.oldest,
                position,
                here.newest,
                upcoming,
                lag,
                None if None in checkpointed else _least(checkpointed, admin.compare),
                waiting,
                chosen - unprocessed,
                status,
                turns.get(ssp),
                is_at_head,
            )
        )
    return tuple(shown)


def keep_last_snapshot(container: ContainerStatus) -> None:
    """Keep what a snapshot shows when neither the systems nor the chooser can be asked any more."""
    try:
        container.last_partitions = partition_snapshots(container)
        if container.choices and container.multiplexer is not None:
            last = container.choices[-1]
            why = container.multiplexer.explain(last, _not_offered(container))
            container.explanations.setdefault((last.ssp, last.offset), why)
    except Exception as problem:
        log.warning("no last snapshot of the inputs: %s", problem)


def _not_offered(container: ContainerStatus) -> PartitionBuffer | None:
    """The partition whose next message the chooser has not got yet: that of the message that is held, else of
    the last one."""
    progress, multiplexer = container.progress, container.multiplexer
    if progress.held is None or multiplexer is None:
        return progress.last_chosen
    return multiplexer.partitions[progress.held.ssp]


def _gate(container: ContainerStatus) -> str:
    if container.state != "running" or container.multiplexer is None:
        return ""
    return container.multiplexer.explain(None, None).gate


def _counts(container: ContainerStatus) -> dict[str, float]:
    counts: dict[str, float] = {"processed": container.progress.processed}
    for registry in (container.metrics, *(task.metrics for task in container.tasks)):
        for each in registry.readings(Counter):
            name = f"{each.group}.{each.name}"
            counts[name] = counts.get(name, 0) + each.value
    counts["producers.sends"] = counts.get("producers.sends", 0) + container.count_unflushed()
    return counts


def _least(offsets: Sequence[str | None], compare: Callable[[str, str], int | None]) -> str:
    least, *others = (offset for offset in offsets if offset is not None)
    for offset in others:
        if (compare(offset, least) or 0) < 0:
            least = offset
    return least


def _choices(container: ContainerStatus) -> tuple[Choice, ...]:
    why = dict(container.explanations)
    multiplexer = container.multiplexer
    if container.state == "running" and multiplexer is not None and container.choices:
        last = container.choices[-1]
        why.setdefault((last.ssp, last.offset), multiplexer.explain(last, _not_offered(container)))
    first = container.progress.chosen - len(container.choices)
    return tuple(
        Choice(number, each.ssp, each.offset, each.key, why.get((each.ssp, each.offset)))
        for number, each in enumerate(container.choices, start=first + 1)
    )
