"""The observer of a container: named methods for everything that happens in its event loop.

A container that nothing observes calls none of this: callbacks, stores and outputs are wrapped only while an
observer is attached.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from streambench.batch import MessageBatch
from streambench.checkpoint.api import Checkpoint
from streambench.container.trace import Trace
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope

if TYPE_CHECKING:
    from streambench.store.task_store import TaskStore

Given = IncomingMessageEnvelope | MessageBatch | None
"""The argument of a callback: a message, a batch, or None for one without a message."""


class SentOutput(Struct, frozen=True):
    """A message that the outbox took from ``task``.

    ``envelope`` is as the task sent it (of ``send_batch``: with encoded key and message). ``key`` and
    ``message`` are as the system takes them: bytes, or objects where the stream has no serde. ``held``: it
    becomes visible with the next commit only."""

    task: str
    envelope: OutgoingMessageEnvelope
    partition: int
    key: Any
    message: Any
    held: bool


class ContainerObserver:
    """The observer of one container. Override what is needed; each method here does nothing.

    All are called on the thread of the event loop, in the order of events. What a method raises ends the run
    as a failure, so it should not. Commands go to the container by ``post`` and ``pause``. Objects belong to
    the task: an observer that keeps a message or an output that can change keeps a copy.
    """

    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        """A message was chosen, and its task has not got it yet. Return true to hold it: the run returns, and
        the next one begins with this message, without another call of this method."""
        return False

    def ends_batch(self, envelope: IncomingMessageEnvelope) -> object:
        """A message is about to become part of a batch, behind others. Return true to end the batch before
        it: it is chosen later, and shown then. Only where tasks take batches."""
        return False

    def hook_called(self, task: str, hook: str, envelope: IncomingMessageEnvelope | None) -> None:
        """The lifecycle listeners of a task are about to be called: ``before_init``, ``after_process``..."""

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        """A callback of a task is about to be called: ``process``, ``window``, ``init``..."""

    def callback_ended(self, task: str, callback: str, given: Given) -> None:
        """A callback has returned."""

    def callback_raised(self, task: str, callback: str, given: Given, error: BaseException) -> None:
        """A callback has raised. ``failure_ignored`` follows where the container goes on."""

    def failure_ignored(self, task: str, callback: str, given: Given, error: Exception) -> None:
        """An exception of a task was ignored. What its callback collected is dropped; what it wrote to stores
        was taken back before, as writes of its own."""

    def store_written(
        self, task: str, store: TaskStore, key: bytes, before: bytes | None, after: bytes | None
    ) -> None:
        """A key of a store was written. None: it had, or has, no value. ``store`` decodes them."""

    def output_sent(self, output: SentOutput) -> None:
        """The outbox took an output of a task (step 4 of the loop)."""

    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        """Tasks were committed. ``checkpoints``: those written, also of tasks without news but their time of
        windows."""


Observe = Callable[[IncomingMessageEnvelope], object]
"""Called with a chosen message; returns true to hold it."""


class Observation:
    """The observers of one container, shared by all its parts. ``observer``: the one to call; None while
    nothing observes. ``trace``: gets everything in bulk; None for no trace."""

    def __init__(self, observer: ContainerObserver | None = None) -> None:
        self.observers: tuple[ContainerObserver, ...] = () if observer is None else (observer,)
        self.observer = observer
        self.trace: Trace | None = None

    def add(self, observer: ContainerObserver) -> None:
        """Add an observer behind those that are there."""
        self._set((*self.observers, observer))

    def remove(self, observer: ContainerObserver) -> None:
        """Remove an observer; nothing happens where it is not there."""
        self._set(tuple(each for each in self.observers if each is not observer))

    def of(self, *methods: str) -> ContainerObserver | None:
        """The current observers that override one of these methods, as one; None where none does."""
        found = [
            each
            for each in self.observers
            if any(getattr(type(each), name) is not getattr(ContainerObserver, name) for name in methods)
        ]
        return _one(found)

    def _set(self, observers: tuple[ContainerObserver, ...]) -> None:
        self.observers = observers
        self.observer = _one(observers)


def _one(observers: Sequence[ContainerObserver]) -> ContainerObserver | None:
    if not observers:
        return None
    return observers[0] if len(observers) == 1 else _Several(observers)


class _Several(ContainerObserver):
    """Several observers as one, in their order."""

    def __init__(self, observers: Sequence[ContainerObserver]) -> None:
        self._observers = observers

    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        # All of them learn of it, also behind one that holds it.
        return any([each.message_chosen(envelope) for each in self._observers])

    def ends_batch(self, envelope: IncomingMessageEnvelope) -> object:
        return any(each.ends_batch(envelope) for each in self._observers)

    def hook_called(self, task: str, hook: str, envelope: IncomingMessageEnvelope | None) -> None:
        for each in self._observers:
            each.hook_called(task, hook, envelope)

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        for each in self._observers:
            each.callback_begun(task, callback, given)

    def callback_ended(self, task: str, callback: str, given: Given) -> None:
        for each in self._observers:
            each.callback_ended(task, callback, given)

    def callback_raised(self, task: str, callback: str, given: Given, error: BaseException) -> None:
        for each in self._observers:
            each.callback_raised(task, callback, given, error)

    def failure_ignored(self, task: str, callback: str, given: Given, error: Exception) -> None:
        for each in self._observers:
            each.failure_ignored(task, callback, given, error)

    def store_written(
        self, task: str, store: TaskStore, key: bytes, before: bytes | None, after: bytes | None
    ) -> None:
        for each in self._observers:
            each.store_written(task, store, key, before, after)

    def output_sent(self, output: SentOutput) -> None:
        for each in self._observers:
            each.output_sent(output)

    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        for each in self._observers:
            each.commit_made(tasks, checkpoints)
