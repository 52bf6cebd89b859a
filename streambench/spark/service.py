"""A deployment service: rounds of one or more jobs on one session, every few seconds, until it is stopped."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError, described
from streambench.job.running import IfRunning, check_if_running
from streambench.redaction import redacted
from streambench.spark.deployment import check_watching, checked
from streambench.spark.master import check_master
from streambench.spark.plan import DeployPlan
from streambench.spark.result import DeployError, DeployProgress, DeployResult, TakenOverError
from streambench.spark.round import LOOK_S, OnProgress
from streambench.spark.rounds import Deployment
from streambench.spark.session import require
from streambench.spark.shared_session import SharedSession

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger(__name__)

_LONGEST_PAUSE_S = 300.0
# Enough for any pause; 2 to the power of 1,024 is no float any more.
_MOST_DOUBLINGS = 40
_STUCK_S = 120.0
# The packages of Spark's clients.
_OF_SPARK = frozenset({"grpc", "py4j", "pyspark"})
# Of the bound after which a round counts as stuck: how old the reported one may become.
_REPORTED_EACH = 0.05


class BusyContainer(Struct, frozen=True):
    """A container that is at one message for long: since when, and its task, message and line."""

    container: int
    since_ms: int
    at: str


class JobStatus(Struct):
    """The status of one job. ``rounds`` and ``messages`` are sums; ``failures``: how many rounds have failed
    since the last one that ended well, with the ``error`` of the last. ``round_began_ms``: since when it
    runs, None where it waits. ``progress_ms``: the time of its last progress. ``stuck_ms``: the time at which
    it counts as stuck without further progress. ``taken over``: another start of the job has ended it here,
    and ``error`` names that. ``busy``: its containers that take long for one message.
    ``ended_ms`` and ``seconds`` are those of its last round. Times are milliseconds since 1970."""

    job: str
    state: Literal["waiting", "running", "taken over"] = "waiting"
    rounds: int = 0
    messages: int = 0
    failures: int = 0
    error: str | None = None
    round_began_ms: int | None = None
    progress_ms: int | None = None
    stuck_ms: int | None = None
    busy: list[BusyContainer] = []
    ended_ms: int | None = None
    seconds: float | None = None
    next_ms: int | None = None

    @property
    def failed(self) -> str:
        """The failures of its last rounds in words; empty where there are none."""
        if not self.failures:
            return ""
        rounds = "round" if self.failures == 1 else f"{self.failures:,} rounds"
        return f"{self.job}: its last {rounds} failed: {self.error}"


class ServiceStatus(Struct):
    """The status of a service. ``stopping``: it ends when the current round has ended."""

    jobs: list[JobStatus]
    state: Literal["running", "stopping", "stopped"] = "running"
    host: str = ""
    process: int = 0
    began_ms: int = 0

    def problems(self, now_ms: int) -> list[str]:
        """The problems of the service and of its jobs at a moment, in words; none where all is well."""
        found = ["the service has stopped"] if self.state == "stopped" else []
        for each in self.jobs:
            if each.state == "taken over":
                found.append(str(each.error))
            elif each.failed:
                found.append(each.failed)
            if each.stuck_ms is not None and each.progress_ms is not None and now_ms >= each.stuck_ms:
                seconds = (now_ms - each.progress_ms) // 1000
                found.append(f"{each.job}: its round has not gone on for {seconds:,} s{_busy(each, now_ms)}")
        return found


def _busy(job: JobStatus, now_ms: int) -> str:
    """The containers that take long for one message, as they follow a text."""
    said = (
        f"container {each.container} busy {(now_ms - each.since_ms) // 1000:,} s: {each.at}"
        for each in job.busy
    )
    return "".join(f"; {text}" for text in said)


class ServiceWatching(TypedDict, total=False):
    """The ways to watch a service and to stop it."""

    report: Callable[[ServiceStatus], object]
    stop: threading.Event | None
    progress: OnProgress | None
    stuck_after: float | None


def serve(
    jobs: Sequence[Config | Mapping[str, Any] | str | Path],
    *,
    every: float,
    spark: SparkSession | None = None,
    master: str | None = None,
    if_running: IfRunning = "refuse",
    **watching: Unpack[ServiceWatching],
) -> list[DeployResult]:
    """Deploy jobs again and again, each every so many seconds, all on one session, until ``stop`` is set.

    The current round is finished then; Ctrl-C cancels it. A round that fails is tried again after twice the
    pause, then after four times and so on, up to five minutes. Where Spark itself failed, it is tried on a
    new session. (``deploy(every=...)`` ends there.) ``report`` is called with each change of the status. What
    it raises the first time is raised; later it is logged, and the rounds go on. A round counts as stuck that
    shows no progress for ``stuck_after`` seconds. The default is the longest of 120, 5 times ``every``, and 3
    times the last round of the job. The other arguments are those of ``deploy``.

    A job that another start takes over is left to that, and has no more rounds; the others go on. It returns
    when none is left.

    Returns per job the sum of its rounds. Raises ConfigError before anything runs; what is wrong later is a
    failure of that job."""
    if every <= 0:
        raise ConfigError(f"every={every}: give the seconds from one round to the next")
    check_watching("serve", watching, ServiceWatching)
    stuck_after, progress = watching.get("stuck_after"), watching.get("progress")
    if stuck_after is not None and stuck_after <= 0:
        raise ConfigError(f"stuck_after={stuck_after}: give the seconds without progress, or nothing")
    check_master(master)
    check_if_running(if_running)
    configs = [checked(each) for each in jobs]
    require()
    session = SharedSession(spark, master)

    def show(seen: DeployProgress) -> None:
        service.show_progress(seen)
        if progress is not None:
            progress(seen)

    with ExitStack() as stack:
        deployments = [
            stack.enter_context(
                closing(Deployment(each, None, session, if_running, {"progress": show}, goes_on=True))
            )
            for each in configs
        ]
        stack.enter_context(session)
        service = Service(
            deployments, session, every_s=every, stuck_s=stuck_after,
            report=watching.get("report", lambda status: None),
            stop=watching.get("stop") or threading.Event(),
        )  # fmt: skip
        return service.run()


def deploy_all(
    jobs: Sequence[Config | Mapping[str, Any] | str | Path],
    *,
    spark: SparkSession | None = None,
    master: str | None = None,
    if_running: IfRunning = "refuse",
    progress: OnProgress | None = None,
) -> Iterator[DeployResult]:
    """Deploy jobs one after the other on one session. The arguments are those of ``deploy``, and so is what
    it raises: the jobs behind one that fails are not begun."""
    check_master(master)
    check_if_running(if_running)
    configs = [checked(each) for each in jobs]
    require()
    with SharedSession(spark, master) as session:
        for each in configs:
            with closing(Deployment(each, None, session, if_running, {"progress": progress})) as deployment:
                yield deployment.caught_up()


class _Job:
    def __init__(self, deployment: Deployment) -> None:
        """Raises ConfigError where the job has no name or no task."""
        self.deployment = deployment
        self.status = JobStatus(deployment.name)
        self.due = 0.0
        self.total: DeployResult | None = None
        self._planned: DeployPlan | None = None

    def plan(self) -> DeployPlan:
        """The plan of its next round: that of the check, unless it was forgotten."""
        planned, self._planned = self._planned, None
        return planned or self.deployment.plan()

    def forget_plan(self) -> None:
        """Plan the next round when it comes: its inputs have grown meanwhile."""
        self._planned = None

    def check(self) -> None:
        """Plan it, and raise ConfigError where its configuration is wrong. What else is missing may be there
        by its first round."""
        try:
            self._planned = self.deployment.plan()
        except ConfigError:
            raise
        except Exception as error:
            log.warning("%s: %s; it is tried again", self.status.job, redacted(described(error)))


class Service:
    """The rounds of deployments that share a session. ``report`` is called with each change of the status.
    ``stuck_s``: as for ``serve``. ``now``: the clock that the pauses go by, in seconds."""

    def __init__(
        self,
        deployments: Sequence[Deployment],
        session: SharedSession,
        *,
        every_s: float,
        stuck_s: float | None = None,
        report: Callable[[ServiceStatus], object],
        stop: threading.Event,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._jobs = [_Job(each) for each in deployments]
        names = [each.status.job for each in self._jobs]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise ConfigError(
                f"the job {twice} is given twice: give each once, or set job.name", key="job.name"
            )
        self._session = session
        self._every_s = every_s
        self._stuck_s = stuck_s
        self._running: _Job | None = None
        self._seen: object = None
        self._reported = 0.0
        self._report = report
        self._stopping = stop
        self._now = now
        self._is_reported = True
        self.status = ServiceStatus(
            [each.status for each in self._jobs],
            host=socket.gethostname(),
            process=os.getpid(),
            began_ms=_now_ms(),
        )

    def run(self) -> list[DeployResult]:
        """Rounds until ``stop`` is set or Ctrl-C, which cancels the current round; per job the sum of its
        rounds. Raises ConfigError before the first round, and what the first report of the status raises."""
        try:
            for each in self._jobs:
                each.check()
        except KeyboardInterrupt:
            return self._stopped()
        self._report(self.status)
        try:
            while left := self._left():
                job = min(left, key=lambda each: each.due)
                seconds = max(0.0, job.due - self._now())
                looks = any(each.deployment.holds_job for each in left)
                step = min(seconds, LOOK_S) if looks else seconds
                if self._stopping.wait(step):
                    break
                if step == seconds:
                    self._round(job)
        except KeyboardInterrupt:
            log.info("interrupted")
        finally:
            results = self._stopped()
        return results

    def _left(self) -> list[_Job]:
        """The jobs that no other start has taken over."""
        left = []
        for each in self._jobs:
            if each.status.state == "taken over":
                continue
            try:
                each.deployment.check_holder()
            except TakenOverError as error:
                self._leave(each, error)
            else:
                left.append(each)
        return left

    def _leave(self, job: _Job, error: TakenOverError) -> None:
        """Leave a job for good to the start that has taken it over."""
        status = job.status
        status.state, status.error, status.next_ms = "taken over", redacted(described(error)), None
        log.error("%s", status.error)
        if error.result.containers:
            self._add(job, error.result)
        job.deployment.close()
        self._report_status()

    def _stopped(self) -> list[DeployResult]:
        """Report that it has stopped; per job the sum of its rounds."""
        self.status.state = "stopped"
        for each in self._jobs:
            each.status.next_ms = None
        self._report_status()
        return [each.total for each in self._jobs if each.total is not None]

    def show_progress(self, seen: DeployProgress) -> None:
        """Note that the current round goes on, where it does: its state is another than the one before."""
        if self._running is None:
            return
        status, now_ms = self._running.status, _now_ms()
        was_stuck, before = now_ms >= (status.stuck_ms or 0), [each.at for each in status.busy]
        status.busy = [
            BusyContainer(each.number, now_ms - round(each.busy_s * 1000), each.busy)
            for each in seen.each
            if each.busy
        ]
        state = seen.stage, [(each.attempt, each.stage, each.messages, each.left) for each in seen.each]
        goes_on, self._seen = state != self._seen, state
        if goes_on:
            self._put_off(self._running)
        is_news = goes_on or before != [each.at for each in status.busy]
        # Not each time: a report may be a file that is written durably.
        is_due = self._now() - self._reported >= self._bound_s(status) * _REPORTED_EACH
        if (was_stuck and goes_on) or (is_news and is_due):
            self._report_status()

    def _bound_s(self, status: JobStatus) -> float:
        """The seconds without progress after which a round counts as stuck."""
        longest = max(_STUCK_S, 5 * self._every_s, 3 * (status.seconds or 0.0))
        return longest if self._stuck_s is None else self._stuck_s

    def _put_off(self, job: _Job) -> None:
        """Let the round count as stuck only after the whole bound from now on."""
        job.status.progress_ms = _now_ms()
        job.status.stuck_ms = job.status.progress_ms + round(self._bound_s(job.status) * 1000)

    def _round(self, job: _Job) -> None:
        began, status = self._now(), job.status
        status.state, status.next_ms, status.round_began_ms = "running", None, _now_ms()
        self._running, self._seen = job, None
        self._put_off(job)
        self._report_status()
        is_planned, is_last, taken = False, True, None
        try:
            planned = job.plan()
            is_planned, is_last = True, planned.is_last
            if not planned.idle:
                for each in self._jobs:
                    each.forget_plan()
            result = job.deployment.round(planned)
        except TakenOverError as error:
            taken = error
        except Exception as error:
            self._failed(job, error, is_planned=is_planned)
        else:
            self._add(job, result)
            status.failures, status.error = 0, None
        finally:  # a round that Ctrl-C has cancelled has ended, too
            now = self._now()
            self._running = None
            status.state, status.round_began_ms, status.progress_ms = "waiting", None, None
            status.stuck_ms, status.busy = None, []
            status.ended_ms, status.seconds = _now_ms(), round(now - began, 3)
        if taken is not None:
            self._leave(job, taken)
            return
        job.due = began + self._pause_s(status.failures)
        if not is_last and not status.failures:
            job.due = now  # behind those of other jobs that are due
        status.next_ms = _now_ms() + max(0, round((job.due - now) * 1000))
        if self._stopping.is_set():
            self.status.state = "stopping"
        self._report_status()

    def _pause_s(self, failures: int) -> float:
        """Seconds from the begin of a round to the next."""
        if not failures:
            return self._every_s
        longer = self._every_s * 2.0 ** min(failures, _MOST_DOUBLINGS)
        return max(self._every_s, min(longer, _LONGEST_PAUSE_S))

    def _report_status(self) -> None:
        """Report the status. That this fails is logged once, until it succeeds again: the jobs go on."""
        self._reported = self._now()
        try:
            self._report(self.status)
        except Exception as error:
            if self._is_reported:
                log.warning("the status is not reported for now: %s; the jobs go on", described(error))
            self._is_reported = False
        else:
            self._is_reported = True

    def _failed(self, job: _Job, error: Exception, *, is_planned: bool) -> None:
        """Note a failure. ``is_planned``: the round had a plan, and may have used Spark."""
        status = job.status
        status.failures += 1
        status.error = redacted(described(error))
        log.error("%s: %d failed in a row: %s", status.job, status.failures, status.error)
        if isinstance(error, DeployError):
            self._add(job, error.result)
        # All jobs share the session: one gets another only after a failure of Spark itself.
        if is_planned and _is_of_spark(error):
            self._session.close(quickly=True)

    @staticmethod
    def _add(job: _Job, result: DeployResult) -> None:
        job.total = job.total.followed_by(result) if job.total else result
        job.status.rounds += result.rounds
        job.status.messages += result.messages


def _is_of_spark(error: Exception) -> bool:
    """True for a failure of Spark itself. Where its JVM is gone, its client raises any kind of error."""
    if isinstance(error, StreambenchError):
        return isinstance(error, DeployError) and error.is_of_spark
    modules = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_tb(error.__traceback__))
    return isinstance(error, ConnectionError) or any(each.split(".")[0] in _OF_SPARK for each in modules)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
