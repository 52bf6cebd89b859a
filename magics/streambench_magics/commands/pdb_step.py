"""``%stream step --pdb``: the debugger at the first line of the task's callback."""

from __future__ import annotations

import sys
from typing import Any

from IPython.core.debugger import Pdb

from streambench.container.observer import ContainerObserver, Given
from streambench_magics.errors import not_the_users

_STEPPED = ("process", "process_batch", "window", "end_of_stream")


class _TaskPdb(Pdb):
    """A debugger that skips the frames of streambench, and whose ``quit`` lets the task continue.

    To end the task in the middle of a message would fail the job."""

    def __init__(self) -> None:
        super().__init__(skip=["streambench", "streambench.*", "streambench_magics.*"])
        self.has_quit = False

    def hidden_frames(self, stack: list[Any]) -> list[bool]:
        """Hide the frames of streambench in ``where``, ``up`` and ``down``, too."""
        hidden: list[bool] = super().hidden_frames(stack)  # type: ignore[no-untyped-call]
        return [
            each or not_the_users(frame.f_code.co_filename)
            for each, (frame, _) in zip(hidden, stack, strict=True)
        ]

    def do_quit(self, arg: str) -> Any:
        self.has_quit = True
        print("the debugger ends here; the task goes on with its message", file=self.stdout)
        return self.do_continue(arg)

    do_q = do_exit = do_quit
    do_EOF = do_quit


class PdbObserver(ContainerObserver):
    """Begins to debug at each callback of a task, until the user quits."""

    def __init__(self) -> None:
        self._pdb = _TaskPdb()
        self._is_tracing = False
        self._former: Any = None

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        if callback in _STEPPED and not self._pdb.has_quit:
            self._pdb.reset()
            self._pdb.set_step()
            if not self._is_tracing:
                self._is_tracing, self._former = True, sys.gettrace()
            sys.settrace(self._pdb.trace_dispatch)

    def callback_ended(self, task: str, callback: str, given: Given) -> None:
        self.end()

    def callback_raised(self, task: str, callback: str, given: Given, error: BaseException) -> None:
        self.end()

    def end(self) -> None:
        """Debug no longer. A trace function that was there before, of another debugger, is back then."""
        if self._is_tracing:
            self._is_tracing = False
            sys.settrace(self._former)
