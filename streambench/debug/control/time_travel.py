"""Time travel: the part of a session that goes back in its container's history, and forward again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache
from typing import Any, TypeVar

from streambench.debug.control.driving import between_messages
from streambench.debug.control.inspection import Inspection, instance_for
from streambench.debug.crash.crash import Crash, crash_at, crash_steps
from streambench.debug.crash.crash_report import Report
from streambench.debug.effects.effects import Effects
from streambench.debug.history.history import History
from streambench.debug.past.exchange import warn_of_window
from streambench.debug.past.past import Past, find_back, resume
from streambench.debug.past.replica import Replica
from streambench.debug.stopping.conditions import Condition, Conditional, ConditionError
from streambench.debug.stopping.moment import Moment
from streambench.debug.stopping.past_steps import moments_of
from streambench.errors import ContainerStateError, TaskError
from streambench.model import SystemStreamPartition
from streambench.wording import words

_T = TypeVar("_T")
_EFFECTS = 1_000
"""Positions whose effects are read at once."""


class TimeTravel(Inspection):
    """A session's way through time. A position is the number of messages processed since the start.

    In the past the container itself stands still: its streams, stores and checkpoints stay as they are."""

    _namespace: Mapping[str, Any] | None

    @property
    def _watches_memory(self) -> bool:
        """True where a watch looks at what tasks keep in memory."""
        return False

    def _begin_history(self, history: int | bool | None) -> None:
        super()._begin_history(history)
        self._former: list[tuple[Any, list[tuple[Any, dict[str, Any]]] | None]] = []

    def _resume(self) -> None:
        if self.can_resume:
            self._drive(lambda: resume(self._history()))
            self._closed = self.error = None

    @property
    def rerun_to_resume(self) -> int:
        """The number of messages that run again, on a copy, to have the state before the one that failed. 0
        where it is not at one."""
        if not self.can_resume:
            return 0
        history = self._history()
        return self.between(lambda: history.latest - history.block_at(history.latest).start)

    @property
    def branched(self) -> bool:
        """True while it stands in the past with other code: its outputs are held back."""
        return self._past is not None and bool(self._past.branch)

    def back(self, n: int = 1) -> int:
        """Go ``n`` messages back, at most to the begin of the history, and return the new position. Inside of
        a batch, go to the begin of it. Raises ContainerStateError."""
        history = self._living_history()
        here = self.position
        return self.goto(self.between(lambda: history.last_edge(max(here - n, min(history.oldest, here)))))

    def goto(self, position: int | str | SystemStreamPartition, offset: str | int | None = None) -> int:
        """Go to a position, or to where the message at this offset of a partition was processed last. Inside
        of a batch, go to the end of it. The new position. Raises ContainerStateError."""
        self._go(position, offset)
        self._run_again_for_watches()
        return self.position

    def _go(self, position: int | str | SystemStreamPartition, offset: str | int | None = None) -> None:
        """Go to a position, which is not shown: ``goto`` without what its watches need."""
        history = self._living_history()

        def go() -> None:
            past = self._past or Past(history)
            to = self._edge_of(history, position, offset)
            if to == history.latest and not past.branch:
                self._past = None
                return
            past.go_to(to)
            self._past = past

        self._travel(go)

    def bring_memory(self) -> None:
        """Have what tasks keep in memory at hand; in the past they run again up to the position. Here it can
        be interrupted, and says how far it is. Raises what they raise."""
        if self._past is not None:
            self._travel(self._past.run_again)

    def _run_again_for_watches(self) -> None:
        """Have what the watches look at at hand."""
        if self._watches_memory:
            with suppress(TaskError):  # which the watch shows
                self.bring_memory()

    @between_messages
    def position_of(
        self, position: int | str | SystemStreamPartition, offset: str | int | None = None
    ) -> int:
        """The position to which ``goto`` would go; also asked of a session that runs, which goes on. Raises
        ContainerStateError where the history does not have it."""
        history = self._living_history()
        found = self._edge_of(history, position, offset)
        history.block_at(found)  # raises for what is not in the history
        return found

    def back_until(self, condition: Conditional) -> int:
        """Go back to the last position before this one at which a condition held. The condition is of its
        message and the state after it, or of a change or an output of it. Returns the new position, the
        present one where there is none. Raises ContainerStateError, and ConditionError."""
        history = self._living_history()
        holds = self._condition(condition)
        here = self.position
        found = self._drive(lambda: find_back(history, here, (self._past or Past(history)).at, holds))
        return here if found is None else self.goto(found)

    def go_live(self) -> int:
        """Return to the newest position; a branch is dropped. The position."""

        def leave() -> None:
            self._past = None

        # Not before a read of another thread has ended, which may be of the past.
        self._drive(leave)
        return self.position

    def adopt(self) -> int:
        """Make the branch the truth: it runs to the newest position, and the container goes on from its
        state with its code. The history holds it in the place of what was recorded after its begin. The
        position. Raises ContainerStateError where outputs are out already, and what
        tasks raise."""
        past = self._past
        if past is None:
            raise ContainerStateError(
                f"{self.name} is live: there is no branch to adopt. {words('go back')} first, then "
                f"{words('swap')} begins one"
            )

        def adopt() -> None:
            before = self.container.factory
            past.adopt()
            warn_of_window(self.name, before, self.container.factory)
            self._former.append((before, None))
            self._past = None

        self._travel(adopt)
        return self.position

    def crash(self, *, inside_commit: bool = False) -> Crash:
        """Simulate ``kill -9`` at the position: what comes again from the last commit, which outputs are
        there twice, and how state differs. Streams, stores and checkpoints stay as they are.

        ``inside_commit``: before the commit at the position is done. Raises ContainerStateError."""
        return self._drive(lambda: self._crash(inside_commit=inside_commit))

    def crash_everywhere(self, progress: Callable[[int, int], object] = lambda done, total: None) -> Report:
        """Simulate a crash after each position of the history, and inside each commit; the verdict of each.

        ``progress(done, total)`` is called now and then, with steps. A KeyboardInterrupt ends it
        with the verdicts so far. Raises ContainerStateError."""
        return self._drive(lambda: crash_steps(self._living_history(), progress))

    def _crash(self, *, inside_commit: bool) -> Crash:
        history = self._living_history()
        if self.branched:
            raise ContainerStateError(
                f"a branch is never committed, and a crash would drop it: {words('live')} first, or "
                f"{words('goto')} to a recorded position"
            )
        return crash_at(history, self.position, self._maker(), inside_commit=inside_commit)

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

    def _require_live(self, what: str) -> None:
        """Raise ContainerStateError in the past. ``what``: the remedy that is asked for."""
        if self._past is not None:
            raise ContainerStateError(
                f"{self.name} stands in the past, at {self.position:,} of {self.latest:,}: {words('live')} "
                f"first, then {words(what)}"
            )

    @between_messages
    def upcoming(self) -> list[Moment]:
        """The moments before the next recorded message, or each message of the next batch; none at the newest
        position."""
        position = self.position
        if position == self.latest:
            return []
        _, end = self._history().edges(position + 1)
        found = map(self.message_at, range(position + 1, end + 1))
        return [Moment(position, each, self._instance_for(each)) for each in found if each is not None]

    def _edge_of(
        self, history: History, position: int | str | SystemStreamPartition, offset: str | int | None
    ) -> int:
        """A position, or that of a message; inside of a batch, the end of it."""
        return history.next_edge(
            position if isinstance(position, int) else self._position_of(history, position, offset)
        )

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
                f"{ssp}@{offset} is not in the history, which reaches from position {history.oldest:,} to "
                f"{history.latest:,}"
            )
        return found

    def _condition(self, condition: Conditional) -> Callable[[Replica], bool]:
        """A function that returns true where a condition holds after the last message of a replica. Raises
        ConditionError where the expression is none."""
        made = self._past_condition(condition)

        @lru_cache(maxsize=1)
        def effects_from(first: int) -> dict[int, Effects]:
            return {each.position: each for each in self.effects(first - 1, first + _EFFECTS - 1)}

        def holds(replica: Replica) -> bool:
            at, envelope = replica.position, replica.message
            assert envelope is not None
            if made.kind is None:
                instance = instance_for(replica.tasks, envelope)
                return made.holds(Moment(at, envelope, instance))
            instances = {each.name: each for each in replica.tasks}

            def moment(task: str, **seen: Any) -> Moment:
                return Moment(at, envelope, instances.get(task), **seen)

            effects = effects_from(at - at % _EFFECTS).get(at, Effects(at))
            return any(kind == made.kind and made.holds(each) for kind, each in moments_of(effects, moment))

        return holds

    def _past_condition(self, condition: Conditional) -> Condition:
        """A condition of positions in the past. Raises ConditionError."""
        return condition_of_past(condition, self._namespace)

    def _past_moment(self) -> Moment:
        """The moment at the position in the past."""
        envelope, tasks = self.message, self._tasks_here()
        instance = self._instance_for(envelope) if envelope is not None else tasks[0] if tasks else None
        return Moment(self.position, envelope, instance)


def condition_of_past(condition: Conditional, namespace: Mapping[str, Any] | None) -> Condition:
    """A condition of positions in the past. Raises ConditionError."""
    made = Condition(condition, namespace)
    if made.kind == "error":
        raise ConditionError(f"no position in the past has an error, as {made.text} needs it")
    return made
