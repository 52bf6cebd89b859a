"""Steps through the past, one message after the other, that stop at breakpoints as live ones do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, Protocol

from streambench.debug.effects.effects import Effects
from streambench.debug.stopping.breakpoints import Breakpoints, Kind
from streambench.debug.stopping.moment import Moment


class Traveller(Protocol):
    """A session, as a walk through its past needs it."""

    @property
    def position(self) -> int: ...

    @property
    def last(self) -> Effects: ...

    def upcoming(self) -> Sequence[Moment]: ...

    def advance(self) -> int: ...

    def moment(self, task: str, **seen: Any) -> Moment: ...


def walk(traveller: Traveller, breakpoints: Breakpoints, n: int, *, looks_first: bool = False) -> int:
    """Go up to ``n`` messages forward; how many. It stops at a breakpoint, and at the newest position. Raises
    what tasks of a branch raise. ``looks_first``: it may stop before the very first message."""
    done = 0
    while done < n:
        upcoming = traveller.upcoming()
        may_stop = looks_first or done > 0
        if not upcoming or (may_stop and any([_hits(breakpoints, "message", each) for each in upcoming])):
            break
        before = traveller.position
        if traveller.advance() == before:
            break  # a branch ends before the newest position
        done += traveller.position - before
        moments = list(moments_of(traveller.last, traveller.moment))
        if any([_hits(breakpoints, kind, moment) for kind, moment in moments]):
            break
    return done


def moments_of(effects: Effects, moment: Callable[..., Moment]) -> Iterator[tuple[Kind, Moment]]:
    """Everything that breakpoints look at behind the message at a position. ``moment`` makes one for a task,
    by its name."""
    for change in effects.writes:  # a breakpoint of a live job sees each of them
        seen = {"key": change.key, "before": change.before, "after": change.after}
        yield "state", moment(change.task, store_name=change.store, **seen)
    for output in effects.outputs:
        yield "output", moment(output.task, output=output)
    for task in effects.windows:
        yield "window", moment(task)
    for task in effects.committed:
        yield "commit", moment(task)


def _hits(breakpoints: Breakpoints, kind: Kind, moment: Moment) -> bool:
    return breakpoints.hit(kind, partial(_given, moment), counts=False)


def _given(moment: Moment) -> Moment:
    return moment
