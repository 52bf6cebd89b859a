"""The bootstrap gate: some streams are read up to where they ended at the start before anything else goes."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence

from msgspec.structs import replace

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Candidate, Explanation, all_held
from streambench.chooser.fast_paths import take_batch
from streambench.model import IncomingMessageEnvelope, PartitionMetadata, SystemStream, SystemStreamPartition

log = logging.getLogger(__name__)

Compare = Callable[[str, str], int | None]
"""Below 0, 0 or above 0 as the first offset comes before, is, or comes after the second; None where that is
unknown."""


class BootstrappingChooser(MessageChooser):
    """Hands on to ``wrapped`` only what may go: bootstrap streams as long as they lag, and everything once
    they have caught up.

    A partition *lags* until a message with an offset at or beyond the newest one at the start (``bootstrap``)
    has been chosen. It has caught up from the start where nothing was there to read from its first offset on.
    It also has once ``at_head`` says that all of it has been read: the newest message may not exist any more,
    or was not known. Partitions that are never registered do not count, they belong to other containers.

    The gate is exclusive by itself: everything else waits in it, even while the lagging streams have nothing.
    That goes for a partition that has caught up while another of its stream lags, too. Several bootstrap
    streams are read one after the other by ``priorities``, the higher first. One without a priority, or with
    a negative one, comes before those with one. Equal ones go together. What waited goes on in the order of
    its arrival, and from then on its stream is a stream like others.

    ``compare`` compares two offsets of one partition. It may also be a mapping with such a function for each
    system by name, since the offsets of systems differ in form. Without it (and for a system that is not
    named) offsets are compared as whole numbers.
    """

    def __init__(
        self,
        wrapped: MessageChooser,
        bootstrap: Mapping[SystemStream, Mapping[int, PartitionMetadata]],
        *,
        priorities: Mapping[SystemStream, int] | None = None,
        compare: Compare | Mapping[str, Compare] | None = None,
    ) -> None:
        self._wrapped = wrapped
        self._wrapped_update = wrapped.update
        self._wrapped_choose = wrapped.choose
        self._priorities = dict(priorities or {})
        self._compare = _compare_numbers if compare is None or isinstance(compare, Mapping) else compare
        self._compare_by_system = compare if isinstance(compare, Mapping) else {}
        self._chosen: SystemStreamPartition | None = None
        self._offsets: dict[SystemStreamPartition, str] = {}
        # These hold something, and where they end is not known.
        self._endless = {
            SystemStreamPartition(stream.system, stream.stream, partition)
            for stream, partitions in bootstrap.items()
            for partition, metadata in partitions.items()
            if metadata.oldest is not None and metadata.newest is metadata.upcoming is None
        }
        # Per lagging partition the newest offset of the start; ``_admitted`` are those of them whose turn it
        # is.
        self._lagging = {
            SystemStreamPartition(stream.system, stream.stream, partition): metadata.newest
            for stream, partitions in bootstrap.items()
            for partition, metadata in partitions.items()
        }
        self._admitted: frozenset[SystemStreamPartition] = frozenset()
        self._waiting: list[IncomingMessageEnvelope] = []
        self._closed = True
        self._admitted_then = self._admitted

    @property
    def lagging(self) -> frozenset[SystemStreamPartition]:
        """The partitions that still have to catch up."""
        return frozenset(self._lagging)

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self._wrapped.register(ssp, offset)
        known = self._offsets.get(ssp)
        if known is None or (self._order(ssp, offset, known) or 0) < 0:
            self._offsets[ssp] = offset

    def start(self) -> None:
        self._wrapped.start()
        self._lagging = {
            ssp: newest for ssp, newest in self._lagging.items() if self._has_to_read(ssp, newest)
        }
        if self._lagging:
            log.info("%s before any other input is processed", self._reason(self._lagging))
        self._closed = bool(self._lagging)
        self._admit()

    def stop(self) -> None:
        self._wrapped.stop()

    def at_head(self, ssp: SystemStreamPartition) -> None:
        self._wrapped.at_head(ssp)
        if ssp in self._lagging:
            self._caught_up(ssp)

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        if self._lagging and envelope.ssp not in self._admitted:
            self._waiting.append(envelope)
        else:
            self._wrapped_update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        if self._closed:
            return self._choose_lagging()
        return self._wrapped_choose()

    def take_batch(self, offsets: Sequence[str]) -> int:
        """Return the size of the next batch.

        While anything lags, the batch ends where the partition has caught up, since others may have to come
        first from there on."""
        if not self._closed:
            return take_batch(self._wrapped, offsets)
        ssp = self._chosen
        if ssp is None or ssp not in self._lagging:
            return 1
        newest = self._lagging[ssp]
        end = (
            bisect_left(range(len(offsets)), True, key=lambda at: self._reaches(ssp, offsets[at], newest)) + 1
        )
        count = take_batch(self._wrapped, offsets[:end])
        if count == end:
            self._caught_up(ssp)
        return count

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        inner = self._wrapped.explain(chosen)
        gate = self._reason(self._admitted) if self._lagging else ""
        inner = replace(inner, waiting=(*inner.waiting, *map(Candidate.of, self._waiting)), gate=gate)
        admitted = self._admitted if chosen is None else self._admitted_then
        if not self._closed or not admitted:
            return inner
        rule = self._reason(admitted if chosen is None else [chosen.ssp])
        return replace(
            inner, rule=rule, held={**inner.held, **all_held(self._offsets, admitted, self._reason(admitted))}
        )

    def _choose_lagging(self) -> IncomingMessageEnvelope | None:
        """A choice while the gate is closed; it opens one choice late, so that ``explain`` can name what
        decided the last one."""
        self._admitted_then = self._admitted
        envelope = self._wrapped_choose()
        if not self._lagging:
            self._closed = False
            return envelope
        if envelope is not None:
            ssp = self._chosen = envelope.ssp
            if ssp in self._lagging and self._reaches(ssp, envelope.offset, self._lagging[ssp]):
                self._caught_up(ssp)
        return envelope

    def _caught_up(self, ssp: SystemStreamPartition) -> None:
        del self._lagging[ssp]
        self._admitted -= {ssp}
        if not self._admitted:
            self._admit()
        if not self._lagging:
            log.info(self._reason(()))

    def _admit(self) -> None:
        """Open the gate for the streams whose turn it is now, and hand on their waiting messages."""
        rank = {ssp: self._rank(ssp) for ssp in self._lagging}
        first = max(rank.values(), default=math.inf)
        self._admitted = frozenset(ssp for ssp in self._lagging if rank[ssp] == first)
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self.update(envelope)

    def _has_to_read(self, ssp: SystemStreamPartition, newest: str | None) -> bool:
        if newest is None or ssp not in self._offsets:
            return ssp in self._endless and ssp in self._offsets
        offset = self._offsets[ssp]
        return offset == newest or not self._reaches(ssp, offset, newest)

    def _reaches(self, ssp: SystemStreamPartition, offset: str | None, other: str | None) -> bool:
        order = self._order(ssp, offset, other)
        return order is not None and order >= 0

    def _order(self, ssp: SystemStreamPartition, offset: str | None, other: str | None) -> int | None:
        if offset == other:
            return 0
        if offset is None or other is None:
            return None
        return self._compare_by_system.get(ssp.system, self._compare)(offset, other)

    def _rank(self, ssp: SystemStreamPartition) -> float:
        priority = self._priorities.get(ssp.system_stream, -1)
        return priority if priority >= 0 else math.inf

    def _reason(self, lagging: Iterable[SystemStreamPartition]) -> str:
        streams = sorted({str(ssp.system_stream) for ssp in lagging})
        if not streams:
            return "bootstrap: all streams have caught up"
        return (
            f"bootstrap: {' and '.join(streams)} still {'has' if len(streams) == 1 else 'have'} to catch up"
        )


def _compare_numbers(offset: str, other: str) -> int | None:
    try:
        return int(offset) - int(other)
    except ValueError:
        return None
