"""What a deployment is about to do: which containers, which tasks and partitions, from where to where."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.checkpoint.choice import checkpoint_manager
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.identities import Identities
from streambench.container.inputs import checked_inputs
from streambench.container.offsets import StartingOffsets
from streambench.errors import ConfigError
from streambench.job.reach import check_reach
from streambench.model import SystemStreamPartition
from streambench.planning import places
from streambench.planning.model import ContainerModel, JobModel
from streambench.planning.plan import Metadata, plan
from streambench.spark.result import DeployedContainer
from streambench.system.systems import Systems

Offsets = Mapping[SystemStreamPartition, str]


class DeployPlan(Struct, frozen=True):
    """``starts``: per container and input partition, the first offset to be read. ``ends``: per input partition, the first one not to be
    read, which is what was upcoming when the plan was made. ``idle``: there is nothing to do."""

    config: Config
    task: Any
    model: JobModel
    starts: Mapping[int, Offsets]
    ends: Offsets
    idle: bool

    def containers(self) -> tuple[DeployedContainer, ...]:
        """The containers as they would run."""
        return tuple(
            DeployedContainer(
                number=each.number,
                tasks=tuple(task.name for task in each.tasks),
                offsets={ssp: (start, self.ends[ssp]) for ssp, start in self.starts[each.number].items()},
            )
            for each in self.model.containers
        )

    def total(self) -> int | None:
        """How many offsets there are to go in all containers; None where offsets are no numbers."""
        spans = [each.span for each in self.containers()]
        return None if None in spans else sum(span for span in spans if span is not None)


def make_plan(config: Config, task: Any = None) -> DeployPlan:
    """Plan a job and look how far its inputs go. Opens and writes nothing. Raises ConfigError, UnknownStreamError, CheckpointError."""
    container = Container(config, task)
    task, name = container.factory, container.name
    with _opened(config, name) as (systems, manager):
        metadata = systems.inputs(checked_inputs(config, name, systems))
        model = plan(config, name, metadata, manager.last_generation())
        last = manager.read_last()
        starting = StartingOffsets(config, systems, metadata, last, {ssp for each in last.values() for ssp in each.partitions})
        starts = {
            each.number: _offsets(systems, each, lambda task, ssp: starting.of(task, ssp, last.get(task))[0]) for each in model.containers
        }
        ends = _ends(systems, metadata, model)
        idle = _all_recorded(model, last, Identities(systems)) and not any(
            _is_before(systems, ssp, start, ends[ssp]) for starts_of_one in starts.values() for ssp, start in starts_of_one.items()
        )
        return DeployPlan(config, task, model, starts, ends, idle)


def open_generation(planned: DeployPlan) -> int:
    """Open the next generation of the job, which stops what still runs of older ones; its number."""
    with _opened(planned.config, planned.model.name) as (_, manager):
        return places.open_generation(manager, planned.model, now_ms=SystemClock().now_ms()).number


def reached(planned: DeployPlan) -> dict[int, dict[SystemStreamPartition, str]]:
    """Per container and input partition, the offset at which the next start goes on, as the checkpoints say."""
    with _opened(planned.config, planned.model.name) as (systems, manager):
        last = manager.read_last()

        def position(starts: Offsets, task: str, ssp: SystemStreamPartition) -> str:
            checkpoint = last.get(task, Checkpoint({}))
            processed = checkpoint.offsets.get(ssp)
            return systems.admin(ssp.system).after(processed) if processed is not None else checkpoint.starts.get(ssp, starts[ssp])

        return {
            each.number: _offsets(systems, each, lambda task, ssp, starts=planned.starts[each.number]: position(starts, task, ssp))  # type: ignore[misc]
            for each in planned.model.containers
        }


def unfinished(planned: DeployPlan, offsets: Offsets) -> list[SystemStreamPartition]:
    """The partitions of which something is left up to the planned ends, sorted."""
    systems = Systems(planned.config)
    try:
        return sorted(ssp for ssp, offset in offsets.items() if _is_before(systems, ssp, offset, planned.ends[ssp]))
    finally:
        systems.close()


@contextmanager
def _opened(config: Config, name: str) -> Iterator[tuple[Systems, CheckpointManager]]:
    systems = Systems(config)
    manager = None
    try:
        manager = checkpoint_manager(config, name)
        check_reach(config, systems, manager, "the containers on Spark")
        yield systems, manager
    finally:
        if manager is not None:
            manager.close()
        systems.close()


def _offsets(
    systems: Systems, container: ContainerModel, position: Callable[[str, SystemStreamPartition], str]
) -> dict[SystemStreamPartition, str]:
    """Per input partition of a container a position; of several tasks that read the same one, the furthest back."""
    found: dict[SystemStreamPartition, str] = {}
    for task in container.tasks:
        for ssp in task.partitions:
            at = position(task.name, ssp)
            if ssp not in found or _is_before(systems, ssp, at, found[ssp]):
                found[ssp] = at
    return found


def _ends(systems: Systems, metadata: Metadata, model: JobModel) -> dict[SystemStreamPartition, str]:
    ends = {}
    for ssp in sorted({ssp for task in model.tasks for ssp in task.partitions}):
        upcoming = metadata[ssp.system_stream][ssp.partition].upcoming
        if upcoming is None or not systems.admin(ssp.system).replayable:
            raise ConfigError(
                f"{ssp}: this kind of system cannot tell how far its streams go, so that a batch would have no end; land it in a log first",
                key="task.inputs",
            )
        ends[ssp] = upcoming
    return ends


def _all_recorded(model: JobModel, last: Mapping[str, Checkpoint], identities: Identities) -> bool:
    """Whether every task has a durable position in each of its partitions. Where not, a start must record it even if nothing is there to be
    read: what arrives from now on would otherwise be skipped by a first start that begins at what is upcoming then."""
    for task in model.tasks:
        checkpoint = last.get(task.name)
        if checkpoint is None or not checkpoint.partitions.issuperset(task.partitions):
            return False
        if not all(identities.is_same(checkpoint, ssp) for ssp in task.partitions):
            return False
    return True


def _is_before(systems: Systems, ssp: SystemStreamPartition, offset: str, other: str) -> bool:
    """Whether an offset comes before another one; where the system cannot compare them, whether they differ."""
    order = systems.admin(ssp.system).compare(offset, other)
    return offset != other if order is None else order < 0
