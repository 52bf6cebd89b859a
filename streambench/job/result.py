"""Results of a run of a job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import Struct

from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.timers import WindowsLeft
from streambench.model import SystemStreamPartition

Ended = Literal["caught-up", "end-of-stream", "count", "condition", "shutdown", "signal"]
"""Why a run ended, in the order of ``Ended``: all inputs were at their head; all have ended; so
many messages were processed; the given function said so; the tasks shut it down; a signal (Ctrl-C) or another
process asked for it."""


class ContainerRun(Struct, frozen=True):
    """Result of one container.

    ``offsets``: per input partition the first offset that was not processed yet, before and after.
    ``messages``: how many were chosen; a broadcast message counts once in each container. ``seconds``: from
    its start to its end. ``passed_over``: what was dropped, dead-lettered or ignored. ``restarts``: how often
    its process died and was started again. ``messages`` and ``passed_over`` are of all these processes, as
    far as those that died had shown it (in snapshots). All the rest is of the last one. ``windows_left``: of
    a run that has an end, the messages that no ``window()`` has followed.
    """

    container: int
    messages: int
    offsets: Mapping[SystemStreamPartition, tuple[str, str]]
    seconds: float
    ended: Ended
    passed_over: ErrorCounts = ErrorCounts()
    restarts: int = 0
    windows_left: WindowsLeft = WindowsLeft()


class CountedContainer(Protocol):
    """The counts of one container."""

    @property
    def messages(self) -> int: ...

    @property
    def passed_over(self) -> ErrorCounts: ...

    @property
    def windows_left(self) -> WindowsLeft: ...


class Totals:
    """The sums over all containers of a job."""

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def containers(self) -> Sequence[CountedContainer]: ...

    @property
    def messages(self) -> int:
        """Number of messages that all containers processed."""
        return sum(each.messages for each in self.containers)

    @property
    def passed_over(self) -> ErrorCounts:
        """Messages that all containers dropped, dead-lettered or ignored."""
        return sum((each.passed_over for each in self.containers), ErrorCounts())

    @property
    def windows_left(self) -> WindowsLeft:
        """The messages in all containers that no ``window()`` has followed."""
        return sum((each.windows_left for each in self.containers), WindowsLeft())


class RunResult(Struct, Totals, frozen=True):
    """Result of a run: all its containers, each of which has ended cleanly, with a commit."""

    job: str
    containers: tuple[ContainerRun, ...]
    seconds: float

    @property
    def ended(self) -> Ended:
        """Why the run ended; of several containers that differ, the reason that cut it short."""
        reasons = {each.ended for each in self.containers}
        order: tuple[Ended, ...] = ("signal", "shutdown", "condition", "count", "caught-up", "end-of-stream")
        return next(reason for reason in order if reason in reasons)
