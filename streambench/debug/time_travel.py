"""Time travel: the part of a session that goes back in its container's history, and forward again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from streambench.container.tasks.task_instance import TaskInstance
from streambench.container.trace import Sent, TraceEvent
from streambench.debug.attributes import TaskMemory, handles_of
from streambench.debug.block_log import DEFAULT_MB
from streambench.debug.conditions import Condition, Conditional
from streambench.debug.crash import Crash, crash_at, crash_steps
from streambench.debug.crash_report import Report
from streambench.debug.driving import Driven
from streambench.debug.effects import Effects, net
from streambench.debug.events import Cause, Change, Output, Outputs, PositionDiff
from streambench.debug.exchange import warn_of_window
from streambench.debug.history import History
from streambench.debug.moment import Moment
from streambench.debug.past import Past, find_back, resume
from streambench.debug.replica import Replica
from streambench.debug.wording import words
from streambench.debug.writes import StoreWrite
from streambench.errors import ContainerStateError, StreambenchError, TaskError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.planning.store_definitions import StoreDefinition
from streambench.serde.streams import StreamSerdes, readable

_T = TypeVar("_T")

Stores = dict[str, dict[str, dict[Any, Any]]]


class TimeTravel(Driven):
    """A session's way through time. A position is the number of messages processed since the start.

    In the past the container itself stands still: its streams, stores and checkpoints stay as they are."""

    _namespace: Mapping[str, Any] | None
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
            self.container.failure_hold.is_wanted = True
        self._past: Past | None = None
        self._closed: Replica | None = None
        self._closed_resumable = False
        self._former: list[tuple[Any, list[tuple[Any, dict[str, Any]]] | None]] = []

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
    def can_resume(self) -> bool:
        """True where the task failed at a message, and ``step``, ``run`` and ``swap`` go on there, with the
        state that it had before. ``stop`` closes the container."""
        return self.container.failure_hold.is_held

    def _resume(self) -> None:
        if self.can_resume:
            self._drive(lambda: resume(self._history()))
            self._closed = self.error = None

    @property
    def branched(self) -> bool:
        """True while it stands in the past with other code: its outputs are held back."""
        return self._past is not None and bool(self._past.branch)

    def back(self, n: int = 1) -> int:
        """Go ``n`` messages back, to the begin of a batch where that is inside of one, and at most to the
        begin of the history; the new position. Raises ContainerStateError."""
        history = self._living_history()
        here = self.position
        return self.goto(self._between(lambda: history.last_edge(max(here - n, min(history.oldest, here)))))

    def goto(self, position: int | str | SystemStreamPartition, offset: str | int | None = None) -> int:
        """Go to a position, or to where the message at this offset of a partition was processed last; to the
        end of a batch where that is inside of one. The new position. Raises ContainerStateError."""
        history = self._living_history()

        def go() -> None:
            past = self._past or Past(history)
            to = position if isinstance(position, int) else self._position_of(history, position, offset)
            to = history.next_edge(to)
            if to == history.latest and not past.branch:
                self._past = None
                return
            past.go_to(to)
            self._past = past

        self._travel(go)
        return self.position

    def back_until(self, condition: Conditional) -> int:
        """Go back to the last position before this one at which a condition held, of its message and the
        state after it; the new position, the present one where there is none. Raises ContainerStateError."""
        history = self._living_history()
        holds = self._condition(condition)
        here = self.position
        found = self._drive(lambda: find_back(history, here, (self._past or Past(history)).at, holds))
        return here if found is None else self.goto(found)

    def go_live(self) -> int:
        """Return to the newest position; a branch is dropped. The position."""
        self._past = None
        self._moved()
        return self.position

    def adopt(self) -> int:
        """Make the branch the truth: it runs to the newest position, and the container goes on from its
        state with its code. The position. Raises ContainerStateError where outputs are out already, and what
        tasks raise."""
        past = self._past
        if past is None:
            raise ContainerStateError(
                f"{self.name} is live: there is no branch to adopt. {words('go back')} first, then "
                f"{words('swap')} begins one"
            )
        before = self.container.factory
        self._travel(past.adopt)
        warn_of_window(self.name, before, self.container.factory)
        self._former.append((before, None))
        self._past = None
        self._moved()
        return self.position

    def stores(self) -> Stores:
        """The stores at the position: per task and name, their entries."""
        return self._look(lambda tasks: {task.name: self._entries(task) for task in tasks})

    def attributes(self) -> dict[str, dict[str, Any]]:
        """The attributes of the tasks' objects at the position, by task and name; those of ``context.user``
        stand below it."""
        return self._look(
            lambda tasks: {task.name: memory_of(task) for task in tasks}, at_stores=False
        )

    def offsets(self) -> dict[str, dict[SystemStreamPartition, str]]:
        """Per task and partition, the last offset processed at the position."""
        return self._look(
            lambda tasks: {task.name: task.offsets() for task in tasks}, at_stores=False
        )

    def outputs(self, since: int = 0) -> list[Output]:
        """The outputs of the messages after ``since`` and up to the position. In a branch those of the branch
        are held back."""
        return self._between(lambda: self._outputs(since, self.position))

    @property
    def message(self) -> IncomingMessageEnvelope | None:
        """The message at which it stands: the one before which it stopped or at which its task failed, else
        the one processed last at the position; None at the start, and where it is not known."""
        held = self.container.held or self.container.status.progress.unfinished
        return held if held is not None and self.live else self.last_message

    @property
    def last_message(self) -> IncomingMessageEnvelope | None:
        """The message processed last at the position; None at the start, and where it is not known."""
        if self._past is None:
            held = self.container.held
            choices = [each for each in tuple(self.container.choices)[-2:] if each is not held]
            if choices:
                return choices[-1]
        return self._between(self._message)

    @property
    def batch(self) -> int:
        """The number of messages that the task got at once, with the one processed last at the position; 1
        without a history."""
        position, history = self.position, self.history
        if history is None or not history.has_begun:
            return 1
        begin, end = self._between(lambda: history.edges(position))
        return end - begin

    def message_at(self, position: int) -> IncomingMessageEnvelope | None:
        """The message that was recorded at a position, as it was read; None where it is not known any
        more."""
        return self._between(lambda: self._message_at(position))

    def message_of(self, error: TaskError) -> IncomingMessageEnvelope | None:
        """The message at which a task failed; None where it was none, or is not known any more."""
        history, ssp, offset = self.history, error.ssp, error.offset
        if ssp is None or offset is None:
            return None
        message = self.message if self.live else None
        if message is None or (message.ssp, message.offset) != (ssp, offset):
            if history is None or not history.has_begun:
                return None
            at = self._between(lambda: history.position_of(ssp, offset))
            message = None if at is None else self.message_at(at)
        return message

    def changes(self, store: str, key: Any) -> list[Change]:
        """The changes of one key of a store up to the position, the oldest first. Raises StoreError."""
        return self._between(lambda: self._changes(store, key))

    def changes_at(self, position: int) -> list[Change]:
        """The changes of state at a position."""
        return self._between(
            lambda: [self._change(each) for each in self._writes(position - 1) if each[0] == position]
        )

    def effects(self, since: int = 0) -> list[Effects]:
        """The effects of each message after ``since`` and up to the position, within the reach of the
        history; messages without any are left out. Raises ContainerStateError without a history."""
        return self._between(lambda: self._effects(since, self.position))

    @property
    def last(self) -> Effects:
        """The effects of the message processed last at the position. Raises ContainerStateError without a
        history."""
        position = self.position
        found = self.effects(position - 1) if position else []
        return found[-1] if found else Effects(position)

    def cause(self, output: Output) -> Cause:
        """The message that an output was made from, and the changes of state at it."""
        return self._between(lambda: self._cause(output.position))

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
                _differences(
                    {each.name: self._entries(each) for each in one.tasks},
                    {each.name: self._entries(each) for each in other.tasks},
                ),
                _pairs(
                    {each.name: memory_of(each) for each in one.tasks},
                    {each.name: memory_of(each) for each in other.tasks},
                ),
                _pairs(one.offsets(), other.offsets()),
                tuple(self._recorded_outputs(min(first, last), max(first, last))),
            )

        return self._drive(compare)

    def crash(self, *, inside_commit: bool = False) -> Crash:
        """Simulate ``kill -9`` at the position: what comes again from the last commit, which outputs are
        there twice, and how state differs. Streams, stores and checkpoints stay as they are.

        ``inside_commit``: before the commit at the position is done. Raises ContainerStateError."""
        return self._drive(lambda: self._crash(inside_commit=inside_commit))

    def crash_everywhere(self, progress: Callable[[int, int], object] = lambda done, total: None) -> Report:
        """Simulate a crash after each position of the history, and inside each commit; the verdict of each.

        ``progress(done, total)`` is called now and then, with steps. Raises ContainerStateError."""
        return self._drive(lambda: crash_steps(self._living_history(), progress))

    def _crash(self, *, inside_commit: bool) -> Crash:
        history = self._living_history()
        if self.branched:
            raise ContainerStateError(
                f"a branch is never committed, and a crash would drop it: {words('live')} first, or "
                f"{words('goto')} to a recorded position"
            )
        return crash_at(history, self.position, self._maker(), inside_commit=inside_commit)

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

    def _past_or_new(self) -> Past:
        return self._past or Past(self._living_history())

    def _travel(self, what: Callable[[], _T]) -> _T:
        """``_drive`` for a move in the past. An interrupt makes the session live: to go back to where it
        stood would run the same code again."""
        try:
            return self._drive(what)
        except KeyboardInterrupt:
            self._past = None
            raise

    def _moved(self) -> None:
        self._drive(lambda: None)

    def _require_running(self) -> None:
        """Raise ContainerStateError where it is not started, or has stopped or failed."""
        container = self.container
        if container.state != "running":
            first = f"{words('start')} first"
            hint = first if container.state == "new" else f"{words('begin again')} from the last checkpoint"
            why = f" ({container.reason})" if container.reason else ""
            raise ContainerStateError(f"{self.name}: the container is {container.state}; {hint}{why}")

    def _require_live(self, what: str) -> None:
        """Raise ContainerStateError in the past. ``what``: the remedy that is asked for."""
        if self._past is not None:
            raise ContainerStateError(
                f"{self.name} stands in the past, at {self.position:,} of {self.latest:,}: {words('live')} "
                f"first, then {words(what)}"
            )

    def upcoming(self) -> list[Moment]:
        """The moments before the next recorded message, or each message of the next batch; none at the newest
        position."""
        position = self.position
        if position == self.latest:
            return []
        _, end = self._history().edges(position + 1)
        found = map(self._message_at, range(position + 1, end + 1))
        return [Moment(position, each, self._instance_for(each)) for each in found if each is not None]

    def _instance_for(self, envelope: IncomingMessageEnvelope | None) -> TaskInstance | None:
        """The first task, as it is at the position, that reads the partition of a message."""
        return None if envelope is None else instance_for(self._tasks_here(), envelope)

    def _tasks_here(self) -> Sequence[TaskInstance]:
        """The tasks as they are at the position."""
        return self.container.tasks if self._past is None else self._past.replica.tasks

    def _position_of(
        self, history: History, ssp: str | SystemStreamPartition, offset: str | int | None
    ) -> int:
        if isinstance(ssp, str):
            if offset is None and "@" in ssp:
                ssp, _, offset = ssp.rpartition("@")
            ssp = SystemStreamPartition.parse(ssp)
        found = history.position_of(ssp, str(offset))
        if found is None:
            raise ContainerStateError(
                f"{ssp}@{offset} is not in the history, which reaches from {history.oldest:,} to "
                f"{history.latest:,}"
            )
        return found

    def _condition(self, condition: Conditional) -> Callable[[Replica], bool]:
        """A function that returns true where a condition holds after the last message of a replica. Raises
        ConditionError where the expression is none."""
        made = Condition(condition, self._namespace)

        def holds(replica: Replica) -> bool:
            envelope = replica.message
            assert envelope is not None
            instance = instance_for(replica.tasks, envelope)
            return bool(made.value(Moment(replica.position, envelope, instance)))

        return holds

    def _past_moment(self) -> Moment:
        """The moment at the position in the past."""
        envelope = self.message
        return Moment(self.position, envelope, self._instance_for(envelope))

    def _look(self, what: Callable[[Any], _T], *, at_stores: bool = True) -> _T:
        """Look at the tasks at the position. ``at_stores``: at their stores, not only at their memory."""

        def look() -> _T:
            if self._past is not None:
                return what(self._past.replica.tasks)
            if not self.container.has_begun or self.history is None:
                self._require_running()
            if self.container.state != "running" and at_stores:
                return what(self._closed_tasks())
            return what(self.container.tasks)

        return self._between(look)

    def _closed_tasks(self) -> Sequence[TaskInstance]:
        """Tasks with the last state of stores that are closed. No code of theirs runs for it."""
        # Where it is stopped after a failure, the stores are other copies.
        if self._closed is None or self._closed_resumable != self.can_resume:
            history = self._living_history()
            replica = Replica(history, history.block_at(history.latest))
            replica.set_values(history.values_at(history.latest))
            self._closed, self._closed_resumable = replica, self.can_resume
        return self._closed.tasks

    def _message(self) -> IncomingMessageEnvelope | None:
        past = self._past
        found = None if past is None else past.replica.message
        return found or self._message_at(self.position)

    def _definitions(self) -> Mapping[str, StoreDefinition]:
        return self.container.runtime.task_stores.definitions

    def _entries(self, task: TaskInstance) -> dict[str, dict[Any, Any]]:
        definitions = self._definitions()
        return {
            name: {
                readable(definitions[name].key_serde, key): readable(definitions[name].value_serde, value)
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
        return self._recorded_outputs(since, begin) + self._made_of(branch, held=True)

    def _made_of(self, sent: Iterable[tuple[int, Sent]], *, held: bool) -> list[Output]:
        """Outputs of notes of what was sent, each with its position."""
        made = self._maker()
        return [output for at, each in sent for output in made.of(at, each, held=held)]

    def _recorded_outputs(self, since: int, to: int) -> list[Output]:
        history, made = self._history(), self._maker()
        pending = set(map(id, history.pending))
        return [
            output
            for at, sent in history.outputs(since, to)
            for output in made.of(at, sent, held=self._holds_all or id(sent) in pending)
        ]

    def _maker(self) -> Outputs:
        return Outputs(StreamSerdes(self.container.config), self._partitions)

    def _writes(self, since: int = 0) -> list[StoreWrite]:
        """The writes after a position and up to the one that is shown."""
        past, history = self._past, self._history()
        if past is None or not past.branch:
            return list(history.writes(since, self.position))
        begin = past.branch[0].position
        return [
            *history.writes(since, begin),
            *(each for each in past.replica.writes if each[0] > max(begin, since)),
        ]

    def _changes(self, store: str, key: Any) -> list[Change]:
        definitions = self._definitions()
        history = self._history()
        if store not in definitions:
            known = ", ".join(sorted(definitions)) or "none at all"
            raise StreambenchError(f"there is no store '{store}' (there are: {known})")
        encoded = self.container.tasks[0].stores[store].encoded_key(key)
        numbers = {number for number, (_, name) in enumerate(history.trace.stores) if name == store}
        return [
            self._change(write) for write in self._writes() if write[2] == encoded and write[1] in numbers
        ]

    def _change(self, write: StoreWrite) -> Change:
        history = self._history()
        position, number, key, former, value = write
        task, store = history.trace.stores[number]
        definition = self._definitions()[store]
        skip = 8 if definition.ttl_ms is not None else 0
        before, after = (
            None if each is None else readable(definition.value_serde, each[skip:])
            for each in (former, value)
        )
        place = history.place_of(position)
        ssp, offset = (None, None) if place is None else place
        return Change(position, ssp, offset, before, after, task, store, readable(definition.key_serde, key))

    def _effects(self, since: int, to: int) -> list[Effects]:
        events = self._history().events(since, to)
        return list(self._effects_of(self._writes(since), self._outputs(since, to), events).values())

    def _effects_of(
        self, writes: Iterable[StoreWrite], outputs: Iterable[Output], events: Iterable[TraceEvent] = ()
    ) -> dict[int, Effects]:
        """The effects at each position, in their order."""
        changes: dict[int, list[Change]] = {}
        sent: dict[int, list[Output]] = {}
        called: dict[int, dict[str, list[str]]] = {}
        for write in writes:
            changes.setdefault(write[0], []).append(self._change(write))
        for output in outputs:
            sent.setdefault(output.position, []).append(output)
        for event in events:
            of_kind = called.setdefault(event.position, {})
            of_kind.setdefault(event.kind, []).extend(event.tasks)
        return {
            at: Effects(
                at,
                net(changes.get(at, [])),
                tuple(sent.get(at, [])),
                windows=tuple(called.get(at, {}).get("window", [])),
                ends=tuple(called.get(at, {}).get("end_of_stream", [])),
                committed=tuple(called.get(at, {}).get("commit", [])),
            )
            for at in sorted(changes.keys() | sent.keys() | called.keys())
        }

    def _cause(self, position: int) -> Cause:
        message = self._message_at(position)
        changes = tuple(self.changes_at(position))
        if message is None:
            return Cause(position, None, None, None, None, changes)
        return Cause(position, message.ssp, message.offset, message.key, message.message, changes)

    def _message_at(self, position: int) -> IncomingMessageEnvelope | None:
        if self.history is None or not self.history.has_begun:
            return None
        return self.history.message_at(position)


def instance_for(tasks: Sequence[TaskInstance], envelope: IncomingMessageEnvelope) -> TaskInstance | None:
    """The first task that reads the partition of a message."""
    return next(
        (task for task in tasks if any(each.ssp == envelope.ssp for each in task.subscriptions)), None
    )


def memory_of(task: TaskInstance) -> dict[str, Any]:
    """Copies of the attributes of a task's object, and of those of ``context.user`` as ``context.user.NAME``;
    the attributes themselves where they cannot be copied."""
    handles = {id(each): each for each in handles_of(task)}
    memory = TaskMemory(task)
    found = memory.attributes | {f"context.user{name}": value for name, value in memory.user.items()}
    return {name: value for name, value in found.items() if id(value) not in handles}


def _differences(before: Stores, after: Stores) -> dict[str, dict[str, dict[Any, tuple[Any, Any]]]]:
    found: dict[str, dict[str, dict[Any, tuple[Any, Any]]]] = {}
    for task in after:
        changed = _pairs(before.get(task, {}), after[task])
        if changed:
            found[task] = changed
    return found


def _pairs(
    before: Mapping[str, Mapping[Any, Any]], after: Mapping[str, Mapping[Any, Any]]
) -> dict[str, dict[Any, tuple[Any, Any]]]:
    """Per name and key the values that differ; None for no value."""
    found: dict[str, dict[Any, tuple[Any, Any]]] = {}
    for name in after:
        one, other = before.get(name, {}), after[name]
        changed = {
            key: (one.get(key), other.get(key))
            for key in [*one, *(key for key in other if key not in one)]
            if one.get(key) != other.get(key)
        }
        if changed:
            found[name] = changed
    return found
