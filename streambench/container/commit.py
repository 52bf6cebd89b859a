"""Step 5: commits of offsets and state through the outbox, then acknowledgements of the inputs."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.clock import Clock
from streambench.container.inputs.consumers import Consumers
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.inputs.partition_identity import PartitionIdentities
from streambench.container.observer import Observation
from streambench.container.outputs.outbox import Outbox, StoreChanges, TaskCommit
from streambench.container.task_stores import TaskStores
from streambench.container.tasks.task_instance import TaskInstance
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.system.systems import Systems

log = logging.getLogger(__name__)


class Commits:
    """Commits tasks of one container, and acknowledges committed messages to the systems that wait for it."""

    def __init__(
        self,
        tasks: Sequence[TaskInstance],
        outbox: Outbox,
        state: TaskStores,
        checkpoints: CheckpointManager,
        clock: Clock,
        observation: Observation | None = None,
        *,
        systems: Systems,
        metrics: MetricsRegistry,
    ) -> None:
        self._tasks = tasks
        self._took = metrics.timer("commit-ns", "container")
        self._identities = PartitionIdentities(systems)
        self._outbox = outbox
        self._state = state
        self._checkpoints = checkpoints
        self._clock = clock
        self._observation = observation or Observation()
        self._awaited: list[_Awaited] = []

    def commit(self, tasks: Sequence[TaskInstance], *, is_last: bool = False) -> None:
        """Commit these tasks (all of them, where the outbox knows only whole commits) where there is
        anything new of them.

        The time of a window is committed along with what it sent. Alone, that of one without effects, only by
        the last commit: an idle job would fill the history of checkpoints with it."""
        with self._took.time():
            self._commit_changed(tasks, is_last=is_last)
            if is_last:
                self._state.write_last_snapshots()

    def _commit_changed(self, tasks: Sequence[TaskInstance], *, is_last: bool) -> None:
        # An atomic commit is one of all tasks.
        due = self._tasks if self._outbox.commits_all_tasks else tasks
        changed, timed = [], []
        for task in due:
            changes, offsets = self._state.drain(task.name), task.offsets()
            if changes or offsets != task.committed:
                changed.append((task, self._task_commit(task, offsets, changes)))
            # Nothing was processed, but the time of its window is kept.
            elif _is_timed(task, is_last=is_last):
                timed.append((task, self._task_commit(task, offsets, changes)))
        written = [*changed, *timed]
        checkpoints = self._commit_to_outbox([commit for _, commit in written])
        _note_committed(changed, written)
        if self._observation.observer is not None and written:
            self._observation.observer.commit_made([task.name for task, _ in changed], checkpoints)
        if changed and self._awaited:
            self._acknowledge()
        if self._observation.trace is not None:
            now_ms = self._clock.now_ms()
            self._observation.trace.note_event("commit", [task.name for task in due], now_ms)

    def record_stores(self, last: Mapping[str, Checkpoint], corrected: Set[SystemStreamPartition]) -> None:
        """Make durable that tasks have stores of which their last checkpoints do not know.

        This comes before anything is written to their changelogs: what these hold from then on is known to be
        of this job. ``last``: the checkpoints so far, which are changed in nothing else. ``corrected``:
        changelogs that hold what is no state; the next commit records them."""
        news = {}
        for task in self._tasks:
            checkpoint = last.get(task.name)
            if checkpoint is not None and checkpoint.generation:
                changelogs = self._state.changelogs(task.name)
                new = [store for store in changelogs if store not in checkpoint.changelogs]
                ends = self._state.upcoming(
                    task.name, [store for store in new if changelogs[store] not in corrected]
                )
                if ends:
                    now = self._state.known(task.name).formats
                    formats = {**checkpoint.formats, **{store: now[store] for store in ends}}
                    known = {**checkpoint.changelogs, **ends}
                    news[task.name] = msgspec.structs.replace(checkpoint, changelogs=known, formats=formats)
        if news:
            self._checkpoints.write(news)

    def record_starts(self, last: Mapping[str, Checkpoint], corrected: Set[SystemStreamPartition]) -> None:
        """Make durable where tasks begin that have no checkpoint yet: what arrives before their first commit
        must not be skipped by a restart. And that changelogs were ``corrected``: what they held before is no
        longer needed. ``last``: the checkpoints so far."""
        unknown = Checkpoint({})
        news = [
            task
            for task in self._tasks
            if any(last.get(task.name, unknown).starts.get(ssp) != at for ssp, at in task.starts().items())
            or self._is_of_another(last.get(task.name, unknown), task)
            or (task.window_ms != task.window_committed and not task.keeps_start)
            or not corrected.isdisjoint(self._state.changelogs(task.name).values())
        ]
        self._commit_to_outbox(
            [self._task_commit(task, task.offsets(), self._state.drain(task.name)) for task in news]
        )
        for task in news:
            task.committed = task.offsets()
            task.window_committed = task.window_ms
            task.keeps_start = False

    def acknowledge_by(
        self, consumers: Consumers, partitions: Iterable[PartitionBuffer], systems: Systems
    ) -> None:
        """Acknowledge, after each commit from now on, what is safe to the consumers of ``consumers`` that
        wait."""
        self._consumers = consumers
        self._awaited = [
            _Awaited(partition, systems)
            for partition in partitions
            if consumers.awaits_acknowledgement(partition.ssp.system)
        ]

    def _acknowledge(self) -> None:
        safe = {each.ssp: offset for each in self._awaited if (offset := each.news()) is not None}
        if safe:
            self._consumers.acknowledge(safe)

    def _is_of_another(self, checkpoint: Checkpoint, task: TaskInstance) -> bool:
        """True where a task's checkpoint is of partitions that are gone. The next start must know of those
        that replaced them."""
        now = self._identities.at(task.offsets(), task.starts()) if checkpoint.identities else {}
        return any(checkpoint.identities.get(ssp, identity) != identity for ssp, identity in now.items())

    def _commit_to_outbox(self, commits: Sequence[TaskCommit]) -> Mapping[str, Checkpoint]:
        written = self._outbox.commit(commits, self._clock.now_ms())
        if written:
            self._state.committed(written, self._checkpoints)
        return written

    def _task_commit(
        self, task: TaskInstance, offsets: dict[SystemStreamPartition, str], changes: list[StoreChanges]
    ) -> TaskCommit:
        known, starts = self._state.known(task.name), task.starts()
        return TaskCommit(
            task.name,
            offsets,
            starts,
            self._state.changelogs(task.name),
            changes,
            self._identities.at(offsets, starts),
            kept=known.kept,
            formats=known.formats,
            absent=known.absent,
            window_ms=task.window_ms,
        )


def _note_committed(
    changed: Iterable[tuple[TaskInstance, TaskCommit]], written: Iterable[tuple[TaskInstance, TaskCommit]]
) -> None:
    """Have tasks know what of them was committed. ``changed``: those of ``written`` with more than the time
    of a window."""
    for task, commit in written:
        task.window_committed, task.window_sent = commit.window_ms, False
    for task, commit in changed:
        task.keeps_start = False
        task.committed = commit.offsets
        task.commits += 1


def _is_timed(task: TaskInstance, *, is_last: bool) -> bool:
    """True where the time of a task's last window is to be committed by itself.

    A start point that the task was rewound to goes with its first commit: it stays until there is more than a
    window."""
    return not task.keeps_start and (
        task.window_sent or (is_last and task.window_ms != task.window_committed)
    )


class _Awaited:
    """A partition whose consumer waits for acknowledgements."""

    def __init__(self, partition: PartitionBuffer, systems: Systems) -> None:
        self.ssp = partition.ssp
        self._tasks = [each.task for each in partition.subscriptions]
        self._compare = systems.admin(partition.ssp.system).compare
        self._acknowledged: str | None = None

    def news(self) -> str | None:
        """The offset up to which all tasks that read the partition have committed it, if that was not
        acknowledged yet.

        Also None where offsets cannot be compared. A message that is not acknowledged comes again; one
        that is acknowledged too early is lost."""
        safe: str | None = None
        for task in self._tasks:
            offset = task.committed.get(self.ssp)
            if offset is None:
                return None
            # The task that is furthest behind decides.
            if safe is not None and offset != safe:
                order = self._compare(offset, safe)
                if order is None:
                    return None
                if order > 0:
                    continue
            safe = offset
        if safe == self._acknowledged:
            return None
        self._acknowledged = safe
        return safe


def warn_of_uncommitted(job: str, sent: int, tasks: Sequence[TaskInstance]) -> None:
    """Warn where tasks, as they were closed, did something that only another commit would have kept.
    ``sent``: the number of messages not sent."""
    changed = sum(store.changes for task in tasks for store in task.stores.values())
    if sent or changed:
        log.warning(
            "%s: what tasks did in close() is lost, because the last commit comes before it (messages sent: "
            "%d, keys of stores changed: "
            "%d); do it in process(), window() or end_of_stream()",
            job,
            sent,
            changed,
        )
