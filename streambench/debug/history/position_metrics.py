"""The metrics of a container at a former position: those that follow from what the history has."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from streambench.container.observe.metrics import (
    flat_metrics,
    reading_of_partition,
    readings_of_messages,
    readings_of_task,
)
from streambench.debug.history.history import History
from streambench.metrics.registry import MetricsRegistry, Reading, flat
from streambench.model import SystemStreamPartition

_MOST_NAMED = 8

Offsets = Mapping[str, Mapping[SystemStreamPartition, str]]
Readings = Mapping[str, Sequence[Reading]]


class Metrics(Mapping[str, float]):
    """The metrics at a position, by the names of ``JobRun.metrics``: those of the container as
    ``group.name``, those of a task with its name before.

    ``not_kept``: the names of those that are known at the newest position only. A look-up of one of these
    raises KeyError, too."""

    def __init__(self, position: int, readings: Readings, newest: Iterable[str] = ()) -> None:
        """``readings``: by the task. ``newest``: the names of those of the newest position, in the past."""
        self.position = position
        self._values = flat_metrics(position, readings)
        self.not_kept = tuple(name for name in newest if name not in self._values)

    def __getitem__(self, name: str) -> float:
        if name in self.not_kept:
            raise KeyError(f"{name} is not kept in the past: it is known at the newest position only")
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        lines = [f"{name} = {value:,.15g}" for name, value in self._values.items()]
        if self.not_kept:
            lines.append(f"known at the newest position only: {listed(self.not_kept)}")
        return "\n".join(lines)


def listed(names: Sequence[str]) -> str:
    """The first of these names of metrics; of histograms and timers the name alone, without its figures."""
    whole = [name for name in names if name.rpartition(".")[0] not in names]
    return ", ".join(whole[:_MOST_NAMED]) + (", ..." if len(whole) > _MOST_NAMED else "")


def readings_at(history: History, position: int, offsets: Offsets, own: Readings) -> dict[str, list[Reading]]:
    """The metrics at a position by the task, those of the container under no name. ``offsets``: those of the
    tasks there; ``own``: the metrics that tasks have registered."""
    tasks = history.container.tasks
    chosen = dict(zip(history.inputs.ssps, history.numbers_at(position), strict=True))
    of_container = [
        *readings_of_messages(tasks, position, chosen),
        Reading("consumers", "chose-object", "counter", position),
        *(reading_of_partition(*each) for each in chosen.items()),
    ]
    return {
        "": of_container,
        **{
            task.name: [*readings_of_task(task, chosen, offsets[task.name]), *own.get(task.name, ())]
            for task in tasks
        },
    }


def kept_readings(registry: MetricsRegistry, uncopied: Collection[str]) -> Iterator[Reading]:
    """The readings of a copy of a task's metrics, without those that are the task's own (``uncopied``). Of
    timers only the counts: calls that run again take other times."""
    for each in registry.readings():
        if f"{each.group}.{each.name}" in uncopied:
            continue
        if each.kind == "timer" and each.spread is not None:
            yield Reading(each.group, f"{each.name}.count", "counter", each.spread.count, each.labels)
        else:
            yield each


def has_own(history: History, position: int) -> bool:
    """True where a task has registered metrics, up to a position or later."""
    registries = [task.metrics for task in history.container.tasks]
    registries += [each.metrics for each in history.block_at(position).memory.values()]
    return any(each.all() for each in registries)


def windows_at(history: History, position: int) -> Reading:
    """The number of times that windows were due up to a position."""
    later = sum(each.kind == "window" for each in history.events(position))
    calls = history.container.metrics.counter("window-calls", "container").count
    return Reading("container", "window-calls", "counter", calls - later)


def names_of_newest(history: History, newest: Readings) -> list[str]:
    """The names of the metrics of the newest position, without those of tasks that can be copied. Where
    these are not in the past, they were registered later."""
    uncopied = {name: memory.uncopied_metrics for name, memory in history.blocks[-1].memory.items()}
    kept = {
        f"{task.name}.{name}"
        for task in history.container.tasks
        for name in flat(list(kept_readings(task.metrics, uncopied[task.name])))
    }
    return [name for name in flat_metrics(history.latest, newest) if name not in kept]
