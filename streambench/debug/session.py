"""A session: a container under somebody's hands.

It is stepped in the thread of whoever asks, runs freely on a thread of its own, can be looked at and paused at any time, and is never
more than a caller of the container's one event loop.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from typing import Literal, TypeVar

from streambench.container.container import Container, Until
from streambench.container.snapshot import ContainerSnapshot
from streambench.debug.interrupt import GivenUp, forget_interrupt, interrupt_inside
from streambench.errors import ContainerStateError, StreambenchError

log = logging.getLogger(__name__)

SessionState = Literal["new", "paused", "running", "stopped", "failed"]

_T = TypeVar("_T")
_ANSWER_S = 5.0
_ANSWER_AT_LEAST_S = 0.2
_LOOK_AGAIN_S = 0.05
_MOMENT_S = 2.0


class Session:
    """Drives one container. All methods may be called from any thread.

    States: ``new`` until ``start``; ``paused`` when nothing moves; ``running`` while its thread drives the container; ``stopped`` and
    ``failed`` for good. ``error`` is what the container failed with; ``problem`` what ended the last ``run`` without failing the container:
    a function that was to say how long raised, or a task did in its ``close``.
    """

    def __init__(self, container: Container, name: str | None = None) -> None:
        self.container = container
        self.name = name or container.name
        self.error: BaseException | None = None
        self.problem: BaseException | None = None
        # Whoever drives the container holds the lock; ``_driver`` is that thread.
        self._driving = threading.RLock()
        self._driver: int | None = None
        # Held by whoever interrupts the driver, and by the driver when it has done and is not to be interrupted any more.
        self._interrupting = threading.Lock()
        self._thread: threading.Thread | None = None
        # Waited for instead of the thread: up to Python 3.12, a ``join`` that KeyboardInterrupt ends takes the thread for dead.
        self._ended = threading.Event()
        self._is_interrupted = self._is_left_alone = False
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
        return thread is not None and thread is not threading.current_thread()

    @property
    def busy_s(self) -> float:
        """For how many seconds a run or step has been busy with one message, give or take a moment; 0 where nothing moves."""
        return self.container.busy_s

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` (on whichever thread it happens) when the session starts, stops or pauses running, was stepped, or failed."""
        self._listeners.append(listener)

    def start(self) -> None:
        """Start the container. Raises what ``Container.start`` raises."""
        self._drive(self.container.start)

    def step(self, n: int = 1) -> int:
        """Process up to ``n`` messages, here and now; how many were. Raises ContainerStateError while running, and what the task raises."""
        return self._drive(lambda: self._advanced(lambda: self.container.step(n)))

    def run(self, until: Until = None) -> None:
        """Process messages on the session's thread, until ``until`` (see ``Container.run``), ``pause`` or ``stop``. Returns at once;
        ``wait`` for it."""
        self._check_still()
        with self._driving:
            self._check_still()
            self.container.require_running()
            self.problem = None
            ended = threading.Event()
            thread = threading.Thread(target=self._run, args=(until, ended), name=f"streambench {self.name}", daemon=True)
            # Others may wait for it as soon as they see it; it ends only after this lock is free.
            thread.start()
            self._ended = ended
            self._thread = thread
        self._changed()

    def pause(self, timeout: float | None = None) -> bool:
        """Have it stop after the message it is at, and wait for that, at most ``timeout`` seconds; whether it stands still.

        Called by the task itself (or by whoever it calls) it cannot wait."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.container.pause()
        while not self._stands_still(deadline):
            # Asked again and again, because a run that has not quite begun would not hear it.
            self.container.pause()
            if self._driver == threading.get_ident() or (deadline is not None and time.monotonic() >= deadline):
                return False
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it stands still, at most ``timeout`` seconds; whether it does. Raises what it failed with, or what ended the run."""
        if self.running:
            self._ended.wait(timeout)
        problem = self.error or self.problem
        if problem is not None:
            raise problem
        return not self.running

    def commit(self, timeout: float | None = None) -> None:
        """Commit all tasks: at once where it stands still, else between two messages. Raises TimeoutError where that would be later than in
        ``timeout`` seconds, and has not committed then."""
        self._between(lambda: self._noted(self.container.commit), timeout)

    def stop(self) -> None:
        """Pause, commit, close the tasks, let go of the streams."""
        self.pause()
        self._drive(self.container.stop)

    def abandon(self) -> None:
        """Let go of everything as a crash would, after the message it is at."""
        self.pause()
        self._drive(self.container.abandon)

    def give_up(self, moment: float = _MOMENT_S) -> bool:
        """Let go of everything as a crash would, also in the middle of a message; whether what was going on has come to an end.

        If the task is in a callback, GivenUp, a KeyboardInterrupt, is raised there. If that has not ended it after ``moment`` seconds (a
        call such as ``time.sleep`` returns first, and a task may go on whatever is raised), the container is abandoned all the same, and
        its thread left alone: what it still does has no effect, see ``Container.abandon``. Not to be called by the task itself."""
        self.container.pause()
        with self._interrupting:
            if self._driver is not None:
                self._is_interrupted = interrupt_inside(self._driver, self.container.callbacks)
        ended = self.pause(moment)
        if not ended and self.container.has_begun:
            self._leave_alone()
        elif self.container.state == "running":
            self._drive(self.container.abandon)
        return ended

    def snapshot(self, timeout: float = _ANSWER_S) -> ContainerSnapshot:
        """A picture of the container. While a task is busy with one message for longer than ``timeout`` seconds: the last one taken."""
        busy_s = self.busy_s
        try:
            self._last = self._between(self.container.snapshot, max(timeout - busy_s, min(timeout, _ANSWER_AT_LEAST_S)))
        except TimeoutError:
            if self._last is None:
                raise StreambenchError(
                    f"{self.name} has been busy with one message for {max(timeout, round(busy_s)):g} s; there is no picture of it yet"
                ) from None
        return self._last

    def _run(self, until: Until, ended: threading.Event) -> None:
        try:
            with self._hold():
                self._noted(lambda: self._advanced(lambda: self.container.run(until)))
        except BaseException as error:
            log.debug("%s failed", self.name, exc_info=True)  # wait() raises it
            if self.error is None and not self._is_left_alone and not isinstance(error, GivenUp):
                self.problem = error
        self._thread = None
        try:
            self._changed()
        finally:
            ended.set()

    def _advanced(self, advance: Callable[[], _T]) -> _T:
        result = advance()
        if self.container.shut_down:
            self.container.stop()
        return result

    def _drive(self, what: Callable[[], _T]) -> _T:
        self._check_still()
        self.problem = None
        try:
            with self._hold():
                return self._noted(what)
        finally:
            self._changed()

    def _noted(self, what: Callable[[], _T]) -> _T:
        """Do something that may fail the container, and remember what it failed with."""
        try:
            return what()
        except BaseException as error:
            # Who gave it up knows, and waits for nothing of it.
            if self.container.state == "failed" and self.error is None and not self._is_left_alone and not isinstance(error, GivenUp):
                self.error = error
            raise

    def _check_still(self) -> None:
        if self.running:
            raise ContainerStateError(f"{self.name} is running: pause it first")

    @contextmanager
    def _hold(self) -> Iterator[None]:
        with self._driving:
            before, self._driver = self._driver, threading.get_ident()
            try:
                yield
            finally:
                self._let_go(before)

    def _let_go(self, before: int | None) -> None:
        """Be the driver no longer, and past all interrupts; raises one that came too late to end anything."""
        late: GivenUp | None = None
        while True:
            try:
                with self._interrupting:
                    self._driver = before
                    if before is None and self._is_interrupted:
                        self._is_interrupted = False
                        forget_interrupt()
                break
            except GivenUp as interrupt:
                late = interrupt
        if late is not None:
            raise late

    def _leave_alone(self) -> None:
        """Abandon the container while a thread drives it that does not end."""
        new = threading.RLock()
        with new:
            self._driving, self._is_left_alone = new, True
            self._thread = self._driver = None
            try:
                self.container.abandon(stuck=True)
            except Exception as problem:
                log.warning("%s: while it was given up: %s", self.name, problem)
        self._ended.set()
        self._changed()

    def _stands_still(self, deadline: float | None) -> bool:
        """Whether nobody drives the container; looks for a moment."""
        if self._driver == threading.get_ident():
            return False
        moment = _LOOK_AGAIN_S if deadline is None else max(0.0, min(_LOOK_AGAIN_S, deadline - time.monotonic()))
        if self.running:
            self._ended.wait(moment)
            return False
        if self._driving.acquire(timeout=moment):
            self._driving.release()
            return True
        return False

    def _between(self, what: Callable[[], _T], timeout: float | None = None) -> _T:
        """Call ``what`` between two messages: here while nobody drives the container, else on the thread that does. Raises TimeoutError."""
        deadline = None if timeout is None else time.monotonic() + timeout
        question: Future[_T] | None = None
        while True:
            if self._driving.acquire(blocking=False):
                try:
                    if question is None or question.cancel():
                        return what()
                finally:
                    self._driving.release()
                return question.result()
            if question is None:
                question = Future()
                self.container.post(_answering(question, what))
            wait([question], _LOOK_AGAIN_S)
            if question.done() or (deadline is not None and time.monotonic() >= deadline and not question.cancel()):
                return question.result()
            if question.cancelled():
                raise TimeoutError

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _answering(question: Future[_T], what: Callable[[], _T]) -> Callable[[], None]:
    """A command to the event loop that answers the question, unless nobody waits for the answer any more."""

    def answer() -> None:
        if not question.set_running_or_notify_cancel():
            return
        try:
            question.set_result(what())
        except BaseException as error:
            question.set_exception(error)

    return answer
