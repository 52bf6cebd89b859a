"""A container that stays open where a message failed or was interrupted, so that it can continue there."""

from __future__ import annotations

import weakref
from collections.abc import Callable

from streambench.container.loop_context import LoopContext
from streambench.container.observe.status import ContainerStatus
from streambench.container.runtime import Runtime
from streambench.errors import ContainerStateError, TaskError
from streambench.model import IncomingMessageEnvelope

_held: weakref.WeakSet[FailureHold] = weakref.WeakSet()


class FailureHold:
    """Keeps one container open after such a failure, if ``is_wanted``. Its state is ``failed`` all the same,
    until ``resume``.

    ``is_held``: it is open. Its next start, in this process, closes it; so do ``stop`` and ``abandon``.
    ``is_replay``: it replays a job, with systems and stores of its own, and is no start of that job."""

    def __init__(self, status: ContainerStatus, context: LoopContext, close: Callable[[], None]) -> None:
        """``close``: closes the container as a failure does."""
        self.is_wanted = self.is_held = self.is_replay = False
        self._status = status
        self._context = context
        self._close = close

    def begin(self, error: BaseException) -> bool:
        """Keep the container open after a failure; False where that is not wanted, or no message or batch
        failed."""
        progress = self._status.progress
        message = progress.unfinished
        self.is_held = (
            self.is_wanted
            and message is not None
            and (
                isinstance(error, KeyboardInterrupt)
                or (
                    isinstance(error, TaskError)
                    and (error.ssp, error.offset) == (message.ssp, message.offset)
                )
            )
            and progress.unfinished_count > 0
        )
        if self.is_held:
            _held.add(self)
        return self.is_held

    def resume(
        self, runtime: Runtime, message: IncomingMessageEnvelope, bring_back: Callable[[], None]
    ) -> None:
        """Stand before the message again: the next run begins with it. ``message``: as it was read;
        ``bring_back``: takes back what the task did with it, in its stores and its memory. Raises
        ContainerStateError where the container is closed, and what ``bring_back`` raises, which closes it."""
        if not self.is_held:
            raise ContainerStateError(
                f"{self._status.name} is {self._status.state} and closed: it cannot go on at its message"
            )
        self._context.take()
        try:
            bring_back()
        except BaseException:
            self.end()
            raise
        self.forget()
        self._context.input = None
        runtime.event_loop.hold_unfinished(message)
        self._status.state, self._status.reason = "running", ""

    def end(self) -> None:
        """Close the container; nothing happens where it is not held."""
        if self.is_held:
            self.forget()
            self._context.take()
            self._close()

    def forget(self) -> None:
        """Hold it no longer: it is closed, or goes on."""
        self.is_held = False
        _held.discard(self)

    def end_former(self) -> None:
        """Close the containers of the same job that are held: this one is about to start."""
        if self.is_replay:
            return
        mine = self._status.name, self._status.number
        for each in list(_held):
            is_same = (each._status.name, each._status.number) == mine and not each.is_replay
            if each is not self and is_same:
                each.end()
