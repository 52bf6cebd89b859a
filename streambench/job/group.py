"""``run --join``: this process is one of several that share the tasks of a job, and that come and go.

The group is the job: its checkpoints are the group's positions. Another job (another ``job.name`` or
``job.id``) that reads the same streams has positions of its own, and gets every message, too.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

from msgspec import Struct, structs

from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.clock import SystemClock
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.inputs.partitions import checked_inputs
from streambench.container.known_stores import check_stores
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.errors import (
    ConfigError,
    FencedError,
    LockLostError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
    described,
)
from streambench.job.cumulative_counts import CumulativeCounts
from streambench.job.membership import Assignment, Membership, Rebalance
from streambench.job.result import ContainerRun
from streambench.job.runner import ContainerRunner, OnHang, OnSnapshot, awaited
from streambench.job.shareable import check_shareable
from streambench.planning.changelog_partitions import open_generation
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.planning.model import ContainerModel, JobModel, PlannedContainer
from streambench.planning.plan import plan
from streambench.planning.sticky_assignor import sticky_assignment
from streambench.system.systems import Systems

log = logging.getLogger(__name__)

_COUNT = "job.container.count"
_TICK_S = 0.1
# A coordinator is as patient with systems that do not answer as a container is.
_PATIENCE_S = 120.0
_BACK_OFF_S = 0.5
_LONGEST_BACK_OFF_S = 10.0


class RetryState(Struct, frozen=True):
    """The time since which something fails, and the time of the next try."""

    since: float
    back_off_s: float
    again_at: float


class GroupMember:
    """One process of a group. ``run`` runs the tasks that are its own, whichever these are at the time, until
    it is stopped."""

    def __init__(
        self,
        config: Config,
        task: Any,
        name: str,
        *,
        on_snapshot: OnSnapshot | None,
        every_s: float,
        on_hang: OnHang | None,
    ) -> None:
        """``name``: of the job. Raises ConfigError where its checkpoints are not in a directory that others
        could share."""
        if config.integer(_COUNT) != 1:
            raise config.error(
                _COUNT,
                "members of a group are one container each, however many there are: leave this key out",
            )
        self._config = config
        self._task = task
        self._name = name
        self._tally = CumulativeCounts()
        show = None if on_snapshot is None else lambda snapshot: on_snapshot(self._tally.over(snapshot))
        self._options: dict[str, Any] = {"on_snapshot": show, "every_s": every_s, "on_hang": on_hang}
        with closing(Systems(config)) as systems, closing(checkpoint_manager(config, name)) as checkpoints:
            check_shareable(config, systems, checkpoints, "the members of a group")
            if checkpoints.directory is None:
                raise config.error(
                    "task.checkpoint.system",
                    "members of a group meet in a directory: set it to file, or to a log system",
                )
            self._rebalance_s = config.integer("job.group.rebalance.ms") / 1000
            self.membership = Membership(
                checkpoints.directory,
                session_s=config.integer("job.group.session.ms") / 1000,
                rebalance_s=self._rebalance_s,
            )
        self._changed = threading.Condition()
        self._round: Rebalance | None = None
        self._driver: ContainerRunner | None = None
        self._driven = self._ready = 0
        self._stopping = False
        self._trouble: RetryState | None = None
        self._start_trouble: RetryState | None = None
        self._problem: BaseException | None = None

    def stop_soon(self) -> None:
        """Have ``run`` commit and return. From any thread."""
        with self._changed:
            self._stopping = True
            if self._driver is not None:
                self._driver.stop_soon()
            self._changed.notify_all()

    def under_way(self) -> str:
        """The call that a stop waits for, in words."""
        driver = self._driver
        return awaited([]) if driver is None else driver.under_way()

    def run(self) -> ContainerRun:
        """Result of this member, in all its runs together. Raises what a container raises."""
        began = time.monotonic()
        runs: list[ContainerRun] = []
        self.membership.join()
        keeper = threading.Thread(target=self._keep, name="membership", daemon=True)
        keeper.start()
        try:
            while (assignment := self._next_assignment()) is not None:
                done = self._take(*assignment)
                if done is not None:
                    runs.append(done)
                    if done.ended != "signal":
                        break
        finally:
            self.stop_soon()
            keeper.join()
            self.membership.leave()
        if self._problem is not None:
            raise self._problem
        return self._tally.of(_together(runs, time.monotonic() - began))

    def _next_assignment(self) -> tuple[Rebalance, Assignment, int] | None:
        """Wait for a round that gives this member tasks; None when it is to stop."""
        with self._changed:
            while not self._stopping:
                current = self._round
                if current is not None and current.shares is not None and current.number > self._driven:
                    number = current.shares.containers.get(self.membership.name)
                    if number is not None:
                        return current, current.shares, number
                self._changed.wait()
        return None

    def _take(self, current: Rebalance, dealt: Assignment, number: int) -> ContainerRun | None:
        """Run the tasks of a round until the next one; None where it came before this member knew of it."""
        container = Container(
            self._config, self._task, planned=PlannedContainer(dealt.model, number, dealt.generation),
            remember_choices=0 if self._options["on_snapshot"] is None else 1,
        )  # fmt: skip
        driver = ContainerRunner(container, **self._options)
        trouble: RetryState | None = None
        with self._changed:
            if self._stopping or self._round is not current:
                container.abandon()
                return None
            self._driver, self._driven = driver, current.number
        try:
            return driver.run(None)
        except (FencedError, LockLostError):
            # Left out of a round for being late, it was fenced. Any other cause of the fence is no member:
            # this job runs elsewhere.
            if not self._another_round(current.number):
                raise
            log.warning(
                "%s: its tasks went to other members before it had committed; what it did since is done "
                "again there",
                self._name,
            )
        except (ConfigError, UnknownStreamError):
            raise
        except (StreamSystemError, OSError) as error:
            # A round starts the containers of all members: a system that is away just then must not end all
            # of them.
            if container.has_begun:
                raise
            trouble = self._start_trouble = self._again(
                "its container cannot be started", error, self._start_trouble
            )
            with self._changed:
                self._driven = current.number - 1
        finally:
            with self._changed:
                self._driver = None
            # Also where it was fenced: what others do again was done here, too, and has been shown.
            self._tally.add(container.processed, container.error_counts)
            if container.has_begun:
                self._start_trouble = None
        if trouble is not None:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._stopping or self._round is not current, trouble.again_at - time.monotonic()
                )
        return None

    def _another_round(self, number: int) -> bool:
        """True where there is a newer round, or soon will be."""
        with self._changed:
            return self._changed.wait_for(
                lambda: self._stopping or (self._round is not None and self._round.number > number),
                self._rebalance_s,
            )

    def _keep(self) -> None:
        """Take part in the rounds, on a thread of its own, so that a long message does not make this
        member seem dead."""
        try:
            while True:
                with self._changed:
                    if self._stopping and self._driver is None:
                        return
                self.membership.tick(self._rebalance_if_possible)
                self._see(self.membership.round())
                time.sleep(_TICK_S)
        except BaseException as error:
            self._problem = error
            self.stop_soon()

    def _see(self, current: Rebalance | None) -> None:
        with self._changed:
            if current is not self._round:
                self._round = current
                self._changed.notify_all()
            if current is None:
                return
            if self._driver is None:
                is_awaited = current.shares is None or self.membership.name in current.late
                if is_awaited and current.number > self._ready:
                    self.membership.ready(current.number)
                    self._ready = current.number
            elif current.number > self._driven:
                self._driver.stop_soon()

    def _rebalance_if_possible(
        self, members: list[str], former: Mapping[str, list[str]]
    ) -> Assignment | None:
        """As the coordinator, open a generation for these members.

        None where that failed, or failed just before: a coordinator that ended for it would only pass the
        same failure on to the next one."""
        if self._trouble is not None and time.monotonic() < self._trouble.again_at:
            return None
        try:
            shares = self._rebalance(members, former)
        except (ConfigError, UnknownStreamError, LockLostError):
            raise
        except (StreambenchError, OSError) as error:
            self._trouble = self._again(
                f"tasks cannot be dealt to the {len(members)} members", error, self._trouble
            )
            return None
        self._trouble = None
        return shares

    def _again(self, what: str, error: Exception, before: RetryState | None) -> RetryState:
        """When to try again what failed. Raises the error where it has failed for too long."""
        now = time.monotonic()
        since, back_off_s = now, _BACK_OFF_S
        if before is not None:
            since, back_off_s = before.since, min(2 * before.back_off_s, _LONGEST_BACK_OFF_S)
        if now - since >= _PATIENCE_S:
            raise error
        text = "%s: %s (%s); trying again in %g s, for %d s altogether"
        log.warning(text, self._name, what, described(error), back_off_s, _PATIENCE_S)
        return RetryState(since, back_off_s, now + back_off_s)

    def _rebalance(self, members: list[str], former: Mapping[str, list[str]]) -> Assignment:
        config = self._config
        with (
            closing(Systems(config)) as systems,
            closing(checkpoint_manager(config, self._name)) as checkpoints,
        ):
            model = plan(
                config,
                self._name,
                systems.inputs(checked_inputs(config, self._name, systems)),
                checkpoints.last_generation(),
            )
            tasks = {task.name: task for task in model.tasks}
            dealt = sticky_assignment(tasks, members, former)
            holders = [member for member in members if dealt[member]]
            containers = tuple(
                ContainerModel(number, tuple(tasks[task] for task in dealt[member]))
                for number, member in enumerate(holders)
            )
            model = JobModel(self._name, containers)
            check_stores(config, self._name, systems, model, checkpoints)
            if isinstance(checkpoints, JournalCheckpointManager):
                checkpoints.before_opening = self.membership.check_coordinator
            generation = open_generation(checkpoints, model, now_ms=SystemClock().now_ms())
            log.info("%s: generation %d, of %d members", self._name, generation.number, len(members))
            return Assignment(
                generation.number, model, {member: number for number, member in enumerate(holders)}
            )


def _together(runs: list[ContainerRun], seconds: float) -> ContainerRun:
    """The runs of a member as one run, without what ``CumulativeCounts`` counts."""
    if not runs:
        return ContainerRun(0, 0, {}, seconds, "signal")
    offsets = dict(runs[0].offsets)
    for run in runs[1:]:
        offsets.update({ssp: (offsets.get(ssp, span)[0], span[1]) for ssp, span in run.offsets.items()})
    return structs.replace(runs[-1], messages=0, offsets=offsets, seconds=seconds, passed_over=ErrorCounts())
