"""Breakpoints and watches: the part of a session that says where it stops, and which values it shows."""

from __future__ import annotations

from typing import Any

from streambench.debug.control.driving import between_messages
from streambench.debug.control.records import Records
from streambench.debug.stopping.breakpoints import Breakpoint, Breakpoints, Kind, Stopped
from streambench.debug.stopping.conditions import Condition, Conditional, ConditionError
from streambench.debug.stopping.moment import NoKeyError, Stores
from streambench.errors import StreambenchError, shortened
from streambench.model import SystemStreamPartition

_LAST_COMMITS = 20


class Stops(Records):
    """A session's breakpoints and watches."""

    _breakpoints: Breakpoints
    _watches: dict[str, Condition]

    def _begin_stops(self) -> None:
        """Begin without any."""
        self._breakpoints, self._watches = Breakpoints(self.container), {}
        # The position in the past at which a step has stopped before a message.
        self._stands_before: int | None = None

    def break_on(
        self, condition: Conditional, *, on: Kind = "message", once: bool = False, hits: int = 1
    ) -> Breakpoint:
        """Stop where a condition is true: ``on="message"`` before the message is processed, the other kinds
        just after it. ``hits``: only from the so many-th time on. ``once``: only one time.

        Raises ConditionError for an expression that is none, or uses unknown names."""
        made = Condition(condition, self._namespace)
        return self.between(lambda: self._breakpoints.add(made, on, once=once, at_hit=hits))

    def forget_stop(self) -> None:
        """Forget where it stopped, for one that stood there on behalf of a caller."""
        self._breakpoints.begin()

    @property
    def breakpoints(self) -> list[Breakpoint]:
        """The breakpoints, in the order of their numbers."""
        return [each for each in self._breakpoints.all if each.id]

    @between_messages
    def remove(self, id: int | Breakpoint) -> None:
        """Remove a breakpoint, or that of a number. Raises StreambenchError where there is none."""
        self._breakpoints.remove(self._breakpoint(id))

    def _breakpoint(self, id: int | Breakpoint) -> Breakpoint:
        found = next((each for each in self.breakpoints if id in (each.id, each)), None)
        if found is None:
            known = ", ".join(str(each.id) for each in self.breakpoints) or "none at all"
            raise StreambenchError(f"there is no breakpoint {id}; there is {known}")
        return found

    def take_over(self, former: Stops) -> None:
        """Take over the breakpoints and watches of a former session of the same job."""
        self._breakpoints.take_over(former._breakpoints)
        self._watches = dict(former._watches)

    @property
    def stopped_at(self) -> Stopped | None:
        """The breakpoint at which the last step or run stopped, and what it saw; None where it did not."""
        return self._breakpoints.stopped

    def goto(self, position: int | str | SystemStreamPartition, offset: str | int | None = None) -> int:
        reached = super().goto(position, offset)
        self._stands_before = None
        self._forget_passed_stop()
        return reached

    def go_live(self) -> int:
        latest = super().go_live()
        self._forget_passed_stop()
        return latest

    def _forget_passed_stop(self) -> None:
        """Forget a stop in the past where it is live again."""
        stopped = self._breakpoints.stopped
        if self.live and stopped is not None and stopped.moment.position < self.position:
            self._breakpoints.begin()

    @between_messages
    def landmarks(self) -> dict[int, str]:
        """The positions of the history at which something was, with what that was: its begin and end, its
        last commits and stops."""
        history = self._history()
        if not history.has_begun:
            return {}
        oldest, latest = history.oldest, history.latest
        commits = [each.position for each in history.events() if each.kind == "commit" and each.tasks]
        found = {oldest: "oldest", latest: "before the failure" if self.can_resume else "newest"}
        found |= dict.fromkeys(commits[-_LAST_COMMITS:], "commit") | dict(self._breakpoints.last_stops)
        return {position: what for position, what in found.items() if oldest <= position <= latest}

    def watch(self, name: str, condition: Conditional) -> None:
        """Have ``watches`` show a value by this name. Raises ConditionError."""
        self._watches[name] = Condition(condition, self._namespace, is_watch=True)

    def unwatch(self, name: str) -> None:
        """Show a value no longer. Raises StreambenchError where there is none of that name."""
        if self._watches.pop(name, None) is None:
            known = ", ".join(self._watches) or "none at all"
            raise StreambenchError(f"there is no watch {name}; there is {known}")

    @property
    def _watches_memory(self) -> bool:
        return any(condition.needs_memory for condition in self._watches.values())

    @property
    def watched(self) -> list[str]:
        """The names of the watches."""
        return list(self._watches)

    @property
    def watch_expressions(self) -> dict[str, str]:
        """The expressions of the watches, by name."""
        return {name: condition.text for name, condition in self._watches.items()}

    @between_messages
    def enable(self, id: int, on: bool = True) -> None:
        """Have a breakpoint stop again, or no longer. Raises StreambenchError where there is none."""
        self._breakpoints.enable(self._breakpoint(id), on)

    @between_messages
    def watches(self) -> dict[str, Any]:
        """The values watched, by name, as of the message at which it stands; a ConditionError where one
        cannot be evaluated now."""
        moment = (
            self._breakpoints.moment_at(self.message, self.position) if self.live else self._past_moment()
        )
        values: dict[str, Any] = {}
        for name, condition in self._watches.items():
            try:
                values[name] = condition.value(moment)
            except ConditionError as error:
                values[name] = error if error.missing is None else self._elsewhere(error.missing)
        return values

    def _elsewhere(self, missing: NoKeyError) -> ConditionError:
        """The error of a watch for a key that the task has not, with the task that has it, if one has."""
        tasks = self.container.tasks if self.live else self._tasks_here()
        holders = [
            each.name for each in tasks if missing.key in Stores(each.stores, each.name)[missing.store]
        ]
        where = f" (it is in {', '.join(holders)})" if holders else ""
        return ConditionError(
            f"no key {shortened(missing.key)} in the store {missing.store} of {missing.task}{where}"
        )
