"""Changelog partitions of tasks: assigned once, and remembered by the job's generations."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from streambench.checkpoint.api import CheckpointManager, Generation
from streambench.planning.model import JobModel, natural


def changelog_partitions(tasks: Collection[str], former: Mapping[str, int]) -> dict[str, int]:
    """The place of each task: its former one; new tasks come behind all that there have ever been, in natural
    order."""
    first = 1 + max(former.values(), default=-1)
    new = sorted((task for task in tasks if task not in former), key=natural)
    return {task: former[task] for task in tasks if task in former} | {
        task: place for place, task in enumerate(new, start=first)
    }


def open_generation(
    checkpoints: CheckpointManager, model: JobModel, *, now_ms: int, backfill: str = ""
) -> Generation:
    """Open the next generation of a job or of a backfill, with this model's assignment and places. Raises
    what the manager raises."""
    assignment = {each.number: [task.name for task in each.tasks] for each in model.containers}
    places = {task.name: task.number for task in model.tasks}
    # Managers of plug-ins that know no backfills keep the checkpoints of jobs.
    of_backfill = {"backfill": backfill} if backfill else {}
    return checkpoints.open_generation(assignment, now_ms=now_ms, places=places, **of_backfill)
