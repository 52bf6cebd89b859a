"""The metrics of a container at a former position: those that follow from what the history has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from streambench.container.observe.metrics import (
    flat_metrics,
    reading_of_partition,
    readings_of_messages,
    readings_of_task,
)
from streambench.debug.history.attributes import TaskMemory
from streambench.debug.history.history import History
from streambench.debug.message_text import figure_text
from streambench.metrics.registry import Gauge, MetricsRegistry, Reading, flat
from streambench.model import SystemStreamPartition

DIGITS = 15
"""Those of a figure where there is room for it."""

_MOST_NAMED = 8
_FIGURES = (".count", ".p50", ".p99", ".max")

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
        try:
            return self._values[name]
        except KeyError:
            if name not in self.not_kept:
                raise
            said = f"{name} is not kept in the past: it is known at the newest position only"
            raise KeyError(said) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __repr__(self) -> str:
        lines = [f"{name} = {figure_text(value, DIGITS)}" for name, value in self._values.items()]
        if self.not_kept:
            lines.append(f"known at the newest position only: {listed(self.not_kept)}")
        return "\n".join(lines)


def listed(names: Sequence[str]) -> str:
    """The first of these names of metrics; of histograms and timers the name alone, without its figures."""
    known = set(names)
    distributions = {name.removesuffix(".p99") for name in names if name.endswith(".p99")} & known
    whole = [
        name
        for name in names
        if not (name.endswith(_FIGURES) and name.rpartition(".")[0] in distributions)
    ]
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


def kept_readings(
    registry: MetricsRegistry, memory: TaskMemory, kinds: tuple[type, ...]
) -> Iterator[Reading]:
    """The readings of a copy of a task's metrics of these classes, without those that are not its own.
    ``memory``: that of the task where it began. Of timers only the counts: calls that run again take other
    times."""
    kept = kept_names(registry, memory)
    metrics = {
        place: metric
        for place, metric in registry.all().items()
        if isinstance(metric, kinds) and ".".join(place) in kept
    }
    for each in registry.with_all(metrics).readings():
        if each.kind == "timer" and each.spread is not None:
            yield Reading(each.group, f"{each.name}.count", "counter", each.spread.count, each.labels)
        else:
            yield each


def kept_names(registry: MetricsRegistry, memory: TaskMemory) -> set[str]:
    """The metrics that a copy has, as ``group.name``."""
    known = memory.metrics.all()
    names = {
        ".".join(place)
        for place, metric in registry.all().items()
        # What a source reads that was given later is not known.
        if _code_of_source(metric) in (None, _code_of_source(known.get(place)))
    }
    return names - memory.uncopied_metrics


def _code_of_source(metric: object) -> object:
    """The code that a gauge is read by, or its class; None where it is set."""
    source = metric.source if isinstance(metric, Gauge) else None
    return None if source is None else getattr(source, "__code__", type(source))


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
    memory = history.blocks[-1].memory
    kept = {task.name: kept_names(task.metrics, memory[task.name]) for task in history.container.tasks}
    names = []
    for task, of_task in newest.items():
        for each in of_task:
            name = f"{each.group}.{each.name}"
            if name not in kept.get(task, ()):
                known = ""
            elif each.kind == "timer":
                known = f"{name}.count"
            else:
                continue
            names += [f"{task}.{other}" if task else other for other in flat([each]) if other != known]
    return names


