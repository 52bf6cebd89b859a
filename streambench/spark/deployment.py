"""``deploy``: a job as a Spark batch, over everything that has arrived since its last checkpoint.

The driver plans. Each container is one row of a DataFrame, hence one Spark task. It runs the same Container
as a notebook does, up to the offsets of the plan, and commits by itself. Only the DataFrame API is used, so
that Spark Connect does as well as a classic session. The driver and the executors must see the same
directories (of a ``log`` system, of checkpoints): on several machines that takes a shared file system.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from msgspec.structs import replace

from streambench import imports as load
from streambench.config import Config
from streambench.container.container import Container
from streambench.counts import sum_by_key
from streambench.errors import ConfigError, described
from streambench.job.failure import Failure
from streambench.job.running import IfRunning, check_if_running, container_holders, remaining
from streambench.model import SystemStreamPartition
from streambench.spark import task_output
from streambench.spark.backfill import Backfill
from streambench.spark.history import Run, note, note_run
from streambench.spark.plan import (
    DeployPlan,
    Offsets,
    count_messages,
    make_plan,
    open_generation,
    reached,
    unfinished,
)
from streambench.spark.progress import Listener
from streambench.spark.progress_view import description_of
from streambench.spark.quiet import quiet
from streambench.spark.result import (
    SPARK_ERROR,
    ContainerProgress,
    DeployedContainer,
    DeployError,
    DeployProgress,
    DeployResult,
    Stage,
    failed,
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
from streambench.spark.sent_captures import landed
from streambench.spark.session import Lease, check_master, check_settings, require
from streambench.spark.shared import SharedDirectory, tokens
from streambench.spark.shared_session import SharedSession
from streambench.spark.shipment import pack, sources, without_effect, without_endpoints
from streambench.spark.spark_job import SparkJob
from streambench.spark.worker import Report, Shipment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

OnProgress = Callable[[DeployProgress], object]

LOOK_S = 1.0
"""Seconds between two looks if another start has taken the job over."""

_POLL_S = 0.1
_PROGRESS_S = 0.25
_INTERRUPT_S = 15
_KILLED_WITHIN_S = 10.0
# A container reports four times a second, and once a second while one message takes it long.
_REPORTS_WITHIN_S = 1.5
_SILENT = Report(-1, 0, "", 0)


class Watching(TypedDict, total=False):
    """The ways to watch a deployment and to stop it."""

    progress: OnProgress | None
    cancel: threading.Event | None


def deploy(
    config: Config | Mapping[str, Any] | str | Path,
    task: Any = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    *,
    every: float | None = None,
    dry_run: bool = False,
    if_running: IfRunning = "refuse",
    **watching: Unpack[Watching],
) -> DeployResult:
    """Run a job on Spark until it has processed what its inputs held when it began.

    ``config``: a Config, a mapping, or the path of a properties file. ``task``: a task class or process
    function, instead of ``task.class``. One of a notebook, or of a file that the executors lack, is shipped
    to them. ``spark``: the session to use, which is left as it was. Else it is the active one, else that of
    ``spark-submit``, else one on ``master`` that is stopped afterwards. Not given, that is ``SPARK_REMOTE``,
    ``spark.master`` of the configuration, or ``local[*]``. A session that is started here takes the keys of
    the configuration under ``spark.``.

    ``every``: do it again, each so many seconds, until Ctrl-C (or ``cancel``), and return the sum. The first
    round that fails ends it and raises; ``serve``, as ``streambench deploy --every`` does, tries it again.
    ``dry_run``: only plan; nothing is started or written. ``progress`` is called about four times a second on
    the calling thread. ``cancel``: set it, from another thread, to stop.

    ``if_running``: what to do where the job is being deployed, or containers of it are running. ``refuse``
    raises a JobRunningError; ``take-over`` ends them at their last commit.

    Running it again goes on from the checkpoints. A process that dies is started again by Spark and goes on
    from its container's last commit. Raises ConfigError, UnknownStreamError and MissingExtraError before
    anything is done. Raises DeployTaskError where a task raised, and TakenOverError where another start has
    taken the job over. Raises DeployError where anything else failed or ``cancel`` was set. All three have
    ``.result``. Raises KeyboardInterrupt at Ctrl-C, after the Spark job is cancelled.
    """
    if every is not None and every <= 0:
        raise ConfigError(f"every={every}: give the seconds from one round to the next, or nothing")
    check_master(master)
    check_if_running(if_running)
    check_watching("deploy", watching, Watching)
    config = checked(config)
    if dry_run:
        return _dry_run(config, task, None, master)
    require()
    session = SharedSession(spark, master)
    deployment = Deployment(config, task, session, if_running, watching, goes_on=every is not None)
    with closing(deployment), session:
        return deployment.caught_up() if every is None else deployment.rounds(every)


def backfill(
    config: Config | Mapping[str, Any] | str | Path,
    range: Backfill,
    task: Any = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    *,
    dry_run: bool = False,
    if_running: IfRunning = "refuse",
    **watching: Unpack[Watching],
) -> DeployResult:
    """Process a range of a job's inputs again on Spark, into outputs beside those of the job.

    State begins empty. The job itself, its checkpoints, changelogs and outputs stay as they are; it may run
    meanwhile. The outputs of the stream ``out`` go to ``out-NAME``, by the name of the range. Repeated under
    the same name, it goes on from its own checkpoints, wherever the range begins. ``if_running`` is about
    the backfill of this name. The other arguments, the result and what it raises are those of ``deploy``.
    """
    check_master(master)
    check_if_running(if_running)
    check_watching("backfill", watching, Watching)
    config = checked(config)
    config = range.config(config, Container(config, task).factory)
    if dry_run:
        return _dry_run(config, task, range, master)
    require()
    session = SharedSession(spark, master)
    with closing(Deployment(config, task, session, if_running, watching, range)) as deployment, session:
        return deployment.caught_up()


def check_watching(function: str, watching: Mapping[str, object], known: type) -> None:
    """Raise TypeError for a keyword that a function does not take."""
    if unknown := sorted(set(watching) - set(known.__annotations__)):
        raise TypeError(f"{function}() got an unexpected keyword argument {unknown[0]!r}")


def _dry_run(config: Config, task: Any, range: Backfill | None, master: str | None) -> DeployResult:
    began = time.monotonic()
    planned = make_plan(config, task, range)
    return DeployResult(
        job=planned.model.name,
        containers=planned.containers(),
        seconds=time.monotonic() - began,
        dry_run=True,
        balance=planned.balance,
        master=master or "",
    )


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

    @property
    def name(self) -> str:
        """The name of the job."""
        return Container(self._config, self._task).name

    def close(self) -> None:
        """Leave the job to others."""
        if self._lock is not None:
            self._lock.release()

    @property
    def holds_job(self) -> bool:
        """True where others see that the job is being deployed."""
        return self._lock is not None and bool(self._lock.lease or self._lock.leased_as)

    def check_holder(self) -> None:
        """Raise TakenOverError where another start of the job has taken it over."""
        if self._lock is not None and (who := self._lock.taken_over_by()):
            raise taken_over(DeployResult(job=self.name, containers=(), seconds=0.0), who)

    def _pause(self, seconds: float) -> bool:
        """Wait so long; True where it is cancelled meanwhile. Raises TakenOverError."""
        until = time.monotonic() + seconds
        while True:
            self.check_holder()
            left = until - time.monotonic()
            if self._cancel.wait(min(max(0.0, left), LOOK_S)):
                return True
            if left <= LOOK_S:
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
            return total
        except DeployError as error:
            total = total.followed_by(error.result) if total else error.result
            if self._cancel.is_set():
                return total
            error.result = total
            raise

    def caught_up(self) -> DeployResult:
        """Rounds until everything is processed that was there when the first one was planned, and their sum.
        It is one, unless ``job.container.max.messages`` bounds them."""
        planned, total = self.plan(), None
        until = planned.last_ends
        while True:
            try:
                result = self.round(planned)
            except DeployError as error:
                if total is not None:
                    error.result = total.followed_by(error.result)
                raise
            total = total.followed_by(result) if total else result
            if planned.is_last:
                return total
            planned = self.plan(until)

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
        leased = self._session.leased(self._config)
        with (
            Listener(leased.host(), waiting, planned.model.name, self._rounds, began) as listener,
            tokens(self._config) as shared,
        ):
            output = "" if leased.keeps_logs else task_output.begin(self._lock.directory)
            # The containers of all other sessions die with this process.
            leased_as = self._lock.seen_lease() if leased.context is None else ""
            run = pack(replace(self._shipment(planned, listener, shared, output), leased_as=leased_as))
            self._lock.check()  # for a container that was started while Spark was
            self.check_holder()
            # From here on, what still runs of older starts must stop.
            run.generation = self._generation = open_generation(planned)
            begun = Run(
                generation=run.generation,
                began_ms=began_ms,
                master=leased.master,
                outcome="running",
                backfill=backfill_name,
            )
            note(planned.history, begun)
            title = f"streambench {planned.model.name}, round {self._rounds}"
            run.numbers = planned.working
            job = SparkJob(leased, run, title, work_of(waiting))
            try:
                with quiet(leased.context):
                    self._wait(job, listener)
            except BaseException:
                self._interrupt(job, planned.model.name, listener)
                self._note_interrupted(planned, job, begun, began)
                raise
            who = self._lock.taken_over_by()
            cancelled = job.alive and (self._cancel.is_set() or bool(who))
            if cancelled:
                self._interrupt(job, planned.model.name, listener)
        result = DeployResult(
            job=planned.model.name,
            containers=_with_logs(
                outcome(planned, job.reports, _reason(job, who, cancelled=cancelled)), leased, output
            ),
            seconds=time.monotonic() - began,
            generation=run.generation,
            master=leased.master,
            rounds=1,
        )
        job.show_end(end_of(result))
        self._show(planned, final_progress(planned, result), began, "ended")
        note_run(planned.history, result, began_ms, backfill_name, is_cut=cancelled)
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
            raise taken_over(DeployResult(job=planned.model.name, containers=(), seconds=0.0))
        if planned.idle and not self._goes_on:
            return planned
        if self._lock is None:
            self._lock = DeploymentLock(self._config, planned.model.name, self._if_running)
        return self.plan(planned.last_ends) if self._lock.acquire() else planned

    def _note_interrupted(self, planned: DeployPlan, job: SparkJob, begun: Run, began: float) -> None:
        """Show and note how far the containers came by their checkpoints, after they have ended."""
        seconds = time.monotonic() - began
        try:
            result = DeployResult(
                job=planned.model.name,
                containers=outcome(planned, job.reports, "interrupted"),
                seconds=seconds,
                generation=begun.generation,
                master=begun.master,
            )
        except Exception as error:  # the interrupt itself is what is raised
            log.warning("%s: it is not known how far it came: %s", planned.model.name, described(error))
            note(planned.history, replace(begun, seconds=round(seconds, 3), outcome="interrupted"))
            return
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
            "" if self._lock is None else self._lock.lease,
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
    containers: tuple[DeployedContainer, ...], leased: Lease, output: str
) -> tuple[DeployedContainer, ...]:
    """The containers with the logs that are left when the session has ended: those of their executors, or
    the files in ``output``."""
    if leased.keeps_logs:
        return containers
    return tuple(replace(each, log=task_output.log_of(output, each.number)) for each in containers)


def checked(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """The configuration as ``portable``. Raises ConfigError where Spark cannot be had with its settings, and
    warns of those without effect."""
    config = portable(config)
    check_settings(config)
    if endpoints := without_effect(config):
        log.warning("%s", endpoints)
    return config


def portable(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """The configuration, with relative paths that mean the same in every process, whatever its working
    directory is. What is landed is received elsewhere: an executor is no place to listen in."""
    config = Config.of(config)
    if not config.directory.is_absolute():
        config = Config.from_text(
            "", origin=config.origin, directory=config.directory.absolute()
        ).with_values(config)
    landed = [
        system
        for system in config.names_below("systems.")
        if config.text(f"systems.{system}.samza.landing") is not None
    ]
    return (
        config.with_values({f"systems.{system}.samza.landing.receive": "false" for system in landed})
        if landed
        else config
    )


def outcome(planned: DeployPlan, reports: Collection[Report], reason: str) -> tuple[DeployedContainer, ...]:
    """Outcome of the containers: as they report, and, of those that failed or of which nothing was heard,
    as their checkpoints say.

    ``reason``: why some may have sent no report."""
    by_number = {report.number: report for report in reports}
    for line in warning_lines(reports):
        log.warning("%s", line)
    ended = {number for number, report in by_number.items() if report.failure is None}
    stands = reached(planned) if len(ended) < len(planned.model.containers) else {}
    containers = []
    for plan in planned.containers():
        number = plan.number
        report = by_number.get(number, _SILENT)
        before = {ssp: start for ssp, (start, _) in plan.offsets.items()}
        if number in ended:
            if report.attempt == 0:
                before |= {ssp: start for ssp, (start, _) in report.offsets.items()}
            after: Mapping[SystemStreamPartition, str] = {
                ssp: end for ssp, (_, end) in report.offsets.items()
            }
        else:
            after = stands[number]
        failure = report.failure
        if failure is not None and report.capture is not None:
            failure = landed(planned.config, planned.model.name, failure, report.capture)
        # A first attempt counts everything itself. A later one counts from where the one before it committed.
        # What a failed one has processed since its last commit does not count: it is processed again.
        counts, left_at = report.messages_by_partition, {}
        if number not in ended:
            counts, left_at = {}, dict(stands[number])
        elif report.attempt:
            left_at = dict(report.starts)
        earlier = count_messages(planned.config, {s: (before[s], left_at[s]) for s in left_at if s in before})
        if number not in by_number:
            failure = _unheard_of(planned, number, after, reason)
        containers.append(
            DeployedContainer(
                number=number,
                tasks=plan.tasks,
                offsets={ssp: (start, after.get(ssp, start)) for ssp, start in before.items()},
                messages=(report.messages if number in ended else 0) + sum(earlier.values()),
                messages_by_partition=dict(sorted(sum_by_key(counts, earlier).items())),
                seconds=report.seconds,
                seconds_by_partition=report.seconds_by_partition,
                failure=failure,
                attempt=report.attempt,
                host=report.host,
                process=report.process,
                log=report.log,
                passed_over=report.passed_over,
                windows_left=report.windows_left,
            )
        )
    return tuple(containers)


def warning_lines(reports: Collection[Report]) -> list[str]:
    """The warnings of containers, one line for all that say the same of different partitions."""
    by_kind: dict[str, list[str]] = {}
    for report in sorted(reports, key=lambda each: each.number):
        for each in report.warnings:
            text = f"container {report.number} on {report.host}: {each.text}"
            by_kind.setdefault(each.kind, []).append(text)
    return [
        texts[0] if len(texts) == 1 else f"{texts[0]} (and {len(texts) - 1:,} more warnings of this kind)"
        for texts in by_kind.values()
    ]


def _unheard_of(
    planned: DeployPlan, number: int, after: Mapping[SystemStreamPartition, str], reason: str
) -> Failure | None:
    """The failure of a container that sent no report; None where its checkpoints say that it has done all it
    was to do."""
    left = unfinished(planned, after)
    if not left:
        return None
    return Failure(
        number, SPARK_ERROR, f"{reason}; {left[0]} is at {after[left[0]]} of {planned.ends[left[0]]}", ""
    )
