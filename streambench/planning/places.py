"""Whose changelog partition is whose: the task's number among all tasks decides, and it must stay the same from start to start."""

from __future__ import annotations

from streambench.checkpoint.api import CheckpointManager
from streambench.config import Config
from streambench.planning.model import JobModel, natural


def check_places(config: Config, model: JobModel, checkpoints: CheckpointManager) -> None:
    """Raise ConfigError where a task would get the state of another one, because tasks have come or gone before it.

    To be called before a generation is opened for this model."""
    last = checkpoints.read_last()
    if not any(checkpoint.changelogs for checkpoint in last.values()):
        return
    before = checkpoints.last_generation()
    known = {*last, *(task for tasks in (before.assignment.values() if before else ()) for task in tasks)}
    former = sorted(known, key=natural)
    for task in model.tasks:
        here = former[task.number] if task.number < len(former) else None
        if task.name != here and (here is not None or task.name in known):
            raise config.error(
                "task.inputs",
                f"{task.name} would lose its state or get that of another task: state goes by the place among all tasks, which are "
                f"{', '.join(former)} so far, and new ones may only come behind them. Keep these inputs, or give the job a new job.name",
            )
