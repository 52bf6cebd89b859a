"""Hot swap: the part of a session that exchanges the code of its tasks between two messages."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from streambench.container.tasks.task_instance import TaskInstance, check_task
from streambench.container.timers import has_window
from streambench.container.trace import Sent
from streambench.debug.attributes import set_user_values, user_values
from streambench.debug.events import Output, changed_text
from streambench.debug.exchange import exchange
from streambench.debug.history import History
from streambench.debug.time_travel import TimeTravel
from streambench.debug.writes import StoreWrite
from streambench.errors import ContainerStateError, TaskError
from streambench.model import SystemStreamPartition

log = logging.getLogger(__name__)

_FINAL = dict[tuple[int, bytes], bytes | None]


class Difference(Struct, frozen=True):
    """The first difference between two versions of a task at one message.

    ``what``: ``state``, ``output`` or ``error``. ``name``: ``store[key]``, or the stream. ``before``,
    ``after``: the values that the old and the new version wrote (None: no value), their outputs (None: no
    output), or the error of the new one."""

    position: int
    ssp: SystemStreamPartition | None
    offset: str | None
    what: str
    name: str
    before: Any
    after: Any

    def __str__(self) -> str:
        if self.what == "error":
            return f"{self.position:,}: {self.after}"
        name = self.name if self.what == "state" else f"-> {self.name}"
        return f"{self.position:,}: {name} {changed_text(self.before, self.after)}"


class Swap(Struct, frozen=True):
    """A swap of code. ``changed``: of the messages that were replayed through both versions, those that
    differ. ``replayed``: their number; 0 without ``replay``. ``position``: where the code was exchanged."""

    position: int
    replayed: int = 0
    changed: tuple[Difference, ...] = ()

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

    def swap(self, task: Any, *, init: bool = False, replay: int | None = None) -> Swap:
        """Exchange the task's code between two messages: a class, or a function ``process``. State, position
        and attributes stay; with ``init``, attributes are made again by ``init``.

        ``replay``: run the last messages, so many, through both versions first, on copies. In the past, the
        new code begins a branch. Nothing is exchanged where the new code cannot be used. Raises ConfigError,
        TaskError, ContainerStateError."""
        check_task(task)
        if self._past is None:
            self._resume()
        swap = Swap(self.position)
        if replay:
            swap = self._between(lambda: self._replayed(task, replay, init=init))
        past = self._past
        if past is not None:
            self._drive(lambda: past.swap(task, init=init))
        else:
            self._between(lambda: self._exchange(task, init=init))
        self._swapped()
        return swap

    def undo(self) -> bool:
        """Take the last swap back: the code of before, with the state of now; after ``init``, with the
        attributes of before. False where there is none."""
        past = self._past
        if past is not None and past.branch:
            undone = self._drive(past.undo)
            self._swapped()
            return undone
        if past is not None:
            self._require_live("undo()")
        if not self._former:
            return False
        self._between(self._exchange_back)
        self._swapped()
        return True

    def _swapped(self) -> None:
        raise NotImplementedError

    def _exchange(self, factory: Any, *, init: bool) -> None:
        container = self.container
        before = container.factory
        had_window = has_window(before)
        objects = [(task.task, user_values(task.context)) for task in container.tasks]
        container.exchange(lambda: exchange(container.tasks, factory, init=init), factory)
        if has_window(factory) and not had_window:
            log.warning(
                "%s: window() of the new code is called from the next start on: the code of before had none",
                self.name,
            )
        self._former.append((before, objects if init else None))
        if self.history is not None:
            self.history.cut()

    def _exchange_back(self) -> None:
        container = self.container
        factory, objects = self._former[-1]
        if objects is None:
            container.exchange(lambda: exchange(container.tasks, factory), factory)
        else:
            container.exchange(lambda: _bind(container.tasks, objects), factory)
        self._former.pop()
        if self.history is not None:
            self.history.cut()

    def _replayed(self, factory: Any, count: int, *, init: bool) -> Swap:
        """Run the last messages through the new code, and compare with what was recorded."""
        history = self._living_history()
        if self.branched:
            raise ContainerStateError("in a branch nothing is recorded to compare with: swap without replay")
        end = self.position
        begin = max(history.oldest, end - count)
        replica = self._past_or_new().at(begin)
        replica.swap(factory, init=init)
        writes, outputs = len(replica.writes), len(replica.outputs)
        error: tuple[int, str] | None = None
        try:
            replica.go_to(end)
        except TaskError as problem:
            error = replica.position, str(problem)
            end = replica.position
        found = self._compared(
            history,
            begin,
            end,
            _by_position(replica.writes[writes:]),
            _outputs_by_position(replica.outputs[outputs:]),
        )
        if error is not None:
            found = [each for each in found if each.position < error[0]]
            found.append(_difference(history, error[0], "error", "", None, error[1]))
        return Swap(self.position, end - begin, tuple(found))

    def _compared(
        self,
        history: History,
        begin: int,
        end: int,
        writes: dict[int, _FINAL],
        outputs: dict[int, list[Sent]],
    ) -> list[Difference]:
        was_written = _by_position(list(history.writes(begin, end)))
        was_sent = _outputs_by_position(list(history.outputs(begin, end)))
        found = []
        for position in sorted({*writes, *was_written, *outputs, *was_sent}):
            one, other = was_written.get(position, {}), writes.get(position, {})
            for store, key in [*one, *(each for each in other if each not in one)]:
                change = self._change((position, store, key, one.get((store, key)), other.get((store, key))))
                if change.before != change.after:
                    name = f"{change.store}[{change.key}]"
                    found.append(_difference(history, position, "state", name, change.before, change.after))
                    break
            else:
                difference = self._of_outputs(position, was_sent.get(position, []), outputs.get(position, []))
                if difference is not None:
                    name, before, after = difference
                    found.append(_difference(history, position, "output", name, before, after))
        return found

    def _of_outputs(
        self, position: int, one: Sequence[Sent], other: Sequence[Sent]
    ) -> tuple[str, Any, Any] | None:
        made = self._maker()
        before: list[Output | None] = [each for sent in one for each in made.of(position, sent, held=False)]
        after: list[Output | None] = [each for sent in other for each in made.of(position, sent, held=False)]
        length = max(len(before), len(after))
        before += [None] * (length - len(before))
        after += [None] * (length - len(after))
        for was, now in zip(before, after, strict=True):
            if was is None or now is None or (was.stream, was.key, was.message) != (
                now.stream, now.key, now.message,
            ):  # fmt: skip
                stream = now.stream if now is not None else was.stream if was is not None else ""
                return stream, None if was is None else was.message, None if now is None else now.message
        return None


def _difference(history: History, position: int, what: str, name: str, before: Any, after: Any) -> Difference:
    ssp, offset = history.place_of(position) or (None, None)
    return Difference(position, ssp, offset, what, name, before, after)


def _bind(tasks: Sequence[TaskInstance], objects: Sequence[tuple[Any, dict[str, Any]]]) -> None:
    for task, (former, user) in zip(tasks, objects, strict=True):
        task.bind(former)
        set_user_values(task.context, user)


def _by_position(writes: Sequence[StoreWrite]) -> dict[int, _FINAL]:
    """Per position, the last value written of each key."""
    found: dict[int, _FINAL] = {}
    for position, store, key, _, value in writes:
        found.setdefault(position, {})[store, key] = value
    return found


def _outputs_by_position(outputs: Sequence[tuple[int, Sent]]) -> dict[int, list[Sent]]:
    found: dict[int, list[Sent]] = {}
    for position, sent in outputs:
        found.setdefault(position, []).append(sent)
    return found
