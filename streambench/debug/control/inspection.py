"""Inspection: the part of a session that shows its position: the state there, and what led to it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from streambench.container.trace import Sent, TraceEvent
from streambench.debug.control.driving import Driven, between_messages
from streambench.debug.effects.differences import Stores, differing_entries, differing_values
from streambench.debug.effects.effects import Effects, net
from streambench.debug.effects.events import Cause, Change, Hold, Output, Outputs, PositionDiff
from streambench.debug.effects.store_keys import store_key
from streambench.debug.history.attributes import memory_of
from streambench.debug.history.block_log import DEFAULT_MB
from streambench.debug.history.history import History
from streambench.debug.history.position_metrics import Metrics, Readings, names_of_newest
from streambench.debug.history.writes import StoreWrite
from streambench.debug.past.past import Past
from streambench.debug.past.recorded_tasks import RecordedTasks
from streambench.debug.stopping.moment import ShownTask
from streambench.errors import ContainerStateError, StreambenchError, TaskError
from streambench.metrics.registry import Gauge
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.planning.store_definitions import StoreDefinition
from streambench.serde.streams import StreamSerdes
from streambench.wording import words

_T = TypeVar("_T")

_FEW = 100


class Inspection(Driven):
    """A session's view of its position. A position is the number of messages processed since the start."""

    _holds_all = False
    """True where no output ever leaves the session."""

    def _begin_history(self, history: int | bool | None) -> None:
        """Prepare the history of a container that has not started. ``history``: its memory in MB; None
        or True for 256, 0 or False for none."""
        limit = DEFAULT_MB if history is None or history is True else int(history)
        self._no_history = "it was made without one (history=0)"
        self.history: History | None = None
        if limit and self.container.state != "new":
            self._no_history = "the container had started before the session was made"
        elif limit:
            self.history = History(self.container, limit)
            self.history.guard = self._undriven
            self.container.failure_hold.is_wanted = True
        self._past: Past | None = None
        self._closed: RecordedTasks | None = None
        self._closed_resumable = False

    @property
    def position(self) -> int:
        """The number of messages processed at the position that is shown."""
        past = self._past
        return self.container.processed if past is None else past.position

    @property
    def latest(self) -> int:
        """The newest position reached."""
        return self.container.processed

    @property
    def oldest(self) -> int:
        """The first position that can be shown; 0 without a history."""
        history = self.history
        return history.oldest if history is not None and history.has_begun else 0

    @property
    def processed_now(self) -> int:
        """The number of messages processed, also in the middle of a run. May be read on any thread."""
        history, done = self.history, self.container.processed
        if history is None or not self.running:
            return done
        return max(done, history.trace.position - (self.container.current_input is not None))

    @property
    def live(self) -> bool:
        """False while it stands in the past."""
        return self._past is None

    @property
    def has_memory_at_hand(self) -> bool:
        """True where no message has to run again to look at what tasks keep in memory."""
        past = self._past
        return past is None or past.is_at_hand

    @property
    def can_resume(self) -> bool:
        """True where the task failed at a message, and ``step``, ``run`` and ``swap`` go on there, with the
        state that it had before. ``stop`` closes the container."""
        return self.container.failure_hold.is_held

    def stores(self) -> Stores:
        """The stores at the position: per task and name, their entries."""
        return self.read_tasks(lambda tasks: {task.name: self._entries(task) for task in tasks})

    @property
    def store_names(self) -> list[str]:
        """The names of the stores, sorted. Raises ContainerStateError where it has not started."""
        self._require_shown()
        return sorted(self._definitions())

    @between_messages
    def attributes(self) -> dict[str, dict[str, Any]]:
        """The attributes of the tasks' objects at the position, by task and name; those of ``context.user``
        stand below it."""
        past = self._past
        self._require_shown()
        tasks = self.container.tasks if past is None else past.replica.tasks
        return {task.name: memory_of(task) for task in tasks}

    @between_messages
    def metrics(self) -> Metrics:
        """The metrics at the position. In the past those that follow from it, and those that tasks have
        registered; for these the tasks run again. Raises what they raise."""
        past = self._past
        self._require_shown()
        newest = self.container.read_metrics()
        if past is None:
            return Metrics(self.position, newest)
        return Metrics(past.position, past.metrics(), names_of_newest(past.history, newest))

    @between_messages
    def gauges_at_hand(self) -> tuple[Readings, int]:
        """The gauges that tasks have registered, by the task. In the past their counters, too, and the number
        of windows under no name. Where tasks would have to run again for theirs: none, and the number of
        messages to run."""
        past = self._past
        self._require_shown()
        if past is None:
            return self.container.read_metrics(Gauge), 0
        return past.gauges_at_hand()

    @between_messages
    def offsets(self) -> dict[str, dict[SystemStreamPartition, str]]:
        """Per task and partition, the last offset processed at the position."""
        past = self._past
        self._require_shown()
        if past is not None:
            return past.offsets()
        return {task.name: task.offsets() for task in self.container.tasks}

    @between_messages
    def next_offsets(self) -> dict[SystemStreamPartition, str]:
        """Per partition, the offset of the first message recorded behind the position; of a partition without
        such a message, nothing."""
        history = self._history()
        numbers, inputs = history.numbers_at(self.position), history.inputs
        recorded = [(ssp, inputs.partition(index)) for index, ssp in enumerate(inputs.ssps)]
        return {
            ssp: partition.offset(number)
            for number, (ssp, partition) in zip(numbers, recorded, strict=True)
            if number < partition.end
        }

    @between_messages
    def outputs(self, since: int = 0) -> list[Output]:
        """The outputs of the messages after ``since`` and up to the position. In a branch those of the branch
        are held back. Before the begin of the history only those are known that wait for the commit."""
        return [*self._waiting_from_before(since), *self._outputs(since, self.position)]

    def _waiting_from_before(self, since: int) -> list[Output]:
        """The outputs that wait for the commit, of messages that the history has dropped."""
        history = self._history()
        if not history.is_dropped:
            return []
        first = history.blocks[0]
        kept = set(map(id, first.outputs))
        waiting = (
            (each.at, each)
            for each in history.pending
            if isinstance(each.at, int) and since < each.at <= first.start and id(each) not in kept
        )
        return self._made_of(waiting, held=True)

    def uncommitted(self) -> tuple[int, int]:
        """The messages processed since the last commit of each of their tasks, and the outputs that wait for
        the next commit. Both are 0 without a history."""
        history = self.history
        if history is None or not history.has_begun:
            return 0, 0
        return self.between(lambda: (history.uncommitted, len(history.pending)))

    @property
    def holds_outputs(self) -> bool:
        """True where outputs wait for the commit, or never leave the session."""
        return self._holds_all or (
            self.container.has_begun and self.container.runtime.outbox.commits_all_tasks
        )

    @property
    def message(self) -> IncomingMessageEnvelope | None:
        """The message at its position: the one before which it stopped or at which its task failed, else the
        one processed last. As it was read, also where the task has changed it. None at the start, and where
        it is not known."""
        held, failed = self.container.held, self.container.status.progress.unfinished
        if not self.live or (held is None and failed is None):
            return self.last_message
        history = self.history
        if held is not None or history is None or not history.has_begun or self.running:
            return held or failed
        return self.between(lambda: history.failed_messages()[1])

    @property
    def last_message(self) -> IncomingMessageEnvelope | None:
        """The message processed last at the position, as it was read; None at the start, and where it is not
        known. While another thread drives the container, that of its last choice."""
        if self._past is not None:
            return self.between(self._message)
        found = None if self.running else self.between(self._message)
        if found is None:
            held = self.container.held
            choices = [each for each in tuple(self.container.choices)[-2:] if each is not held]
            found = choices[-1] if choices else self.between(self._message)
        return found

    @property
    def batch(self) -> int:
        """The number of messages that the task got at once, with the one processed last at the position; 1
        without a history."""
        position, history = self.position, self.history
        if history is None or not history.has_begun:
            return 1
        begin, end = self.between(lambda: history.edges(position))
        return end - begin

    @between_messages
    def message_at(self, position: int) -> IncomingMessageEnvelope | None:
        """The message that was recorded at a position, as it was read; None where it is not known any
        more."""
        history = self.history
        return history.message_at(position) if history is not None and history.has_begun else None

    def message_of(self, error: TaskError) -> IncomingMessageEnvelope | None:
        """The message at which a task failed; None where it was none, or is not known any more."""
        history, ssp, offset = self.history, error.ssp, error.offset
        if ssp is None or offset is None:
            return None
        message = self.message if self.live else None
        if message is None or (message.ssp, message.offset) != (ssp, offset):
            if history is None or not history.has_begun:
                return None
            at = self.between(lambda: history.position_of(ssp, offset))
            message = None if at is None else self.message_at(at)
        return message

    @between_messages
    def changes(self, store: str, key: Any) -> list[Change]:
        """The changes of one key of a store up to the position, the oldest first. Raises StoreError."""
        definitions = self._definitions()
        history = self._history()
        if store not in definitions:
            known = ", ".join(sorted(definitions)) or "none at all"
            raise StreambenchError(f"there is no store '{store}' (there are: {known})")
        encoded = self.container.tasks[0].stores[store].encoded_key(key)
        numbers = {number for number, (_, name) in enumerate(history.trace.stores) if name == store}
        return self._changes_of(
            write for write in self._writes() if write[2] == encoded and write[1] in numbers
        )

    @between_messages
    def changes_at(self, position: int) -> list[Change]:
        """The changes of state at a position."""
        return self._changes_of(each for each in self._writes(position - 1) if each[0] == position)

    @between_messages
    def effects(self, since: int = 0, to: int | None = None) -> list[Effects]:
        """The effects of each message after ``since`` and up to ``to`` (None: the position), within the reach
        of the history. Messages without any are left out. Raises ContainerStateError without a history."""
        to = self.position if to is None else to
        events = self._history().events(since, to)
        return list(self._effects_of(self._writes(since, to), self._outputs(since, to), events).values())

    @property
    def last(self) -> Effects:
        """The effects of the message processed last at the position. Raises ContainerStateError without a
        history."""
        position = self.position
        found = self.effects(position - 1) if position else []
        return found[-1] if found else Effects(position)

    @between_messages
    def cause(self, output: Output) -> Cause:
        """The message that an output was made from, and the changes of state at it; of one that ``window()``
        sent, no message."""
        position = output.position
        message = None if output.callback else self.message_at(position)
        changes = tuple(self.changes_at(position))
        if message is None:
            return Cause(position, None, None, None, None, changes, output.callback, output.task)
        return Cause(
            position, message.ssp, message.offset, message.key, message.message, changes, None, output.task
        )

    def diff(self, before: int, after: int) -> PositionDiff:
        """The difference of two positions. Raises ContainerStateError."""
        history = self._living_history()

        def compare() -> PositionDiff:
            past = self._past or Past(history)
            one, other = past.at(before), past.at(after)
            first, last = one.position, other.position
            return PositionDiff(
                first,
                last,
                differing_entries(
                    {each.name: self._entries(each) for each in one.tasks},
                    {each.name: self._entries(each) for each in other.tasks},
                ),
                differing_values(
                    {each.name: memory_of(each) for each in one.tasks},
                    {each.name: memory_of(each) for each in other.tasks},
                ),
                differing_values(one.offsets(), other.offsets()),
                tuple(self._recorded_outputs(min(first, last), max(first, last))),
            )

        return self._drive(compare)

    def _history(self) -> History:
        """The history, to look at. Raises ContainerStateError where there is none."""
        if self.history is None:
            raise ContainerStateError(f"{self.name} has no history: {self._no_history}")
        return self.history

    def _living_history(self) -> History:
        """The history, to move in, also of a container that is closed. Raises ContainerStateError where it
        has not begun, or its stores cannot be looked at any more."""
        history = self._history()
        state = self.container.state
        if history.has_begun and (state == "running" or history.is_kept):
            return history
        hint = (
            f"{words('start')} first"
            if state == "new"
            else "it failed before it had one"
            if not history.has_begun
            else "its stores are closed, and are too large to be kept in memory"
        )
        raise ContainerStateError(f"{self.name} is {state}, and cannot move in its history: {hint}")

    def _require_running(self) -> None:
        """Raise ContainerStateError where it is not started, or has stopped or failed."""
        container = self.container
        if container.state != "running":
            first = f"{words('start')} first"
            hint = first if container.state == "new" else f"{words('begin again')} from the last checkpoint"
            why = f" ({container.reason})" if container.reason else ""
            raise ContainerStateError(f"{self.name}: the container is {container.state}; {hint}{why}")

    def _instance_for(self, envelope: IncomingMessageEnvelope | None) -> ShownTask | None:
        """The first task, as it is at the position, that reads the partition of a message."""
        return None if envelope is None else instance_for(self._tasks_here(), envelope)

    def _tasks_here(self) -> Sequence[ShownTask]:
        """The tasks as they are at the position."""
        past = self._past
        return self.container.tasks if past is None else past.tasks

    @between_messages
    def read_tasks(self, what: Callable[[Sequence[ShownTask]], _T]) -> _T:
        """Look at the tasks, with their stores, at the position."""
        self._require_shown()
        if self._past is None and self.container.state != "running":
            return what(self._closed_tasks())
        return what(self._tasks_here())

    def _require_shown(self) -> None:
        """Raise ContainerStateError where there is no position to look at."""
        if self._past is None and (not self.container.has_begun or self.history is None):
            self._require_running()

    def _closed_tasks(self) -> Sequence[ShownTask]:
        """Tasks with the last state of stores that are closed."""
        history = self._living_history()
        # Where it is stopped after a failure, the stores are other copies.
        if self._closed is None or self._closed_resumable != self.can_resume:
            memory = {each.name: each for each in self.container.tasks}
            self._closed = RecordedTasks(history, memory.__getitem__)
            self._closed_resumable = self.can_resume
        return self._closed.at(history.latest)

    def _message(self) -> IncomingMessageEnvelope | None:
        past = self._past
        found = None if past is None else past.message
        return found or self.message_at(self.position)

    def _definitions(self) -> Mapping[str, StoreDefinition]:
        return self.container.runtime.task_stores.definitions

    def _entries(self, task: ShownTask) -> dict[str, dict[Any, Any]]:
        definitions = self._definitions()
        return {
            name: {
                store_key(definitions[name].shown_key(key)): definitions[name].shown_value(value)
                for key, value in store.engine.range(None, None)
            }
            for name, store in sorted(task.stores.items())
        }

    def _partitions(self, stream: SystemStream) -> int | None:
        try:
            return len(self.container.status.systems.metadata([stream])[stream])
        except StreambenchError:
            return None

    def _outputs(self, since: int, to: int) -> list[Output]:
        past = self._past
        if past is None or not past.branch:
            return self._recorded_outputs(since, to)
        begin = past.branch[0].position
        branch = ((at, sent) for at, sent in past.replica.outputs if at > max(begin, since))
        hold: Hold = "replay" if self._holds_all else "branch"
        return self._recorded_outputs(since, begin) + self._made_of(branch, held=True, hold=hold)

    def _made_of(
        self, sent: Iterable[tuple[int, Sent]], *, held: bool, hold: Hold = "commit"
    ) -> list[Output]:
        """Outputs, made from the trace of what was sent, each with its position. What was refused is no
        output."""
        made = self._maker()
        taken = ((at, each) for at, each in sent if not each.is_refused)
        return [output for at, each in taken for output in made.of(at, each, held=held, hold=hold)]

    def _recorded_outputs(self, since: int, to: int) -> list[Output]:
        history, made = self._history(), self._maker()
        pending = set(map(id, history.pending))
        hold: Hold = "replay" if self._holds_all else "commit"
        found: list[Output] = []
        for at, sent in history.outputs(since, to):
            if not sent.is_refused:
                found += made.of(at, sent, held=self._holds_all or id(sent) in pending, hold=hold)
        return found

    def _maker(self) -> Outputs:
        return Outputs(StreamSerdes(self.container.config), self._partitions)

    def _writes(self, since: int = 0, to: int | None = None) -> list[StoreWrite]:
        """The writes after a position and up to another one, at most up to the one that is shown."""
        past, history = self._past, self._history()
        to = self.position if to is None else min(to, self.position)
        if past is None or not past.branch:
            return list(history.writes(since, to))
        begin = past.branch[0].position
        return [
            *history.writes(since, min(begin, to)),
            *(each for each in past.replica.writes if max(begin, since) < each[0] <= to),
        ]

    def _changes_of(self, writes: Iterable[StoreWrite]) -> list[Change]:
        """The changes that writes have made."""
        made, history, definitions = list(writes), self._history(), self._definitions()
        message_ref: Callable[[int], tuple[SystemStreamPartition, str] | None] = history.message_ref
        if len(made) > _FEW:
            # One message alone takes a count of the messages before it.
            known = history.message_refs(min(each[0] for each in made) - 1, max(each[0] for each in made))
            message_ref = {position: (ssp, offset) for position, ssp, offset in known}.get
        changes = []
        for position, number, key, former, value in made:
            task, store = history.trace.stores[number]
            definition = definitions[store]
            before, after = definition.shown_write(former), definition.shown_write(value)
            ssp, offset = message_ref(position) or (None, None)
            changes.append(
                Change(position, ssp, offset, before, after, task, store, definition.shown_key(key))
            )
        return changes

    def _effects_of(
        self, writes: Iterable[StoreWrite], outputs: Iterable[Output], events: Iterable[TraceEvent] = ()
    ) -> dict[int, Effects]:
        """The effects at each position, in their order."""
        changes: dict[int, list[Change]] = defaultdict(list)
        sent: dict[int, list[Output]] = defaultdict(list)
        called: dict[tuple[int, str], list[str]] = defaultdict(list)
        for change in self._changes_of(writes):
            changes[change.position].append(change)
        for output in outputs:
            sent[output.position].append(output)
        for event in events:
            called[event.position, event.kind].extend(event.tasks)
        return {
            at: Effects(
                at,
                net(changes[at]),
                tuple(sent[at]),
                windows=tuple(called[at, "window"]),
                ends=tuple(called[at, "end_of_stream"]),
                committed=tuple(called[at, "commit"]),
                writes=tuple(changes[at]),
            )
            for at in sorted({*changes, *sent, *(at for at, _ in called)})
        }


def instance_for(tasks: Sequence[ShownTask], envelope: IncomingMessageEnvelope) -> ShownTask | None:
    """The first task that reads the partition of a message."""
    return next(
        (task for task in tasks if any(each.ssp == envelope.ssp for each in task.subscriptions)), None
    )
