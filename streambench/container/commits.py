"""What a commit is: the offsets and changes of tasks on their way to the outbox, and who is told once they are safe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set

from streambench.checkpoint.api import Checkpoint, CheckpointManager
from streambench.clock import Clock
from streambench.container.identities import Identities
from streambench.container.intake import Intake
from streambench.container.multiplexer import Lane
from streambench.container.outbox import Outbox, TaskCommit
from streambench.container.state import State
from streambench.container.task_instance import EventObserver, TaskInstance
from streambench.model import SystemStreamPartition
from streambench.system.systems import Systems


class Commits:
    """Commits tasks of one container, and acknowledges to the systems that wait for it what no longer depends on this process."""

    def __init__(
        self,
        tasks: Sequence[TaskInstance],
        outbox: Outbox,
        state: State,
        checkpoints: CheckpointManager,
        clock: Clock,
        observer: EventObserver | None = None,
        *,
        systems: Systems,
    ) -> None:
        self._tasks = tasks
        self._identities = Identities(systems)
        self._outbox = outbox
        self._state = state
        self._checkpoints = checkpoints
        self._clock = clock
        self._observer = observer
        self._awaited: list[_Awaited] = []

    def commit(self, tasks: Sequence[TaskInstance]) -> None:
        """Commit these tasks (all of them, where the outbox knows only whole commits) as far as there is anything new of them."""
        commits = [(task, self._of(task)) for task in (self._tasks if self._outbox.whole else tasks)]
        changed = [(task, commit) for task, commit in commits if commit.changes or commit.offsets != task.committed]
        self._hand_over([commit for _, commit in changed])
        for task, commit in changed:
            task.committed = dict(commit.offsets)
            task.commits += 1
            if self._observer:
                self._observer("commit", task.name, None)
        if changed and self._awaited:
            self._acknowledge()

    def record_starts(self, last: Mapping[str, Checkpoint], corrected: Set[SystemStreamPartition]) -> None:
        """Make durable where tasks begin that have no checkpoint yet: what arrives before their first commit must not be skipped by a
        restart. And that changelogs were ``corrected``: what they held before is no longer needed. ``last``: the checkpoints so far."""
        unknown = Checkpoint({})
        news = [
            task
            for task in self._tasks
            if any(last.get(task.name, unknown).starts.get(ssp) != at for ssp, at in task.starts().items())
            or self._is_of_another(last.get(task.name, unknown), task)
            or not corrected.isdisjoint(self._state.changelogs(task.name).values())
        ]
        self._hand_over([self._of(task) for task in news])
        for task in news:
            task.committed = task.offsets()

    def acknowledge_by(self, intake: Intake, lanes: Iterable[Lane], systems: Systems) -> None:
        """Tell the consumers of ``intake`` that wait for it, after each commit from now on, what is safe."""
        self._intake = intake
        self._awaited = [_Awaited(lane, systems) for lane in lanes if intake.awaits_acknowledgement(lane.ssp.system)]

    def _acknowledge(self) -> None:
        safe = {each.ssp: offset for each in self._awaited if (offset := each.news()) is not None}
        if safe:
            self._intake.acknowledge(safe)

    def _is_of_another(self, checkpoint: Checkpoint, task: TaskInstance) -> bool:
        """Whether the checkpoint of a task is of partitions that are not there any more: of those that are, the next start must know."""
        now = self._identities.at(task.offsets(), task.starts()) if checkpoint.identities else {}
        return any(checkpoint.identities.get(ssp, identity) != identity for ssp, identity in now.items())

    def _hand_over(self, commits: Sequence[TaskCommit]) -> None:
        for each in commits:
            each.identities = self._identities.at(each.offsets, each.starts)
        written = self._outbox.commit(commits, self._clock.now_ms())
        if written:
            self._state.committed(written, self._checkpoints)

    def _of(self, task: TaskInstance) -> TaskCommit:
        return TaskCommit(task.name, task.offsets(), task.starts(), self._state.changelogs(task.name), self._state.drain(task.name))


class _Awaited:
    """A partition whose consumer waits for acknowledgements."""

    def __init__(self, lane: Lane, systems: Systems) -> None:
        self.ssp = lane.ssp
        self._tasks = [each.task for each in lane.subscriptions]
        self._compare = systems.admin(lane.ssp.system).compare
        self._told: str | None = None

    def news(self) -> str | None:
        """The offset up to which all tasks that read the partition have committed it, where that has not been told yet. None, too, where
        nobody can say whose offset comes first: what is not acknowledged comes again, what is wrongly acknowledged is lost."""
        safe: str | None = None
        for task in self._tasks:
            offset = task.committed.get(self.ssp)
            if offset is None:
                return None
            if safe is not None and offset != safe:
                order = self._compare(offset, safe)
                if order is None:
                    return None
                if order > 0:
                    continue
            safe = offset
        if safe == self._told:
            return None
        self._told = safe
        return safe
