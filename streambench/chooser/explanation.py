"""Explanations of choices: made on request, never kept."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from msgspec import Struct

from streambench.errors import described
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition

_NAMED = 6


class Candidate(NamedTuple):
    """A message that could be chosen, printed ``system.stream.partition@offset``. ``offset`` is None where
    the chooser did not say."""

    ssp: SystemStreamPartition
    offset: str | None = None

    @classmethod
    def of(cls, envelope: IncomingMessageEnvelope) -> Candidate:
        return cls(envelope.ssp, envelope.offset)

    def __str__(self) -> str:
        return str(self.ssp) if self.offset is None else f"{self.ssp}@{self.offset}"


class Explanation(Struct, frozen=True):
    """A decision of a chooser.

    ``rule``: what decided, in a few words. ``winner``: the message that was chosen, None where none was.
    ``waiting``: the messages that were there and were not chosen. Those that the chooser named are in the
    order in which they would be chosen if no others arrived. ``held``: of which partitions nothing could be
    chosen whatever was there, and why. ``gate``: what everything else waits for at present, empty while the
    bootstrap gate is open.
    """

    rule: str
    winner: Candidate | None = None
    waiting: tuple[Candidate, ...] = ()
    held: Mapping[SystemStreamPartition, str] = {}
    gate: str = ""

    @property
    def candidates(self) -> tuple[Candidate, ...]:
        """All messages that were there, the winner first."""
        return self.waiting if self.winner is None else (self.winner, *self.waiting)

    @property
    def queue(self) -> list[Candidate]:
        """The messages after the winner, in this order, if nothing else arrives; those that the chooser
        named."""
        return [each for each in self.waiting if each.offset is not None and each.ssp not in self.held]

    def lines(self) -> list[str]:
        """The decision in words: the rule, the other candidates, the next one, which are held back and why,
        and what the gate waits for."""
        return [f"{self.winner or 'nothing was chosen'} ({self.rule})", *self.others(), *closed(self.gate)]

    def others(self, named: Callable[[Candidate], str] = str, most: int = _NAMED) -> list[str]:
        """Of ``lines``, those about the candidates that were not chosen, each ``named`` so; at most so many
        names in a row (2 or more)."""
        by_reason: dict[str, list[Candidate]] = {}
        for each in self.waiting:
            if each.ssp in self.held:
                by_reason.setdefault(self.held[each.ssp], []).append(each)
        count = len(self.candidates)
        following = f", next {_listed(self.queue, named, most)}" if self.queue else ""
        # The chooser did not say when these come.
        if unordered := [each for each in self.waiting if each.offset is None and each.ssp not in self.held]:
            following += f", others {_listed(unordered, named, most)}"
        held = [
            f"held back: {_listed(places, named, most)} ({reason})" for reason, places in by_reason.items()
        ]
        return [f"{count} candidate{'' if count == 1 else 's'}{following}", *held]

    def __str__(self) -> str:
        return "\n".join(self.lines())


def unexplained(chooser: object, error: Exception, chosen: IncomingMessageEnvelope | None) -> Explanation:
    """Return the explanation where a chooser's ``explain`` raises: a display must not stop a job."""
    rule = f"{type(chooser).__name__} cannot explain it: {described(error)}"
    return Explanation(rule, None if chosen is None else Candidate.of(chosen))


def closed(gate: str) -> list[str]:
    """The line that says what the bootstrap gate waits for; none while it is open."""
    return [f"gate closed, {gate}"] if gate else []


def all_held(
    partitions: Iterable[SystemStreamPartition], but: Collection[SystemStreamPartition], reason: str
) -> dict[SystemStreamPartition, str]:
    """``Explanation.held`` where one reason holds all partitions but some."""
    return {ssp: reason for ssp in partitions if ssp not in but}


def _listed(candidates: Collection[Candidate], named: Callable[[Candidate], str], most: int) -> str:
    names = [named(each) for each in candidates]
    if len(names) <= most:
        return ", ".join(names)
    return f"{', '.join(names[: most - 1])} and {len(names) - most + 1:,} more"
