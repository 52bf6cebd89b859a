"""Assembly: ``build`` makes all parts of a container, from its inputs to its outbox; ``begin`` starts to
read.

Each part is added to ``resources`` and to the status as soon as it is made, so that a failed start closes
it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.chooser.api import MessageChooser
from streambench.container.burst import BurstPlanner, BurstRunner
from streambench.container.commit import Commits
from streambench.container.coordination import Coordination
from streambench.container.dispatch import Compare, Dispatcher
from streambench.container.event_loop import EventLoop
from streambench.container.failures import Failures
from streambench.container.inputs.consumers import by_system
from streambench.container.inputs.multiplexer import Multiplexer
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.inputs.partitions import (
    capacity,
    checked_inputs,
    chooser_of,
    commit_interval,
    max_batch,
    partition_buffers,
)
from streambench.container.inputs.starting_offsets import StartingOffsets
from streambench.container.known_stores import check_stores
from streambench.container.loop_context import LoopContext
from streambench.container.loop_parts import ChoiceWatch, LoopParts
from streambench.container.observe.reporting import Reporting
from streambench.container.observe.status import ContainerStatus
from streambench.container.outputs.dead_letters import DeadLetters
from streambench.container.outputs.outbox import AtLeastOnceOutbox, Outbox
from streambench.container.outputs.transactional_outbox import (
    TransactionalOutbox,
    check_atomic,
    check_replayable,
    is_exactly_once,
)
from streambench.container.restore import RestoreProgress
from streambench.container.runtime import Resources, Runtime
from streambench.container.task_stores import StoreParts, TaskStores
from streambench.container.tasks.functions import warn_of_shared_globals
from streambench.container.tasks.lifecycle import lifecycle_listeners
from streambench.container.tasks.task_handles import Context, SharedHandles
from streambench.container.tasks.task_instance import CallTimers, TaskInstance, task_object
from streambench.container.timers import Timers, Windows, begin_windows
from streambench.errors import FencedError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStream, SystemStreamPartition
from streambench.planning.changelog_partitions import open_generation
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import ContainerModel, PlannedContainer
from streambench.planning.plan import Metadata, all_inputs, plan
from streambench.serde.streams import StreamSerdes
from streambench.system.systems import Systems
from streambench.task import RequestScope


class Given(Struct, frozen=True, kw_only=True):
    """The arguments of a container besides its config. None: it makes that itself. ``ends``: per input
    partition the first offset that is not read any more."""

    planned: PlannedContainer | None
    checkpoints: CheckpointManager | None
    ends: Mapping[SystemStreamPartition, str]
    chooser: MessageChooser | None = None


class _Outputs(Struct, frozen=True, kw_only=True):
    """The destinations of the effects of tasks."""

    serdes: StreamSerdes
    dead_letters: DeadLetters
    outbox: Outbox
    task_stores: TaskStores
    commits: Commits


def build(
    status: ContainerStatus,
    resources: Resources,
    given: Given,
    context: LoopContext,
    on_start: Callable[[], object],
) -> Runtime:
    """Plan (unless that was done), take over from older starts, restore state, and call the tasks' ``init``.

    Nothing is read yet: ``begin`` does that. Raises ConfigError, UnknownStreamError, CheckpointError,
    FencedError, TaskError."""
    config, systems, clock = status.config, status.systems, status.clock
    reporting = Reporting(config, status.name, status.number, systems, clock, status.metrics)
    resources.reporting = reporting
    reporting.start(status)
    inputs = checked_inputs(config, status.name, systems)
    planned = given.planned
    own = None if planned is None else _partitions(planned.model.containers[status.number])
    metadata = systems.inputs(inputs, own)
    handles = SharedHandles(context)
    serdes = StreamSerdes(config)
    dead_letters = DeadLetters(config, systems, handles.collected, status.metrics)
    checkpoints = resources.checkpoints = given.checkpoints or checkpoint_manager(config, status.name)
    if planned is None:
        alone = config.with_values({"job.container.count": 1})
        planned = PlannedContainer(plan(alone, status.name, metadata, checkpoints.last_generation()))
    container = planned.model.containers[status.number]
    if is_exactly_once(config):
        check_replayable(config, inputs, systems)
        check_atomic(config, status.name, systems, checkpoints)
    generation, epoch = _claim(status, planned, checkpoints)
    inherited = checkpoints.inherited()
    last = inherited.last
    # A former holder went on until it was fenced, perhaps with messages that have arrived since.
    metadata = systems.inputs(inputs, own)
    outbox = _outbox(status, checkpoints, serdes, dead_letters, inputs)
    resources.writers.append(outbox.stop)
    status.count_unflushed = lambda: outbox.unflushed
    is_timed = config.text("metrics.timer.enabled") == "true"
    task_stores = _task_stores(status, checkpoints, planned, context, last, is_timed=is_timed)
    resources.writers.append(task_stores.close)
    commits = Commits(
        status.tasks, outbox, task_stores, checkpoints, clock, status.observation, systems=systems,
        metrics=status.metrics,
    )  # fmt: skip
    outputs = _Outputs(
        serdes=serdes, dead_letters=dead_letters, outbox=outbox, task_stores=task_stores, commits=commits
    )
    _take_over(outputs, container, generation, epoch, last)
    corrected = _restore(status, outputs, checkpoints, last, on_start)
    status.tasks += _make_tasks(status, container, task_stores, handles, is_timed=is_timed)
    commits.record_stores(last, corrected)
    starting = StartingOffsets(config, systems, metadata, last, inherited.known)
    starting.report_left_out(status.name, [task.name for task in status.tasks], inputs)
    _place_tasks(status.tasks, last, starting)
    begin_windows(status.tasks, last, config, clock.now_ms())
    _init_tasks(status, starting, on_start)
    commits.record_starts(last, corrected)
    return _with_loop(status, given, handles, outputs, metadata, checkpoints, reporting)


def begin(status: ContainerStatus, runtime: Runtime) -> None:
    """Begin to read the inputs. Raises what systems and choosers raise."""
    config, multiplexer, consumers = status.config, runtime.multiplexer, status.consumers
    starts = by_system({ssp: partition.start for ssp, partition in multiplexer.partitions.items()})
    for system, consumer in runtime.consumers.items():
        room, batches = capacity(config, system), runtime.takes_batches
        consumers.add(system, consumer, starts[system], room, batches=batches)
    runtime.commits.acknowledge_by(consumers, multiplexer.partitions.values(), status.systems)
    multiplexer.start()
    runtime.reporting.begin()
    runtime.event_loop.start()


def _claim(
    status: ContainerStatus, planned: PlannedContainer, checkpoints: CheckpointManager
) -> tuple[int, int]:
    """Claim the container, in a generation that is opened unless that was done; generation and epoch. From
    here on, older starts of it cannot commit."""
    now_ms, generation = status.clock.now_ms(), planned.generation
    if generation is None:
        check_stores(status.config, status.name, status.systems, planned.model, checkpoints)
        generation = open_generation(checkpoints, planned.model, now_ms=now_ms).number
    epoch = checkpoints.claim(generation, status.number, now_ms=now_ms)
    if not planned.is_leased:
        checkpoints.take_lease("run", status.number)
    return generation, epoch


def _outbox(
    status: ContainerStatus,
    checkpoints: CheckpointManager,
    serdes: StreamSerdes,
    dead_letters: DeadLetters,
    inputs: Collection[SystemStream],
) -> Outbox:
    """The outbox of the guarantee that the configuration asks for."""
    parts = (
        status.systems, checkpoints, serdes, status.metrics, dead_letters, status.observation,
    )  # fmt: skip
    if not is_exactly_once(status.config):
        return AtLeastOnceOutbox(*parts)
    return TransactionalOutbox(
        *parts, config=status.config, inputs=inputs, on_full=lambda: _request_commit(status)
    )


def _task_stores(
    status: ContainerStatus,
    checkpoints: CheckpointManager,
    planned: PlannedContainer,
    context: LoopContext,
    last: Mapping[str, Checkpoint],
    *,
    is_timed: bool,
) -> TaskStores:
    """The stores of the tasks, not restored yet. ``is_timed``: every call of a store is timed."""
    parts = StoreParts(
        config=status.config, job=status.name, systems=status.systems, clock=status.clock,
        metrics=status.metrics, directory=checkpoints.directory, meter=status.metrics if is_timed else None,
    )  # fmt: skip
    model = planned.model
    return TaskStores(parts, model.containers[status.number], model.changelog_partitions, context, last)


def _restore(
    status: ContainerStatus,
    outputs: _Outputs,
    checkpoints: CheckpointManager,
    last: Mapping[str, Checkpoint],
    on_start: Callable[[], object],
) -> set[SystemStreamPartition]:
    """Restore the stores; the changelogs that had to be corrected."""
    began = time.perf_counter_ns()

    def show(progress: RestoreProgress) -> None:
        status.restoring = progress
        on_start()

    corrections = outputs.task_stores.restore(last, show, checkpoints)
    status.metrics.gauge("restore-time", "container").set((time.perf_counter_ns() - began) / 1e6)
    status.restoring = None
    outputs.outbox.write_changes(corrections)
    return {each.changelog for each in corrections}


def _partitions(container: ContainerModel) -> set[SystemStreamPartition]:
    """The input partitions of this container; those of other containers are left out."""
    return {ssp for task in container.tasks for ssp in task.partitions}


def _take_over(
    outputs: _Outputs, container: ContainerModel, generation: int, epoch: int, last: Mapping[str, Checkpoint]
) -> None:
    """Start the outbox, which fences off older starts. Raises FencedError."""
    try:
        outputs.outbox.start(
            [task.name for task in container.tasks], outputs.task_stores.fenced(), generation, epoch
        )
    except FencedError as error:
        if last:
            raise
        # Fences that are ahead of checkpoints that do not exist.
        raise FencedError(
            f"{error}. If nothing of this job runs, its checkpoints have been deleted or lie elsewhere: "
            "bring them back, or delete this changelog to begin again"
        ) from error


def _make_tasks(
    status: ContainerStatus,
    container: ContainerModel,
    task_stores: TaskStores,
    handles: SharedHandles,
    *,
    is_timed: bool,
) -> list[TaskInstance]:
    """The task instances of a container, not initialised yet. ``is_timed``: every call of process() is timed.
    Raises ConfigError."""
    config, factory, context = status.config, status.factory, handles.context
    listeners = lifecycle_listeners(config)
    warn_of_shared_globals(factory, status.name, len(container.tasks))
    # A batch takes so long that to time it costs nothing.
    batch_timer = (
        None
        if config.text("metrics.timer.enabled") == "false"
        else status.metrics.timer("process-ns", "container")
    )
    timers = CallTimers(process=batch_timer if is_timed else None, process_batch=batch_timer)
    made = []
    for model in container.tasks:
        stores = task_stores.stores(model.name)
        of_task = MetricsRegistry(getattr(factory, "__name__", "user"))
        task_context = Context(model.name, model.partitions, config, of_task, stores, context)
        made.append(
            TaskInstance(
                model, task_object(factory, config, task_context), task_context,
                handles, stores, listeners, status.observation, timers,
            )
        )  # fmt: skip
    return made


def _place_tasks(
    tasks: list[TaskInstance], last: Mapping[str, Checkpoint], starting: StartingOffsets
) -> None:
    """Set where tasks begin in their partitions. Raises OffsetError."""
    for task in tasks:
        for subscription in task.subscriptions:
            subscription.start, subscription.offset = starting.resolve(
                task.name, subscription.ssp, last.get(task.name)
            )
        task.committed = task.offsets()
        task.context.start_at = task.start_at


def _init_tasks(status: ContainerStatus, starting: StartingOffsets, on_start: Callable[[], object]) -> None:
    """Call ``init`` of the tasks, which may set where they begin. Raises TaskError, OffsetError, and what
    ``on_start`` raises, which is called before each."""
    for task in status.tasks:
        status.initialising = task.name
        on_start()
        placed = [(each.start, each.offset) for each in task.subscriptions]
        task.init()
        task.context.start_at = None
        for each, former in zip(task.subscriptions, placed, strict=True):
            if (each.start, each.offset) != former:
                each.start = starting.validate(task.name, each.ssp, each.start)
    status.initialising = ""


def _with_loop(
    status: ContainerStatus,
    given: Given,
    handles: SharedHandles,
    outputs: _Outputs,
    metadata: Metadata,
    checkpoints: CheckpointManager,
    reporting: Reporting,
) -> Runtime:
    """The runtime with its inputs and its event loop."""
    status.seen = dict(metadata)
    partitions, takes_batches = _partition_buffers(status, given, outputs, metadata)
    multiplexer = _multiplexer(status, given, partitions, metadata)
    read = all_inputs(status.config)
    consumers = {
        system: status.systems.input(system, status.metrics, read, status.name)
        for system in by_system({ssp: partition.start for ssp, partition in partitions.items()})
    }
    commit_ms = commit_interval(status.config, consumers.values())
    return Runtime(
        event_loop=_event_loop(status, handles, outputs, multiplexer, reporting, commit_ms),
        multiplexer=multiplexer,
        consumers=consumers,
        takes_batches=takes_batches,
        outbox=outputs.outbox,
        commits=outputs.commits,
        checkpoints=checkpoints,
        task_stores=outputs.task_stores,
        collected=handles.collected,
        reporting=reporting,
    )


def _event_loop(
    status: ContainerStatus,
    handles: SharedHandles,
    outputs: _Outputs,
    multiplexer: Multiplexer,
    reporting: Reporting,
    commit_ms: int,
) -> EventLoop:
    config, tasks, clock, metrics = status.config, status.tasks, status.clock, status.metrics
    failures = _failures(status, handles, outputs, multiplexer.partitions)
    windows = Windows(
        tasks, config, clock, collected=handles.collected, context=handles.context,
        dead_letters=outputs.dead_letters, failures=failures, metrics=metrics,
    )  # fmt: skip
    parts = LoopParts(
        tasks=tasks, multiplexer=multiplexer, consumers=status.consumers, outbox=outputs.outbox,
        commit_tasks=outputs.commits.commit, metrics=metrics, context=handles.context,
        collected=handles.collected, requests=handles.requests, clock=clock,
        idle_ms=config.integer("task.max.idle.ms"), timing=config.required("metrics.timer.enabled"),
        failures=failures, progress=status.progress,
        timers=Timers(
            windows, commit_ms=commit_ms, poll_ms=config.integer("task.poll.interval.ms"),
            report=reporting.at,
        ),
        coordination=Coordination(
            tasks, handles.requests, collected=handles.collected, context=handles.context,
            dead_letters=outputs.dead_letters, failures=failures,
        ),
        dispatcher=Dispatcher(
            multiplexer, handles.collected, outputs.dead_letters, failures, _compare(status.systems),
            max_batch=max_batch(config),
        ),
        burst_runner=BurstRunner(
            outputs.outbox, handles.context, handles.collected, handles.requests, status.consumers.inbox,
            clock, BurstPlanner(multiplexer.partitions), failures.at_message,
        ),
        choice_watch=ChoiceWatch(
            outputs.dead_letters, status.choices if status.choices.maxlen else None,
            observation=status.observation,
        ),
    )  # fmt: skip
    return EventLoop(parts)


def _partition_buffers(
    status: ContainerStatus, given: Given, outputs: _Outputs, metadata: Metadata
) -> tuple[dict[SystemStreamPartition, PartitionBuffer], bool]:
    """The buffers of the input partitions, and whether tasks take batches."""
    config, tasks = status.config, status.tasks
    found = partition_buffers(config, tasks, status.systems, outputs.serdes, metadata, given.ends)
    takes_batches = any(task.takes_batches for task in tasks)
    if takes_batches:
        for partition in found.values():
            partition.take_batches(max_batch(config), capacity(config, partition.ssp.system))
    return found, takes_batches


def _multiplexer(
    status: ContainerStatus,
    given: Given,
    partitions: Mapping[SystemStreamPartition, PartitionBuffer],
    metadata: Metadata,
) -> Multiplexer:
    inputs = sorted({ssp.system_stream for ssp in partitions})
    chooser = given.chooser or chooser_of(
        status.config, inputs, metadata, status.systems, status.metrics, status.clock
    )
    return Multiplexer(status.consumers, chooser, partitions, compare=_compare(status.systems))


def _failures(
    status: ContainerStatus,
    handles: SharedHandles,
    outputs: _Outputs,
    partitions: Mapping[SystemStreamPartition, PartitionBuffer],
) -> Failures:
    """The failure policy; where failed messages are kept as dead letters, as they were read."""
    dead_letters = outputs.dead_letters
    failures = Failures(
        status.config, status.tasks, handles.collected, dead_letters, status.metrics, status.observation
    )
    if dead_letters.keeps_failed:
        for partition in partitions.values():
            partition.keep_originals()
        failures.original = lambda envelope: partitions[envelope.ssp].original(envelope)
    status.count_errors = lambda: dead_letters.counts + failures.counts
    return failures


def _compare(systems: Systems) -> Compare:
    def compare(system: str, offset: str, other: str) -> int | None:
        return systems.admin(system).compare(offset, other)

    return compare


def _request_commit(status: ContainerStatus) -> None:
    """Request a commit at the end of this iteration."""
    status.tasks[0].coordinator.commit(RequestScope.ALL_TASKS_IN_CONTAINER)
