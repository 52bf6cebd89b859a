"""Processes that freeze at a chosen step, as by SIGSTOP or a disk that hangs, and go on later."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

_STEPS = (
    "open",
    "fsync",
    "link",
    "rename",
    "replace",
    "unlink",
    "mkdir",
    "ftruncate",
    "write",
    "pwrite",
    "pwritev",
)


def freeze() -> None:
    """Stop this process here. The signal is for this thread: one that is sent to the process may be taken by
    another thread, and this one would do some steps more."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


class Freezing:
    """Within a ``with`` block, the functions of ``os`` that reach a disk are counted, and this process stops
    before one of them."""

    def __init__(self, at: int) -> None:
        self.count = 0
        self._at = at
        self._real: dict[str, Any] = {}

    def __enter__(self) -> Freezing:
        for name in _STEPS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._counted(self._real[name]))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    def _counted(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **named: Any) -> Any:
            self.count += 1
            if self.count == self._at:
                freeze()
            return real(*arguments, **named)

        return step


class Frozen:
    """A copy of this process that does ``work`` and freezes before step ``at``. ``has_frozen``: it did, and
    did not end before."""

    def __init__(self, at: int, work: Callable[[], object]) -> None:
        self.process = os.fork()
        if not self.process:
            code = 1
            try:
                with Freezing(at):
                    work()
                code = 0
            except BaseException as error:
                code = _CODES.get(type(error).__name__, 1)
            finally:
                os._exit(code)
        _, status = os.waitpid(self.process, os.WUNTRACED)
        self.has_frozen = os.WIFSTOPPED(status)
        self._status = status

    def thaw(self) -> str:
        """Let it go on, and wait for its end: ``done``, or the name of the error that it raised."""
        if self.has_frozen:
            os.kill(self.process, signal.SIGCONT)
            _, self._status = os.waitpid(self.process, 0)
        code = os.waitstatus_to_exitcode(self._status)
        return next(
            (name for name, number in _CODES.items() if number == code),
            "done" if code == 0 else f"exit code {code}",
        )


_CODES = {
    name: number
    for number, name in enumerate(
        [
            "LockLostError",
            "FencedError",
            "ReplacedError",
            "SupersededError",
            "StreamSystemError",
            "CheckpointError",
        ],
        start=40,
    )
}
