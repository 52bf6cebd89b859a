"""Result, progress and failure of a deployment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from streambench.container.observe.snapshot import lag_between
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.timers import WindowsLeft
from streambench.counts import sum_by_key, sum_known
from streambench.errors import StreambenchError, SupersededError, TaskError
from streambench.job.failure import Failure
from streambench.job.result import Totals
from streambench.model import SystemStreamPartition


class DeployedContainer(Struct, frozen=True, kw_only=True):
    """Result of one container (of a dry run: what it would do).

    ``offsets``: per input partition the first offset that was not processed yet, before and after. Of a
    container that failed, the next start continues at *after*. ``messages``: how many it processed; of one
    that failed, how many of them it committed.
    ``messages_by_partition``: how many of each input partition, empty where that is not known. ``seconds``:
    from its start to its end. Of a dry run they are as earlier rounds have measured, 0 where none has.
    ``seconds_by_partition``: those in the messages of each input partition, of the last attempt. Where Spark
    had to start it more than once (``attempt`` counts from 0), each attempt continues from the last commit of
    the one before. ``messages`` are then those that were committed before, and those of the last attempt.
    ``seconds`` are those of the last attempt. ``error``: what it failed with, None where it did not;
    ``failure`` holds the same in parts. ``log``: the address or the path of its executor's log, where it has
    one. ``passed_over``: what it dropped, dead-lettered or ignored. ``windows_left``: the messages that no
    ``window()`` has followed. ``is_shut_down``: its tasks have shut it down, maybe before the planned ends.
    """

    number: int
    tasks: tuple[str, ...]
    offsets: Mapping[SystemStreamPartition, tuple[str, str]]
    messages: int = 0
    messages_by_partition: Mapping[SystemStreamPartition, int] = {}
    seconds: float = 0.0
    seconds_by_partition: Mapping[SystemStreamPartition, float] = {}
    failure: Failure | None = None
    attempt: int = 0
    host: str = ""
    process: int = 0
    log: str = ""
    passed_over: ErrorCounts = ErrorCounts()
    windows_left: WindowsLeft = WindowsLeft()
    is_shut_down: bool = False

    @property
    def error(self) -> str | None:
        """The error that the container failed with, and where in the task's code; None where it did not
        fail."""
        if self.failure is None:
            return None
        return f"{self.failure.text}\n{self.failure.frames}" if self.failure.frames else self.failure.text

    @property
    def span(self) -> int | None:
        """Number of offsets between before and after; None where offsets are no numbers. (Of a log that is
        not compacted: how many messages.)"""
        return sum_known([lag_between(before, after) for before, after in self.offsets.values()])


class DeployResult(Struct, Totals, frozen=True, kw_only=True):
    """Result of a deployment: all its containers, by number.

    ``generation`` is None where no container was started: in a dry run (``dry_run``), and where there was
    nothing to do. ``balance``: the measure by which tasks were dealt by lag, in words. With ``every``,
    ``rounds`` counts the rounds that had something to do, and the rest is their sum. ``seconds``: all of it,
    the start of Spark included.
    """

    job: str
    containers: tuple[DeployedContainer, ...]
    seconds: float
    generation: int | None = None
    master: str = ""
    rounds: int = 0
    dry_run: bool = False
    balance: str = ""

    @property
    def failed(self) -> tuple[DeployedContainer, ...]:
        """The containers that failed."""
        return tuple(each for each in self.containers if each.failure is not None)

    def followed_by(self, later: DeployResult) -> DeployResult:
        """This one and the next round's as one."""
        former = {each.number: each for each in self.containers}
        containers = tuple(_joined(former.get(each.number), each) for each in later.containers)
        containers = containers or self.containers  # it was over before it had a plan
        return replace(
            later,
            containers=containers,
            seconds=self.seconds + later.seconds,
            generation=later.generation or self.generation,
            master=later.master or self.master,
            rounds=self.rounds + later.rounds,
        )


ContainerStage = Literal["waiting", "running", "done", "failed"]
Stage = Literal["starting Spark", "running", "ended", "stopped"]


class ContainerProgress(Struct, frozen=True, kw_only=True):
    """Progress of one container of a round.

    ``attempt`` counts from 0: Spark has started a later one again. ``messages``: how many were processed, by
    earlier attempts too. ``total``: how many there are, ``left``: how many are left up to the planned ends;
    None where offsets are no numbers. ``partitions``, ``partitions_done``: how many it reads, and how many of
    them it has read to their planned ends. ``silent_s``: seconds since its last report. ``error``: the first
    line of the error that it failed with. ``busy``: the task, message and line that it has been at for
    ``busy_s`` seconds; empty where no message takes long. ``is_shut_down``: its tasks have shut it down."""

    number: int
    stage: ContainerStage = "waiting"
    attempt: int = 0
    messages: int = 0
    total: int | None = None
    left: int | None = None
    partitions: int = 0
    partitions_done: int = 0
    silent_s: float = 0.0
    error: str = ""
    busy: str = ""
    busy_s: float = 0.0
    is_shut_down: bool = False


class DeployProgress(Struct, frozen=True, kw_only=True):
    """Progress of a round of a deployment of ``job``.

    ``containers``: how many there are; ``active`` run now, ``done`` have ended well, ``failed`` have failed,
    ``retried`` were started again by Spark. ``messages``: how many were processed so far; ``total``: how many
    there are, ``left``: how many are left, None where the systems do not know. ``rate``: messages per second,
    over the last seconds. The containers report all this over the network, and it stays at 0 where that way
    is closed. The last progress of a round is that of its result. ``seconds``: since the round began,
    planning and the start of Spark included, as in the result; ``running_s``: since Spark was there.
    ``stage``: it is ``ended`` with its result, and ``stopped`` without one, by Ctrl-C. ``each``: the
    containers, by number."""

    containers: int
    active: int
    done: int
    messages: int
    total: int | None
    seconds: float
    job: str = ""
    round: int = 1
    stage: Stage = "running"
    running_s: float = 0.0
    failed: int = 0
    retried: int = 0
    left: int | None = None
    rate: float = 0.0
    each: tuple[ContainerProgress, ...] = ()

    @property
    def waiting(self) -> int:
        """Number of containers that Spark has not started yet, or that have not reported."""
        return self.containers - self.active - self.done - self.failed

    @property
    def eta_s(self) -> float | None:
        """Seconds to the end if it goes on at this rate; None where that is not known."""
        return self.left / self.rate if self.left is not None and self.rate else None

    @property
    def partitions(self) -> int:
        """Number of partitions that the containers read."""
        return sum(each.partitions for each in self.each)

    @property
    def partitions_done(self) -> int:
        """Number of partitions that were read to their planned ends."""
        return sum(each.partitions_done for each in self.each)


def progress_of(
    containers: Sequence[ContainerProgress],
    *,
    seconds: float,
    round: int,
    job: str = "",
    rate: float = 0.0,
    running_s: float = 0.0,
    stage: Stage = "running",
) -> DeployProgress:
    """The progress of a round, as the sum of that of its containers."""
    stages = [each.stage for each in containers]
    totals, lefts = [each.total for each in containers], [each.left for each in containers]
    return DeployProgress(
        containers=len(containers),
        active=stages.count("running"),
        done=stages.count("done"),
        failed=stages.count("failed"),
        retried=sum(each.attempt > 0 for each in containers),
        messages=sum(each.messages for each in containers),
        total=sum_known(totals),
        left=sum_known(lefts),
        rate=rate,
        seconds=seconds,
        running_s=running_s,
        job=job,
        round=round,
        stage=stage,
        each=tuple(containers),
    )


SPARK_ERROR = "SparkError"
"""The kind of the failure of a container that Spark gave up, or of which it brought no report."""


SUPERSEDED = SupersededError.__name__
"""The kind of the failure of a container that a newer start of the job has ended."""


class DeployError(StreambenchError):
    """A deployment failed, or was cancelled. ``result`` says what each container did all the same; what was
    committed stays committed.

    ``container``, ``task``, ``ssp``, ``offset`` and ``key`` say where the first failure was, None where that
    is not known."""

    has_lines = True

    def __init__(self, message: str, *, result: DeployResult, failure: Failure | None = None) -> None:
        StreambenchError.__init__(self, message)
        self.result = result
        self.container: int | None = failure.container if failure else None
        self.task: Any = failure.task if failure else None
        self.ssp: Any = failure.ssp if failure else None
        self.offset = failure.offset if failure else None
        self.key: Any = failure.key if failure else None

    @property
    def is_of_spark(self) -> bool:
        """True where Spark itself failed, for at least one container."""
        return any(each.failure and each.failure.kind == SPARK_ERROR for each in self.result.containers)


class DeployTaskError(DeployError, TaskError):
    """A deployment failed because a task raised. The text holds the lines of the task's own code that led
    there."""


class TakenOverError(DeployError):
    """Another start of the job has taken it over from this deployment, which has ended with that, and goes on
    no more. The text names it where it is known."""


def taken_over(result: DeployResult, who: str = "") -> TakenOverError:
    """The error for a deployment that another start of its job has ended."""
    return TakenOverError(
        f"{result.job} was taken over by {who or 'a newer start of the job'}; this deployment has ended, and "
        "what was committed stays committed",
        result=result,
    )


def is_superseded(result: DeployResult) -> bool:
    """True where a newer start of the job has ended containers."""
    return any(each.failure and each.failure.kind == SUPERSEDED for each in result.containers)


def failed(result: DeployResult) -> DeployError:
    """The error for a deployment of which containers failed: tasks that raised come before what else went
    wrong."""
    failures = [each.failure for each in result.containers if each.failure is not None]
    if is_superseded(result):
        return taken_over(result)
    first = next((each for each in failures if each.task is not None), failures[0])
    text = f"container {first.container}: {first.text}"
    if first.frames:
        text += f"\n{first.frames}"
    log = next(each.log for each in result.containers if each.failure is first)
    if log:
        text += f"\nlog of its executor: {log}"
    if len(failures) > 1:
        count = f"of {len(result.containers)} containers {len(failures)} failed"
        text += f"\n({count}; .result has the outcome of each)"
    kind = DeployError if first.task is None else DeployTaskError
    return kind(text, result=result, failure=first)


def _joined(former: DeployedContainer | None, later: DeployedContainer) -> DeployedContainer:
    if former is None:
        return later
    offsets = {ssp: (former.offsets.get(ssp, pair)[0], pair[1]) for ssp, pair in later.offsets.items()}
    return replace(
        later,
        offsets=offsets,
        messages=former.messages + later.messages,
        messages_by_partition=_added(former, later),
        seconds=former.seconds + later.seconds,
        seconds_by_partition=sum_by_key(former.seconds_by_partition, later.seconds_by_partition),
        host=later.host or former.host,
        process=later.process or former.process,
        log=later.log or former.log,
        passed_over=former.passed_over + later.passed_over,
        windows_left=former.windows_left.then(later.windows_left),
    )


def _added(former: DeployedContainer, later: DeployedContainer) -> Mapping[SystemStreamPartition, int]:
    """Per partition what both processed; empty where one of them did something and does not know of which."""
    if any(each.messages and not each.messages_by_partition for each in (former, later)):
        return {}
    return sum_by_key(former.messages_by_partition, later.messages_by_partition)
