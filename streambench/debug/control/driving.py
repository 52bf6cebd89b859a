"""Driving a container: one thread at a time does; others wait, or are answered between two messages."""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Concatenate, ParamSpec, TypeVar

from streambench.container.container import Container
from streambench.debug.stopping.interrupt import GivenUp, forget_interrupt
from streambench.errors import ContainerStateError

_T = TypeVar("_T")
_LOOK_AGAIN_S = 0.05

_notice: ContextVar[Callable[[], object]] = ContextVar("waiting notice", default=lambda: None)


_S = TypeVar("_S", bound="Driven")
_P = ParamSpec("_P")


def between_messages(method: Callable[Concatenate[_S, _P], _T]) -> Callable[Concatenate[_S, _P], _T]:
    """Have a method of a session be called between two messages, as by ``Driven.between``."""

    @functools.wraps(method)
    def call(self: _S, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return self.between(lambda: method(self, *args, **kwargs))

    return call


@contextmanager
def noticing(notice: Callable[[], object]) -> Iterator[None]:
    """Meanwhile, on this thread, call ``notice`` again and again while a session is waited for,
    however long that takes. Its errors end the waiting."""
    before = _notice.set(notice)
    try:
        yield
    finally:
        _notice.reset(before)


def notice_waiting() -> None:
    """Called by what waits, many times a second."""
    _notice.get()()


class Driven:
    """A container that one thread at a time drives. ``error``: what it failed with; ``problem``: what ended
    the last run without that."""

    container: Container
    name: str

    def _begin_driving(self) -> None:
        """Prepare for a thread to drive."""
        self.error: BaseException | None = None
        self.problem: BaseException | None = None
        # The thread that drives the container holds the lock; ``_driver`` is that thread.
        self._driving = threading.RLock()
        self._driver: int | None = None
        # Held by the thread that interrupts the driver, and by the driver when it has done and is not to be
        # interrupted any more.
        self._interrupting = threading.Lock()
        self._thread: threading.Thread | None = None
        # Waited for instead of the thread: up to Python 3.12, a ``join`` that KeyboardInterrupt ends takes
        # the thread for dead.
        self._ended = threading.Event()
        self._is_interrupted = self._is_left_alone = False
        self._listeners: list[Callable[[], None]] = []
        self._at_end: list[Callable[[BaseException | None], None]] = []

    @property
    def running(self) -> bool:
        """True while the session's thread drives the container."""
        thread = self._thread
        return thread is not None and thread is not threading.current_thread()

    def on_change(self, listener: Callable[[], None]) -> None:
        """Call ``listener`` (on whichever thread it happens) when the session starts, stops or pauses
        running, was stepped, or failed."""
        self._listeners.append(listener)

    def _drive(self, what: Callable[[], _T]) -> _T:
        self._check_still()
        self.problem = None
        try:
            with self._hold():
                self._check_still()  # a run may have begun meanwhile
                return self._noted(what)
        finally:
            self._changed()

    def _noted(self, what: Callable[[], _T]) -> _T:
        """Do something that may fail the container, and remember what it failed with."""
        failure: BaseException | None = None
        try:
            return what()
        except BaseException as error:
            failure = error
            # The caller that gave it up knows, and waits for nothing of it.
            if (
                self.container.state == "failed"
                and self.error is None
                and not self._is_left_alone
                and not isinstance(error, GivenUp)
            ):
                self.error = error
            raise
        finally:
            if self.container.state in ("stopped", "failed"):
                for each in self._at_end:
                    each(failure)

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
                self._stop_driving(before)

    def _stop_driving(self, before: int | None) -> None:
        """Hand back the container, and forget interrupts. Raises one that came too late to end anything."""
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

    @property
    def left_alone(self) -> bool:
        """True where the container was abandoned while its task did not end; its thread may still run."""
        return self._is_left_alone

    @property
    def _is_driver(self) -> bool:
        """True on the thread that drives the container: it must not wait for an answer of another one."""
        return self._driver == threading.get_ident()

    def _stands_still(self, deadline: float | None) -> bool:
        """Return True where no thread drives the container; checks for a moment."""
        if self._is_driver:
            return False
        moment = _moment_up_to(deadline)
        if self.running:
            self._ended.wait(moment)
            return False
        if self._driving.acquire(timeout=moment):
            self._driving.release()
            return True
        return False

    @contextmanager
    def _undriven(self) -> Iterator[None]:
        """Keep other threads from driving the container, or reading it. Raises ContainerStateError where one
        does."""
        driving = self._driving
        if not driving.acquire(blocking=False):
            raise ContainerStateError(
                f"{self.name}: the history cannot be read while another thread drives the container, or "
                "reads it: use the methods of the session, or read in session.between()"
            )
        try:
            yield
        finally:
            driving.release()

    def between(self, what: Callable[[], _T], timeout: float | None = None) -> _T:
        """Call ``what`` between two messages: all that it reads is of one moment. Called on this thread while
        no other one drives the container, else on that one, after the message it is at.

        Raises what it raises, and TimeoutError where that would be later than in ``timeout`` seconds."""
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
            if deadline is None:
                notice_waiting()
            if question is None:
                question = Future()
                self.container.post(_answering(question, what))
            wait([question], _moment_up_to(deadline))
            if question.done() or (
                deadline is not None and time.monotonic() >= deadline and not question.cancel()
            ):
                return question.result()
            if question.cancelled():
                raise TimeoutError

    def _changed(self) -> None:
        for listener in self._listeners:
            listener()


def _moment_up_to(deadline: float | None) -> float:
    """The seconds until the next look, which is no later than a deadline."""
    return _LOOK_AGAIN_S if deadline is None else max(0.0, min(_LOOK_AGAIN_S, deadline - time.monotonic()))


def _answering(question: Future[_T], what: Callable[[], _T]) -> Callable[[], None]:
    """A command to the event loop that answers the question, unless its caller has given up waiting."""

    def answer() -> None:
        if not question.set_running_or_notify_cancel():
            return
        try:
            question.set_result(what())
        except BaseException as error:
            question.set_exception(error)

    return answer
