"""Step 1: round robin, the default chooser: the partition that has waited longest goes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Candidate, Explanation
from streambench.chooser.fast_paths import Choose, Empty
from streambench.model import IncomingMessageEnvelope


class RoundRobinChooser(MessageChooser):
    """A queue of the partitions' next messages, in the order of their arrival.

    Each partition has one message inside. So partitions that never run dry are served in rotation, and a
    message waits for at most one of each other partition.
    """

    def __init__(self) -> None:
        self._queue: deque[IncomingMessageEnvelope] = deque()
        if type(self).update is RoundRobinChooser.update:
            # Every message comes through here: the queue's own method takes a third of the time of one that
            # calls it.
            self.update = self._queue.append  # type: ignore[assignment, method-assign]

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self._queue.append(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        # There is nearly always one: an exception that is not raised is cheaper than a test.
        try:
            return self._queue.popleft()
        except IndexError:
            return None

    def quickest(self) -> tuple[Choose, Empty] | None:
        return (self._queue.popleft, IndexError) if self._chooses_plainly() else None

    def rotation(self) -> deque[IncomingMessageEnvelope] | None:
        is_plain = self._chooses_plainly() and type(self).update is RoundRobinChooser.update
        return self._queue if is_plain else None

    def take_batch(self, offsets: Sequence[str]) -> int:
        """A batch is a turn: all of it, unless a subclass chooses otherwise."""
        return len(offsets) if self._chooses_plainly() else 1

    def _chooses_plainly(self) -> bool:
        """True where no subclass has a ``choose`` of its own."""
        return type(self).choose is RoundRobinChooser.choose

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        if not self._chooses_plainly():
            return super().explain(chosen)
        waiting = tuple(map(Candidate.of, self._queue))
        if chosen is None:
            rule = "who has waited longest comes next" if waiting else "nothing was there"
        else:
            rule = "it has waited longest" if waiting else "nothing else was there"
        return Explanation(f"round robin: {rule}", None if chosen is None else Candidate.of(chosen), waiting)
