"""The rounds of a deployment: each plans, runs the containers as one Spark job, and says what came of it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import Any, TypedDict, TypeVar

from msgspec.structs import replace

from streambench import imports as load
from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import StreambenchError, described
from streambench.job.running import IfRunning, container_holders, remaining
from streambench.spark import task_output
from streambench.spark.backfill import Backfill
from streambench.spark.counted import LIVE_COUNTS
from streambench.spark.history import Run, note, note_run
from streambench.spark.outcome import outcome
from streambench.spark.plan import DeployPlan, Offsets, make_plan, open_generation
from streambench.spark.progress import Listener
from streambench.spark.progress_view import description_of
from streambench.spark.quiet import quiet
from streambench.spark.result import (
    ContainerProgress,
    DeployedContainer,
    DeployError,
    DeployProgress,
    DeployResult,
    Stage,
    TakenOverError,
    failed,
    is_superseded,
    progress_of,
    taken_over,
)
from streambench.spark.round_progress import (
    end_of,
    final_progress,
    planned_progress,
    stopped_progress,
    work_of,
)
from streambench.spark.running import DeploymentLock, GenerationWatch
from streambench.spark.session_handle import SessionHandle
from streambench.spark.shared import SharedDirectory, tokens
from streambench.spark.shared_session import SharedSession
from streambench.spark.shipment import pack, sources, without_endpoints
from streambench.spark.spark_job import SparkJob
from streambench.spark.worker import Shipment

log = logging.getLogger(__name__)

OnProgress = Callable[[DeployProgress], object]

_T = TypeVar("_T")

LOOK_S = 1.0
"""Seconds between two looks if another start has taken the job over."""

_POLL_S = 0.1
_PROGRESS_S = 0.25
_INTERRUPT_S = 15
_KILLED_WITHIN_S = 10.0
# A container reports four times a second, and once a second while one message takes it long.
_REPORTS_WITHIN_S = 1.5
_AT_ONCE_S = 1.0


class Watching(TypedDict, total=False):
    """The ways to watch a deployment and to stop it."""

    progress: OnProgress | None
    cancel: threading.Event | None


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
        """Run what is planned, and report."""
        began, began_ms = time.monotonic(), time.time_ns() // 1_000_000
        backfill_name = "" if self._range is None else self._range.name
        planned = self._hold(planned)
        if planned.idle:
            return DeployResult(
                job=planned.model.name, containers=planned.containers(), seconds=time.monotonic() - began
            )
        assert self._lock is not None
        self._rounds += 1
        waiting = planned_progress(planned)
        if not self._session.is_started:
            self._show(planned, waiting, began, "starting Spark")
        session = self._session.handle(self._config)
        with (
            Listener(session.host(), waiting, planned.model.name, self._rounds, began) as listener,
            tokens(self._config) as shared,
        ):
            output = "" if session.keeps_logs else task_output.begin(self._lock.directory)
            # The containers of all other sessions die with this process.
            outlives = session.context is None
            leased_as = self._lock.seen_lease() if outlives else ""
            is_visible = outlives and self._lock.is_visible
            shipment = self._shipment(planned, listener, shared, output)
            run = pack(replace(shipment, leased_as=leased_as, is_visible=is_visible))
            self._lock.check()  # for a container that was started while Spark was
            self.check_holder()
            # From here on, what still runs of older starts must stop.
            run.generation = self._generation = open_generation(planned)
            begun = Run(
                generation=run.generation,
                began_ms=began_ms,
                master=session.master,
                outcome="running",
                backfill=backfill_name,
                holders=self._lock.holders,
            )
            note(planned.history, begun)
            title = f"streambench {planned.model.name}, round {self._rounds}"
            run.numbers = planned.working
            counts_live = self._config.boolean(LIVE_COUNTS)
            job = SparkJob(session, run, title, work_of(waiting), counts_live=counts_live)
            try:
                with quiet(session.context):
                    self._wait(job, listener)
                who = self._lock.taken_over_by()
                cancelled = job.alive and (self._cancel.is_set() or bool(who))
                if cancelled:
                    self._interrupt(job, planned.model.name, listener)
                containers = outcome(planned, job.reports, _reason(job, who, cancelled=cancelled))
                result = DeployResult(
                    job=planned.model.name,
                    containers=_with_logs(containers, session, output),
                    seconds=time.monotonic() - began,
                    generation=run.generation,
                    master=session.master,
                    rounds=1,
                )
                is_cut = cancelled or is_superseded(result)
                note_run(planned.history, result, began_ms, backfill_name, is_cut=is_cut)
            except BaseException:
                self._stop(planned, job, begun, began, listener)
                raise
        job.show_end(end_of(result))
        self._show(planned, final_progress(planned, result), began, "ended")
        if who and (cancelled or result.failed):
            raise taken_over(result, who)
        if cancelled:
            raise DeployError(
                "cancelled; what was committed stays committed, and the next start goes on from there",
                result=result,
            )
        if result.failed:
            raise failed(result)
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

    def _stop(self, planned: DeployPlan, job: SparkJob, begun: Run, began: float, listener: Listener) -> None:
        """Cancel the job of a round that was interrupted, and note how far it came once its containers have
        ended. A second interrupt ends the wait for them, and what they commit from then on is not noted. Nor
        is anything else, where their checkpoints do not answer at once."""
        at_once = True
        try:
            job.cancel()
            seconds = round(time.monotonic() - began, 3)
            note(planned.history, replace(begun, seconds=seconds, outcome="interrupted"))
            self._interrupt(job, planned.model.name, listener)
            at_once = False
        except BaseException:
            job.cancel()
            raise
        finally:
            self._note_interrupted(planned, job, begun, began, at_once=at_once)

    def _note_interrupted(
        self, planned: DeployPlan, job: SparkJob, begun: Run, began: float, *, at_once: bool
    ) -> None:
        """Show and note how far the containers came by their checkpoints. ``at_once``: only where these
        answer within a second."""

        def reached() -> tuple[DeployedContainer, ...]:
            return outcome(planned, job.reports, "interrupted")

        try:
            containers = _within(_AT_ONCE_S, reached) if at_once else reached()
        except Exception as error:  # the interrupt itself is what is raised
            log.warning("%s: it is not known how far it came: %s", planned.model.name, described(error))
            return
        result = self._cut = DeployResult(
            job=planned.model.name,
            containers=containers,
            seconds=time.monotonic() - began,
            generation=begun.generation,
            master=begun.master,
            rounds=1,
        )
        note_run(planned.history, result, begun.began_ms, begun.backfill, is_cut=True)
        with suppress(Exception):
            self._show(planned, stopped_progress(planned, result), began, "stopped")

    def _interrupt(self, job: SparkJob, name: str, listener: Listener) -> None:
        """Have Spark cancel the job, and return when its containers write no more: Spark kills them some
        seconds after it has answered. Where no claim shows which are at work, their reports do."""
        job.interrupt(_INTERRUPT_S)
        has_claims = self._lock is not None and self._lock.directory is not None

        def at_work() -> dict[int, str]:
            return container_holders(self._config, name) if has_claims else _reporting(listener)

        if left := remaining(at_work, _KILLED_WITHIN_S):
            log.warning(
                "%s: cancelled, but %s still has container %d, and goes on until Spark kills it",
                name,
                left[min(left)],
                min(left),
            )

    def _shipment(
        self, planned: DeployPlan, listener: Listener, shared: Mapping[str, SharedDirectory], output: str
    ) -> Shipment:
        config = without_endpoints(self._config)
        names = {name: what for name, (_, what) in load.own_names(config).items()}
        texts = sources(planned.task, *names.values())
        return Shipment(
            config,
            planned.task,
            names,
            planned.model,
            planned.ends,
            shared,
            texts,
            listener.address,
            "" if self._lock is None else self._lock.lock_path,
            output,
        )

    def _wait(self, job: SparkJob, listener: Listener) -> None:
        """Wait until the Spark job has ended, is cancelled or taken over. Show meanwhile how far it is."""
        job.start()
        shown = looked = 0.0
        while job.wait(_POLL_S) and not self._cancel.is_set():
            now = time.monotonic()
            if now - looked >= LOOK_S:
                looked = now
                if self._lock is not None and self._lock.taken_over_by():
                    return
            if now - shown < _PROGRESS_S:
                continue
            shown = now
            progress = listener.read()
            job.show_progress(partial(description_of, progress))
            if self._progress is not None:
                self._progress(progress)

    def _show(
        self, planned: DeployPlan, containers: Sequence[ContainerProgress], began: float, stage: Stage
    ) -> None:
        if self._progress is not None:
            seconds, job = time.monotonic() - began, planned.model.name
            self._progress(progress_of(containers, seconds=seconds, job=job, round=self._rounds, stage=stage))


def _within(seconds: float, find: Callable[[], _T]) -> _T:
    """Result of a function. Raises StreambenchError where it takes longer, and what the function raises."""
    found: Future[_T] = Future()

    def run() -> None:
        try:
            found.set_result(find())
        except BaseException as error:
            found.set_exception(error)

    threading.Thread(target=run, name="checkpoints", daemon=True).start()
    try:
        return found.result(seconds)
    except TimeoutError:
        raise StreambenchError("its checkpoints do not answer at once") from None


def _reason(job: SparkJob, who: str, *, cancelled: bool) -> str:
    """The reason why containers may have sent no report. ``who``: the process that has taken the job over."""
    if not cancelled:
        return job.reason
    return "taken over" if who else "cancelled"


def _reporting(listener: Listener) -> dict[int, str]:
    """The containers that have reported a moment ago, as if each were its own process."""
    running = [each for each in listener.read().each if each.stage == "running"]
    return {each.number: "its process" for each in running if each.silent_s < _REPORTS_WITHIN_S}


def _with_logs(
    containers: tuple[DeployedContainer, ...], session: SessionHandle, output: str
) -> tuple[DeployedContainer, ...]:
    """The containers with the logs that are left when the session has ended: those of their executors, or
    the files in ``output``."""
    if session.keeps_logs:
        return containers
    return tuple(replace(each, log=task_output.log_of(output, each.number)) for each in containers)
