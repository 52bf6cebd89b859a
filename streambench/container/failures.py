"""The failure policy: ignored exceptions, the undoing of a failed callback, and errors with their place."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeGuard

from streambench.batch import MessageBatch, place_of
from streambench.config import Config
from streambench.container.observer import Given, Observation
from streambench.container.outputs.collected import Collected, collected_before
from streambench.container.outputs.dead_letters import (
    DeadLetters,
    ErrorCounts,
    IgnoredFailure,
    is_dead_letter,
)
from streambench.container.tasks.task_handles import Coordinator
from streambench.container.tasks.task_instance import TaskInstance, TaskPartition, is_ignored
from streambench.errors import (
    ConfigError,
    MessageTooLargeError,
    SerdeError,
    StreambenchError,
    class_name,
    described,
    shortened,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.user_code import user_line

if TYPE_CHECKING:
    from streambench.container.inputs.partition_buffer import PartitionBuffer

log = logging.getLogger(__name__)

Unsent = SerdeError | ConfigError | MessageTooLargeError

IGNORED = "task.ignored.exceptions"


class Failures:
    """Decides, as ``task.ignored.exceptions`` says, whether an exception of a task ends the container.

    One that does not is counted under its class. What its callback sent, asked for and wrote to stores is
    taken back; attributes of the task are not. The message may go to the dead-letter stream
    (``task.ignored.exceptions.dead.letter``).

    ``ignored``: how many were ignored. ``of_window``: the index in ``collected`` from which on the last
    window() has sent, and what stood there first.
    """

    def __init__(
        self,
        config: Config,
        tasks: Sequence[TaskInstance],
        collected: Collected,
        dead_letters: DeadLetters,
        metrics: MetricsRegistry,
        observation: Observation | None = None,
    ) -> None:
        self.ignored = 0
        self.of_window: tuple[int, object] = (0, None)
        self._names = frozenset(config.names(IGNORED))
        self._tasks = {task.name: task for task in tasks}
        self._collected = collected
        self._dead_letters = dead_letters
        self._metrics = metrics
        self._observation = observation or Observation()
        self.original: Callable[[IncomingMessageEnvelope], IncomingMessageEnvelope] = lambda envelope: (
            envelope
        )
        """A message that is being processed, as it was read."""
        self._kinds: dict[str, IgnoredFailure] = {}
        self._counts: dict[str, int] = {}

    @property
    def counts(self) -> ErrorCounts:
        """Ignored failures so far, by class of the exception, in the order in which they were first seen."""
        kinds = tuple(each.times(self._counts[kind]) for kind, each in self._kinds.items())
        return ErrorCounts(ignored=self.ignored, kinds=kinds)

    def begin(self, task: TaskInstance) -> None:
        """Note that another callback of a task begins: if it fails, stores are restored to their present
        state. Not needed before ``process``, whose input shows it."""
        if self._names:
            for store in task.stores.values():
                store.begin()

    def at_message(
        self, error: BaseException, coordinator: Coordinator, envelope: IncomingMessageEnvelope
    ) -> None:
        """Ignore what ``process`` raised, or raise TaskError."""
        task = self._tasks[coordinator.task_name]
        if not self._is_ignored(error):
            raise task.failure(error, "", envelope) from error
        mark = collected_before(self._collected, envelope, task.name)
        self._ignore(error, coordinator, mark, "process", envelope.ssp, envelope.offset, envelope.key)
        self._show_ignored(task, "process", envelope, error)
        if self._dead_letters.keeps_failed:
            self._dead_letters.failed(task.name, [self.original(envelope)], error)

    def at_batch(
        self, error: BaseException, subscription: TaskPartition, batch: MessageBatch, mark: int
    ) -> None:
        """Ignore what ``process_batch`` raised, or raise TaskError: for the batch as a whole."""
        task = subscription.task
        if not self._is_ignored(error):
            raise task.failure_at_batch(error, batch) from error
        offset = batch.first_offset if len(batch) == 1 else f"{batch.first_offset}..{batch.last_offset}"
        keys = [each.key for each in batch.peek()[:1]] if len(batch) == 1 else []
        self._ignore(
            error,
            subscription.coordinator,
            mark,
            "process_batch",
            batch.ssp,
            offset,
            keys[0] if keys else None,
        )
        self._show_ignored(task, "process_batch", batch, error)
        self._dead_letters.failed(task.name, batch.raw(), error)

    def at_callback(self, error: BaseException, coordinator: Coordinator, name: str, mark: int) -> None:
        """Ignore what a callback without a message raised, or raise TaskError."""
        task = self._tasks[coordinator.task_name]
        if not self._is_ignored(error):
            raise task.failure(error, f"in {name}()") from error
        self._ignore(error, coordinator, mark, name)
        self._show_ignored(task, name, None, error)

    def place(
        self,
        error: Unsent,
        at: int,
        tasks: Sequence[TaskInstance],
        partitions: Mapping[SystemStreamPartition, PartitionBuffer],
    ) -> StreambenchError:
        """The error of the output at place ``at`` with the message and the send that it came from."""
        collected = self._collected
        at = min(at, len(collected) - 1)
        found = placed(error, collected, at, sent_in(collected, at, tasks, self.of_window), partitions)
        found.__cause__ = error.__cause__
        return found

    def _is_ignored(self, error: BaseException) -> TypeGuard[Exception]:
        """True for an exception that is ignored. Raises it where it is the user's interrupt; what else is no
        Exception, as sys.exit() and the end of a coroutine, is a failure."""
        if isinstance(error, KeyboardInterrupt):
            raise error
        return isinstance(error, Exception) and is_ignored(error, self._names)

    def _show_ignored(self, task: TaskInstance, callback: str, given: Given, error: Exception) -> None:
        observer = self._observation.observer
        if observer is not None:
            observer.failure_ignored(task.name, callback, given, error)

    def _ignore(
        self,
        error: Exception,
        coordinator: Coordinator,
        mark: int,
        callback: str,
        ssp: SystemStreamPartition | None = None,
        offset: str | None = None,
        key: object = None,
    ) -> None:
        task = self._tasks[coordinator.task_name]
        self._collected[mark:] = self._dead_letters.dead_letters_in(self._collected[mark:])
        coordinator.forget()
        for store in task.stores.values():
            store.take_back()
        self.ignored += 1
        self._metrics.counter(f"exception-ignored-{type(error).__name__}", "container").inc()
        kind = class_name(type(error))
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind not in self._kinds:
            first = IgnoredFailure(
                kind=kind,
                count=1,
                task=task.name,
                callback=callback,
                ssp=ssp,
                offset=offset,
                key=None if key is None else shortened(key),
                line=user_line(error),
                text=described(error)[:_MOST_OF_A_TEXT],
            )
            self._kinds[kind] = first
            log.warning(
                "%s; it is ignored (%s), and others of this class are only counted", first.place(), IGNORED
            )


_MOST_OF_A_TEXT = 300


def unfinished_count(partition: PartitionBuffer, envelope: IncomingMessageEnvelope) -> int:
    """The number of messages that some task has not processed: this one, or its batch; 0 where all tasks
    have."""
    batch = partition.waiting.taken if partition.waiting is not None else None
    last, count = (envelope.offset, 1) if batch is None else (batch.last_offset, len(batch))
    is_done = all(each.offset == last or each.skip_before is not None for each in partition.subscriptions)
    return 0 if is_done else count


def placed(
    error: Unsent,
    collected: Collected,
    at: int,
    sent: str,
    partitions: Mapping[SystemStreamPartition, PartitionBuffer],
) -> StreambenchError:
    """The error of the output at index ``at``, with the message that led to it, and the callback that sent
    it. The line of the ``send`` is not known any more."""
    _, _, envelope, _, _ = collected[at]
    if envelope is None:
        text = f"{error} ({sent})" if sent else str(error)
    else:
        waiting = partitions[envelope.ssp].waiting
        if waiting is not None and waiting.taken is not None:
            place = place_of(waiting.taken)
        else:
            place = f"{envelope.ssp}@{envelope.offset}, key {shortened(envelope.key)}"
        text = f"{error} (while processing {place}{': ' if sent else ''}{sent})"
    return ConfigError(text, key=error.key) if isinstance(error, ConfigError) else type(error)(text)


def sent_in(
    collected: Collected, at: int, tasks: Sequence[TaskInstance], of_window: tuple[int, object]
) -> str:
    """The send and the callback that collected an output, in words; empty for a dead letter, which no task
    has sent."""
    source, output, origin, *_ = collected[at]
    task = next((task for task in tasks if task.name == source), None)
    if task is None or is_dead_letter(output):
        return ""
    window, first = of_window
    _, opening, *_ = collected[min(window, at)]
    is_of_window = at >= window and opening is first
    if is_of_window:
        name = "window"
    elif origin is None:
        name = "end_of_stream"
    else:
        name = "process_batch" if task.takes_batches else "process"
    of_callback = collected[window if is_of_window else 0 : at]
    before = sum(1 for sender, _, led, *_ in of_callback if sender == source and led is origin)
    return f"send no. {before + 1} of {task.callback(name)}"
