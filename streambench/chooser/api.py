"""The contract of a message chooser: which of the waiting messages is processed next."""

from __future__ import annotations

from abc import ABC, abstractmethod

from streambench.chooser.explanation import Candidate, Explanation
from streambench.config import Config
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition


class MessageChooser(ABC):
    """Chooses among the heads of the input partitions.

    The calls come in the order ``register`` (once per partition), ``start``, then ``update`` and ``choose``
    as they may come, then ``stop``. All on the container's thread.

    - At most one message of each partition is inside the chooser at a time. ``update`` hands over the next
      one only after ``choose`` has returned the one before.
    - ``choose`` returns each message exactly once, and none that it was not given.
    - ``choose`` may return None although messages are inside, to wait for others. The container then looks
      for new messages and asks again. A chooser that never answers stops the job from going on.
    - Where tasks take batches, a chooser may have ``take_batch`` (see ``streambench.chooser.fast_paths``).
      One without it decides message by message.
    - A chooser's state is not saved: after a restart it begins again, with the same messages.
    """

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:  # noqa: B027 - optional to override
        """A partition that will be chosen from, and the first offset that is read of it."""

    def start(self) -> None:  # noqa: B027 - optional to override
        """Called once, when all partitions are registered."""

    def stop(self) -> None:  # noqa: B027 - optional to override
        """Called once, at the end."""

    @abstractmethod
    def update(self, envelope: IncomingMessageEnvelope) -> None:
        """Here is the next message of its partition."""

    @abstractmethod
    def choose(self) -> IncomingMessageEnvelope | None:
        """The message to process next, None for none at present."""

    def at_head(self, ssp: SystemStreamPartition) -> None:  # noqa: B027 - optional to override
        """Called when a partition has nothing inside and its consumer, asked since ``start``, says that
        nothing is left to read now.

        Whatever was there at the start has thus been chosen, even where the last offsets of that time do not
        exist any more. It may be called again and again, and messages may follow later.
        """

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        """Why the last ``choose`` returned ``chosen``. With None: the present state, and which partitions are
        held back and why.

        It is called only for display, before the next ``update`` or ``choose``, and must change nothing.
        Messages inside that ``waiting`` does not name are added by the container, which knows their
        partitions. Without an answer of its own a chooser is explained by its name and the first line of its
        docstring.
        """
        says = (type(self).__doc__ or "").strip().partition("\n")[0].rstrip(".")
        rule = f"{type(self).__name__}: {says[:1].lower()}{says[1:]}" if says else type(self).__name__
        return Explanation(rule, None if chosen is None else Candidate.of(chosen))


class MessageChooserFactory(ABC):
    """Makes choosers; ``task.chooser.class`` may name a factory or a chooser class."""

    @abstractmethod
    def get_chooser(self, config: Config, metrics: MetricsRegistry) -> MessageChooser:
        """A new chooser: one is made for each level of priority."""
