"""Validation shared by all checkpoint managers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from streambench.checkpoint.api import Generation
from streambench.clock import as_text
from streambench.errors import CheckpointError, ConfigError, FencedError, ReplacedError, SupersededError


def checked_assignment(assignment: Mapping[int, Sequence[str]]) -> dict[int, tuple[str, ...]]:
    """A copy, by container. Raises CheckpointError where a task is in two places."""
    copy = {container: tuple(assignment[container]) for container in sorted(assignment)}
    seen: dict[str, int] = {}
    for container, tasks in copy.items():
        for task in tasks:
            if task in seen:
                raise CheckpointError(
                    f"task '{task}' is assigned twice (containers {seen[task]} and {container}); each task "
                    "has one place"
                )
            seen[task] = container
    return copy


def merged_places(job: str, present: Mapping[str, int], given: Mapping[str, int] | None) -> dict[str, int]:
    """The places of all tasks. Raises FencedError where a task would move, or would come to where another one
    is."""
    merged = {**present, **(given or {})}
    if any(merged[task] != place for task, place in present.items()) or len(set(merged.values())) < len(
        merged
    ):
        raise FencedError(
            f"job {job}: another start of the job gave tasks their places in the changelogs while this one "
            "was planned; start again"
        )
    return merged


def check_backfill(job: str, last: Generation | None, backfill: str) -> None:
    """Raise ConfigError where the checkpoints under the name of a job are those of another backfill, or of
    one and none is meant. Older versions have not marked those of backfills: any backfill may take them here.
    """
    there = "" if last is None else last.backfill
    if there in ("", backfill):
        return
    if backfill:
        raise ConfigError(
            f"the backfill {backfill} would be {job}, which is the backfill {there} already: give it another "
            "name"
        )
    raise ConfigError(
        f"job.name: {job} is the backfill {there}: its checkpoints are not those of a job of this name. Give "
        "the job another job.name or job.id",
        key="job.name",
    )


def check_claim(job: str, last: Generation | None, generation: int, container: int) -> None:
    """Raise FencedError where the generation is not the last one any more, CheckpointError where there is no
    such container."""
    if last is None or generation > last.number or generation < 1:
        there = f"the last one is {last.number}" if last else "there is none yet"
        raise CheckpointError(
            f"job {job}: generation {generation} was never opened ({there}); open one before claiming a "
            "container"
        )
    if generation < last.number:
        raise superseded(job, container, last.number)
    if container not in last.assignment:
        there = ", ".join(map(str, last.assignment)) or "none at all"
        raise CheckpointError(
            f"job {job}: generation {generation} has no container {container}; it has {there}"
        )


def check_tasks(job: str, container: int, assigned: Iterable[str], given: Iterable[str]) -> None:
    """Raise CheckpointError where a container would write the checkpoint of a task that it does not have."""
    foreign = sorted(set(given).difference(assigned))
    if foreign:
        raise CheckpointError(
            f"job {job}: container {container} does not have the task '{foreign[0]}'; it cannot write its "
            "checkpoint"
        )


def check_rewind(job: str, last: Generation | None, present: Iterable[str], given: Iterable[str]) -> None:
    """Raise CheckpointError where a task is unknown. A job that has never been started has no tasks yet, and
    takes any."""
    if last is None or not last.assignment:
        return
    known = {task for tasks in last.assignment.values() for task in tasks}.union(present)
    unknown = sorted(set(given) - known)
    if unknown:
        raise CheckpointError(f"job {job} has no task '{unknown[0]}'; it has {', '.join(sorted(known))}")


def superseded(job: str, container: int, newer: int, *, who: str = "") -> SupersededError:
    """The error for a container of an older generation."""
    return SupersededError(
        f"job {job}, container {container}: a newer start of the job{who} has taken over (generation "
        f"{newer}); this container must stop"
    )


def replaced(job: str, container: int, *, who: str = "") -> ReplacedError:
    """The error for a holder whose container another process has claimed."""
    return ReplacedError(
        f"job {job}, container {container}: the container was started again{who}, and goes on there; this "
        "one must stop"
    )


def unclaimed(job: str) -> CheckpointError:
    """The error for a write without a claim."""
    return CheckpointError(
        f"job {job}: no container is claimed here (or a write failed since); claim one before writing "
        "checkpoints"
    )


def moment(time_ms: int) -> str:
    """A time as text: UTC, to the second."""
    return as_text(time_ms, "seconds").replace("T", " ").replace("+00:00", " UTC")
