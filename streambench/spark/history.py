"""History of deployments: a record where a round begins and one where it ends. A round whose driver was
killed has the first one only."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from streambench.config import Config
from streambench.errors import StreambenchError, StreamSystemError
from streambench.model import SystemStreamPartition
from streambench.planning.plan import job_name
from streambench.redaction import redacted
from streambench.spark.history_records import History, history_of
from streambench.spark.result import SPARK_ERROR, SUPERSEDED, DeployedContainer, DeployResult

log = logging.getLogger(__name__)

_N = TypeVar("_N", int, float)


class ContainerRun(Struct, frozen=True, kw_only=True):
    """One container of a round. ``offsets``: per input partition the first offset that was not processed yet,
    before and after. ``error``: None where it did not fail. ``log``: that of its executor, where it has one.
    ``partition_messages``, ``partition_seconds``: per input partition, how many messages the last attempt
    had, and the seconds in them; empty where that is not known."""

    container: int
    messages: int
    seconds: float
    attempt: int
    offsets: dict[str, tuple[str, str]]
    error: str | None = None
    log: str = ""
    partition_messages: dict[str, int] = {}
    partition_seconds: dict[str, float] = {}


Outcome = Literal["ended", "failed", "interrupted", "running", "did not end"]


class Run(Struct, frozen=True, kw_only=True):
    """One round of a deployment that had something to do. ``began_ms``: milliseconds since 1970.

    ``outcome``: ``failed`` where a container has; ``interrupted`` where it was cancelled or taken over;
    ``did not end`` where its driver was killed. Of such a round it is not known what its containers did.
    ``messages``: those of the commits. ``backfill``: the name of the backfill, where it was one.
    ``holders``: the deployments that held the job when it began."""

    generation: int | None
    began_ms: int
    master: str
    seconds: float = 0.0
    messages: int = 0
    containers: list[ContainerRun] = []
    outcome: Outcome = "ended"
    backfill: str = ""
    holders: list[str] = []

    @property
    def failed(self) -> int:
        """Number of containers that failed."""
        return sum(each.error is not None for each in self.containers)

    @property
    def rate(self) -> float:
        """Messages per second, the start of Spark included."""
        return self.messages / self.seconds if self.seconds else 0.0


def note_run(
    history: History | None, result: DeployResult, began_ms: int, backfill: str = "", *, is_cut: bool = False
) -> None:
    """Append the end of a round to the history, as ``note``. ``is_cut``: it was interrupted."""
    containers = [
        ContainerRun(
            container=each.number,
            messages=each.messages,
            seconds=round(each.seconds, 3),
            attempt=each.attempt,
            offsets={str(ssp): pair for ssp, pair in each.offsets.items()},
            error=_error(each, is_cut=is_cut),
            log=each.log,
            partition_messages=_texts(each.messages_by_partition),
            partition_seconds=_texts(each.seconds_by_partition),
        )
        for each in result.containers
    ]
    run = Run(
        generation=result.generation,
        began_ms=began_ms,
        seconds=round(result.seconds, 3),
        master=result.master,
        messages=result.messages,
        containers=containers,
        outcome="interrupted" if is_cut else "failed" if result.failed else "ended",
        backfill=backfill,
    )
    note(history, run)


def _error(container: DeployedContainer, *, is_cut: bool) -> str | None:
    """The error of a container; none of one that ended because its round was interrupted."""
    failure = container.failure
    if failure is None or (is_cut and failure.kind in (SPARK_ERROR, SUPERSEDED)):
        return None
    return redacted(failure.text)


def _texts(by_partition: Mapping[SystemStreamPartition, _N]) -> dict[str, _N]:
    return {str(ssp): number for ssp, number in by_partition.items()}


def note(history: History | None, run: Run) -> None:
    """Append a record of a round. ``history``: None where the job has none.

    That it cannot be written is a warning: the round itself goes on, or is done."""
    if history is None:
        return
    try:
        history.append(msgspec.json.encode(run))
    except (OSError, StreambenchError) as error:
        why = getattr(error, "strerror", None) or error
        log.warning("%s: this round is not in the history: %s", history, why)


def runs(config: Config, name: str | None = None) -> list[Run]:
    """The rounds of a job's deployments and of its backfills, oldest first. ``name``: the job's, where it is
    known.

    Raises StreamSystemError where the job has no history, and what the checkpoint manager raises."""
    name = name or job_name(config)
    history = history_of(config, name)
    if history is None:
        raise StreamSystemError(
            f"{name} keeps its checkpoints in memory, or in a system without a history of deployments: it is "
            "kept with checkpoints in a log or kafka system, or with task.checkpoint.system=file"
        )
    found = rounds_of(history)
    suffix = f"-{config.required('job.id')}"
    stem = name.removesuffix(suffix)
    for other, beside in history.beside(f"{stem}-", suffix):
        # A job of such a name is another job.
        found += [each for each in rounds_of(beside) if other == f"{stem}-{each.backfill}{suffix}"]
    return sorted(found, key=lambda run: run.began_ms)


def rounds_of(history: History) -> list[Run]:
    """The rounds of one history, oldest first. The end of a round stands in the place of its begin."""
    found = {(run.generation, run.began_ms): run for run in _decoded(history.records())}
    rounds = list(found.values())
    begun = [at for at, run in enumerate(rounds) if run.outcome == "running"]
    if begun and begun[-1] == len(rounds) - 1 and _may_go_on(rounds[-1], history.holders()):
        begun.pop()
    for at in begun:
        rounds[at] = replace(rounds[at], outcome="did not end")
    return rounds


def _may_go_on(run: Run, holders: list[str] | None) -> bool:
    """False where the driver of a round that has begun is known to have ended: another one, or none, holds
    the job by now."""
    if holders is None or not run.holders:
        return holders != []
    return not set(holders).isdisjoint(run.holders)


def _decoded(records: Iterable[bytes]) -> Iterator[Run]:
    for record in records:
        try:
            yield msgspec.json.decode(record, type=Run)
        except msgspec.DecodeError:
            continue  # its writer was killed within the line
