"""The metrics of a job that stands still, as its views show them: those of its position."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from msgspec import Struct

from streambench.counts import counted
from streambench.debug.control.session import Session
from streambench.debug.history.position_metrics import Readings
from streambench.metrics.registry import Counter

_WINDOWS = "window-calls"
_OF_TASK = "task"
"""The group of the metrics that a task has without registering them."""


class Figures(Struct, frozen=True):
    """``counts``: of counters, the sums of all tasks, by ``group.name``; None where they are those of the
    snapshot. ``gauges``: those that tasks have registered. ``to_run``: the number of messages to run again
    for the metrics of tasks, which are left out; 0 where they are there. ``left_out``: the names of these.
    ``latest``: the newest position."""

    counts: Mapping[str, float] | None = None
    gauges: Mapping[str, float] = {}
    to_run: int = 0
    left_out: frozenset[str] = frozenset()
    latest: int = 0

    def shown(self, newest: Mapping[str, float]) -> list[tuple[str, float]]:
        """The figures to show, without counters that are 0. ``newest``: the counts of the snapshot."""
        return [*_counts(newest if self.counts is None else self.counts), *self.gauges.items()]

    def unknown(self, newest: Mapping[str, float]) -> list[tuple[str, float]]:
        """The figures that only the newest position has."""
        if self.counts is None:
            return []
        known = self.counts.keys() | self.left_out
        return [(name, value) for name, value in _counts(newest) if name not in known]

    @property
    def newest_note(self) -> str:
        """The line above those that only the newest position has."""
        return f"not kept in the past: as they are at message {self.latest:,}, the newest"

    @property
    def run_note(self) -> str:
        """The reason why metrics of tasks are left out; empty where they are not."""
        return (
            f"for the metrics of tasks up to {counted(self.to_run, 'message')} "
            f"{'runs' if self.to_run == 1 else 'run'} again, on a copy"
            if self.to_run
            else ""
        )


def figures_of(session: Session) -> Figures:
    """The figures of the position of a session. No task runs for them."""
    readings, to_run = session.gauges_at_hand()
    gauges = dict(_gauges(readings))
    if session.live:
        return Figures(None, gauges, latest=session.latest)
    left_out = _counters(session.container.read_metrics(Counter)) if to_run else {}
    return Figures(_counters(readings), gauges, to_run, frozenset(left_out), session.latest)


def _counters(readings: Readings) -> dict[str, float]:
    """The sums of the counters that tasks have registered, and the number of windows."""
    counts: dict[str, float] = {}
    for task, of_task in readings.items():
        for each in of_task:
            if each.kind == "counter" and (each.group != _OF_TASK if task else each.name == _WINDOWS):
                name = f"{each.group}.{each.name}"
                counts[name] = counts.get(name, 0) + each.value
    return counts


def _counts(counts: Mapping[str, float]) -> list[tuple[str, float]]:
    return [(name, value) for name, value in counts.items() if value and name != "processed"]


def _gauges(readings: Readings) -> Iterator[tuple[str, float]]:
    """The gauges that tasks have registered; the name of the task is in it where there are several tasks."""
    several = len([task for task in readings if task]) > 1
    for task, of_task in readings.items():
        for each in of_task:
            if task and each.kind == "gauge" and each.group != _OF_TASK:
                group = f"{each.group} of {task}" if several else each.group
                yield f"{group}.{each.name}", each.value
