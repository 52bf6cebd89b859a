"""Exchange of a task's code between two messages."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from streambench.container.tasks.task_instance import TaskInstance, check_task, task_object
from streambench.container.timers import has_window
from streambench.debug.history.attributes import attributes_of, set_attribute, set_user_values, user_values
from streambench.debug.history.metric_copies import read_gauges_from
from streambench.metrics.registry import Gauge

log = logging.getLogger(__name__)


def warn_of_window(job: str, before: Any, now: Any) -> None:
    """Warn where the current code has a ``window()`` and the former code had none."""
    if has_window(now) and not has_window(before):
        log.warning(
            "%s: window() of the new code is called from the next start on: the former code had none", job
        )


def exchange_and_fill(tasks: Sequence[TaskInstance], factory: Any) -> None:
    """Give tasks other code, whose ``init`` is called; attributes that were there stay as they were. Raises
    ConfigError, TaskError."""
    former = [dict(attributes_of(task.task)) for task in tasks]
    users = [user_values(task.context) for task in tasks]
    exchange(tasks, factory, init=True)
    for task, attributes, user in zip(tasks, former, users, strict=True):
        for name, value in attributes.items():
            set_attribute(task.task, name, value)
        set_user_values(task.context, {**user_values(task.context), **user})


def exchange(tasks: Sequence[TaskInstance], factory: Any, *, init: bool = False) -> None:
    """Give tasks other code. Their attributes stay, except with ``init``: then ``init`` of the new code is
    called. Nothing is exchanged where the new code cannot be used. Raises ConfigError, TaskError."""
    check_task(factory)
    made = [task_object(factory, task.context.config, task.context) for task in tasks]
    former = [task.task for task in tasks]
    users = [user_values(task.context) for task in tasks]
    if not init:
        for new, old in zip(made, former, strict=True):
            for name, value in attributes_of(old):
                set_attribute(new, name, value)
    for task, new in zip(tasks, made, strict=True):
        task.bind(new)
    if not init:
        for task, old in zip(tasks, former, strict=True):
            read_gauges_from(task.metrics, old, task.task)
        return
    stores = [(store, store.snapshot()) for task in tasks for store in task.stores.values()]
    undo_metrics = [_undo_of_metrics(task) for task in tasks]
    try:
        for task in tasks:
            set_user_values(task.context, {})
            task.init_again()
    except BaseException:
        for task, old, user in zip(tasks, former, users, strict=True):
            task.bind(old)
            set_user_values(task.context, user)
        for store, snapshot in stores:
            store.restore(snapshot)
        for undo in undo_metrics:
            undo()
        raise


def _undo_of_metrics(task: TaskInstance) -> Callable[[], None]:
    """A function that puts the gauges of a task back, and drops the metrics that are new then."""
    metrics = dict(task.metrics.all())
    gauges = [(each, each.value, each.source) for each in metrics.values() if isinstance(each, Gauge)]

    def undo() -> None:
        task.metrics.keep(metrics)
        for gauge, value, source in gauges:
            gauge.value, gauge.source = value, source

    return undo
