"""Plan of a deployment: which containers, which tasks and partitions, from where to where."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.checkpoint.validation import check_backfill
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.inputs.partition_identity import PartitionIdentities
from streambench.container.inputs.partitions import checked_inputs
from streambench.container.inputs.starting_offsets import StartingOffsets
from streambench.container.known_stores import check_stores
from streambench.container.observe.snapshot import lag_between
from streambench.container.timers import is_window_due
from streambench.counts import counted
from streambench.errors import ConfigError
from streambench.job.rewind import next_offset
from streambench.job.shareable import check_shareable
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.planning import changelog_partitions as places
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import ContainerModel, JobModel
from streambench.planning.plan import balanced, plan
from streambench.spark.backfill import Backfill
from streambench.spark.history import rounds_of
from streambench.spark.history_records import History, history_beside
from streambench.spark.increments import MAX_MESSAGES, ends_of_increment
from streambench.spark.measured_time import measured_time
from streambench.spark.result import DeployedContainer
from streambench.system.reader import count_between
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

Offsets = Mapping[SystemStreamPartition, str]

_BALANCE = "job.container.balance"
_MICROSECONDS = 1_000_000


class DeployPlan(Struct, frozen=True):
    """``starts``: per container and input partition, the first offset to be read. ``ends``: per input
    partition, the first one not to be read, which is what was upcoming when the plan was made. ``working``:
    the containers that have something to do, a message or a window that is due; the others are not
    started. ``history``: that of the deployments of the job. ``begins``: the checkpoints with which
    a backfill begins. ``last_ends``: the ends of the last round, where ``job.container.max.messages`` makes
    this one end before. ``balance``: the measure by which tasks were dealt by lag, in words; ``seconds``: per
    container, how long it will take, where that was measured. ``former``: the last generation before.
    ``backfill``: as in ``Generation``."""

    config: Config
    task: Any
    model: JobModel
    starts: Mapping[int, Offsets]
    ends: Offsets
    working: tuple[int, ...] = ()
    history: History | None = None
    begins: Mapping[str, Checkpoint] = {}
    last_ends: Offsets = {}
    balance: str = ""
    seconds: Mapping[int, float] = {}
    former: int = 0
    backfill: str = ""

    @property
    def is_last(self) -> bool:
        """True where nothing is left for another round."""
        return self.ends == self.last_ends

    @property
    def idle(self) -> bool:
        """True where nothing is to be done."""
        return not self.working

    def containers(self) -> tuple[DeployedContainer, ...]:
        """The containers as they would run."""
        return tuple(
            DeployedContainer(
                number=each.number,
                tasks=tuple(task.name for task in each.tasks),
                offsets={ssp: (start, self.ends[ssp]) for ssp, start in self.starts[each.number].items()},
                seconds=self.seconds.get(each.number, 0.0),
            )
            for each in self.model.containers
        )


def make_plan(
    config: Config,
    task: Any = None,
    backfill: Backfill | None = None,
    *,
    until: Offsets | None = None,
    stretch: int = 1,
    positions: Offsets | None = None,
) -> DeployPlan:
    """Plan a job and look how far its inputs go. Opens and writes nothing. ``backfill``: the range of which
    ``config`` is the configuration. ``until``: offsets at which it ends though there is more.
    ``stretch``: what the most messages of a round are multiplied by. ``positions``: offsets at which
    partitions begin instead of at their checkpoints. Raises ConfigError, UnknownStreamError, OffsetError,
    CheckpointError."""
    container = Container(config, task)
    with _opened(config, container.name) as (systems, manager):
        planner = _Planner(config, container.name, backfill, systems, manager)
        last = planner.begins or planner.last
        of_tasks = planner.starts_of_tasks(last, positions or {})
        last_ends = ends = planner.last_ends(until or {})
        dealt = planner.dealt(of_tasks, ends)
        starts = {each.number: _offsets(systems, each, of_tasks) for each in dealt.model.containers}
        if config.text(MAX_MESSAGES) is not None:
            at_most = config.integer(MAX_MESSAGES) * stretch
            ends = ends_of_increment(config, systems, dealt.model, starts, ends, at_most)
        planned = DeployPlan(
            config,
            container.factory,
            dealt.model,
            starts,
            ends,
            history=planner.history,
            begins=planner.begins,
            last_ends=last_ends,
            balance=dealt.measure,
            seconds=dealt.seconds,
            former=planner.former.number if planner.former is not None else 0,
            backfill=planner.mark,
        )
        return replace(planned, working=_working(planned, systems, last))


class _Dealt(Struct, frozen=True):
    """A model with its tasks dealt to containers; ``measure`` and ``seconds`` as in DeployPlan."""

    model: JobModel
    measure: str = ""
    seconds: Mapping[int, float] = {}


class _Planner:
    """A job, or the ``backfill`` that it is, as its systems and checkpoints have it. ``former``: its last
    generation. ``last``: its checkpoints; ``begins``: those with which a backfill begins."""

    def __init__(
        self,
        config: Config,
        name: str,
        backfill: Backfill | None,
        systems: Systems,
        manager: CheckpointManager,
    ) -> None:
        """Raises ConfigError where the checkpoints that there are bear another mark than its own."""
        self._config = config
        self._backfill = backfill
        self._systems = systems
        self._metadata = systems.inputs(checked_inputs(config, name, systems))
        self.former = manager.last_generation()
        self.history = history_beside(config, manager, name)
        self.mark = "" if backfill is None else backfill.mark(name, config.required("job.id"))
        check_backfill(name, self.former, self.mark)
        is_unmarked = self.former is not None and not self.former.backfill
        is_known = self.history is not None or places.takes_marks(manager)
        if backfill is not None and is_unmarked and is_known:
            _check_begun(backfill, self.history, name)
        self._model = plan(config, name, self._metadata, self.former)
        check_stores(config, name, systems, self._model, manager)
        self.last = manager.read_last()
        self.begins = self._begins()

    def _begins(self) -> dict[str, Checkpoint]:
        """The checkpoints with which a backfill begins; none where it has begun, or there is no backfill."""
        backfill = self._backfill
        if backfill is None:
            return {}
        if not self.last:
            return backfill.begins(self._systems, self._metadata, self._model)
        if backfill.start:
            log.warning(
                "the backfill %s has begun already: it continues from its checkpoints, and does not use the "
                "start %s; to begin there, give the backfill another name",
                backfill.name,
                ", ".join(backfill.start),
            )
        return {}

    def starts_of_tasks(
        self, last: Mapping[str, Checkpoint], chosen: Offsets
    ) -> dict[str, dict[SystemStreamPartition, str]]:
        """Per task and partition the first offset to be read: a ``chosen`` one, else as its checkpoint and
        the configuration say."""
        known = {ssp for each in last.values() for ssp in each.partitions}
        starting = StartingOffsets(self._config, self._systems, self._metadata, last, known)
        return {
            task.name: {
                ssp: chosen.get(ssp) or starting.resolve(task.name, ssp, last.get(task.name))[0]
                for ssp in task.partitions
            }
            for task in self._model.tasks
        }

    def last_ends(self, until: Offsets) -> dict[SystemStreamPartition, str]:
        """Per partition the end of the input or of the backfill, or ``until`` where that comes first."""
        ends = self._ends()
        if self._backfill is not None:
            chosen = self._backfill.ends(self._systems, self._metadata)
            ends = {ssp: chosen[ssp] for ssp in ends}
        for ssp, end in until.items():
            if ssp in ends and _is_before(self._systems, ssp, end, ends[ssp]):
                ends[ssp] = end
        return ends

    def _ends(self) -> dict[SystemStreamPartition, str]:
        ends = {}
        for ssp in sorted({ssp for task in self._model.tasks for ssp in task.partitions}):
            upcoming = self._metadata[ssp.system_stream][ssp.partition].upcoming
            if upcoming is None or not self._systems.admin(ssp.system).replayable:
                raise ConfigError(
                    f"{ssp}: this kind of system does not know how far its streams go, so that a batch would "
                    "have no end; land it in a log first",
                    key="task.inputs",
                )
            ends[ssp] = upcoming
        return ends

    def dealt(self, starts: Mapping[str, Offsets], ends: Offsets) -> _Dealt:
        """The tasks dealt to the containers as the configuration wants it. ``starts``: per task."""
        balance, model, former = self._config.text(_BALANCE), self._model, self.former
        if balance == "partitions":
            return _Dealt(balanced(model, {task: len(starts[task]) for task in starts}, former))
        if balance != "lag":
            return _Dealt(model)
        lags = {task: _lags(starts[task], ends) for task in starts}
        messages = {task: sum(lags[task].values()) for task in lags}
        if not any(messages.values()):
            return _Dealt(balanced(model, messages, former))  # no need to read the history
        time = None if self.history is None else measured_time(rounds_of(self.history))
        if time is None:
            measure = "by messages: no rounds have measured their time yet"
            return _Dealt(balanced(model, messages, former), measure)
        seconds = {task: sum(time.of(ssp, lag) for ssp, lag in lags[task].items()) for task in lags}
        model = balanced(model, {task: round(each * _MICROSECONDS) for task, each in seconds.items()}, former)
        of_containers = {
            each.number: round(sum(seconds[task.name] for task in each.tasks), 3) for each in model.containers
        }
        return _Dealt(model, f"by time, as measured in {counted(time.rounds, 'round')}", of_containers)


def _check_begun(backfill: Backfill, history: History | None, name: str) -> None:
    """Raise ConfigError where checkpoints without a mark are not known to be those of a backfill. Older
    versions have not marked them, but their history names the backfill in each round."""
    rounds = [] if history is None else rounds_of(history)
    if not rounds or any(each.backfill != backfill.name for each in rounds):
        raise ConfigError(
            f"the backfill {backfill.name} would be {name}, and there are checkpoints of a job of that name: "
            "give the backfill another name"
        )


def _working(planned: DeployPlan, systems: Systems, last: Mapping[str, Checkpoint]) -> tuple[int, ...]:
    """The containers of a plan that have something to record, to read or to call."""
    identities, now_ms = PartitionIdentities(systems), SystemClock().now_ms()

    def works(container: ContainerModel) -> bool:
        starts = planned.starts[container.number]
        checkpoints = [last[task.name] for task in container.tasks if task.name in last]
        return (
            not _all_recorded(container, last, identities)
            or any(_is_before(systems, ssp, start, planned.ends[ssp]) for ssp, start in starts.items())
            or is_window_due(planned.config, planned.task, checkpoints, now_ms)
        )

    return tuple(each.number for each in planned.model.containers if works(each))


def open_generation(planned: DeployPlan) -> int:
    """Open the next generation of the job, which stops what still runs of older ones; its number."""
    with _opened(planned.config, planned.model.name) as (_, manager):
        now_ms = SystemClock().now_ms()
        opened = places.open_generation(manager, planned.model, now_ms=now_ms, backfill=planned.backfill)
        if planned.begins:
            opened = manager.rewind(planned.begins, now_ms=now_ms)
        return opened.number


def reached(planned: DeployPlan) -> dict[int, dict[SystemStreamPartition, str]]:
    """Per container and input partition, the offset at which the next start goes on, as the checkpoints
    say."""
    with _opened(planned.config, planned.model.name) as (systems, manager):
        last, found = manager.read_last(), {}
        for each in planned.model.containers:
            starts = planned.starts[each.number]
            positions = {
                task.name: {
                    ssp: next_offset(systems, last.get(task.name, Checkpoint({})), ssp) or starts[ssp]
                    for ssp in task.partitions
                }
                for task in each.tasks
            }
            found[each.number] = _offsets(systems, each, positions)
        return found


def count_messages(
    config: Config, spans: Mapping[SystemStreamPartition, tuple[str, str]]
) -> dict[SystemStreamPartition, int]:
    """Count the messages of partitions between two offsets, the second one not included, by reading them.

    A compacted partition, or a file, has fewer messages than its offsets say."""
    with closing(Systems(config)) as systems:
        wanted = {ssp: span for ssp, span in spans.items() if _is_before(systems, ssp, *span)}
        counts = {}
        for ssp, (start, end) in wanted.items():
            consumer = systems.consumer(ssp.system, MetricsRegistry())
            admin = systems.admin(ssp.system)
            counts[ssp] = count_between(consumer, ssp, start, end, admin.compare)
        return counts


def unfinished(planned: DeployPlan, offsets: Offsets) -> list[SystemStreamPartition]:
    """The partitions of which something is left up to the planned ends, sorted."""
    with closing(Systems(planned.config)) as systems:
        return sorted(
            ssp for ssp, offset in offsets.items() if _is_before(systems, ssp, offset, planned.ends[ssp])
        )


@contextmanager
def _opened(config: Config, name: str) -> Iterator[tuple[Systems, CheckpointManager]]:
    with closing(Systems(config)) as systems, closing(checkpoint_manager(config, name)) as manager:
        check_shareable(config, systems, manager, "the containers on Spark")
        yield systems, manager


def _offsets(
    systems: Systems, container: ContainerModel, of_tasks: Mapping[str, Offsets]
) -> dict[SystemStreamPartition, str]:
    """Per input partition of a container the offset of its task; of several tasks that read the same one, the
    furthest back."""
    found: dict[SystemStreamPartition, str] = {}
    for task in container.tasks:
        for ssp in task.partitions:
            at = of_tasks[task.name][ssp]
            if ssp not in found or _is_before(systems, ssp, at, found[ssp]):
                found[ssp] = at
    return found


def _lags(starts: Offsets, ends: Offsets) -> dict[SystemStreamPartition, int]:
    """The messages that a task has to read of each partition. One whose offsets are no numbers counts as
    one."""
    lags = {ssp: lag_between(start, ends[ssp]) for ssp, start in starts.items()}
    return {ssp: 1 if lag is None else lag for ssp, lag in lags.items()}


def _all_recorded(
    container: ContainerModel, last: Mapping[str, Checkpoint], identities: PartitionIdentities
) -> bool:
    """Check that every task of a container has a durable position in each of its partitions.

    Where not, a start must record it even if nothing is there to be read. Otherwise a first start that begins
    at what is upcoming then would skip what arrives from now on."""
    for task in container.tasks:
        checkpoint = last.get(task.name)
        if checkpoint is None or not checkpoint.partitions.issuperset(task.partitions):
            return False
        if not all(identities.is_same(checkpoint, ssp) for ssp in task.partitions):
            return False
    return True


def _is_before(systems: Systems, ssp: SystemStreamPartition, offset: str, other: str) -> bool:
    """True where an offset comes before another one; for offsets without an order, where they differ."""
    order = systems.admin(ssp.system).compare(offset, other)
    return offset != other if order is None else order < 0
