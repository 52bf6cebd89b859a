"""One round of a deployment: its containers run as one Spark job, and what came of them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from typing import TypedDict, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from streambench import imports as load
from streambench.config import Config
from streambench.errors import StreambenchError, described
from streambench.job.running import container_holders, remaining
from streambench.spark import task_output
from streambench.spark.counted import LIVE_COUNTS
from streambench.spark.history import Run, note, note_run
from streambench.spark.outcome import outcome
from streambench.spark.plan import DeployPlan, open_generation
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
from streambench.spark.running import DeploymentLock
from streambench.spark.session_handle import SessionHandle
from streambench.spark.shared import SharedDirectory, tokens
from streambench.spark.shipment import pack, sources, without_endpoints
from streambench.spark.spark_job import SparkJob
from streambench.spark.worker import RunContainers, Shipment

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


class RoundOf(Struct, frozen=True):
    """The deployment that a round is of: its configuration, its lock, and the name of the backfill, if it is
    one. ``check_holder`` raises TakenOverError where another start has taken the job over."""

    config: Config
    lock: DeploymentLock
    backfill: str
    check_holder: Callable[[], None]
    progress: OnProgress | None
    cancel: threading.Event


class Round:
    """One round, with the plan of what to do. ``generation``: the one that it has opened, 0 before. ``cut``:
    what an interrupt has left of it."""

    def __init__(self, of: RoundOf, planned: DeployPlan, number: int, began: float, began_ms: int) -> None:
        """``began``, ``began_ms``: on the monotonic clock in seconds, and since 1970."""
        self.generation = 0
        self.cut: DeployResult | None = None
        self._of = of
        self._planned = planned
        self._name = planned.model.name
        self._number = number
        self._began = began
        self._began_ms = began_ms
        self._waiting = planned_progress(planned)

    def show_start(self) -> None:
        """Show that Spark starts, which takes seconds."""
        self._show(self._waiting, "starting Spark")

    def run(self, session: SessionHandle) -> DeployResult:
        """Run the containers. Raises TakenOverError, and DeployError where one has failed or the round was
        cancelled."""
        of, planned = self._of, self._planned
        with (
            Listener(session.host(), self._waiting, self._name, self._number, self._began) as listener,
            tokens(of.config) as shared,
        ):
            output = "" if session.keeps_logs else task_output.begin(of.lock.directory)
            # The containers of all other sessions die with this process.
            shipment = self._shipment(listener, shared, output, outlives=session.context is None)
            run = pack(shipment)
            of.lock.check()  # for a container that was started while Spark was
            of.check_holder()
            begun = self._begin(run, session.master)
            job = self._job(session, run)
            try:
                with quiet(session.context):
                    self._wait(job, listener)
                who = of.lock.taken_over_by()
                is_cut = job.alive and (of.cancel.is_set() or bool(who))
                if is_cut:
                    self._interrupt(job, listener)
                reason = job.reason if not is_cut else "taken over" if who else "cancelled"
                containers = outcome(planned, job.reports, reason)
                result = self._result(_with_logs(containers, session, output), session.master)
                self._note(result, is_cut=is_cut or is_superseded(result))
            except BaseException:
                self._stop(job, begun, listener)
                raise
        job.show_end(end_of(result))
        self._show(final_progress(planned, result), "ended")
        if who and (is_cut or result.failed):
            raise taken_over(result, who)
        if is_cut:
            raise DeployError(
                "cancelled; what was committed stays committed, and the next start goes on from there",
                result=result,
            )
        if result.failed:
            raise failed(result)
        return result

    def _shipment(
        self, listener: Listener, shared: Mapping[str, SharedDirectory], output: str, *, outlives: bool
    ) -> Shipment:
        """All that containers need. ``outlives``: they may live longer than this process."""
        lock, planned = self._of.lock, self._planned
        config = without_endpoints(self._of.config)
        names = {name: what for name, (_, what) in load.own_names(config).items()}
        return Shipment(
            config,
            planned.task,
            names,
            planned.model,
            planned.ends,
            shared,
            sources(planned.task, *names.values()),
            listener.address,
            lock.lock_path,
            output,
            leased_as=lock.seen_lease() if outlives else "",
            is_visible=outlives and lock.is_visible,
        )

    def _begin(self, run: RunContainers, master: str) -> Run:
        """Open the generation, and note that the round has begun: what still runs of older starts must stop
        from here on."""
        run.numbers = self._planned.working
        run.generation = self.generation = open_generation(self._planned)
        begun = Run(
            generation=run.generation,
            began_ms=self._began_ms,
            master=master,
            outcome="running",
            backfill=self._of.backfill,
            holders=self._of.lock.holders,
        )
        note(self._planned.history, begun)
        return begun

    def _job(self, session: SessionHandle, run: RunContainers) -> SparkJob:
        title = f"streambench {self._name}, round {self._number}"
        counts_live = self._of.config.boolean(LIVE_COUNTS)
        return SparkJob(session, run, title, work_of(self._waiting), counts_live=counts_live)

    def _result(self, containers: tuple[DeployedContainer, ...], master: str) -> DeployResult:
        return DeployResult(
            job=self._name,
            containers=containers,
            seconds=time.monotonic() - self._began,
            generation=self.generation,
            master=master,
            rounds=1,
        )

    def _note(self, result: DeployResult, *, is_cut: bool) -> None:
        note_run(self._planned.history, result, self._began_ms, self._of.backfill, is_cut=is_cut)

    def _wait(self, job: SparkJob, listener: Listener) -> None:
        """Wait until the Spark job has ended, is cancelled or taken over. Show meanwhile how far it is."""
        job.start()
        shown = looked = 0.0
        while job.wait(_POLL_S) and not self._of.cancel.is_set():
            now = time.monotonic()
            if now - looked >= LOOK_S:
                looked = now
                if self._of.lock.taken_over_by():
                    return
            if now - shown >= _PROGRESS_S:
                shown = now
                progress = listener.read()
                job.show_progress(partial(description_of, progress))
                if self._of.progress is not None:
                    self._of.progress(progress)

    def _stop(self, job: SparkJob, begun: Run, listener: Listener) -> None:
        """Cancel the job of a round that was interrupted, and note how far it came once its containers have
        ended. A second interrupt ends the wait for them, and what they commit from then on is not noted. Nor
        is anything else, where their checkpoints do not answer at once."""
        at_once = True
        try:
            job.cancel()
            seconds = round(time.monotonic() - self._began, 3)
            note(self._planned.history, replace(begun, seconds=seconds, outcome="interrupted"))
            self._interrupt(job, listener)
            at_once = False
        except BaseException:
            job.cancel()
            raise
        finally:
            self._note_interrupted(job, begun.master, at_once=at_once)

    def _note_interrupted(self, job: SparkJob, master: str, *, at_once: bool) -> None:
        """Show and note how far the containers came by their checkpoints. ``at_once``: only where these
        answer within a second."""

        def reached() -> tuple[DeployedContainer, ...]:
            return outcome(self._planned, job.reports, "interrupted")

        try:
            containers = _within(_AT_ONCE_S, reached) if at_once else reached()
        except Exception as error:  # the interrupt itself is what is raised
            log.warning("%s: it is not known how far it came: %s", self._name, described(error))
            return
        result = self.cut = self._result(containers, master)
        self._note(result, is_cut=True)
        with suppress(Exception):
            self._show(stopped_progress(self._planned, result), "stopped")

    def _interrupt(self, job: SparkJob, listener: Listener) -> None:
        """Have Spark cancel the job. Where no claims show which containers are at work, their reports do."""

        def at_work() -> dict[int, str]:
            if self._of.lock.directory is None:
                return reporting_containers(listener)
            return container_holders(self._of.config, self._name)

        interrupt(job, self._name, at_work)

    def _show(self, containers: Sequence[ContainerProgress], stage: Stage) -> None:
        if self._of.progress is not None:
            seconds = time.monotonic() - self._began
            self._of.progress(
                progress_of(containers, seconds=seconds, job=self._name, round=self._number, stage=stage)
            )


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


def interrupt(job: SparkJob, name: str, at_work: Callable[[], dict[int, str]]) -> None:
    """Have Spark cancel a job, and return when its containers write no more: Spark kills them some seconds
    after it has answered. ``at_work``: those that still run, each with its process."""
    job.interrupt(_INTERRUPT_S)
    if left := remaining(at_work, _KILLED_WITHIN_S):
        text = "%s: cancelled, but %s still has container %d, and goes on until Spark kills it"
        log.warning(text, name, left[min(left)], min(left))


def reporting_containers(listener: Listener) -> dict[int, str]:
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
