"""The metrics of a container and its tasks at one moment.

What only a reader of metrics wants to know is not counted with every message. It is computed here on request,
from what the event loop has anyway.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import TYPE_CHECKING

from streambench.chooser.bootstrapping import BootstrappingChooser
from streambench.container.observe.capture import partition_snapshots
from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.metrics.registry import Kind, Reading, flat
from streambench.metrics.reporter import MetricsReport
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.plan import name_and_id

if TYPE_CHECKING:
    from streambench.container.inputs.multiplexer import Multiplexer
    from streambench.container.observe.status import ContainerStatus
    from streambench.container.tasks.task_instance import TaskInstance, TaskPartition

_PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 2**20 if hasattr(os, "sysconf") else 0


def take_report(container: ContainerStatus) -> MetricsReport:
    """All metrics of a container; on the thread that drives it, or while it stands still."""
    sources = {
        f"TaskName-{name}" if name else f"samza-container-{container.number}": readings
        for name, readings in readings_by_task(container).items()
    }
    return MetricsReport(
        *name_and_id(container.config, container.factory), container.number, socket.gethostname(), _version(),
        container.clock.now_ms(), container.started_ms, sources,
    )  # fmt: skip


def readings_by_task(container: ContainerStatus) -> dict[str, Sequence[Reading]]:
    """All metrics by the name of their task; those of the container under no name."""
    partitions = partition_snapshots(container)
    chosen = {each.ssp: each.processed for each in partitions}
    own = [*_of_container(container, partitions), *container.metrics.readings()]
    return {
        "": own,
        **{task.name: [*_of_task(task, chosen), *task.metrics.readings()] for task in container.tasks},
    }


def flat_metrics(processed: int, readings: Mapping[str, Sequence[Reading]]) -> dict[str, float]:
    """All metrics of a container by one flat name each: those of the container as ``group.name``, those of a
    task with its name before. ``readings``: by task, as of ``readings_by_task``."""
    values: dict[str, float] = {"container.processed": processed}
    for task, of_task in readings.items():
        values.update({f"{task}.{name}" if task else name: value for name, value in flat(of_task).items()})
    return values


def _of_container(container: ContainerStatus, partitions: Sequence[PartitionSnapshot]) -> Iterator[Reading]:
    chosen = {each.ssp: each.processed for each in partitions}
    yield from readings_of_messages(container.tasks, container.progress.processed, chosen)
    yield _counter("container", "process-null-envelopes", container.progress.nulls)
    yield _gauge("container", "container-running", int(container.state == "running"))
    if (memory := _memory_mb()) is not None:
        yield _gauge("container", "physical-memory-mb", memory)
    yield _counter("consumers", "chose-object", container.progress.chosen)
    yield _counter("consumers", "chose-null", container.progress.nulls)
    yield _gauge("consumers", "unprocessed-messages", sum(each.waiting for each in partitions))
    yield _gauge(
        "consumers", "total-messages-behind-high-watermark", sum(each.lag or 0 for each in partitions)
    )
    for system, polls in container.consumers.polls.items():
        yield Reading("consumers", f"{system}-polls", "counter", polls, {"system": system})
    yield from _of_chooser(container, partitions)
    for each in partitions:
        yield from _of_partition(each)


def readings_of_messages(
    tasks: Sequence[TaskInstance], processed: int, chosen: Mapping[SystemStreamPartition, int]
) -> Iterator[Reading]:
    """The metrics of a container that follow from the number of its messages. ``chosen``: by partition."""
    read = [each for task in tasks for each in task.subscriptions]
    yield _counter("container", "process-envelopes", processed)
    yield _counter("container", "process-calls", sum(chosen.get(each.ssp, 0) for each in read))
    yield _counter("container", "skipped-envelopes", sum(_skipped(each, chosen) for each in read))


def _of_chooser(container: ContainerStatus, partitions: Sequence[PartitionSnapshot]) -> Iterator[Reading]:
    yield _gauge(
        "chooser",
        "held-partitions",
        sum(each.waiting > 0 and each.status != "waiting" for each in partitions),
    )
    multiplexer = container.multiplexer
    if container.state != "running" or multiplexer is None:
        return
    inside = multiplexer.candidates(container.progress.last_chosen)
    yield _gauge("chooser", "buffered-messages", len(inside))
    yield _gauge("consumers", "ssps-needed-by-chooser", len(multiplexer.partitions) - len(inside))
    yield from _of_priorities(container, multiplexer, inside)
    if isinstance(multiplexer.chooser, BootstrappingChooser):
        yield from _of_bootstrap(container, multiplexer, multiplexer.chooser.lagging)


def _of_priorities(
    container: ContainerStatus, multiplexer: Multiplexer, inside: Sequence[SystemStreamPartition]
) -> Iterator[Reading]:
    config = container.config
    streams = {ssp.system_stream for ssp in multiplexer.partitions}
    levels = {
        stream: max(-1, config.integer(f"systems.{stream.system}.streams.{stream.stream}.samza.priority"))
        for stream in streams
    }
    if not any(level >= 0 for level in levels.values()):
        return
    for level in sorted(set(levels.values()), reverse=True):
        name = "none" if level < 0 else str(level)
        waiting = sum(levels[ssp.system_stream] == level for ssp in inside)
        yield Reading("chooser", f"priority-{name}-buffered-messages", "gauge", waiting, {"priority": name})


def _of_bootstrap(
    container: ContainerStatus, multiplexer: Multiplexer, lagging: frozenset[SystemStreamPartition]
) -> Iterator[Reading]:
    here = multiplexer.partitions
    streams: dict[SystemStream, int] = {}
    for stream in sorted({ssp.system_stream for ssp in here}):
        if container.config.boolean(f"systems.{stream.system}.streams.{stream.stream}.samza.bootstrap"):
            streams[stream] = sum(ssp.system_stream == stream for ssp in lagging)
    yield _gauge("chooser", "lagging-batch-streams", sum(count > 0 for count in streams.values()))
    for stream, count in streams.items():
        labels = {"system": stream.system, "stream": stream.stream}
        yield Reading(
            "chooser", f"{stream.system}-{stream.stream}-lagging-partitions", "gauge", count, labels
        )


def _of_partition(each: PartitionSnapshot) -> Iterator[Reading]:
    labels = _labels(each.ssp)
    prefix = "-".join(labels.values())

    def reading(name: str, kind: Kind, value: float, group: str = "consumers") -> Reading:
        return Reading(group, f"{prefix}-{name}", kind, value, labels)

    yield reading_of_partition(each.ssp, each.processed)
    yield reading("buffered-message-count", "gauge", each.waiting)
    if each.lag is not None:
        yield reading("messages-behind-high-watermark", "gauge", each.lag)
        yield reading("no-more-messages", "gauge", int(not each.lag))
    if each.checkpointed is not None and each.checkpointed.isdecimal():
        yield reading("checkpointed-offset", "gauge", int(each.checkpointed), "offsets")


def reading_of_partition(ssp: SystemStreamPartition, chosen: int) -> Reading:
    """The number of messages chosen of a partition."""
    labels = _labels(ssp)
    return Reading("consumers", f"{'-'.join(labels.values())}-messages-chosen", "counter", chosen, labels)


def _of_task(task: TaskInstance, chosen: Mapping[SystemStreamPartition, int]) -> Iterator[Reading]:
    yield _counter("task", "commit-calls", task.commits)
    yield from readings_of_task(task, chosen, task.offsets())


def readings_of_task(
    task: TaskInstance,
    chosen: Mapping[SystemStreamPartition, int],
    offsets: Mapping[SystemStreamPartition, str],
) -> Iterator[Reading]:
    """The metrics of a task that follow from the messages chosen, by partition, and from its offsets."""
    calls = sum(chosen.get(each.ssp, 0) for each in task.subscriptions)
    skipped = sum(_skipped(each, chosen) for each in task.subscriptions)
    yield _counter("task", "process-calls", calls)
    yield _counter("task", "messages-actually-processed", calls - skipped)
    for ssp, offset in offsets.items():
        if offset.isdecimal():
            labels = _labels(ssp)
            yield Reading("task", f"{'-'.join(labels.values())}-offset", "gauge", int(offset), labels)


def _skipped(partition: TaskPartition, chosen: Mapping[SystemStreamPartition, int]) -> int:
    """The messages of these that a task has skipped: the first ones of its partition."""
    return min(partition.skipped, chosen.get(partition.ssp, 0))


def _labels(ssp: SystemStreamPartition) -> dict[str, str]:
    return {"system": ssp.system, "stream": ssp.stream, "partition": str(ssp.partition)}


def _counter(group: str, name: str, value: float) -> Reading:
    return Reading(group, name, "counter", value)


def _gauge(group: str, name: str, value: float) -> Reading:
    return Reading(group, name, "gauge", value)


@cache
def _version() -> str:
    try:
        return version("streambench")
    except PackageNotFoundError:  # run from a checkout
        return ""


def _memory_mb() -> float | None:
    """The resident memory of the process; None where the operating system has no file with it."""
    if sys.platform != "linux":
        return None
    with suppress(OSError, ValueError, IndexError):
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_MB
    return None
