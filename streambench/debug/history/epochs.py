"""Epochs: the parts of a history between two commits of the same tasks. A restart begins with one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec import Struct

from streambench.container.trace import TraceEvent
from streambench.debug.history.history import History
from streambench.errors import ContainerStateError
from streambench.model import SystemStreamPartition
from streambench.wording import words


class Mark(NamedTuple):
    """A commit in a history, or its begin. ``event``: its number among the events of the history. ``sent``,
    ``written``: the outputs and the writes to stores before it."""

    position: int
    event: int
    sent: int
    written: int


class Epoch(Struct, frozen=True):
    """The part of a history from one commit of some tasks to their next one. ``end``: None where no other
    commit follows. ``events``: everything but commits, of all tasks."""

    begin: Mark
    end: Mark | None
    events: tuple[TraceEvent, ...]

    def has(self, position: int) -> bool:
        """True where a crash after this position leads back to the begin."""
        return self.begin.position <= position and (self.end is None or position < self.end.position)


class TaskGroup(Struct, frozen=True):
    """Tasks that were always committed together, their partitions, and the epochs of them, in order."""

    tasks: tuple[str, ...]
    ssps: frozenset[SystemStreamPartition]
    epochs: tuple[Epoch, ...]


def task_groups(history: History) -> list[TaskGroup]:
    """The tasks of a container by their commits. Raises ContainerStateError where the history does not reach
    back to a commit of each."""
    events = list(history.events(-1))
    begin = () if history.is_dropped else (Mark(0, -1, 0, 0),)
    groups: dict[tuple[Mark, ...], list[str]] = {}
    ssps: dict[str, frozenset[SystemStreamPartition]] = {}
    for task in history.container.tasks:
        ssps[task.name] = frozenset(each.ssp for each in task.subscriptions)
        commits = tuple(
            Mark(event.position, number, event.sent, event.written)
            for number, event in enumerate(events)
            if event.kind == "commit" and task.name in event.tasks
        )
        if not begin and not commits:
            raise ContainerStateError(
                f"the history reaches back to {history.oldest:,}, and the last commit of {task.name} was "
                f"before: {words('commit')} first, or {words('keep more')} keeps more history"
            )
        groups.setdefault((*begin, *commits), []).append(task.name)
    return [
        TaskGroup(tuple(tasks), frozenset().union(*(ssps[task] for task in tasks)), _epochs(marks, events))
        for marks, tasks in groups.items()
    ]


def _epochs(marks: Sequence[Mark], events: Sequence[TraceEvent]) -> tuple[Epoch, ...]:
    found = []
    for begin, end in zip(marks, (*marks[1:], None), strict=True):
        between = events[begin.event + 1 : None if end is None else end.event]
        found.append(Epoch(begin, end, tuple(each for each in between if each.kind != "commit")))
    return tuple(found)
