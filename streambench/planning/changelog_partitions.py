"""Changelog partitions of tasks: assigned once, and remembered by the job's generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from inspect import signature

from streambench.checkpoint.api import CheckpointManager, Generation
from streambench.errors import ConfigError
from streambench.planning.model import JobModel, natural


def changelog_partitions(tasks: Collection[str], former: Mapping[str, int]) -> dict[str, int]:
    """The place of each task: its former one; new tasks come behind all that there have ever been, in natural
    order."""
    first = 1 + max(former.values(), default=-1)
    new = sorted((task for task in tasks if task not in former), key=natural)
    return {task: former[task] for task in tasks if task in former} | {
        task: place for place, task in enumerate(new, start=first)
    }


def takes_marks(checkpoints: CheckpointManager) -> bool:
    """True where a manager marks the checkpoints of backfills. Those of plug-ins need not."""
    parameters = signature(checkpoints.open_generation).parameters.values()
    return any(each.name == "backfill" or each.kind is each.VAR_KEYWORD for each in parameters)


def open_generation(
    checkpoints: CheckpointManager, model: JobModel, *, now_ms: int, backfill: str = ""
) -> Generation:
    """Open the next generation of a job or of a backfill, with this model's assignment and places. Raises
    what the manager raises, and ConfigError where it takes the mark of a backfill and does not keep it."""
    assignment = {each.number: [task.name for task in each.tasks] for each in model.containers}
    places = {task.name: task.number for task in model.tasks}
    of_backfill = {"backfill": backfill} if backfill and takes_marks(checkpoints) else {}
    opened = checkpoints.open_generation(assignment, now_ms=now_ms, places=places, **of_backfill)
    if of_backfill and opened.backfill != backfill:
        kind = type(checkpoints).__qualname__
        raise ConfigError(
            f"{model.name}: {kind}.open_generation takes backfill={backfill!r}, and returned a generation of "
            f"{opened.backfill!r}: have {kind} keep it with the generation, or leave the parameter out"
        )
    return opened
