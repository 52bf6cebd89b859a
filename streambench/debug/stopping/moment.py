"""The moment that a condition looks at."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, Protocol

from msgspec.structs import replace

from streambench.model import IncomingMessageEnvelope
from streambench.store.task_store import TaskStore

if TYPE_CHECKING:
    from streambench.container.tasks.task_instance import TaskPartition
    from streambench.debug.effects.events import Output

NAMES = (
    "envelope", "message", "key", "offset", "partition", "stream", "task", "self", "context", "store",
    "before", "after", "store_name", "output", "error", "position",
)  # fmt: skip
"""The names that an expression may use."""


KIND_OF_NAME: dict[str, Literal["output", "state", "error"]] = {
    "output": "output", "before": "state", "after": "state", "store_name": "state",
    "error": "error",
}  # fmt: skip
"""The names that only one kind of breakpoint has, and the kind."""


class ShownTask(Protocol):
    """A task as it is at the moment. Its object and context may be made when they are looked at."""

    @property
    def name(self) -> str: ...

    @property
    def subscriptions(self) -> tuple[TaskPartition, ...]: ...

    @property
    def stores(self) -> Mapping[str, TaskStore]: ...

    @property
    def task(self) -> Any: ...

    @property
    def context(self) -> Any: ...


class StreamName(str):
    """The name of a stream as ``system.stream``, which equals the stream's name without its system, too."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        return str.__eq__(self, other) is True or self.partition(".")[2] == other

    def __ne__(self, other: object) -> bool:
        return not self == other


class StoreView(Mapping[Any, Any]):
    """A store to look at: a mapping that cannot be changed. Reading counts in no metric."""

    def __init__(self, store: TaskStore, task: str) -> None:
        self._store = store
        self._task = task

    def __getitem__(self, key: Any) -> Any:
        encoded = self._store.encoded_key(key)
        value = self._store.engine.get(encoded)
        if value is None:
            raise NoKeyError(self._store.name, key, self._task)
        return self._store.decoded_value(encoded, value)

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self._store.engine.range(None, None):
            yield self._store.decoded_key(key)

    def __len__(self) -> int:
        return len(self._store.engine)

    def __repr__(self) -> str:
        return f"<store {self._store.name}, {len(self)} keys>"


class NoKeyError(KeyError):
    """A store of a task does not hold a key, which another task may hold."""

    def __init__(self, store: str, key: object, task: str) -> None:
        super().__init__(key)
        self.store, self.key, self.task = store, key, task


class NoStoreError(KeyError):
    """A task has no store of this name."""


class Stores(Mapping[str, Any]):
    """The stores of a task by name. Where there is only one, its values are found by their keys, too."""

    def __repr__(self) -> str:
        return f"<stores {', '.join(self._views) or 'none'}>"

    def __init__(self, stores: Mapping[str, TaskStore], task: str = "") -> None:
        self._views = {name: StoreView(store, task) for name, store in stores.items()}

    def __getitem__(self, name: Any) -> Any:
        if name in self._views:
            return self._views[name]
        if len(self._views) != 1:
            raise NoStoreError(name)
        return next(iter(self._views.values()))[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._views)

    def __len__(self) -> int:
        return len(self._views)


class Moment:
    """Everything that a condition may look at. What does not belong to the moment is None.

    ``envelope``: the message in work, or the last one. ``task``: the name of its task; ``self``: the object
    of that task; ``context``: its context, with ``context.user``. ``store``: the stores of the task, by name
    (see Stores). ``before`` and ``after``: the values of a key that was written, whose ``key`` this is then.
    ``store_name``: the store of that key. ``output``: what was sent. ``error``: what a callback raised.
    ``position``: the number of messages processed, with this one where it is.
    """

    def __init__(
        self,
        position: int,
        envelope: IncomingMessageEnvelope | None = None,
        instance: ShownTask | None = None,
        **seen: Any,
    ) -> None:
        """``seen``: before, after, store_name, output, error; ``key`` where it is not that of the message."""
        self.position = position
        self.envelope = envelope
        self._instance = instance
        self.before: Any = seen.get("before")
        self.after: Any = seen.get("after")
        self.store_name: str | None = seen.get("store_name")
        sent: Output | None = seen.get("output")
        self.output = None if sent is None else replace(sent, stream=StreamName(sent.stream))
        self.error: BaseException | None = seen.get("error")
        self.key: Any = seen.get("key", None if envelope is None else envelope.key)

    @property
    def message(self) -> Any:
        """The message itself."""
        return None if self.envelope is None else self.envelope.message

    @property
    def offset(self) -> str | None:
        """The offset of the message."""
        return None if self.envelope is None else self.envelope.offset

    @property
    def partition(self) -> int | None:
        """The partition of the message."""
        return None if self.envelope is None else self.envelope.ssp.partition

    @property
    def stream(self) -> str | None:
        """The stream of the message, as ``system.stream``; equal to its name without the system. A function
        that looks for it in a set or a dict finds the whole name only."""
        return None if self.envelope is None else StreamName(self.envelope.ssp.system_stream)

    @property
    def task(self) -> str | None:
        """The name of the task."""
        return None if self._instance is None else self._instance.name

    @property
    def self(self) -> Any:
        """The object of the task, with its attributes."""
        return None if self._instance is None else self._instance.task

    @property
    def context(self) -> Any:
        """The context of the task."""
        return None if self._instance is None else self._instance.context

    @cached_property
    def store(self) -> Stores:
        """The stores of the task."""
        return Stores({}) if self._instance is None else Stores(self._instance.stores, self._instance.name)

    @property
    def place(self) -> str:
        """The message as ``ssp@offset``; empty where there is none."""
        return "" if self.envelope is None else f"{self.envelope.ssp}@{self.envelope.offset}"
