"""Copies of what a task keeps in memory: its attributes, ``context.user`` and its metrics."""

from __future__ import annotations

import inspect
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from itertools import islice
from types import SimpleNamespace
from typing import Any

from streambench.container.tasks.functions import CALLBACKS, FunctionTask, MadeWithContext, TaskOfFunctions
from streambench.container.tasks.task_handles import Context
from streambench.container.tasks.task_instance import TaskInstance, task_object
from streambench.debug.history.copies import deep_copy, without_collector
from streambench.debug.history.gauge_sources import SourceCheck
from streambench.debug.history.metric_copies import Metric, copied_metrics, metrics_in, uncopied_sources
from streambench.metrics.registry import Gauge

_MUTABLE = (dict, list, set, bytearray)
_MISSING: Any = object()


class TaskMemory:
    """A copy of what one task keeps in memory. ``attributes``: those of its object, ``user``: those of
    ``context.user``. Handles of the task in it are those of the task that it was copied from (``handles``).

    ``uncopied``: the names of attributes that cannot be copied, with the reason. ``uncopied_metrics``: the
    metrics that are not those of the copy, as ``group.name``. ``size``: of what was copied, in bytes,
    roughly, where it was measured. ``slowest``: for how many seconds an attribute was copied when a task was
    given all of it last, and its name."""

    __slots__ = (
        "_metrics_of_uncopied", "attributes", "handles", "metrics", "size", "slowest", "uncopied",
        "uncopied_metrics", "user",
    )  # fmt: skip

    @without_collector
    def __init__(self, task: TaskInstance, *, measure: bool = False) -> None:
        self.handles = handles_of(task)
        memo: dict[int, Any] = {id(each): each for each in self.handles}
        known, ids = len(memo), set(memo)
        self.slowest = 0.0, ""
        self.uncopied: dict[str, str] = {}
        self.attributes = self._copies("", dict(attributes_of(task.task)), memo)
        self.user = self._copies("context.user", user_values(task.context), memo)
        self._metrics_of_uncopied: list[Metric] = []
        for value in self.uncopied_values():
            self._metrics_of_uncopied += metrics_in(value, task.metrics.all().values(), ids)
        memo |= {id(each): each for each in self._metrics_of_uncopied}
        self.metrics = copied_metrics(task.metrics, memo)
        self.uncopied_metrics = self._uncopied(task, memo, ids)
        memo.pop(id(memo), None)  # the originals, which deepcopy keeps alive by it
        self.size = 0 if not measure else 100 + sum(map(_size, islice(memo.values(), known, None)))

    @without_collector
    def give(self, task: TaskInstance) -> None:
        """Give a task copies of all of it, in place of what it has."""
        if "" not in self.user:
            set_user_values(task.context, {})
        memo: dict[int, Any] = {
            id(mine): its for mine, its in zip(self.handles, handles_of(task), strict=True)
        }
        for value in self.uncopied_values():  # also where it is part of another attribute
            memo.setdefault(id(value), value)
        memo |= {id(each): each for each in self._metrics_of_uncopied}
        self.slowest = 0.0, ""
        attributes = self._given(self.attributes, memo, "")
        user = self._given(self.user, memo, "context.user")
        for name, _ in list(attributes_of(task.task)):
            if name not in attributes:
                _delete(task.task, name)
        for name, value in attributes.items():
            set_attribute(task.task, name, value)
        set_user_values(task.context, user)
        task.metrics = task.context.metrics = copied_metrics(self.metrics, memo)

    def uncopied_values(self) -> Iterator[Any]:
        """The attributes that cannot be copied."""
        for name in self.uncopied:
            yield self.attributes.get(name, self.user.get(name.removeprefix("context.user")))

    def _uncopied(self, task: TaskInstance, memo: Mapping[int, Any], handles: Collection[int]) -> set[str]:
        """The metrics whose copy is the original, or may read more than the copy."""
        metrics = task.metrics.all()
        found = {".".join(place) for place, metric in metrics.items() if memo.get(id(metric)) is metric}
        if not any(isinstance(each, Gauge) and each.source is not None for each in metrics.values()):
            return found
        values = {**self.attributes, **self.user}
        # Code may read more than what it has.
        refused = [*self.uncopied, *(name for name, value in values.items() if callable(value))]
        check = SourceCheck(
            lambda value: id(value) in handles or memo.get(id(value), value) is not value,
            {type(task.task), *map(type, memo.values())},
            {name.rpartition(".")[2] for name in refused},
        )
        return found.union(uncopied_sources(task.metrics, check))

    def _copies(self, prefix: str, values: Mapping[str, Any], memo: dict[int, Any]) -> dict[str, Any]:
        copies = {}
        for name, value in values.items():
            known = len(memo)
            try:
                copies[name] = deep_copy(value, memo)
            except Exception as error:
                while len(memo) > known:  # a part of it may be half made
                    memo.popitem()
                copies[name] = value
                memo[id(value)] = value
                self.uncopied[f"{prefix}{name}"] = f"{type(error).__name__}: {error}"
        return copies

    def _given(self, values: Mapping[str, Any], memo: dict[int, Any], prefix: str) -> dict[str, Any]:
        given = {}
        for name, value in values.items():
            began = time.monotonic()
            given[name] = value if f"{prefix}{name}" in self.uncopied else deep_copy(value, memo)
            self.slowest = max(self.slowest, (time.monotonic() - began, f"{prefix}{name}"))
        return given


def _size(value: Any) -> int:
    """The memory of a value without the values in it, in bytes, roughly; arrays know their own."""
    try:
        return 100 + max(sys.getsizeof(value), int(getattr(value, "nbytes", 0)))
    except Exception:
        return 200


def handles_of(task: TaskInstance) -> list[Any]:
    """The objects of a task that are part of its container, not of its memory: always in the same order."""
    return [
        _namespace_of(task.context), task, task.task, task.context, task.context.config, task.collector,
        task.coordinator, task.window_coordinator, task.end_coordinator,
        *(task.stores[name] for name in sorted(task.stores)),
    ]  # fmt: skip


def memory_of(task: TaskInstance) -> dict[str, Any]:
    """Copies of the attributes of a task's object, and of those of ``context.user`` as ``context.user.NAME``;
    the attributes themselves where they cannot be copied."""
    handles = {id(each): each for each in handles_of(task)}
    memory = TaskMemory(task)
    found = memory.attributes | {f"context.user{name}": value for name, value in memory.user.items()}
    return {name: value for name, value in found.items() if id(value) not in handles}


def _namespace_of(context: Context) -> object:
    """The namespace in ``context.user``; the context itself where the task has put something else there."""
    return context.user if isinstance(context.user, SimpleNamespace) else context


def user_values(context: Context) -> dict[str, Any]:
    """The values in ``context.user``, by ``.name``; under no name an object that the task has put in its
    place."""
    user = context.user
    if isinstance(user, SimpleNamespace):
        return {f".{name}": value for name, value in vars(user).items()}
    return {"": user}


def set_user_values(context: Context, values: Mapping[str, Any]) -> None:
    """Give a task what ``user_values`` returned."""
    if "" in values:
        context.user = values[""]
        return
    if not isinstance(context.user, SimpleNamespace):
        context.user = SimpleNamespace()
    vars(context.user).clear()
    vars(context.user).update({name.removeprefix("."): value for name, value in values.items()})


def attributes_of(task: object) -> Iterator[tuple[str, Any]]:
    """The attributes of a task's object, but not the callbacks that were bound to it."""
    for name, value in vars(task).items() if hasattr(task, "__dict__") else ():
        if not (name in CALLBACKS and callable(value)):
            yield name, value
    for kind in type(task).__mro__:
        slots = vars(kind).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            value = getattr(task, name, _MISSING)
            if value is not _MISSING and name not in ("__dict__", "__weakref__"):
                yield name, value


def empty_object(factory: Any, context: Context) -> Any:
    """An object of a task's code without a call of its ``__init__``, which may have effects; except where its
    callbacks are made there."""
    if not isinstance(factory, type):
        return FunctionTask(factory, context)
    if issubclass(factory, MadeWithContext):
        plain = factory.__init__ is TaskOfFunctions.__init__
        return factory(context) if plain else task_object(factory, context.config, context)
    has_callback = hasattr(factory, "process") or hasattr(factory, "process_batch")
    return factory.__new__(factory) if has_callback else task_object(factory, context.config, context)


def shared_by_class(factory: Any) -> list[str]:
    """The names of attributes of a task class that all its objects share and that may change."""
    if not isinstance(factory, type):
        return []
    return sorted(
        name
        for name, value in inspect.getmembers_static(factory)
        if isinstance(value, _MUTABLE) and not name.startswith("__")
    )


def set_attribute(task: object, name: str, value: Any) -> None:
    """Set an attribute of a task's object."""
    if hasattr(task, "__dict__"):
        vars(task)[name] = value
    else:
        object.__setattr__(task, name, value)


def _delete(task: object, name: str) -> None:
    if hasattr(task, "__dict__"):
        vars(task).pop(name, None)
    else:
        object.__delattr__(task, name)
