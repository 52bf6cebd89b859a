"""Copies of the metrics of a task. Gauges that are read from the task are read from its copy then."""

from __future__ import annotations

import gc
from collections.abc import Collection, Iterable, Mapping
from copy import deepcopy
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, MethodWrapperType, ModuleType
from typing import Any

from streambench.debug.history.gauge_sources import SourceCheck
from streambench.metrics.registry import Counter, Gauge, Histogram, MetricsRegistry, Timer

Metric = Counter | Gauge | Histogram | Timer

_MOST_SEARCHED = 100_000


def copied_metrics(registry: MetricsRegistry, memo: dict[int, Any]) -> MetricsRegistry:
    """A copy. ``memo``: the copies of the other memory of the task, by the ids of their originals."""
    made = {place: memo.get(id(metric)) or _copied(metric, memo) for place, metric in registry.all().items()}
    for place, metric in registry.all().items():
        copy = made[place]
        if isinstance(copy, Gauge) and isinstance(metric, Gauge) and copy is not metric:
            copy.source = _source_of_copy(metric.source, memo)
    return registry.with_all(made)


def uncopied_sources(registry: MetricsRegistry, check: SourceCheck) -> Iterable[str]:
    """The gauges whose source may read more than the memory of the task, as ``group.name``."""
    for place, metric in registry.all().items():
        if isinstance(metric, Gauge) and metric.source is not None and not check.accepts(metric.source):
            yield ".".join(place)


def metrics_in(value: Any, metrics: Iterable[Metric], known: Collection[int]) -> list[Metric]:
    """The metrics that a value refers to. All of them where it refers to too much to be searched. ``known``:
    the ids of objects that are not searched."""
    found = list(metrics)
    seen, values = {id(value), *known}, [value]
    for each in values:
        for other in _referred(each):
            # What is not tracked, as a number, refers to nothing.
            if gc.is_tracked(other) and id(other) not in seen and not isinstance(other, (type, ModuleType)):
                seen.add(id(other))
                values.append(other)
                if len(values) > _MOST_SEARCHED:
                    return found
    return [each for each in found if id(each) in seen]


def _referred(value: Any) -> list[Any]:
    # Its globals are no part of a function.
    return (
        [value.__closure__, value.__defaults__, value.__kwdefaults__]
        if isinstance(value, FunctionType)
        else gc.get_referents(value)
    )


def _copied(metric: Metric, memo: dict[int, Any]) -> Metric:
    if not isinstance(metric, Gauge):
        return deepcopy(metric, memo)
    copy = memo[id(metric)] = Gauge()
    copy.value = metric.value
    return copy


def read_gauges_from(registry: MetricsRegistry, former: object, now: object) -> None:
    """Have gauges that are read from an object be read from another one, where that has what they read."""
    for metric in registry.all().values():
        if isinstance(metric, Gauge) and metric.source is not None:
            metric.source = _source_of_copy(metric.source, {id(former): now})


def _source_of_copy(source: Any, memo: Mapping[int, Any]) -> Any:
    """The function that reads from the copies what ``source`` reads from the originals; ``source`` where
    there is none."""
    try:
        return _of_copy(source, memo)
    # Of an empty cell, of a method that is not there, of a function in itself.
    except (ValueError, AttributeError, RecursionError):
        return source


def _of_copy(value: Any, memo: Mapping[int, Any]) -> Any:
    """The copy of a value in a function; itself where there is none."""
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, FunctionType):
        return _function_of_copy(value, memo)
    if isinstance(value, partial):
        named = {name: _of_copy(each, memo) for name, each in value.keywords.items()}
        return partial(_of_copy(value.func, memo), *(_of_copy(each, memo) for each in value.args), **named)
    if isinstance(value, (MethodType, BuiltinFunctionType, MethodWrapperType)):
        owner = _of_copy(value.__self__, memo)
        return value if owner is value.__self__ else getattr(owner, value.__name__)
    return value


def _function_of_copy(function: FunctionType, memo: Mapping[int, Any]) -> FunctionType:
    """A function with the copies of all that its closure and its defaults have."""
    cells, defaults, named = function.__closure__, function.__defaults__, function.__kwdefaults__
    if not (cells or defaults or named):
        return function
    made = FunctionType(
        function.__code__,
        function.__globals__,
        function.__name__,
        defaults and tuple(_of_copy(each, memo) for each in defaults),
        cells and tuple(CellType(_of_copy(each.cell_contents, memo)) for each in cells),
    )
    made.__kwdefaults__ = named and {name: _of_copy(each, memo) for name, each in named.items()}
    return made
