"""A session: a container under somebody's hands.

It is stepped in the thread of whoever asks, runs freely on a thread of its own, can be looked at and paused at any time, and is never
more than
a caller of the container's one event loop.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, Literal, TypeVar, cast

from streambench.container.container import Container, Until
from streambench.container.snapshot import ContainerSnapshot
from streambench.errors import ContainerStateError, StreambenchError

SessionState = Literal["new", "paused", "running", "stopped", "failed"]

_T = TypeVar("_T")
_ANSWER_S = 5.0
_LOOK_AGAIN_S = 0.05
_ASK_AGAIN_S = 0.05


class Session:
    """Drives one container. All methods may be called from any thread.

    States: ``new`` until ``start``; ``paused`` when nothing moves; ``running`` while its thread drives the container; ``stopped`` and
    ``failed`` for good.
    ``error`` is what the container failed with.
    """

    def __init__(self, container: Container, name: str | None = None) -> None:
        self.container = container
        self.name = name or container.name
        self.error: BaseException | None = None
        self._driving = threading.RLock()
        self._thread: threading.Thread | None = None
        self._last: ContainerSnapshot | None = None
        self._listeners: list[Callable[[], None]] = []

    @property
    def state(self) -> SessionState:
        if self.running:
            return "running"
        state = self.container.state
        return "paused" if state == "running" else state

    @property
    def running(self) -> bool:
        """Whether the session's thread drives the container at present."""
        thread = self._thread
        return thread is not None and thread.is_alive() and thread is not threading.current_thread()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` (on whichever thread it happens) when the session starts, stops or pauses running, was stepped, or failed."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Start the container. Raises what ``Container.start`` raises."""
        self._drive(self.container.start)

    def step(self, n: int = 1) -> int:
        """Process up to ``n`` messages, here and now; how many were. Raises ContainerStateError while running, and what the task raises."""
        return self._drive(lambda: self._driven(lambda: self.container.step(n)))

    def run(self, until: Until = None) -> None:
        """Process messages on the session's thread, until ``until`` (see ``Container.run``), ``pause`` or ``stop``. Returns at once;
        ``wait`` for it."""
        with self._driving:
            self._check_still()
            self.container.require_running()
            self._thread = threading.Thread(target=self._run, args=(until,), name=f"streambench {self.name}", daemon=True)
            self._thread.start()
        self._changed()

    def pause(self, timeout: float | None = None) -> bool:
        """Have it stop after the message it is at, and wait for that, at most ``timeout`` seconds; whether it stands still."""
        thread = self._thread
        deadline = None if timeout is None else time.monotonic() + timeout
        while thread is not None and thread.is_alive() and (deadline is None or time.monotonic() < deadline):
            # Asked again and again, because a run that has not quite begun would not hear it.
            self.container.pause()
            thread.join(_ASK_AGAIN_S)
        return not self.running

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it stands still, at most ``timeout`` seconds; whether it does. Raises what it failed with."""
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)
        if self.error is not None:
            raise self.error
        return not self.running

    def commit(self) -> None:
        """Commit all tasks: at once where it stands still, else between two messages."""
        self._between(self.container.commit)

    def stop(self) -> None:
        """Pause, commit, close the tasks, let go of the streams."""
        self.pause()
        self._drive(self.container.stop)

    def abandon(self) -> None:
        """Let go of everything as a crash would, after the message it is at."""
        self.pause()
        self._drive(self.container.abandon)

    def snapshot(self, timeout: float = _ANSWER_S) -> ContainerSnapshot:
        """A picture of the container. While a task is busy with one message for longer than ``timeout`` seconds: the last one taken."""
        try:
            self._last = self._between(self.container.snapshot, timeout)
        except TimeoutError:
            if self._last is None:
                raise StreambenchError(
                    f"{self.name} has been busy with one message for {timeout:g} s; there is no picture of it yet"
                ) from None
        return self._last

    def _run(self, until: Until) -> None:
        with self._driving:
            try:
                self._driven(lambda: self.container.run(until))
            except BaseException as error:
                self.error = error
        self._thread = None
        self._changed()

    def _driven(self, what: Callable[[], _T]) -> _T:
        try:
            result = what()
            if self.container.shut_down:
                self.container.stop()
        except BaseException as error:
            self.error = error
            raise
        return result

    def _drive(self, what: Callable[[], _T]) -> _T:
        self._check_still()
        with self._driving:
            result = what()
        self._changed()
        return result

    def _check_still(self) -> None:
        if self.running:
            raise ContainerStateError(f"{self.name} is running: pause it first")

    def _between(self, what: Callable[[], _T], timeout: float | None = None) -> _T:
        """Call ``what`` between two messages: on the session's thread while that runs, else here. Raises TimeoutError."""
        waited = 0.0
        while timeout is None or waited < timeout:
            if self.running:
                answer = _Answer(what)
                self.container.post(answer)
                if answer.wait(self._thread, timeout):
                    return answer.result()
            # Not for long: it may be that a run is just beginning, which then answers questions but does not let go.
            elif self._driving.acquire(timeout=_LOOK_AGAIN_S):
                try:
                    return what()
                finally:
                    self._driving.release()
            else:
                waited += _LOOK_AGAIN_S
        raise TimeoutError

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


class _Answer(Generic[_T]):
    """A question to the event loop, and its answer."""

    def __init__(self, what: Callable[[], _T]) -> None:
        self._what = what
        self._done = threading.Event()
        self._result: _T | None = None
        self._error: BaseException | None = None
        self._withdrawn = False

    def __call__(self) -> None:
        if self._withdrawn:
            return
        try:
            self._result = self._what()
        except BaseException as error:
            self._error = error
        self._done.set()

    def wait(self, thread: threading.Thread | None, timeout: float | None) -> bool:
        """Whether the answer came; False where the thread ended before it looked at the question. Raises TimeoutError."""
        waited = 0.0
        while not self._done.wait(_ASK_AGAIN_S):
            waited += _ASK_AGAIN_S
            if thread is None or not thread.is_alive():
                self._withdrawn = not self._done.is_set()
                return not self._withdrawn
            if timeout is not None and waited >= timeout:
                self._withdrawn = True
                raise TimeoutError
        return True

    def result(self) -> _T:
        if self._error is not None:
            raise self._error
        return cast(_T, self._result)
