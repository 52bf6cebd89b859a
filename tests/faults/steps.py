"""Steps: everything by which a process changes a disk, and everything a container tells its observer, counted
one by one.

At a chosen step the process dies: the step does not happen, or (a write) half of it does, and nothing happens
after it. In this process a death is an exception that no ``except Exception`` holds up, after which every
further step dies as well, so that nothing can be cleaned up; in a process of its own it may be a real
SIGKILL.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from types import TracebackType
from typing import Any

_STEPS = ("fsync", "link", "rename", "replace", "unlink", "mkdir", "ftruncate", "write", "pwrite")
_WRITES = ("write", "pwrite")


class Killed(KeyboardInterrupt):
    """The process is gone. What else a task raises is placed at its message."""


def kill_9() -> None:
    """End this process as ``kill -9`` does."""
    os.kill(os.getpid(), signal.SIGKILL)


class Steps:
    """Within a ``with`` block, the functions of ``os`` that change a disk are counted, and the process dies
    at one of them.

    ``at``: the number of the deadly step, counted from 1; None: nobody dies. ``torn``: half of a deadly write
    happens. ``die``: what death is. ``names`` tells the steps so far.
    """

    def __init__(
        self, at: int | None = None, *, torn: bool = False, die: Callable[[], object] | None = None
    ) -> None:
        self.names: list[str] = []
        self._at = at
        self._torn = torn
        self._die = die
        self._real: dict[str, Any] = {}

    def __enter__(self) -> Steps:
        for name in _STEPS:
            self._real[name] = getattr(os, name)
            setattr(os, name, self._guarded(name))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for name, real in self._real.items():
            setattr(os, name, real)

    @property
    def is_dead(self) -> bool:
        return self._at is not None and len(self.names) >= self._at

    def event(self, event: str, task: str, detail: str | None) -> None:
        """An observer of a container: what it is told is a step, too."""
        self._step(event)

    def _step(self, name: str) -> None:
        self.names.append(name)
        if self.is_dead:
            if self._die is not None:
                self._die()
            raise Killed

    def _guarded(self, name: str) -> Callable[..., Any]:
        real = self._real[name]

        def call(*arguments: Any, **options: Any) -> Any:
            if name in _WRITES and self._torn and self._at == len(self.names) + 1:
                real(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2], *arguments[2:])
            self._step(name)
            # Whether it outlives a loss of power is another question: here what was written is there.
            return None if name == "fsync" else real(*arguments, **options)

        return call
