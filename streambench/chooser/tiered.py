"""Priorities: nothing of a lower one goes as long as something of a higher one is there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from msgspec.structs import replace

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Explanation
from streambench.chooser.fast_paths import take_batch
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition

_Update = Callable[[IncomingMessageEnvelope], None]


class TieredPriorityChooser(MessageChooser):
    """One chooser for each priority, asked from the highest number down; the first that has a message wins.

    Streams without a priority belong to ``default``, which comes after all numbers, 0 and below included. A
    chooser hears only of the partitions of its own tier. That lower tiers starve while higher ones have
    messages is what priorities are for.

    Raises ConfigError where a priority has no chooser, and at the ``register`` of a stream that has neither
    priority nor default.
    """

    def __init__(
        self,
        priorities: Mapping[SystemStream, int],
        choosers: Mapping[int, MessageChooser],
        default: MessageChooser | None = None,
    ) -> None:
        for stream, priority in priorities.items():
            if priority not in choosers:
                raise ConfigError(
                    f"{stream} has priority {priority}, but there is no chooser for it", key=_key(stream)
                )
        self._priorities = dict(priorities)
        self._choosers: dict[int | None, MessageChooser] = {
            number: choosers[number] for number in sorted(choosers, reverse=True)
        }
        if default is not None:
            self._choosers[None] = default
        self._chooses = tuple(chooser.choose for chooser in self._choosers.values())
        self._updates: dict[SystemStreamPartition, _Update] = {}
        self._decided: Callable[[], IncomingMessageEnvelope | None] | None = None
        self._partitions: dict[SystemStreamPartition, None] = {}

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._chooser_of(ssp).register(ssp, offset)
        self._partitions[ssp] = None

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

    def take_batch(self, offsets: Sequence[str]) -> int:
        """Return the answer of the tier's chooser: nothing above it waited when it chose."""
        if self._decided is None:
            return 1
        chooser = list(self._choosers.values())[self._chooses.index(self._decided)]
        return take_batch(chooser, offsets)

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        """The tier that won, or the first that has something, is ahead of those below. So is the one that had
        the last choice: its next message may be about to come."""
        explained: dict[int | None, Explanation] = {}
        ahead: list[int | None] = []
        for (number, chooser), choose in zip(self._choosers.items(), self._chooses, strict=True):
            is_winner = chosen is not None and self._chooser_of(chosen.ssp) is chooser
            explained[number] = chooser.explain(chosen if is_winner else None)
            if is_winner or (chosen is None and (explained[number].waiting or choose is self._decided)):
                ahead.append(number)
        waiting = tuple(each for tier in explained.values() for each in tier.waiting)
        if not ahead:
            return Explanation("priorities: nothing was there", None, waiting)
        number, first = ahead[0], explained[ahead[0]]
        below = list(explained)[list(explained).index(number) + 1 :]
        tiers = {ssp: self._priorities.get(ssp.system_stream) for ssp in self._partitions}
        held = {
            ssp: f"{_named(tier)}: after {_named(number)}" for ssp, tier in tiers.items() if tier in below
        }
        rule = first.rule
        if lower := ["none" if tier is None else str(tier) for tier in below if explained[tier].waiting]:
            over = f"{_named(number)} over {', '.join(lower)}"
            rule = f"{over}; {rule}" if first.waiting else over
        return replace(first, rule=rule, waiting=waiting, held={**first.held, **held})

    def _chooser_of(self, ssp: SystemStreamPartition) -> MessageChooser:
        stream = ssp.system_stream
        chooser = self._choosers.get(self._priorities.get(stream))
        if chooser is None:
            raise ConfigError(
                f"{stream} has no priority, and there is no chooser for streams without one", key=_key(stream)
            )
        return chooser


def _key(stream: SystemStream) -> str:
    return f"systems.{stream.system}.streams.{stream.stream}.samza.priority"


def _named(number: int | None) -> str:
    return "no priority" if number is None else f"priority {number}"
