"""What a run of a job did."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from msgspec import Struct

from streambench.container.rejects import PassedOver
from streambench.model import SystemStreamPartition

Ended = Literal["caught-up", "end-of-stream", "count", "condition", "shutdown", "signal"]
"""Why a run ended, in the order of ``Ended``: all inputs were at their head; all have come to their end; so many messages were processed;
the given function said so; the tasks shut it down; a signal (Ctrl-C) or another process asked for it."""


class ContainerRun(Struct, frozen=True):
    """What one container did.

    ``offsets``: per input partition the first offset that was not processed yet, before and after. ``messages``: how many were chosen; a
    broadcast message counts once in each container. ``seconds``: from its start to its end. ``passed_over``: what was dropped,
    dead-lettered or ignored. ``restarts``: how often its process died and was started again. ``messages`` and ``passed_over`` are of all
    these processes, as far as those that died had shown it (in snapshots); all the rest is of the last one.
    """

    container: int
    messages: int
    offsets: Mapping[SystemStreamPartition, tuple[str, str]]
    seconds: float
    ended: Ended
    passed_over: PassedOver = PassedOver()
    restarts: int = 0


class RunResult(Struct, frozen=True):
    """What a run did: all its containers, each of which has ended cleanly, with a commit."""

    job: str
    containers: tuple[ContainerRun, ...]
    seconds: float

    @property
    def messages(self) -> int:
        """How many messages all containers processed."""
        return sum(each.messages for each in self.containers)

    @property
    def passed_over(self) -> PassedOver:
        """What all containers dropped, dead-lettered or ignored."""
        return sum((each.passed_over for each in self.containers), PassedOver())

    @property
    def ended(self) -> Ended:
        """Why the run ended; of several containers that differ, the reason that cut it short."""
        reasons = {each.ended for each in self.containers}
        order: tuple[Ended, ...] = ("signal", "shutdown", "condition", "count", "caught-up", "end-of-stream")
        return next(reason for reason in order if reason in reasons)
