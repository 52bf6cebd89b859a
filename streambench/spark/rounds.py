"""The rounds of a deployment: each plans what to do, and does it; between two of them the job may be held."""

from __future__ import annotations

import threading
import time
from typing import Any

from streambench.config import Config
from streambench.container.container import Container
from streambench.job.running import IfRunning
from streambench.spark.backfill import Backfill
from streambench.spark.plan import DeployPlan, Offsets, make_plan
from streambench.spark.result import DeployError, DeployResult, TakenOverError, taken_over
from streambench.spark.round import LOOK_S, Round, RoundOf, Watching
from streambench.spark.running import DeploymentLock, GenerationWatch
from streambench.spark.shared_session import SharedSession


class Deployment:
    """The rounds of one job. ``close`` leaves the job to others."""

    def __init__(
        self,
        config: Config,
        task: Any,
        session: SharedSession,
        if_running: IfRunning,
        watching: Watching,
        range: Backfill | None = None,
        *,
        goes_on: bool = False,
    ) -> None:
        """``goes_on``: it holds the job also while there is nothing to do."""
        self._config = config
        self._range = range
        self._task = task
        self._session = session
        self._if_running: IfRunning = if_running
        self._progress = watching.get("progress")
        self._cancel = watching.get("cancel") or threading.Event()
        self._lock: DeploymentLock | None = None
        self._goes_on = goes_on
        self._rounds = self._generation = 0
        self._stretch = 1
        self._newer: GenerationWatch | None = None
        # What an interrupt leaves of the rounds that it ends.
        self._cut: DeployResult | None = None

    @property
    def name(self) -> str:
        """The name of the job."""
        return Container(self._config, self._task).name

    def close(self) -> None:
        """Leave the job to others."""
        if self._lock is not None:
            self._lock.release()
        if self._newer is not None:
            self._newer.close()

    @property
    def holds_job(self) -> bool:
        """True where another start can take the job over between two rounds, which has to be looked for."""
        return self._newer is not None or (self._lock is not None and bool(self._lock.lock_path))

    def check_holder(self) -> None:
        """Raise TakenOverError where another start of the job has taken it over."""
        if self._lock is not None and (who := self._lock.taken_over_by()):
            raise self._taken_over(who)
        if self._newer is not None and self._newer.has_newer(self._generation):
            raise self._taken_over()

    def _taken_over(self, who: str = "") -> TakenOverError:
        """The error of a deployment that was taken over before its round has done anything."""
        return taken_over(DeployResult(job=self.name, containers=(), seconds=0.0), who)

    def _pause(self, seconds: float) -> bool:
        """Wait so long; True where it is cancelled meanwhile. Raises TakenOverError."""
        until = time.monotonic() + seconds
        while True:
            self.check_holder()
            left = max(0.0, until - time.monotonic())
            step = min(left, LOOK_S) if self.holds_job else left
            if self._cancel.wait(step):
                return True
            if step == left:
                return False

    def rounds(self, every: float) -> DeployResult:
        """Rounds until they are stopped; their sum. What a round raises ends them, with the sum in it."""
        total: DeployResult | None = None
        try:
            while True:
                began = time.monotonic()
                result = self.caught_up()
                total = total.followed_by(result) if total else result
                if self._pause(every - (time.monotonic() - began)):
                    return total
        except KeyboardInterrupt:
            if total is None:
                raise
            return self._with_cut(total)
        except DeployError as error:
            total = total.followed_by(error.result) if total else error.result
            if self._cancel.is_set():
                return total
            error.result = total
            raise

    def _with_cut(self, total: DeployResult) -> DeployResult:
        """The sum of rounds, with what an interrupt has left of the next ones."""
        return total if self._cut is None else total.followed_by(self._cut)

    def caught_up(self) -> DeployResult:
        """Rounds until everything is processed that was there when the first one was planned, and their sum.
        It is one, unless ``job.container.max.messages`` bounds them."""
        total: DeployResult | None = None
        self._cut = None
        planned = self.plan()
        until = planned.last_ends
        try:
            while True:
                result = self.round(planned)
                total = total.followed_by(result) if total else result
                if planned.is_last:
                    return total
                planned = self.plan(until)
        except DeployError as error:
            if total is not None:
                error.result = total.followed_by(error.result)
            raise
        except BaseException:
            if total is not None:
                self._cut = self._with_cut(total)
            raise

    def plan(self, until: Offsets | None = None) -> DeployPlan:
        """The plan of a round. ``until``: offsets at which it ends though there is more. Raises as
        ``make_plan``."""
        return make_plan(self._config, self._task, self._range, until=until, stretch=self._stretch)

    def round(self, planned: DeployPlan) -> DeployResult:
        """Run what is planned, and report. Raises as ``Round.run``."""
        began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
        planned = self._hold(planned)
        if planned.idle:
            return DeployResult(
                job=planned.model.name, containers=planned.containers(), seconds=time.monotonic() - began
            )
        assert self._lock is not None
        self._rounds += 1
        backfill = "" if self._range is None else self._range.name
        of = RoundOf(self._config, self._lock, backfill, self.check_holder, self._progress, self._cancel)
        current = Round(of, planned, self._rounds, began, began_ms)
        if not self._session.is_started:
            current.show_start()
        try:
            result = current.run(self._session.handle(self._config))
        finally:
            self._cut = current.cut
            self._generation = current.generation or self._generation
        # Compaction and transactions leave offsets without messages: a larger part gets past them.
        self._stretch = 1 if result.messages or planned.is_last else self._stretch * 2
        return result

    def _hold(self, planned: DeployPlan) -> DeployPlan:
        """Hold the job where there is something to do: before Spark starts, which takes long, so that another
        deployment is refused from now on. The plan; a later one, where a former deployment has ended."""
        self.check_holder()
        if self._generation and planned.former > self._generation:
            raise self._taken_over()
        if planned.idle and not self._goes_on:
            return planned
        if self._lock is None:
            self._lock = DeploymentLock(self._config, planned.model.name, self._if_running)
        was_taken_over = self._lock.acquire()
        if self._goes_on and self._lock.leased_as and self._newer is None:
            self._newer = GenerationWatch(self._config, planned.model.name)
        return self.plan(planned.last_ends) if was_taken_over else planned
