"""Priorities: nothing of a lower one goes as long as something of a higher one is there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from streambench.chooser.api import MessageChooser
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition

_Update = Callable[[IncomingMessageEnvelope], None]


class TieredPriorityChooser(MessageChooser):
    """One chooser for each priority, asked from the highest number down; the first that has a message wins.

    Streams without a priority belong to ``default``, which comes after all numbers, 0 and below included. A chooser hears only of
    the partitions of its own tier. That lower tiers starve while higher ones have messages is what priorities are for.

    Raises ConfigError where a priority has no chooser, and at the ``register`` of a stream that has neither priority nor default.
    """

    def __init__(
        self,
        priorities: Mapping[SystemStream, int],
        choosers: Mapping[int, MessageChooser],
        default: MessageChooser | None = None,
    ) -> None:
        for stream, priority in priorities.items():
            if priority not in choosers:
                raise ConfigError(f"{stream} has priority {priority}, but there is no chooser for it", key=_key(stream))
        self._priorities = dict(priorities)
        self._choosers: dict[int | None, MessageChooser] = {number: choosers[number] for number in sorted(choosers, reverse=True)}
        if default is not None:
            self._choosers[None] = default
        self._chooses = tuple(chooser.choose for chooser in self._choosers.values())
        self._updates: dict[SystemStreamPartition, _Update] = {}
        self._decided: Callable[[], IncomingMessageEnvelope | None] | None = None

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._chooser_of(ssp).register(ssp, offset)

    def start(self) -> None:
        for chooser in self._choosers.values():
            chooser.start()

    def stop(self) -> None:
        for chooser in self._choosers.values():
            chooser.stop()

    def at_head(self, ssp: SystemStreamPartition) -> None:
        self._chooser_of(ssp).at_head(ssp)

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        try:
            update = self._updates[envelope.ssp]
        except KeyError:
            update = self._updates[envelope.ssp] = self._chooser_of(envelope.ssp).update
        update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        for choose in self._chooses:
            envelope = choose()
            if envelope is not None:
                self._decided = choose
                return envelope
        self._decided = None
        return None

    def rule(self) -> str:
        if self._decided is None:
            return "priorities: nothing was there"
        at = self._chooses.index(self._decided)
        (number, chooser), *below = list(self._choosers.items())[at:]
        lower = [("none" if each is None else str(each)) for each, other in below if other.waiting()]
        return f"{_named(number)} over {', '.join(lower)}" if lower else chooser.rule()

    def held(self) -> Mapping[SystemStreamPartition, str]:
        """A tier is ahead of those below if something waits in it, or if it had the last choice: its next message may be about to come."""
        held: dict[SystemStreamPartition, str] = {}
        ahead: str | None = None
        for (number, chooser), choose in zip(self._choosers.items(), self._chooses, strict=True):
            if ahead is not None:
                held.update(dict.fromkeys(chooser.waiting(), f"{_named(number)}: after {ahead}"))
            else:
                held.update(chooser.held())
                if choose is self._decided or chooser.waiting():
                    ahead = _named(number)
        return held

    def waiting(self) -> Collection[SystemStreamPartition]:
        return [ssp for chooser in self._choosers.values() for ssp in chooser.waiting()]

    def _chooser_of(self, ssp: SystemStreamPartition) -> MessageChooser:
        stream = ssp.system_stream
        chooser = self._choosers.get(self._priorities.get(stream))
        if chooser is None:
            raise ConfigError(f"{stream} has no priority, and there is no chooser for streams without one", key=_key(stream))
        return chooser


def _key(stream: SystemStream) -> str:
    return f"systems.{stream.system}.streams.{stream.stream}.samza.priority"


def _named(number: int | None) -> str:
    return "no priority" if number is None else f"priority {number}"
