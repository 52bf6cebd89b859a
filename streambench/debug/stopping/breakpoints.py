"""Breakpoints: conditions at which a session stops, and what they saw."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Literal, get_args

from msgspec import Struct

from streambench.checkpoint.api import Checkpoint
from streambench.container.container import Container
from streambench.container.observer import ContainerObserver, Given, SentOutput
from streambench.container.tasks.task_instance import TaskInstance
from streambench.debug.effects.events import Output
from streambench.debug.stopping.conditions import Condition, ConditionError
from streambench.debug.stopping.moment import Moment
from streambench.errors import SerdeError, StreambenchError, described, shortened
from streambench.model import IncomingMessageEnvelope
from streambench.serde.streams import StreamSerdes, readable
from streambench.store.task_store import TaskStore
from streambench.wording import words

Kind = Literal["message", "output", "state", "error", "commit", "window"]
KINDS: tuple[Kind, ...] = get_args(Kind)

_LAST_STOPS = 20
_EACH: dict[Kind, str] = {
    "message": "every message",
    "output": "every output",
    "state": "every change of state",
    "error": "every error",
    "commit": "every commit",
    "window": "every window",
}
"""The breakpoints without a condition, in words."""


class Breakpoint:
    """A condition at which the session stops. ``hits``: how often it was true so far; it stops from the
    ``at_hit``-th time on. ``once``: it is removed when it has stopped. A walk through the past counts as
    neither."""

    def __init__(
        self, id: int, condition: Condition, on: Kind, *, once: bool = False, at_hit: int = 1
    ) -> None:
        self.id = id
        self.condition = condition
        self.on = on
        self.once = once
        self.at_hit = at_hit
        self.hits = 0
        self.enabled = True
        self.is_spent = False

    def __str__(self) -> str:
        return _EACH[self.on] if self.condition.is_always else self.condition.text

    def __repr__(self) -> str:
        return f"<breakpoint {self.id}: {self}, on {self.on}, {self.hits} hits>"


class Stopped(Struct, frozen=True):
    """A stop at a breakpoint. ``text``: what it saw, in words. ``error``: why the condition could not be
    evaluated, None where it was true."""

    breakpoint: Breakpoint
    moment: Moment
    text: str
    error: ConditionError | None = None

    def __str__(self) -> str:
        return self.text


class Breakpoints:
    """The breakpoints of one container. ``stopped``: the last stop, since a run or step began.

    Each kind is watched by an observer of its own, which is attached while one of that kind is enabled."""

    def __init__(self, container: Container) -> None:
        self.stopped: Stopped | None = None
        self.all: list[Breakpoint] = []
        self.last_stops: deque[tuple[int, str]] = deque(maxlen=_LAST_STOPS)
        """The positions of the last stops, with their conditions."""
        self._container = container
        self._serdes = StreamSerdes(container.config)
        self._next = 1
        self.position = 0
        """The number of messages processed, with the one in work."""
        self.input: IncomingMessageEnvelope | None = None
        self.quick: list[Callable[[IncomingMessageEnvelope], object] | None] = []
        """The enabled conditions on messages, as functions of an envelope; None for one that needs a
        Moment."""
        self.quick_states: list[Callable[[Callable[[str], Any]], object] | None] = []
        """The enabled conditions on state, as functions of a change; None for one that needs a Moment."""
        self._watchers: list[_Watcher] = []

    def add(
        self, condition: Condition, on: Kind, *, once: bool = False, at_hit: int = 1, is_listed: bool = True
    ) -> Breakpoint:
        """Add a breakpoint; one that is not listed has the number 0. Between two messages. Raises
        StreambenchError for an unknown kind."""
        if on not in KINDS:
            raise StreambenchError(f"a breakpoint on '{on}'? There is {', '.join(KINDS)}")
        wanted = condition.kind
        if wanted is not None and on != wanted:
            raise ConditionError(
                f"the condition {condition.text} needs a breakpoint on {wanted}, not on {on}: add "
                f"{words('break on', wanted)}"
            )
        if at_hit < 1:
            raise StreambenchError(f"a breakpoint at hit {at_hit}? Give 1 or more")
        made = Breakpoint(self._next if is_listed else 0, condition, on, once=once, at_hit=at_hit)
        self._next += is_listed
        self.all.append(made)
        self._attach()
        return made

    def take_over(self, former: Breakpoints) -> None:
        """Take over those of a former container, with their numbers and hits. Between two messages."""
        self.all = [each for each in former.all if each.id]
        self._next = former._next
        self._attach()

    def remove(self, breakpoint: Breakpoint) -> None:
        """Remove a breakpoint. Between two messages."""
        self.all = [each for each in self.all if each is not breakpoint]
        self._attach()

    def enable(self, breakpoint: Breakpoint, on: bool) -> None:
        """Have a breakpoint stop again, or no longer. Between two messages."""
        breakpoint.enabled = on
        self._attach()

    def begin(self) -> None:
        """Begin a run or step: forget the last stop."""
        self.stopped = None
        self._find_position()

    def drop_spent(self) -> None:
        """Remove those that have stopped once and for all. Between two messages."""
        if any(each.is_spent for each in self.all):
            self.all = [each for each in self.all if not each.is_spent]
            self._attach()

    def chosen(self, envelope: IncomingMessageEnvelope) -> bool:
        """Note the next message; True where it is to be held."""
        position, self.position, self.input = self.position, self.position + 1, envelope
        return self.may_hold(envelope) and self.hit(
            "message", lambda: Moment(position, envelope, self._task_of(envelope))
        )

    def may_hold(self, envelope: IncomingMessageEnvelope) -> bool:
        """True where a condition holds of a message, which may come later, or may hold by then."""
        return _may_hold(self.quick, envelope)

    def hit(self, kind: Kind, moment: Callable[[], Moment], *, counts: bool = True) -> bool:
        """Evaluate the breakpoints of a kind; True where one stops. ``counts``: False for what was counted
        when it happened."""
        found = [each for each in self.all if each.on == kind and each.enabled]
        stops = False
        now = moment() if found else None
        for each in found:
            assert now is not None
            error: ConditionError | None = None
            try:
                if not each.condition.holds(now):
                    continue
            except ConditionError as problem:
                error = problem
            each.hits += counts
            if error is None and each.hits + (not counts) < each.at_hit:
                continue
            stops = True
            if self.stopped is None:
                text = str(error) if error is not None else _described(each, now)
                self.stopped = Stopped(each, now, text, error)
                self.last_stops.append((now.position, str(each)))
            if each.once and error is None and counts:
                each.enabled, each.is_spent = False, True
        return stops

    def hit_behind(self, kind: Kind, task: str, **seen: object) -> None:
        """Evaluate breakpoints that stop after the message in work."""
        if self.hit(kind, lambda: Moment(self.position, self.input, self._instance(task), **seen)):
            self._container.pause()

    def moment_at(self, envelope: IncomingMessageEnvelope | None, position: int) -> Moment:
        """The moment at which the container stands; without a message, that of its first task."""
        tasks = self._container.tasks
        task = self._task_of(envelope) if envelope is not None else tasks[0] if tasks else None
        return Moment(position, envelope, task)

    def output(self, sent: SentOutput) -> Output:
        """An output as conditions get it."""
        stream = sent.envelope.system_stream
        key_serde, message_serde = self._serdes.for_stream(stream)
        key, message = readable(key_serde, sent.key), readable(message_serde, sent.message)
        return Output(self.position, str(stream), sent.partition, key, message, sent.held, sent.task)

    def _attach(self) -> None:
        """Attach the watchers that the enabled breakpoints need, and detach the others."""
        enabled = [each for each in self.all if each.enabled]
        kinds = {each.on for each in enabled}
        self.quick = [each.condition.of_envelope for each in enabled if each.on == "message"]
        self.quick_states = [each.condition.of_change for each in enabled if each.on == "state"]
        wanted = [watcher for watcher, on in _WATCHERS if on & kinds]
        if not self._watchers:
            self._find_position()  # nothing has counted the messages since the run began
        for each in [each for each in self._watchers if type(each) not in wanted]:
            self._watchers.remove(each)
            self._container.stop_observing(each)
        for watcher in wanted:
            if not any(type(each) is watcher for each in self._watchers):
                self._watchers.append(watcher(self))
                self._container.observe(self._watchers[-1])

    def _find_position(self) -> None:
        """Take the position from the container. Between two messages."""
        self.position = self._container.chosen
        self.input = self._container.held or self.input

    def _task_of(self, envelope: IncomingMessageEnvelope) -> TaskInstance | None:
        tasks = self._container.tasks
        return next((task for task in tasks if envelope.ssp in task.model.partitions), None)

    def _instance(self, name: str) -> TaskInstance | None:
        return next((task for task in self._container.tasks if task.name == name), None)


class _Watcher(ContainerObserver):
    def __init__(self, breakpoints: Breakpoints) -> None:
        self._breakpoints = breakpoints


class _Messages(_Watcher):
    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        return self._breakpoints.chosen(envelope)


class _Batches(_Watcher):
    def ends_batch(self, envelope: IncomingMessageEnvelope) -> object:
        return self._breakpoints.may_hold(envelope)


class _Outputs(_Watcher):
    def output_sent(self, output: SentOutput) -> None:
        sent = self._breakpoints.output(output)
        self._breakpoints.hit_behind("output", output.task, output=sent)


class _States(_Watcher):
    def store_written(
        self, task: str, store: TaskStore, key: bytes, before: bytes | None, after: bytes | None
    ) -> None:
        def read(name: str) -> Any:
            if name == "store_name":
                return store.name
            if name == "key":
                return _decoded(store.decoded_key, key)
            value = before if name == "before" else after
            return None if value is None else _decoded(partial(store.decoded_value, key), value)

        # Nothing is decoded that no condition looks at.
        if not _may_hold(self._breakpoints.quick_states, read):
            return
        seen = {name: read(name) for name in ("key", "before", "after", "store_name")}
        self._breakpoints.hit_behind("state", task, **seen)


class _Callbacks(_Watcher):
    def callback_ended(self, task: str, callback: str, given: Given) -> None:
        if callback == "window":
            self._breakpoints.hit_behind("window", task)

    def callback_raised(self, task: str, callback: str, given: Given, error: BaseException) -> None:
        if isinstance(error, Exception):
            self._breakpoints.hit_behind("error", task, error=error)


class _Commits(_Watcher):
    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        for task in tasks:
            self._breakpoints.hit_behind("commit", task)


_WATCHERS: tuple[tuple[type[_Watcher], frozenset[Kind]], ...] = (
    (_Messages, frozenset(KINDS)),
    (_Batches, frozenset({"message"})),
    (_Outputs, frozenset({"output"})),
    (_States, frozenset({"state"})),
    (_Callbacks, frozenset({"error", "window"})),
    (_Commits, frozenset({"commit"})),
)
"""The watchers, and the kinds of breakpoints that need them."""


def _may_hold(conditions: Iterable[Callable[[Any], object] | None], given: Any) -> bool:
    """True where one of them holds, cannot be evaluated, or needs more than is given (None)."""
    for is_true in conditions:
        try:
            if is_true is None or is_true(given):
                return True
        except Exception:
            return True
    return False


def _decoded(decode: Callable[[bytes], Any], data: bytes) -> Any:
    """A key or value to look at: the bytes where they cannot be decoded, which is no failure of the task."""
    try:
        return decode(data)
    except SerdeError:
        return data


def _described(breakpoint: Breakpoint, moment: Moment) -> str:
    """A stop in words."""
    saw = breakpoint.condition.seen(moment)
    if not breakpoint.condition.is_always or breakpoint.on == "message":
        return saw
    if moment.error is not None:
        return f"{moment.task} raised {described(moment.error)}"
    if moment.output is not None:
        return f"{moment.task} sent to {moment.output.stream}: {shortened(moment.output.message)}"
    if breakpoint.on == "state":
        return f"[{shortened(moment.key)}] {shortened(moment.before)} -> {shortened(moment.after)}"
    return {"commit": f"{moment.task} was committed", "window": f"window() of {moment.task}"}[breakpoint.on]
