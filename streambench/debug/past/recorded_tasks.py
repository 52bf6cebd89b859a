"""The tasks of a container at a recorded position: their stores as they were, without running their code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from streambench.container.tasks.task_instance import TaskInstance, TaskPartition
from streambench.debug.history.block import Block
from streambench.debug.history.history import History
from streambench.debug.history.writes import Values
from streambench.store.overlay import OverlayEngine
from streambench.store.task_store import TaskStore
from streambench.store.traced import traced_engine


class RecordedTask:
    """A task at a recorded position. ``task`` and ``context`` are made when they are looked at."""

    __slots__ = ("_copy", "_stores", "name", "subscriptions")

    def __init__(
        self,
        live: TaskInstance,
        stores: Callable[[], Mapping[str, TaskStore]],
        copy: Callable[[str], TaskInstance],
    ) -> None:
        """``stores``: those at the position. ``copy`` returns a task, by its name, that has run up to it."""
        self.name = live.name
        self.subscriptions: tuple[TaskPartition, ...] = live.subscriptions
        self._stores = stores
        self._copy = copy

    @property
    def stores(self) -> Mapping[str, TaskStore]:
        """Its stores."""
        return self._stores()

    @property
    def task(self) -> Any:
        """Its object, with its attributes. Raises what the task raises when it runs again."""
        return self._copy(self.name).task

    @property
    def context(self) -> Any:
        """Its context, with ``context.user``. Raises what the task raises when it runs again."""
        return self._copy(self.name).context


class RecordedTasks:
    """The tasks of a container that stands still, at one recorded position after the other."""

    def __init__(self, history: History, copy: Callable[[str], TaskInstance]) -> None:
        """``copy``: as for RecordedTask."""
        self._history = history
        self._position = self._read_at = self._timed_at = -1
        self._now = 0
        self._block: Block | None = None
        self._values: Values = []
        self._overlays: list[OverlayEngine] = []
        self._stores: dict[str, dict[str, TaskStore]] = {}
        self._tasks = [
            RecordedTask(task, lambda name=task.name: self._stores_of(name), copy)  # type: ignore[misc]
            for task in history.container.tasks
        ]

    def at(self, position: int) -> Sequence[RecordedTask]:
        """The tasks at a position; their stores are brought there when they are looked at."""
        self._position = position
        return self._tasks

    def _stores_of(self, task: str) -> Mapping[str, TaskStore]:
        if not self._stores:
            self._make_stores()
        if self._read_at != self._position:
            self._move()
        return self._stores[task]

    def _move(self) -> None:
        """Bring the values of stores to the position: by the writes between, where its block is the same."""
        position, block = self._position, self._history.block_at(self._position)
        before, self._read_at = self._read_at, -1  # an interrupt leaves none that are half moved
        if block is not self._block or before < 0:
            self._values, self._block = self._history.values_at(position), block
            for overlay, values in zip(self._overlays, self._values, strict=True):
                overlay.reset(values)
        elif position < before:
            block.writes.undo(self._values, position, before)
        else:
            block.writes.redo(self._values, before, position)
        self._read_at = position

    def _make_stores(self) -> None:
        container = self._history.container
        definitions = container.runtime.task_stores.definitions
        tasks = {task.name: task for task in container.tasks}
        made: dict[str, dict[str, TaskStore]] = {name: {} for name in tasks}
        for task, name in self._history.trace.stores:
            definition = definitions[name]
            overlay = OverlayEngine(traced_engine(tasks[task].stores[name].engine).engine, {})
            self._overlays.append(overlay)
            engine = definition.with_expiry(overlay, self._now_ms)
            made[task][name] = TaskStore(
                name, engine, definition.key_serde, definition.value_serde, changelog=False
            )
        self._stores = made

    def _now_ms(self) -> int:
        if self._timed_at != self._position:
            self._now, self._timed_at = self._history.time_at(self._position), self._position
        return self._now
