"""Copies of the metrics of a task. Gauges that are read from the task are read from its copy then."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from functools import partial
from types import BuiltinFunctionType, CellType, FunctionType, ModuleType
from typing import Any

from streambench.metrics.registry import Counter, Gauge, Histogram, MetricsRegistry, Timer

_CONSTANT = (int, float, complex, bool, str, bytes, type(None), type, ModuleType)


def copied_metrics(registry: MetricsRegistry, memo: dict[int, Any]) -> tuple[MetricsRegistry, dict[str, str]]:
    """A copy, and the names of the metrics that cannot be copied, with the reason: they are those of the
    original. ``memo``: the copies of the other memory of the task, by the ids of their originals."""
    made: dict[tuple[str, str], Counter | Gauge | Histogram | Timer] = {}
    uncopied = {}
    for place, metric in registry.all().items():
        copy = made[place] = memo.get(id(metric)) or _copied(metric, memo)
        if copy is metric:
            uncopied[".".join(place)] = "it is part of an attribute that cannot be copied"
        elif isinstance(metric, Gauge) and isinstance(copy, Gauge) and metric.source is not None:
            copy.source = _source_of_copy(metric.source, memo)
            if copy.source is None:
                copy.source = metric.source
                uncopied[".".join(place)] = "its source reads more than the memory of the task"
    return registry.with_all(made), uncopied


def _copied(
    metric: Counter | Gauge | Histogram | Timer, memo: dict[int, Any]
) -> Counter | Gauge | Histogram | Timer:
    if not isinstance(metric, Gauge):
        return deepcopy(metric, memo)
    copy = memo[id(metric)] = Gauge()
    copy.value = metric.value
    return copy


def read_gauges_from(registry: MetricsRegistry, former: object, now: object) -> None:
    """Have gauges that are read from an object be read from another one, where that has what they read."""
    for metric in registry.all().values():
        if isinstance(metric, Gauge) and metric.source is not None:
            metric.source = _source_of_copy(metric.source, _Replaced({id(former): now})) or metric.source


class _Replaced(dict[int, Any]):
    """Copies of some objects, where all others stand for themselves."""


def _source_of_copy(source: Any, memo: Mapping[int, Any]) -> Any:
    """The function that reads from the copies what ``source`` reads from the originals; None where there is
    none."""
    try:
        made = _of_copy(source, memo)
    # Of an empty cell, of a method that is not there, of a function in itself.
    except (LookupError, ValueError, AttributeError, RecursionError):
        return None
    return None if made is source else made


def _of_copy(value: Any, memo: Mapping[int, Any]) -> Any:
    """The copy of a value in a function. Raises LookupError where there is none."""
    if isinstance(value, _CONSTANT):
        return value
    if id(value) in memo:
        return memo[id(value)]
    if isinstance(value, FunctionType):
        return _function_of_copy(value, memo)
    if isinstance(value, partial):
        named = {name: _of_copy(each, memo) for name, each in value.keywords.items()}
        return partial(_of_copy(value.func, memo), *(_of_copy(each, memo) for each in value.args), **named)
    owner = getattr(value, "__self__", None)
    if owner is not None and not isinstance(owner, ModuleType):  # a bound method
        return getattr(_of_copy(owner, memo), value.__name__)
    if isinstance(value, BuiltinFunctionType):
        return value
    if isinstance(memo, _Replaced):
        return value
    raise LookupError(f"no copy of a {type(value).__name__}")


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
