"""Round robin: whoever has waited longest goes next."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from streambench.chooser.api import MessageChooser
from streambench.model import IncomingMessageEnvelope


class RoundRobinChooser(MessageChooser):
    """The default: a queue of messages in the order of their arrival.

    Since each partition has one message inside, and gets the next one in only when that was chosen, the partitions take turns.
    """

    def __init__(self) -> None:
        self._queue: deque[IncomingMessageEnvelope] = deque()
        # The queue's own method in place of one that calls it: it runs with every message.
        self.update: Callable[[IncomingMessageEnvelope], None] = self._queue.append  # type: ignore[method-assign, assignment]

    def update(self, envelope: IncomingMessageEnvelope) -> None:  # type: ignore[no-redef]
        self._queue.append(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        queue = self._queue
        return queue.popleft() if queue else None

    def rule(self) -> str:
        return "round robin: it has waited longest"
