"""A foreign chooser, checked against the contract: it can neither lose a message nor return one twice
unnoticed."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from streambench.chooser.api import MessageChooser
from streambench.chooser.explanation import Explanation, unexplained
from streambench.chooser.fast_paths import take_batch
from streambench.clock import Clock
from streambench.errors import ChooserError, StreambenchError, described, located, shortened
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition

log = logging.getLogger(__name__)

_PATIENCE_NS = 1_000_000_000


class CheckedChooser(MessageChooser):
    """Hands everything on to ``wrapped``, and raises ChooserError where it returns what does not wait in it.

    Once, it warns of a chooser that has returned None for a second although messages wait in it.
    """

    def __init__(self, wrapped: MessageChooser, clock: Clock) -> None:
        self.wrapped = wrapped
        self._name = type(wrapped).__name__
        self._wrapped_update = wrapped.update
        self._wrapped_choose = wrapped.choose
        self._read_clock = clock.monotonic_ns
        self._waiting: dict[SystemStreamPartition, IncomingMessageEnvelope] = {}
        self._none_since: int | None = None
        self._has_warned = False

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self.wrapped.register(ssp, offset)

    def start(self) -> None:
        self.wrapped.start()

    def stop(self) -> None:
        self.wrapped.stop()

    def at_head(self, ssp: SystemStreamPartition) -> None:
        self.wrapped.at_head(ssp)

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self._waiting[envelope.ssp] = envelope
        self._wrapped_update(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        envelope = self._wrapped_choose()
        if envelope is None:
            if self._waiting and not self._has_warned:
                self._none_chosen()
            return None
        if not isinstance(envelope, IncomingMessageEnvelope):
            raise ChooserError(
                f"{self._name}.choose returned {shortened(envelope)}, which is no message: return one that "
                "waits, or None"
            )
        if self._waiting.get(envelope.ssp) is not envelope:
            raise ChooserError(
                f"{self._name}.choose returned a message that is not waiting: "
                f"{envelope.ssp}@{envelope.offset}; each message that update() "
                "brought is returned once, as it is"
            )
        del self._waiting[envelope.ssp]
        self._none_since = None
        return envelope

    def take_batch(self, offsets: Sequence[str]) -> int:
        count: object = take_batch(self.wrapped, offsets)
        if not isinstance(count, int) or not 1 <= count <= len(offsets):
            raise ChooserError(
                f"{self._name}.take_batch returned {shortened(count)}; return how many it takes, 1 to "
                f"{len(offsets)}"
            )
        return count

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        try:
            return self.wrapped.explain(chosen)
        except Exception as error:
            return unexplained(self.wrapped, error, chosen)

    def _none_chosen(self) -> None:
        now = self._read_clock()
        if self._none_since is None:
            self._none_since = now
        elif now - self._none_since >= _PATIENCE_NS:
            self._has_warned = True
            count = len(self._waiting)
            log.warning(
                "%d message%s, and %s chooses none of them",
                count,
                " waits" if count == 1 else "s wait",
                self._name,
            )


def chooser_failure(error: BaseException) -> ChooserError | None:
    """The error for an exception that a chooser raised, to be raised ``from`` it; None where it came from
    elsewhere, or is one of ours."""
    if isinstance(error, StreambenchError) or not isinstance(error, Exception):
        return None
    found = None
    step = error.__traceback__
    while step is not None:
        if isinstance(step.tb_frame.f_locals.get("self"), MessageChooser):
            found = step
        step = step.tb_next
    if found is None:
        return None
    code = found.tb_frame.f_code
    name = f"{type(found.tb_frame.f_locals['self']).__name__}.{code.co_name}"
    return ChooserError(
        f"the chooser failed in {name} ({located(code.co_filename, found.tb_lineno)}): {described(error)}"
    )
