"""What a user of streambench writes, and what it is handed while it runs.

A task class is instantiated once per task, that is (by default) once per partition number of the inputs. All its methods are
called on the container's single thread, one after the other; the objects it is handed must not be used from other threads.

The classes TaskContext, MessageCollector, TaskCoordinator and KeyValueStore are contracts: the container brings its own
implementations, and the same handles stay valid for the life of the task.
"""

from __future__ import annotations

import enum
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from typing import Any, Protocol

from streambench.batch import MessageBatch
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream, SystemStreamPartition


class RequestScope(enum.Enum):
    """Whom a request to the coordinator concerns (Samza's TaskCoordinator.RequestScope)."""

    CURRENT_TASK = "current task"
    ALL_TASKS_IN_CONTAINER = "all tasks in container"


class MessageCollector(Protocol):
    """Takes the messages that a task sends."""

    def send(self, envelope: OutgoingMessageEnvelope) -> None:
        """Collect a message. It is sent after ``process`` and ``window`` of this iteration have returned, in order; if one of
        them raises, none of the iteration's messages is sent. Plain ones (bytes, without headers) that go to a ``log`` or ``memory``
        system may wait for a few more inputs: until a millisecond is over, as seen when one of them is processed. Raises WrongThreadError
        off the container's thread."""
        ...


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
        """Collect many messages for one stream, by the column: what ``send`` is for one message, without a call for each.

        A column is an Arrow array, a polars or pandas Series, or a list. ``messages`` may also be a table (of Arrow, polars, pandas): with
        a column ``message``, its columns ``key``, ``timestamp`` and ``headers`` are taken, too (so that ``batch.to_arrow()`` sends on
        what came in); without one, each row is a message, with the columns as its fields. ``partitions`` may be a single number.
        ``timestamps`` are whole numbers of milliseconds since 1970 (UTC), or times (Arrow timestamps of any unit, datetimes): one without a
        time zone is taken to be UTC, and what is finer than a millisecond is cut off.

        Columns of bytes go as they are: they are taken to be encoded, whatever the serde. But ``batch.to_arrow()`` notes which serde reads
        its columns, and a stream with a serde of another kind refuses such a table: the job ends with a SerdeError when it is sent. Text
        goes as UTF-8 where the stream's serde is string or none; on a json stream it is refused, because nobody can tell whether it is JSON
        already. Other values are encoded by the stream's serde one by one; so are rows of a table. Nulls are None. Where messages go is
        decided as for ``send``.

        Raises SerdeError for what is no column, where lengths differ, and for timestamps of another kind; WrongThreadError off the
        container's thread.
        """
        ...


class TaskCoordinator(Protocol):
    """Takes requests of a task to its container. They take effect after the callback that made them has returned."""

    def commit(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        """Commit this task, or all of the container, at the end of this iteration."""
        ...

    def shutdown(self, scope: RequestScope = RequestScope.CURRENT_TASK) -> None:
        """ALL_TASKS_IN_CONTAINER: stop the container after this iteration. CURRENT_TASK: stop it once every task has asked;
        until then this task goes on receiving messages (Samza's consensus)."""
        ...


class KeyValueStore(ABC):
    """The local state of one task: a sorted map that survives restarts through its changelog.

    Keys and values are whatever the store's serdes take. Keys are ordered by their serialised bytes, unsigned. None is no valid
    key (StoreError); to remove a key use ``delete``. A value that ``get`` returned must be ``put`` again for a change to last.
    """

    @abstractmethod
    def get(self, key: Any) -> Any:
        """The value of a key, None where it has none."""

    @abstractmethod
    def put(self, key: Any, value: Any) -> None:
        """Set the value of a key. A value of None raises StoreError: use ``delete``."""

    @abstractmethod
    def delete(self, key: Any) -> None:
        """Remove a key; nothing happens where it has no value."""

    @abstractmethod
    def range(self, from_: Any, to: Any) -> Generator[tuple[Any, Any], None, None]:
        """The entries from ``from_`` (inclusive) to ``to`` (exclusive), in key order, as they were when it was called.

        The order is that of the serialised keys, compared as unsigned bytes. ``close()`` lets go of entries that nobody wants to read to
        the end (``with contextlib.closing(store.range(a, b)) as entries:``)."""

    @abstractmethod
    def all(self) -> Generator[tuple[Any, Any], None, None]:
        """All entries, as ``range`` gives them."""

    @abstractmethod
    def flush(self) -> None:
        """Hand what is cached to the layer below. The container does this with every commit."""

    @abstractmethod
    def close(self) -> None:
        """Let go of what the store holds. The container does this when it stops."""

    def get_all(self, keys: Sequence[Any]) -> dict[Any, Any]:
        """The values of several keys; keys without a value are absent."""
        found = ((key, self.get(key)) for key in keys)
        return {key: value for key, value in found if value is not None}

    def put_all(self, entries: Mapping[Any, Any] | Iterable[tuple[Any, Any]]) -> None:
        """Put several entries, in order."""
        for key, value in entries.items() if isinstance(entries, Mapping) else entries:
            self.put(key, value)

    def delete_all(self, keys: Sequence[Any]) -> None:
        """Delete several keys."""
        for key in keys:
            self.delete(key)


class TaskContext(Protocol):
    """What a task may know of its place in the job."""

    @property
    def task_name(self) -> str:
        """For example ``Partition 3``."""
        ...

    @property
    def partitions(self) -> Sequence[SystemStreamPartition]:
        """The input partitions of this task, sorted."""
        ...

    @property
    def config(self) -> Config:
        """The whole configuration of the job."""
        ...

    @property
    def metrics(self) -> MetricsRegistry:
        """Where the task makes counters, gauges and timers of its own."""
        ...

    def store(self, name: str) -> KeyValueStore:
        """The task's own part of the store that the configuration defines as ``stores.<name>.*``; StoreError if there is none."""
        ...

    def set_starting_offset(self, ssp: SystemStreamPartition, offset: str) -> None:
        """Only in ``init``: begin reading this partition at ``offset`` (the first message to be read), whatever the checkpoint says.

        What is no offset, or lies outside of what the partition holds, is an OffsetError of the container's start."""
        ...


class StreamTask(ABC):
    """A job's code. Override ``process`` or ``process_batch``; the rest is called only where a task has it.

    ``init(context)`` once before the first message; ``window(collector, coordinator)`` every ``task.window.ms``;
    ``end_of_stream(collector, coordinator)`` once per start, when all partitions of the task have come to their end (files that are not
    followed, streams with ``samza.bounded=true``), with a commit afterwards; ``close()`` when the container stops, also after a failure. It
    comes after the last commit: what it sends or puts into a store is not kept. A task needs no base class: anything with one of the two
    methods will do.

    ``process_batch(batch, collector, coordinator)`` gets a run of messages of one partition as a MessageBatch, and is called in place of
    ``process`` wherever a task has it. The chooser chooses the partition by its next message, as ever; the run is that message and what
    waits behind it, at most ``task.batch.messages`` of them. It ends earlier at the limit of ``run(until=count)``, with the batch of
    ``task.consumer.batch.size`` (where that is more than 1), and where a bootstrap stream has caught up; a chooser of one's own may say
    (``take_run``), and gets runs of one message if it does not. Stepping hands over runs of one.

    A run counts as one message does: windows, outputs, commits, shutdowns and pauses come between runs, never within; when the method has
    returned, all of the run has been processed. If it raises, nothing of the run has: the error names its first and last offset, and
    where ``task.ignored.exceptions`` names the exception, the whole run is skipped, and counted once. Lifecycle listeners are told of
    each message of a run, ``before_process`` of all of them before it and ``after_process`` after it; what cannot be decoded they see as
    it was read.
    """

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if callable(getattr(cls, "process_batch", None)) and cls.process is StreamTask.process:
            cls.process = _process_as_run  # type: ignore[method-assign]

    @abstractmethod
    def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        """Handle one message. An exception stops the container (see ``task.ignored.exceptions``)."""


def _process_as_run(
    self: Any, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    """Handle one message as a run of one."""
    self.process_batch(MessageBatch.of([envelope]), collector, coordinator)


class TaskLifecycleListener:
    """Code that runs around the callbacks of every task (Samza 0.7's TaskLifecycleListener).

    Configured by ``task.lifecycle.listeners=a,b`` and ``task.lifecycle.listener.a.class=``, one object per name and container.
    The before- and after-hooks of several listeners run in the listed order. ``after_process`` is not called when ``process`` raised.
    """

    def before_init(self, context: TaskContext) -> None: ...

    def after_init(self, context: TaskContext) -> None: ...

    def before_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None: ...

    def after_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None: ...

    def before_close(self, context: TaskContext) -> None: ...

    def after_close(self, context: TaskContext) -> None: ...
