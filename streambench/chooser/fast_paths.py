"""Step 1: quicker ways to ask some choosers, with the same answers.

``Rotating`` and ``Quick`` are for choosers of this package alone; ``take_batch`` any chooser may have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from streambench.chooser.api import MessageChooser
from streambench.model import IncomingMessageEnvelope

Choose = Callable[[], IncomingMessageEnvelope | None]
Empty = type[Exception] | tuple[()]


@runtime_checkable
class Quick(Protocol):
    """A chooser with a quicker ``choose``."""

    def quickest(self) -> tuple[Choose, Empty] | None:
        """The function to call instead of ``choose``, and the exception by which that reports that there is
        nothing. None where ``choose`` itself has to be called."""


@runtime_checkable
class Rotating(Protocol):
    """A chooser that may only rotate the partitions."""

    def rotation(self) -> deque[IncomingMessageEnvelope] | None:
        """The queue of what is inside, if this chooser only rotates the partitions.

        Then ``choose`` takes the first one of the queue, ``update`` appends a message, and nothing else
        decides. The container then works on the queue by itself, as if it had called both. None where it is
        to ask for every message."""


def quickest(chooser: MessageChooser) -> tuple[Choose, Empty]:
    """Return the quickest function that does what ``choose`` does, and its exception for "nothing"."""
    found = chooser.quickest() if isinstance(chooser, Quick) else None
    return found or (chooser.choose, ())


def rotation(chooser: MessageChooser) -> deque[IncomingMessageEnvelope] | None:
    """Return the queue of a chooser that only rotates the partitions, else None."""
    return chooser.rotation() if isinstance(chooser, Rotating) else None


def take_batch(chooser: MessageChooser, offsets: Sequence[str]) -> int:
    """Return how many messages of the partition of the last ``choose`` may be processed as one batch; they
    count as chosen then. A chooser without a ``take_batch`` decides message by message.

    Asked, directly after ``choose``, where tasks take batches. ``offsets`` are those of the chosen message
    and of what waits behind it. Of what belongs to the batch nothing was or will be inside the chooser; the
    next ``update`` brings the message after it. The answer is at least 1, and at most one per offset."""
    # Asked with every batch: an instance check of a protocol costs ten times as much.
    take: Callable[[Sequence[str]], int] | None = getattr(chooser, "take_batch", None)
    return 1 if take is None else take(offsets)
