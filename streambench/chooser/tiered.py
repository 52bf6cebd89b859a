"""Priorities: as long as a stream of higher priority has messages, those of lower priority wait."""

from __future__ import annotations

from collections.abc import Mapping

from streambench.chooser.api import MessageChooser
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition


class TieredPriorityChooser(MessageChooser):
    """Asks one chooser per level of priority, the highest first; streams without a priority go to ``default``, below all levels.

    ``priorities``: per stream its level. ``choosers``: per level its chooser. Raises ConfigError where a level has none, and where a
    message comes
    from a stream without a level and there is no default. That lower levels may starve is intended (Samza's TieredPriorityChooser).
    """

    def __init__(
        self, priorities: Mapping[SystemStream, int], choosers: Mapping[int, MessageChooser], default: MessageChooser | None = None
    ) -> None:
        for stream, priority in priorities.items():
            if priority not in choosers:
                raise ConfigError(f"{stream} has priority {priority}, but there is no chooser for that level")
        self._priorities = dict(priorities)
        self._levels = dict(choosers)
        self._default = default
        self._order = [self._levels[level] for level in sorted(self._levels, reverse=True)] + ([] if default is None else [default])
        self._of_ssp: dict[SystemStreamPartition, MessageChooser] = {}
        self._waiting: set[SystemStreamPartition] = set()
        self._last: MessageChooser | None = None

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        for chooser in self._order:
            chooser.register(ssp, offset)

    def start(self) -> None:
        for chooser in reversed(self._order):
            chooser.start()

    def stop(self) -> None:
        for chooser in reversed(self._order):
            chooser.stop()

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        ssp = envelope.ssp
        chooser = self._of_ssp.get(ssp) or self._chooser(ssp)
        self._waiting.add(ssp)
        chooser.update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        for chooser in self._order:
            envelope = chooser.choose()
            if envelope is not None:
                self._waiting.discard(envelope.ssp)
                self._last = chooser
                return envelope
        self._last = None
        return None

    def rule(self) -> str:
        if self._last is None:
            return ""
        lower = {self._level(chooser) for chooser in map(self._chooser, self._waiting) if self._rank(chooser) > self._rank(self._last)}
        over = f" over {', '.join(sorted(lower))}" if lower else ""
        return f"{self._level(self._last)}{over}; {self._last.rule()}"

    def held(self) -> Mapping[SystemStreamPartition, str]:
        held: dict[SystemStreamPartition, str] = {}
        if not self._waiting:
            return held
        first = min((self._chooser(ssp) for ssp in self._waiting), key=self._rank)
        for ssp in self._waiting:
            chooser = self._chooser(ssp)
            if self._rank(chooser) > self._rank(first):
                held[ssp] = f"held: {self._level(chooser)}, below {self._level(first)}"
        for chooser in self._order:
            held.update(chooser.held())
        return held

    def _chooser(self, ssp: SystemStreamPartition) -> MessageChooser:
        priority = self._priorities.get(ssp.system_stream)
        chooser = self._default if priority is None else self._levels[priority]
        if chooser is None:
            raise ConfigError(f"{ssp.system_stream} has no priority, and there is no chooser for streams without one")
        self._of_ssp[ssp] = chooser
        return chooser

    def _rank(self, chooser: MessageChooser) -> int:
        return next(at for at, each in enumerate(self._order) if each is chooser)

    def _level(self, chooser: MessageChooser) -> str:
        return next((f"priority {level}" for level, each in self._levels.items() if each is chooser), "no priority")
