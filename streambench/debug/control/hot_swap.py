"""Hot swap: the part of a session that exchanges the code of its tasks between two messages."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct

from streambench.container.tasks.task_instance import TaskInstance, check_task
from streambench.debug.control.time_travel import TimeTravel
from streambench.debug.effects.differences import Difference, MessageRef, Stores, differences
from streambench.debug.effects.effects import Effects
from streambench.debug.history.attributes import set_user_values, user_values
from streambench.debug.history.history import History
from streambench.debug.past.exchange import exchange, warn_of_window
from streambench.debug.past.replica import Replica
from streambench.debug.stopping.slices import Progress, Slices, Stoppable
from streambench.errors import ContainerStateError, SerdeError, TaskError
from streambench.model import SystemStreamPartition
from streambench.wording import words


class Swap(Struct, frozen=True):
    """A swap of code. ``changed``: of the messages that were replayed through both versions, those that
    differ. ``replayed``: their number; 0 without ``replay``. ``position``: where the code was exchanged.
    ``asked``: the number of messages to be replayed; fewer were where the new code failed. ``failed``: its
    error."""

    position: int
    replayed: int = 0
    changed: tuple[Difference, ...] = ()
    asked: int = 0
    failed: str | None = None

    @property
    def alike(self) -> int:
        """The number of replayed messages that do not differ."""
        return self.replayed - len(self.changed)

    @property
    def first(self) -> Difference | None:
        """The first difference, None where there is none."""
        return self.changed[0] if self.changed else None


class HotSwap(TimeTravel):
    """A session's way to exchange code. The state and the position stay."""

    _to_follow: Sequence[tuple[Any, bool]] = ()
    exchanges = 0
    """The number of exchanges of code, and of the state with it: more than one at a position, too."""

    def swap(self, task: Any, *, init: bool = False, replay: int | None = None) -> Swap:
        """Exchange the task's code between two messages: a class, or a function ``process``. State, position
        and attributes stay; with ``init``, attributes are made again by ``init``.

        ``replay``: run the last messages, so many, through both versions first, on copies. In the past, the
        new code begins a branch. Nothing is exchanged where the new code cannot be used. Raises ConfigError,
        TaskError, ContainerStateError."""
        check_task(task)
        if self._past is None:
            self._resume()
            self._to_follow = ()
        swap = Swap(self.position)
        if replay:
            swap = self.between(lambda: self._replayed(task, replay, init=init))
        past = self._past
        if past is not None:
            self._drive(lambda: past.swap(task, init=init))
        else:
            self.between(lambda: self._exchange(task, init=init))
        self.exchanges += 1
        self._changed()
        return swap

    def run_again(
        self,
        tasks: Sequence[Any],
        last: int | None = None,
        *,
        attributes: bool = False,
        progress: Progress = lambda done, total: None,
    ) -> list[RunAgain]:
        """Run the last messages (None: all of the history) through each of these tasks, on copies.

        They begin from the state before these messages: with the stores of that position, and the attributes
        that their ``init`` makes. With ``attributes``, they begin with those of that position, and those that
        ``init`` adds.

        A KeyboardInterrupt ends it: all have run as many messages then, unless one has failed. Raises
        ConfigError, ContainerStateError."""
        for task in tasks:
            check_task(task)
        history = self._living_history()
        if self.branched:
            raise ContainerStateError(f"in a branch nothing is recorded: {words('live')} first")
        work = Stoppable("runs again", progress)

        def made() -> tuple[int, int, list[_Rerun]]:
            end = self.position
            first = history.last_edge(max(history.oldest, 0 if last is None else end - last))
            init = not attributes
            return first, end, [self._replica(first, task, init=init, fill=attributes) for task in tasks]

        def run() -> list[RunAgain]:
            errors: list[str | None] = [None] * len(replicas)
            at, slices, work.total = first, Slices(), end - first
            while at < end and not work.stop.is_set():
                at = history.next_edge(min(end, at + slices.size))
                for number, replica in enumerate(replicas):
                    errors[number] = errors[number] or _go_on(replica, at, end)
                    self._collect(replica)
                slices.end()
                work.done = at - first
            return [
                self._ran_again(replica, first, error, interrupted=at < end)
                for replica, error in zip(replicas, errors, strict=True)
            ]

        # In a condition of a run, say: another thread would wait for this one.
        if self._is_driver:
            first, end, replicas = made()
            return run()
        # On this thread, an interrupt ends what leads to the first message, too.
        first, end, replicas = self.between(made)
        return work.run(lambda: self.between(run))

    def undo(self) -> bool:
        """Undo the last swap: the former code, with the current state; after ``init``, with the
        former attributes. False where there is none."""
        past = self._past
        if past is not None and past.branch:
            undone = self._drive(past.undo)
            self.exchanges += 1
            self._changed()
            return undone
        if past is not None:
            self._require_live("undo")
        if not self._former:
            return False
        self.between(self._exchange_back)
        self.exchanges += 1
        self._changed()
        return True

    def follow_codes(self, codes: Iterable[tuple[Any, bool]]) -> None:
        """Exchange the code as often as ``follow_next`` is called, for these codes, each with or without its
        ``init``. A ``swap`` by hand ends that."""
        self._to_follow = tuple(codes)

    def follow_next(self) -> None:
        """Exchange the code in a run, behind its last message, as a recorded job did there."""
        if not self._to_follow:
            return
        (factory, init), *self._to_follow = self._to_follow
        loop = self.container.runtime.event_loop
        # What led here is sent, and committed where that was asked for, before the other code begins.
        loop.call_between(lambda: None)
        self._exchange(factory, init=init)
        loop.progress.in_iteration = True

    def _exchange(self, factory: Any, *, init: bool) -> None:
        container = self.container
        before = container.factory
        objects = [(task.task, user_values(task.context)) for task in container.tasks]
        container.exchange(lambda: exchange(container.tasks, factory, init=init), factory)
        warn_of_window(self.name, before, factory)
        self._former.append((before, objects if init else None))
        if self.history is not None:
            self.history.cut(init=init)

    def _exchange_back(self) -> None:
        container = self.container
        factory, objects = self._former[-1]
        if objects is None:
            container.exchange(lambda: exchange(container.tasks, factory), factory)
        else:
            container.exchange(lambda: _bind(container.tasks, objects), factory)
        self._former.pop()
        if self.history is not None:
            self.history.cut(is_undone=objects is not None)

    def _replayed(self, factory: Any, count: int, *, init: bool) -> Swap:
        """Run the last messages through the new code, and compare with what was recorded."""
        history = self._living_history()
        if self.branched:
            raise ContainerStateError("in a branch nothing is recorded to compare with: swap without replay")
        end = self.position
        begin = history.last_edge(max(history.oldest, end - count))
        copy, message_of = self._replica(begin, factory, init=init), partial(_message_ref, history)
        found: list[Difference] = []
        at, error, slices = begin, None, Slices()
        # Compared slice by slice: so an interrupt is answered, and progress is shown, up to the end.
        while at < end and error is None:
            since, to = at, history.next_edge(min(end, at + slices.size))
            error = _go_on(copy, to, end)
            at, now = copy.replica.position, self._collect(copy)
            sent = self._made_of(history.outputs(since, at), held=False)
            was = self._effects_of(history.writes(since, at), sent)
            found += differences(was, now, sorted(was.keys() | now.keys()), message_of)
            slices.end()
            if at < to:
                break
        if error is not None:
            found = [each for each in found if each.position < at]
            found.append(Difference(*message_of(at), "error", "", None, error))
        return Swap(self.position, at - begin, tuple(found), end - begin, error)

    def _replica(self, begin: int, factory: Any, *, init: bool = False, fill: bool = False) -> _Rerun:
        """A copy with other code, and the state of a position. ``fill``: its ``init`` adds attributes that
        the former code had not. Raises ConfigError, TaskError where the code cannot be used."""
        replica = self._past_or_new().at(begin)
        replica.swap(factory, init=init, fill=fill and factory is not replica.factory)
        return _Rerun(replica, len(replica.writes), len(replica.outputs), {})

    def _collect(self, rerun: _Rerun) -> Mapping[int, Effects]:
        """Take what a copy did since the last call; the effects of that."""
        replica = rerun.replica
        writes, outputs = replica.writes_from(rerun.writes), replica.outputs[rerun.outputs :]
        rerun.writes += len(writes)
        rerun.outputs += len(outputs)
        new = self._effects_of(writes, self._made_of(outputs, held=False))
        rerun.effects |= new
        return new

    def _ran_again(
        self, rerun: _Rerun, begin: int, error: str | None, *, interrupted: bool = False
    ) -> RunAgain:
        """Everything that a copy did since it was made."""
        self._collect(rerun)
        replica = rerun.replica
        stores = {task.name: self._entries(task) for task in replica.tasks}
        refs = tuple(self._living_history().message_refs(begin, replica.position))
        return RunAgain(rerun.effects, begin, replica.position, error, stores, refs, interrupted)


class RunAgain(NamedTuple):
    """The effects of recorded messages with other code, after ``begin`` and up to ``end``, and the stores
    then. ``error``: of the task that failed there. ``refs``: the position, partition and offset of each
    message. ``interrupted``: more were asked for."""

    effects: Mapping[int, Effects]
    begin: int
    end: int
    error: str | None
    stores: Stores
    refs: Sequence[tuple[int, SystemStreamPartition, str]]
    interrupted: bool = False


class _Rerun(Struct):
    """A copy that runs messages again. ``effects``: those of its first ``writes`` and ``outputs``."""

    replica: Replica
    writes: int
    outputs: int
    effects: dict[int, Effects]


def _go_on(rerun: _Rerun, position: int, target: int) -> str | None:
    """Run up to a position on the way to a target; the error where the task fails."""
    try:
        rerun.replica.go_to(position, target)
    except (TaskError, SerdeError) as problem:
        return str(problem)
    return None


def _message_ref(history: History, position: int) -> MessageRef:
    """The message at a position."""
    return MessageRef(position, *(history.message_ref(position) or (None, None)))


def _bind(tasks: Sequence[TaskInstance], objects: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    for task, (former, user) in zip(tasks, objects, strict=True):
        task.bind(former)
        set_user_values(task.context, user)
