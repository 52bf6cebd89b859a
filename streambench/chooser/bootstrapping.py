"""The bootstrap gate: some streams are read to where they ended at the start before anything else is processed."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping

from streambench.chooser.api import MessageChooser
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition

log = logging.getLogger(__name__)

Compare = Callable[[str, str], int | None]


class BootstrappingChooser(MessageChooser):
    """Lets only messages of streams that still bootstrap through to ``wrapped``, until all of them have caught up.

    ``bootstrap``: per bootstrap stream what its partitions held at the start. A partition has caught up once a message at or beyond its
    newest
    offset was chosen, or if there was nothing to read; partitions that are never registered belong to other containers and do not count.
    Bootstrap
    streams go in the order of ``priorities`` (the highest first; one that has none there before those that have), equal ones together. A
    partition that has caught up waits until all streams have. What waited then goes on in the order in which it arrived. ``compare``
    compares offsets
    (None: as numbers).

    The gate is exclusive by itself: no message of another stream passes while it is closed, even when no message of a bootstrap stream is
    there.
    """

    def __init__(
        self,
        wrapped: MessageChooser,
        bootstrap: Mapping[SystemStream, Mapping[int, PartitionMetadata]],
        *,
        priorities: Mapping[SystemStream, int] | None = None,
        compare: Compare | None = None,
    ) -> None:
        self._wrapped = wrapped
        self._metadata = {
            SystemStreamPartition(stream.system, stream.stream, number): here
            for stream, partitions in bootstrap.items()
            for number, here in partitions.items()
        }
        self._priorities = dict(priorities or {})
        self._compare = compare or _compare_numbers
        self._starts: dict[SystemStreamPartition, str] = {}
        self._lagging: set[SystemStreamPartition] = set()
        self._open_to: frozenset[SystemStreamPartition] = frozenset()
        self._waiting: list[IncomingMessageEnvelope] = []
        self._inside = 0
        self._told = False
        self._last_was_gated = False

    @property
    def lagging(self) -> frozenset[SystemStreamPartition]:
        """The partitions that keep the gate closed."""
        return frozenset(self._lagging)

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        known = self._starts.get(ssp)
        if known is None or (self._compare(offset, known) or 0) < 0:
            self._starts[ssp] = offset
        self._wrapped.register(ssp, offset)

    def start(self) -> None:
        self._lagging = {ssp for ssp, offset in self._starts.items() if ssp in self._metadata and self._has_to_read(ssp, offset)}
        self._wrapped.start()
        self._admit()

    def stop(self) -> None:
        self._wrapped.stop()

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        if self._lagging and envelope.ssp not in self._open_to:
            self._waiting.append(envelope)
        else:
            self._inside += 1
            self._wrapped.update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        envelope = self._wrapped.choose()
        self._last_was_gated = bool(self._lagging)
        if envelope is None:
            self._tell()
        else:
            self._inside -= 1
            if envelope.ssp in self._lagging:
                self._chosen(envelope)
        return envelope

    def rule(self) -> str:
        return ("bootstrap, before all other streams; " if self._last_was_gated else "") + self._wrapped.rule()

    def held(self) -> Mapping[SystemStreamPartition, str]:
        reason = f"held: {self._reason()}"
        return {**self._wrapped.held(), **{envelope.ssp: reason for envelope in self._waiting}}

    def _has_to_read(self, ssp: SystemStreamPartition, offset: str) -> bool:
        newest = self._metadata[ssp].newest
        if newest is None:
            return False
        order = self._compare(offset, newest)
        return order is None or order <= 0

    def _chosen(self, envelope: IncomingMessageEnvelope) -> None:
        newest = self._metadata[envelope.ssp].newest
        assert newest is not None
        order = self._compare(envelope.offset, newest)
        if (order is None and envelope.offset == newest) or (order is not None and order >= 0):
            self._lagging.discard(envelope.ssp)
            self._told = False
            self._admit()

    def _admit(self) -> None:
        """Let in what may pass now."""
        first = max(map(self._rank, self._lagging), default=math.inf)
        self._open_to = frozenset(ssp for ssp in self._lagging if self._rank(ssp) == first)
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self.update(envelope)

    def _rank(self, ssp: SystemStreamPartition) -> float:
        return self._priorities.get(ssp.system_stream, math.inf)

    def _tell(self) -> None:
        """Say once why nothing is processed although messages wait: nobody could tell otherwise."""
        if self._waiting and not self._told:
            self._told = True
            log.info("%d partitions wait: %s", len(self._waiting), self._reason())

    def _reason(self) -> str:
        streams = sorted({str(ssp.system_stream) for ssp in self._open_to})
        return f"bootstrap: {', '.join(streams)} must catch up first"


def _compare_numbers(offset: str | None, other: str | None) -> int | None:
    if offset is None or other is None or not (offset.isdecimal() and other.isdecimal()):
        return None
    return (int(offset) > int(other)) - (int(offset) < int(other))
