"""``deploy``: a job as a Spark batch, over everything that has arrived since its last checkpoint.

The driver plans; each container is one row of a DataFrame, hence one Spark task, which runs the same Container as a notebook does, up to
the offsets of the plan, and commits by itself. Only the DataFrame API is used, so that Spark Connect does as well as a classic session. The
driver and the executors must see the same directories (of a ``log`` system, of checkpoints): on several machines that takes a shared file
system.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streambench import load
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.job.failure import Failure
from streambench.model import SystemStreamPartition
from streambench.spark.plan import DeployPlan, make_plan, open_generation, reached, unfinished
from streambench.spark.progress import Listener
from streambench.spark.result import DeployedContainer, DeployError, DeployProgress, DeployResult, failed
from streambench.spark.session import Lease, check_master, lease, require
from streambench.spark.shipment import directories, pack, sources, without_endpoints
from streambench.spark.spark_job import SparkJob
from streambench.spark.worker import Report, Shipment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

OnProgress = Callable[[DeployProgress], object]

_POLL_S = 0.1
_PROGRESS_S = 0.25
_INTERRUPT_S = 15


def deploy(
    config: Config | Mapping[str, Any] | str | Path,
    task: Any = None,
    spark: SparkSession | None = None,
    master: str | None = None,
    *,
    every: float | None = None,
    dry_run: bool = False,
    progress: OnProgress | None = None,
    cancel: threading.Event | None = None,
) -> DeployResult:
    """Run a job on Spark until it has processed what its inputs held when it began.

    ``config``: a Config, a mapping, or the path of a properties file. ``task``: a task class or process function, instead of
    ``task.class``; a class of a notebook, or of a file that the executors lack, is sent along. ``spark``: the session to use, which is left
    as it was; else the active one; else one on ``master`` (``local[*]`` if not given) that is stopped afterwards and takes the keys of the
    configuration under ``spark.``.

    ``every``: do it again, each so many seconds, until Ctrl-C (or ``cancel``), and return the sum. ``dry_run``: only plan; nothing is
    started or written. ``progress`` is called about four times a second on the calling thread. ``cancel``: set it, from another thread, to
    stop.

    Running it again goes on from the checkpoints. A process that dies is started again by Spark and goes on from its container's last
    commit. Raises ConfigError, UnknownStreamError and MissingExtraError before anything is done; DeployTaskError where a task raised and
    DeployError where anything else failed or ``cancel`` was set, both with ``.result``; KeyboardInterrupt at Ctrl-C, after the Spark job is
    cancelled.
    """
    if every is not None and every <= 0:
        raise ConfigError(f"every={every}: give the seconds from one round to the next, or nothing")
    check_master(master)
    config = settled(config)
    if dry_run:
        began = time.monotonic()
        planned = make_plan(config, task)
        return DeployResult(
            job=planned.model.name, containers=planned.containers(), seconds=time.monotonic() - began, dry_run=True, master=master or ""
        )
    require()
    with _Deployment(config, task, spark, master, progress, cancel or threading.Event()) as deployment:
        return deployment.round() if every is None else deployment.rounds(every)


class _Deployment:
    """One call of ``deploy``: its rounds share a session, which is made when there is something to do for the first time."""

    def __init__(
        self,
        config: Config,
        task: Any,
        spark: SparkSession | None,
        master: str | None,
        progress: OnProgress | None,
        cancel: threading.Event,
    ) -> None:
        self._config = config
        self._task = task
        self._spark = spark
        self._master = master
        self._progress = progress
        self._cancel = cancel
        self._lease: Lease | None = None
        self._rounds = 0

    def __enter__(self) -> _Deployment:
        return self

    def __exit__(self, *error: object) -> None:
        if self._lease is not None:
            self._lease.close()

    def rounds(self, every: float) -> DeployResult:
        """Rounds until somebody stops them; their sum. What a round raises ends them, with the sum in it."""
        total: DeployResult | None = None
        try:
            while True:
                began = time.monotonic()
                result = self.round()
                total = total.followed_by(result) if total else result
                if self._cancel.wait(max(0.0, every - (time.monotonic() - began))):
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

    def round(self) -> DeployResult:
        """Plan, run, report."""
        began = time.monotonic()
        planned = make_plan(self._config, self._task)
        if planned.idle:
            return DeployResult(job=planned.model.name, containers=planned.containers(), seconds=time.monotonic() - began)
        leased = self._lease = self._lease or lease(self._spark, self._master, self._config)
        self._rounds += 1
        containers = len(planned.model.containers)
        with Listener(leased.host(), containers, planned.total(), self._rounds) as listener:
            run = pack(self._shipment(planned, listener))
            run.generation = open_generation(planned)  # from here on, what still runs of older starts must stop
            job = SparkJob(leased.spark, run, containers)
            try:
                self._wait(job, listener)
            except BaseException:
                job.interrupt(_INTERRUPT_S)
                raise
        cancelled = job.alive and self._cancel.is_set()
        if cancelled:
            job.interrupt(_INTERRUPT_S)
        result = DeployResult(
            job=planned.model.name, containers=outcome(planned, job.reports, "cancelled" if cancelled else job.reason),
            seconds=time.monotonic() - began, generation=run.generation, master=leased.master, rounds=1,
        )  # fmt: skip
        if cancelled:
            raise DeployError("cancelled; what was committed stays committed, and the next start goes on from there", result=result)
        if result.failed:
            raise failed(result)
        return result

    def _shipment(self, planned: DeployPlan, listener: Listener) -> Shipment:
        config = without_endpoints(self._config)
        names = {name: what for name, (_, what) in load.own_names(config).items()}
        texts = sources(planned.task, *names.values())
        return Shipment(
            config, planned.task, names, planned.model, planned.ends, directories(config), texts, listener.address
        )

    def _wait(self, job: SparkJob, listener: Listener) -> None:
        """Until the Spark job has ended or somebody cancels, and show how far it is meanwhile; at the end a last, true picture."""
        job.start()
        shown = 0.0
        while job.wait(_POLL_S) and not self._cancel.is_set():
            if self._progress is not None and time.monotonic() - shown >= _PROGRESS_S:
                shown = time.monotonic()
                self._progress(listener.read())
        if self._progress is not None:
            self._progress(listener.read())


def settled(config: Config | Mapping[str, Any] | str | Path) -> Config:
    """The configuration, with relative paths that mean the same in every process, whatever its working directory is. What is landed is
    received elsewhere: an executor is no place to listen in."""
    config = Config.of(config)
    if not config.directory.is_absolute():
        config = Config.from_text("", origin=config.origin, directory=config.directory.absolute()).with_values(config)
    landed = [system for system in config.names_below("systems.") if config.text(f"systems.{system}.samza.landing") is not None]
    return config.with_values({f"systems.{system}.samza.landing.receive": "false" for system in landed}) if landed else config


def outcome(planned: DeployPlan, reports: Collection[Report], reason: str) -> tuple[DeployedContainer, ...]:
    """What became of the containers: as they report, and, of those that failed or of which nothing was heard, as their checkpoints say.

    ``reason``: why some may have sent no report."""
    by_number = {report.number: report for report in reports}
    ended = {number for number, report in by_number.items() if report.failure is None}
    stands = reached(planned) if len(ended) < len(planned.model.containers) else {}
    containers = []
    for plan in planned.containers():
        number = plan.number
        report = by_number.get(number, Report(number, 0, "", 0))
        before = {ssp: start for ssp, (start, _) in plan.offsets.items()}
        if number in ended:
            if report.attempt == 0:
                before |= {ssp: start for ssp, (start, _) in report.offsets.items()}
            after: Mapping[SystemStreamPartition, str] = {ssp: end for ssp, (_, end) in report.offsets.items()}
        else:
            after = stands[number]
        failure = report.failure
        if number not in by_number:
            failure = _unheard_of(planned, number, after, reason)
        for warning in report.warnings:
            log.warning("container %d on %s: %s", number, report.host, warning)
        containers.append(
            DeployedContainer(
                number=number, tasks=plan.tasks, offsets={ssp: (start, after.get(ssp, start)) for ssp, start in before.items()},
                messages=report.messages, messages_by_partition=report.messages_by_partition, seconds=report.seconds, failure=failure,
                attempt=report.attempt, host=report.host, process=report.process, passed_over=report.passed_over,
            )
        )  # fmt: skip
    return tuple(containers)


def _unheard_of(planned: DeployPlan, number: int, after: Mapping[SystemStreamPartition, str], reason: str) -> Failure | None:
    """The failure of a container that sent no report; None where its checkpoints say that it has done all it was to do."""
    left = unfinished(planned, after)
    if not left:
        return None
    return Failure(number, "SparkError", f"{reason}; {left[0]} is at {after[left[0]]} of {planned.ends[left[0]]}", "")
