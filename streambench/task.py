"""The interfaces that a user implements, and the handles that the container passes to them.

A task class is instantiated once per task, that is (by default) once per partition number of the inputs. All
its methods are called on the container's single thread, one after the other. The objects it is handed must
not be used from other threads.

The classes TaskContext, MessageCollector, TaskCoordinator and KeyValueStore are contracts. The container
brings its own implementations, and the same handles stay valid for the life of the task.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Protocol, Self, overload

from streambench.batch import MessageBatch
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)


class RequestScope(enum.Enum):
    """The tasks that a request to the coordinator concerns (Samza's TaskCoordinator.RequestScope)."""

    CURRENT_TASK = "current task"
    ALL_TASKS_IN_CONTAINER = "all tasks in container"


class MessageCollector(Protocol):
    """Takes the messages that a task sends."""

    @overload
    def send(self, envelope: OutgoingMessageEnvelope) -> None: ...

    @overload
    def send(
        self,
        stream: SystemStream | str,
        message: Any,
        /,
        *,
        key: Any = None,
        partition_key: Any = None,
        partition: int | None = None,
        timestamp: int | None = None,
        headers: Mapping[str, bytes] | None = None,
    ) -> None: ...

    def send(self, envelope: Any, message: Any = None, **fields: Any) -> None:
        """Collect a message: an envelope, or a stream (``"log.late"``) and a message. A stream takes the
        fields of an envelope as keywords: ``key=``, ``partition_key=``, ``partition=``, ``timestamp=``,
        ``headers=``. Beside an envelope nothing may be given.

        What cannot be sent to any system is refused when it is sent, before the system gets it. That is a
        timestamp that is no integer of 64 bits, and a header that does not map a name (str) to bytes.

        It is sent after ``process`` and ``window`` of this iteration have returned, in order. A message that
        one of them changes after this call is sent as changed. Of an object that is still in use, send a
        copy: ``dict(session)``. If one of them raises, none of the iteration's messages is sent. Plain ones
        (bytes, without headers) that go to a ``log`` or ``memory`` system may wait for a few more inputs.
        They wait until a millisecond is over, as seen when one of these is processed. Raises WrongThreadError
        off the container's thread, ConfigError for a name that is no ``system.stream``."""

    def send_batch(
        self,
        system_stream: SystemStream,
        messages: Any,
        keys: Any = None,
        *,
        partition_keys: Any = None,
        partitions: Any = None,
        timestamps: Any = None,
        headers: Any = None,
    ) -> None:
        """Collect many messages for one stream, by the column: what ``send`` is for one message, without a
        call for each.

        A column is an Arrow array, a polars or pandas Series, or a list. ``messages`` may also be a table (of
        Arrow, polars, pandas). With a column ``message``, its columns ``key``, ``timestamp`` and ``headers``
        are taken, too, so that ``batch.to_arrow()`` sends on what was read. Without one, each row is a
        message, with the columns as its fields. ``partitions`` may be a single number. ``timestamps`` are
        whole numbers of milliseconds since 1970 (UTC), or times (Arrow timestamps of any unit, datetimes). A
        time without a time zone is taken to be UTC, and what is finer than a millisecond is cut off.

        Columns of bytes go as they are: they are taken to be encoded, whatever the serde. But
        ``batch.to_arrow()`` notes which serde reads its columns, and a stream with a serde of another kind
        refuses such a table. The job then ends with a SerdeError when it is sent. Text goes as UTF-8 where
        the stream's serde is string or none. On a json stream it is refused, because it is unknown whether it
        is JSON already. Other values are encoded by the stream's serde one by one; so are rows of a table.
        Nulls are None. Where messages go is decided as for ``send``.

        Raises SerdeError for what is no column, where lengths differ, and for timestamps of another kind;
        WrongThreadError off the container's thread.
        """


class TaskCoordinator(Protocol):
    """Takes requests of a task to its container. They take effect after the callback that made them has
    returned."""

    def commit(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        """Commit this task, or all of the container, at the end of this iteration."""

    def shutdown(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        """ALL_TASKS_IN_CONTAINER: stop the container after this iteration. CURRENT_TASK: stop it once every
        task has asked; until then this task goes on receiving messages (Samza's consensus)."""


class KeyValueStore(ABC):
    """The local state of one task: a sorted map that survives restarts through its changelog.

    Keys and values are whatever the store's serdes take. Keys are ordered by their serialised bytes,
    unsigned. None is no valid key (StoreError); to remove a key use ``delete``. A value that ``get`` returned
    must be ``put`` again for a change to last.

    It may be used like a dict: ``store[key]``, ``store[key] = value``, ``del store[key]``, ``key in store``,
    ``for key in store``, ``dict(store)``. It has ``pop``, ``setdefault``, ``update``, ``|=``, ``clear``.
    It has no length: that would take a look at each entry. No entry is the newest, so it has no ``popitem``.
    """

    @abstractmethod
    def get(self, key: Any, default: Any = None) -> Any:
        """The value of a key, ``default`` where it has none."""

    @abstractmethod
    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key. A value of None raises StoreError: use ``delete``."""

    @abstractmethod
    def delete(self, key: Any) -> None:
        """Remove a key; nothing happens where it has no value."""

    @abstractmethod
    def range(self, from_: Any, to: Any) -> Generator[tuple[Any, Any], None, None]:
        """The entries from ``from_`` (inclusive) to ``to`` (exclusive), in key order, as they were when it
        was called.

        The order is that of the serialised keys, compared as unsigned bytes. ``close()`` releases entries
        that are not read to the end (``with contextlib.closing(store.range(a, b)) as entries:``)."""

    @abstractmethod
    def all(self) -> Generator[tuple[Any, Any], None, None]:
        """All entries, as ``range`` gives them."""

    def items(self) -> Generator[tuple[Any, Any], None, None]:
        """All entries, as ``all`` gives them."""
        return self.all()

    def keys(self) -> Generator[Any, None, None]:
        """The keys of all entries, in the order of ``all``."""
        return (key for key, _ in self.all())

    def values(self) -> Generator[Any, None, None]:
        """The values of all entries, in the order of ``all``."""
        return (value for _, value in self.all())

    def __iter__(self) -> Iterator[Any]:
        """As ``keys``."""
        return self.keys()

    @abstractmethod
    def flush(self) -> None:
        """Hand what is cached to the layer below. The container does this with every commit."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds. The container does this when it stops."""

    def __getitem__(self, key: Any) -> Any:
        """The value of a key. Raises KeyError where it has none."""
        value = self.get(key)
        if value is None:
            raise KeyError(key)
        return value

    def __setitem__(self, key: Any, value: Any) -> None:
        """As ``put``."""
        self.put(key, value)

    def __delitem__(self, key: Any) -> None:
        """As ``delete``, of a key that has a value. Raises KeyError where it has none."""
        if key not in self:
            raise KeyError(key)
        self.delete(key)

    def __contains__(self, key: Any) -> bool:
        """True where a key has a value."""
        return self.get(key) is not None

    def pop(self, key: Any, *default: Any) -> Any:
        """Remove a key and return its value, or ``default`` where it has none. Raises KeyError where there is
        no default either."""
        if len(default) > 1:
            raise TypeError(f"pop takes a key and at most one default, not {len(default)}")
        value = self.get(key)
        if value is not None:
            self.delete(key)
            return value
        if not default:
            raise KeyError(key)
        return default[0]

    def setdefault(self, key: Any, default: Any) -> Any:
        """The value of a key, which is put as ``default`` where it has none. A change of what is returned
        needs a ``put``, as after ``get``."""
        value = self.get(key)
        if value is None:
            self.put(key, default)
            return self.get(key, default)
        return value

    def update(
        self, entries: Mapping[Any, Any] | KeyValueStore | Iterable[tuple[Any, Any]] = (), /, **more: Any
    ) -> None:
        """As ``put_all``, with the names of further arguments as keys."""
        self.put_all(entries)
        self.put_all(more)

    def __ior__(self, entries: Mapping[Any, Any] | KeyValueStore | Iterable[tuple[Any, Any]]) -> Self:
        """As ``put_all``."""
        self.put_all(entries)
        return self

    def clear(self) -> None:
        """Delete all entries, one by one: each is a deletion in the changelog."""
        for key in self.keys():
            self.delete(key)

    def get_all(self, keys: Sequence[Any]) -> dict[Any, Any]:
        """The values of several keys; keys without a value are absent."""
        found = ((key, self.get(key)) for key in keys)
        return {key: value for key, value in found if value is not None}

    def put_all(self, entries: Mapping[Any, Any] | KeyValueStore | Iterable[tuple[Any, Any]]) -> None:
        """Put several entries, in order."""
        for key, value in entries.items() if isinstance(entries, (Mapping, KeyValueStore)) else entries:
            self.put(key, value)

    def delete_all(self, keys: Sequence[Any]) -> None:
        """Delete several keys."""
        for key in keys:
            self.delete(key)


class TaskContext(Protocol):
    """The place of a task in its job."""

    @property
    def task_name(self) -> str:
        """For example ``Partition 3``."""

    @property
    def partitions(self) -> Sequence[SystemStreamPartition]:
        """The input partitions of this task, sorted."""

    @property
    def config(self) -> Config:
        """The whole configuration of the job."""

    @property
    def metrics(self) -> MetricsRegistry:
        """The registry for the task's own counters, gauges and timers."""

    @property
    def user(self) -> SimpleNamespace:
        """A namespace of the task's own, for what its functions or listeners share (``context.user.seen = 0``
        in ``init``): Samza's user context. It is empty at every start; what a restart must not lose belongs
        into a store."""

    def store(self, name: str) -> KeyValueStore:
        """The task's own part of the store that the configuration defines as ``stores.<name>.*``; StoreError
        if there is none."""

    def set_starting_offset(self, ssp: SystemStreamPartition, offset: str) -> None:
        """Only in ``init``: begin reading this partition at ``offset`` (the first message to be read),
        whatever the checkpoint says.

        What is no offset, or lies outside of what the partition holds, is an OffsetError of the container's
        start."""


class StreamTask(ABC):
    """A job's code. Override ``process`` or ``process_batch``; the rest is called only where a task has it.

    - ``init(context)`` is called once before the first message.
    - ``window(collector, coordinator)`` is called every ``task.window.ms``, counted on from run to run. With
      ``task.window.at.end=true`` it is also called at the end of a run that has an end.
    - ``end_of_stream(collector, coordinator)`` is called once per start, when all partitions of the task have
      ended, with a commit afterwards. Files that are not followed end, and streams with
      ``samza.bounded=true``.
    - ``close()`` is called when the container stops, also after a failure. It comes after the last commit:
      what it sends or puts into a store is not kept.

    A task needs no base class: anything with one of the two methods will do.

    ``process_batch(batch, collector, coordinator)`` gets several messages of one partition as a
    MessageBatch, and is called in place of ``process`` wherever a task has it. The chooser chooses the
    partition by its next message; the batch is that message and what waits behind it, at most
    ``task.batch.messages`` of them. It ends earlier at the limit of ``run(until=count)``, and where a
    bootstrap stream has caught up. It also ends with the batch of ``task.consumer.batch.size``, where that
    is more than 1. A chooser of one's own may choose the size (``take_batch``); without that the task gets
    batches of one message. Stepping hands over batches of one.

    A batch counts as one message does: windows, outputs, commits, shutdowns and pauses come between batches,
    never within. When the method has returned, the whole batch is processed. If it raises, nothing of it is,
    and the error names its first and last offset. Where ``task.ignored.exceptions`` names the exception, the
    whole batch is skipped, and counted once. Lifecycle listeners get each message of a batch,
    ``before_process`` of all of them before it and ``after_process`` after it. They see what cannot be
    decoded as it was read.

    In place of a class, plain functions of the same names and parameters, without ``self``, make a task in a
    cell of ``%%streamtask``. A single ``process`` also makes one for ``run_job``, ``Container`` and
    ``task.class=file.py:process``. They have no object to keep things in. Each may therefore take one
    parameter more, the task's own ``context``: ``process(envelope, collector, coordinator, context)``,
    ``window(collector, coordinator, context)``, ``close(context)``. It has the task's stores
    (``context.store(name)``), and in ``context.user`` whatever ``init(context)`` leaves there. A global is
    shared by all tasks of a process: the last ``init`` would win.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if callable(getattr(cls, "process_batch", None)) and cls.process is StreamTask.process:
            cls.process = _process_as_batch  # type: ignore[method-assign]

    @abstractmethod
    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        """Handle one message. An exception stops the container, or is ignored (``task.ignored.exceptions``).

        Of an ignored one, what the call sent, asked for and wrote to stores is taken back. Attributes of the
        task stay as they are."""


def _process_as_batch(
    self: Any, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    """Handle one message as a batch of one."""
    self.process_batch(MessageBatch.of([envelope]), collector, coordinator)


class TaskLifecycleListener:
    """Code that runs around the callbacks of every task (Samza 0.7's TaskLifecycleListener).

    Configured by ``task.lifecycle.listeners=a,b`` and ``task.lifecycle.listener.a.class=``, one object per
    name and container. The before- and after-hooks of several listeners run in the listed order.
    ``after_process`` is not called when ``process`` raised.
    """

    def before_init(self, context: TaskContext) -> None: ...

    def after_init(self, context: TaskContext) -> None: ...

    def before_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None: ...

    def after_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None: ...

    def before_close(self, context: TaskContext) -> None: ...

    def after_close(self, context: TaskContext) -> None: ...
