"""The context of an event loop that handles of tasks read: its thread, and the current message."""

from __future__ import annotations

import threading
from typing import Final

from streambench.container.trace import Trace
from streambench.errors import WrongThreadError
from streambench.model import IncomingMessageEnvelope

# Final, so that compiled code does not look it up each time.
_get_ident: Final = threading.get_ident


class LoopContext:
    """The thread that drives the container at present; user code may use its handles on that thread only.

    ``input``: the message that is being processed, None between two. ``until``: the time at which collected
    output is to be sent at the latest (monotonic, in nanoseconds). 0: as soon as its task returns, because it
    holds an object that could still change. ``trace``: the trace of the
    container, or None.
    """

    __slots__ = ("ident", "input", "trace", "until")

    def __init__(self) -> None:
        self.ident = _get_ident()
        self.input: IncomingMessageEnvelope | None = None
        self.until = 0
        self.trace: Trace | None = None

    def take(self) -> None:
        """Make the calling thread the one that drives the container."""
        self.ident = _get_ident()

    def revoke(self) -> None:
        """Let no thread drive the container any more, not even one that is in the middle of a message."""
        self.ident = 0

    def check(self, what: str) -> None:
        """Raise WrongThreadError off the owner's thread."""
        if self.ident == 0:
            raise WrongThreadError(
                f"{what} was used after its container was abandoned: nothing that is done here has any effect"
            )
        if _get_ident() != self.ident:
            raise WrongThreadError(
                f"{what} was used from the thread '{threading.current_thread().name}'; it belongs to the "
                "thread of the event loop. "
                "Do the work in process() or window(), or hand the result over through a queue that they read"
            )
