"""Interactive control of a container.

A session steps the container, or runs it on a thread of its own. It can be inspected and paused at any time,
and stops at breakpoints. It is never more than a caller of the container's one event loop.
"""

from __future__ import annotations

import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Literal, TypeVar, cast

from streambench.checkpoint.api import Checkpoint
from streambench.chooser.explanation import Explanation
from streambench.container.container import Container, Until
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.container.observer import ContainerObserver
from streambench.debug.control.advance import Advance
from streambench.debug.control.busy import Busy, busy_with
from streambench.debug.control.driving import between_messages, notice_waiting
from streambench.debug.control.pace import Pace
from streambench.debug.control.takeover import TakenOver
from streambench.debug.stopping.conditions import Condition, Conditional, ConditionError
from streambench.debug.stopping.interrupt import GivenUp, clear_interrupts, interrupt_inside
from streambench.debug.stopping.moment import Moment
from streambench.debug.stopping.past_steps import moments_of, walk
from streambench.errors import FencedError, StreambenchError
from streambench.suggestions import suggest
from streambench.wording import words

log = logging.getLogger(__name__)

SessionState = Literal["new", "paused", "running", "stopped", "failed"]

_T = TypeVar("_T")
_ANSWER_S = 5.0
_ANSWER_AT_LEAST_S = 0.2
_MOMENT_S = 2.0
_LOOK_S = 0.01


class Session(TakenOver):
    """Drives one container. All methods may be called from any thread.

    States: ``new`` until ``start``; ``paused`` when nothing moves; ``running`` while its thread drives the
    container; ``stopped`` for good; ``failed``, for good unless ``can_resume``. ``error`` is what the
    container failed with. ``problem`` is what ended the last ``run`` without failing the container. A
    condition could not be evaluated, or an ``until`` function or a task's ``close`` raised.
    """

    def __init__(
        self,
        container: Container,
        name: str | None = None,
        *,
        history: int | bool | None = None,
        namespace: Mapping[str, Any] | None = None,
    ) -> None:
        """``history``: the memory in MB for going back in time (256); 0 or False for none. ``namespace``:
        further names for conditions."""
        self.container = container
        self._pace: Pace | None = None
        self.name = name or container.name
        self._begin_driving()
        self._begin_history(history)
        self._last: ContainerSnapshot | None = None
        self._at_end.append(self._end_record)
        self._namespace: Mapping[str, Any] = namespace or {}
        self._begin_stops()
        self._observer: ContainerObserver | None = None

    def __repr__(self) -> str:
        position = self.processed_now if self.running else self.position
        past = "" if self.live else f" of {self.latest:,}, in the past"
        return f"<session of {self.name}: {self.state} at {position:,}{past}>"

    @property
    def state(self) -> SessionState:
        if self.running:
            return "running"
        state = self.container.state
        return "paused" if state == "running" else state

    @property
    def busy_s(self) -> float:
        """The seconds that a run or step has been busy with one message, give or take a moment. 0 where
        nothing moves, or where a slow run waits for the time of its next message."""
        pace = self._pace
        return 0.0 if pace is not None and pace.waits else self.container.busy_s

    @property
    def busy(self) -> Busy | None:
        """The message that a run or step is busy with, and where in the code; None where nothing moves."""
        return busy_with(self.container, self._driver) if self.busy_s > 0 else None

    def start(self, then: Callable[[], None] = lambda: None) -> None:
        """Start the container; ``then`` is called before the first position is recorded. Raises what
        ``Container.start`` raises."""

        def start() -> None:
            self.container.start()
            try:
                then()
                if self.history is not None:
                    self.history.begin()
                    self._begin_record()
            except BaseException:
                # An interrupt, say: without a session that has begun, the container could not be stopped.
                self.container.abandon()
                raise

        self._drive(start)
        self._watch_claim()

    def step(
        self,
        n: int = 1,
        *,
        until: Conditional = None,
        here: bool = False,
        on_interrupt: Callable[[], object] = lambda: None,
    ) -> int:
        """Process up to ``n`` messages on the session's thread; how many were. It may be fewer: at the heads
        of all inputs, at a breakpoint (``stopped_at``), and before the message for which ``until`` is true.
        That may be the next message, unless the last call has stopped before it. A condition on ``output``,
        ``before``, ``after`` or ``error`` stops after that message. A task of batches gets them as large as
        in a run, ``n`` messages at most. A batch that failed, or is in the past, comes again as a whole.

        A KeyboardInterrupt ends it after the message it is at, and is raised then. A second one ends the
        message, at which it can go on as after an exception. ``on_interrupt`` is called at the first one.
        ``here``: process them on the calling thread, for a debugger. Raises ContainerStateError while
        running, ConditionError, and what the task raises."""
        if not self.live:
            return self._step_in_past(n, until)
        self._resume()
        advance = self._conditional(None if until is None else Condition(until, self._namespace))
        call = partial(advance, lambda: self.container.step(n, batches=True))
        if here or self._driver == threading.get_ident():
            return self._drive(call)
        return self._awaited(Advance(call), on_interrupt)

    def forward(self, n: int = 1) -> int:
        """Go ``n`` messages forward, at most to the newest position, or to a breakpoint; the new position.
        Raises ContainerStateError, ConditionError, and in a branch what its tasks raise."""
        self._breakpoints.begin()
        if not self._breakpoints.all:
            return self.goto(min(self.position + n, self.latest))
        self._step_in_past(n)
        return self.position

    def forward_until(self, condition: Conditional) -> int:
        """Go forward to the next position at which a condition held. The condition is of its message and the
        state after it, or of a change or an output of it. Returns the new position, the present one where
        there is none. Raises as ``forward`` does."""
        holds = self._past_condition(condition)
        self._breakpoints.begin()
        here = self.position
        while not self.live and self.position < self.latest:
            before = self.position
            self._go(before + 1)
            if before == self.position:
                break  # a branch ends before the newest position
            seen = [moment for kind, moment in moments_of(self.last, self.moment) if kind == holds.kind]
            if any(map(holds.holds, [self._past_moment()] if holds.kind is None else seen)):
                self._run_again_for_watches()
                return self.position
        return self.goto(here)

    @contextmanager
    def observed(self, observer: ContainerObserver) -> Iterator[None]:
        """Meanwhile, have an observer see the callbacks of each step, also of those in the past."""
        self.container.observe(observer)
        self._observer = observer
        try:
            yield
        finally:
            self._observer = None
            self.container.stop_observing(observer)

    def advance(self) -> int:
        """Go one message forward in the past; the position. Raises what tasks of a branch raise."""
        past, observer = self._past, self._observer
        if past is not None and observer is not None:
            self._travel(lambda: past.step_observed(observer))
            self._go(past.position)
        else:
            self._go(self.position + 1)
        return self.position

    def _step_in_past(self, n: int, until: Conditional = None) -> int:
        """Follow what was recorded, or the branch; how many messages."""
        before, was_before = self.position, self._stands_before
        condition = None if until is None else Condition(until, self._namespace)
        self._breakpoints.begin()
        past = self._past
        if condition is None and not self._breakpoints.all and self._observer is None:
            if past is not None and past.branch:
                return self._travel(lambda: past.step(n))
            self.goto(min(before + n, self.latest))
            return self.position - before
        listed = (
            None
            if condition is None
            else self._breakpoints.add(condition, condition.kind or "message", is_listed=False)
        )
        try:
            self._history().goal = min(before + n, self.latest)
            # A second call with the same condition goes on from where the first one has stopped.
            done = walk(self, self._breakpoints, n, looks_first=listed is not None and was_before != before)
            stopped = self._breakpoints.stopped
            if stopped is not None and stopped.breakpoint.on == "message":
                self._stands_before = self.position
            self._run_again_for_watches()
            return done
        finally:
            self._history().goal = None
            if listed is not None:
                self._breakpoints.remove(listed)
            self._breakpoints.drop_spent()
            self._raise_unevaluated()

    def moment(self, task: str, **seen: Any) -> Moment:
        """The moment at the position, of one task. ``seen``: as for Moment."""
        instance = next((each for each in self._tasks_here() if each.name == task), None)
        return Moment(self.position, self.last_message, instance, **seen)

    def run(self, until: Until | Conditional = None, *, speed: float | None = None) -> None:
        """Process messages on the session's thread, until ``until`` (see ``Container.run``), ``pause``,
        ``stop`` or a breakpoint; a replay ends with its recording. Returns at once; ``wait`` for it.

        ``until`` may be a condition, too: an expression, or a function of a Moment. It stands before the
        first message for which it is true; one of ``output``, ``before``, ``after`` or ``error`` after it.
        ``speed``: the most messages a second. Raises ConditionError for what is no expression."""
        self._check_still()
        self._require_live("run")
        condition = condition_of_run(until, self._namespace)
        self._resume()
        plain: Until = None if condition is not None else until  # type: ignore[assignment]
        advance = partial(self.container.run, plain)
        if self.recording is not None and plain is None:
            advance = partial(self.container.run, "caught-up")
        elif self.recording is not None and isinstance(plain, int):
            advance = partial(self.container.step, plain, batches=True)
        call = partial(self._conditional(condition), advance)
        if speed is not None:
            call = partial(self._paced, Pace(speed, self.container.post), call)
        self._begin(Advance(call))

    def pause(self, timeout: float | None = None) -> bool:
        """Have it stop after the message it is at, and wait for that, at most ``timeout`` seconds; whether it
        stands still.

        Called by the task itself (or by code that it calls) it cannot wait."""
        deadline = None if timeout is None else time.monotonic() + timeout
        self.container.pause()
        if self._pace is not None:
            self._pace.end()
        while not self._stands_still(deadline):
            # Asked again and again, because a run that has not quite begun would not hear it.
            self.container.pause()
            if deadline is None:
                notice_waiting()
            if self._driver == threading.get_ident() or (
                deadline is not None and time.monotonic() >= deadline
            ):
                return False
        return True

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it stands still, at most ``timeout`` seconds; whether it does. Raises what it failed
        with, or what ended the run."""
        if self.running:
            self._ended.wait(timeout)
        problem = self.error or self.problem
        if problem is not None:
            self._takeover = None  # it is raised here
            raise problem
        return not self.running

    def commit(self, timeout: float | None = None) -> None:
        """Commit all tasks: at once where it stands still, else between two messages. Raises TimeoutError
        where that would be later than in ``timeout`` seconds, and has not committed then."""
        self._require_live("commit")
        self.between(lambda: self._noted(self.container.commit), timeout)

    def end_run(self) -> None:
        """Call the last windows of a run that has reached its goal, see ``Container.end_run``."""
        self._drive(self.container.end_run)

    def stop(self) -> None:
        """Pause, commit, close the tasks, close the streams."""
        self._end(self.container.stop)

    def abandon(self) -> None:
        """Drop everything as a crash would, after the current message."""
        self._end(self.container.abandon)

    def _end(self, how: Callable[[], object]) -> None:
        """End the container, from the newest position."""

        def end() -> None:
            self._past = None
            how()

        self.pause()
        self._drive(end)

    def give_up(self, moment: float = _MOMENT_S, *, may_resume: bool = False) -> bool:
        """Drop everything as a crash would, also in the middle of a message; whether what was going on
        has come to an end.

        If the task is in a callback, GivenUp, a KeyboardInterrupt, is raised there. If that has not ended it
        after ``moment`` seconds, the container is abandoned all the same, and its thread is left alone. A
        call such as ``time.sleep`` may return only later, and a task may catch what is raised. What it still
        does has no effect, see ``Container.abandon``. Not to be called by the task itself.

        ``may_resume``: where the task has ended in the middle of its message, it can go on there, as after an
        exception (``can_resume``)."""
        self.container.pause()
        with self._interrupting:
            if self._driver is not None:
                self._is_interrupted = interrupt_inside(self._driver, self.container.callbacks)
        ended = self.pause(moment)
        if not ended and self.container.has_begun:
            self._leave_alone()
        elif self.container.state == "running" or (self.can_resume and not may_resume):
            self.abandon()
        return ended

    @property
    def explanation(self) -> Explanation | None:
        """Why the message at the position was chosen; None where that is not known. Only steps, and stops at
        a breakpoint, record it, and only the last ones are remembered."""
        choices = self.snapshot().choices
        if not self.live:
            choices = tuple(each for each in choices if each.number == self.position)
        return choices[-1].explanation if choices else None

    @between_messages
    def checkpoints(self) -> dict[str, list[Checkpoint]]:
        """Per task, the checkpoints that are kept, the oldest first. Raises StreambenchError."""
        return self.container.runtime.checkpoints.history()

    def snapshot(self, timeout: float = _ANSWER_S) -> ContainerSnapshot:
        """A snapshot of the container. While a task is busy with one message for longer than ``timeout``
        seconds: the last one taken."""
        busy_s = self.busy_s
        found = self.snapshot_now(timeout) or self._last
        if found is None:
            raise StreambenchError(
                f"{self.name} has been busy with one message for {max(timeout, round(busy_s)):g} s; "
                "there is no snapshot of it yet"
            )
        return found

    def snapshot_now(self, timeout: float) -> ContainerSnapshot | None:
        """A snapshot of the container as it is now; None while a task is busy with one message for longer
        than ``timeout`` seconds."""
        patience = max(timeout - self.busy_s, min(timeout, _ANSWER_AT_LEAST_S))
        try:
            self._last = self.between(self.container.snapshot, patience)
        except TimeoutError:
            return None
        return self._last

    def _begin(self, call: Advance) -> None:
        """Begin to advance on a thread of its own. Where an interrupt is raised, it may have begun."""
        self._check_still()
        with self._driving:
            # Again, now that no other thread can drive: one may have gone to the past meanwhile.
            self._check_still()
            self._require_live("go on")
            self._require_running()
            self.problem = None
            ended = threading.Event()
            # In the context of the caller: what a task prints belongs to the cell that is run.
            run = partial(contextvars.copy_context().run, self._run, call, ended)
            thread = threading.Thread(target=run, name=f"streambench {self.name}", daemon=True)
            # Others may wait for it as soon as they see it; it ends only after this lock is free.
            self._ended, self._thread = ended, thread
            try:
                thread.start()
            except KeyboardInterrupt:
                # It came while the thread starts, which may run all the same.
                deadline = time.monotonic() + _MOMENT_S
                while thread.ident is None and time.monotonic() < deadline:
                    time.sleep(_LOOK_S)
                raise
            finally:
                call.has_begun = thread.ident is not None
                if not call.has_begun:
                    self._thread = None
        self._changed()

    def _run(self, call: Advance, ended: threading.Event) -> None:
        try:
            with self._hold():
                call.done = self._noted(call.advance)
        except BaseException as error:
            call.error = error
            log.debug("%s failed", self.name, exc_info=True)  # wait() raises it
            if isinstance(error, FencedError):
                self._takeover = error
            if self.error is None and not self._is_left_alone and not isinstance(error, GivenUp):
                self.problem = error
        self._thread = None
        try:
            self._changed()
        finally:
            ended.set()
            call.end()

    def _awaited(self, call: Advance, on_interrupt: Callable[[], object]) -> int:
        """Begin a step, wait for it, and pass interrupts on to it."""
        interrupt: KeyboardInterrupt | None = None
        meanwhile: Callable[[], object] = bool
        while not call.has_ended:
            try:
                if not call.has_begun:
                    self._begin(call)
                call.await_end(meanwhile)
            except KeyboardInterrupt as pressed:
                if not call.has_begun:
                    raise
                if interrupt is not None:
                    if self.give_up(may_resume=True):
                        call.await_end()
                    raised = call.error
                    raise raised if isinstance(raised, KeyboardInterrupt) else pressed from None
                # Asked again and again, because a step that has not quite begun would not hear it.
                interrupt, meanwhile = pressed, self.container.pause
                self.container.pause()
                on_interrupt()
        if interrupt is not None and call.error is None:
            raise interrupt
        self.problem = self._takeover = None  # it is raised here
        return call.result()

    def _conditional(self, condition: Condition | None) -> Callable[[Callable[[], int]], int]:
        """``_advanced``, at most up to where a condition is true."""

        def advanced(advance: Callable[[], int]) -> int:
            if condition is None:
                return self._advanced(advance)
            kind = condition.kind or "message"
            until = self._breakpoints.add(condition, kind, once=True, is_listed=False)
            try:
                return self._advanced(advance)
            finally:
                self._breakpoints.remove(until)

        return advanced

    def _advanced(self, advance: Callable[[], int]) -> int:
        self._breakpoints.begin()
        done = advance()
        if self.history is not None and self.history.blocks:
            self.history.maintain()
            self._flush_record()
        if self.container.shut_down:
            self.container.stop()
        self._breakpoints.drop_spent()
        self._raise_unevaluated()
        return done

    def _raise_unevaluated(self) -> None:
        """Raise the error of a condition that could not be evaluated."""
        stopped = self._breakpoints.stopped
        if stopped is None or stopped.error is None:
            return
        if not stopped.breakpoint.id:
            raise stopped.error
        remedy = words("remove breakpoint", stopped.breakpoint.id)
        raise ConditionError(f"{stopped.error}; {remedy} removes it") from stopped.error.__cause__

    def _paced(self, pace: Pace, advance: Callable[[], int]) -> int:
        """Advance at most at a pace."""
        self._pace = pace
        self.container.observe(pace)
        try:
            return advance()
        finally:
            self._pace = None
            pace.end()
            self.container.stop_observing(pace)

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
            self._give_up_record()
        clear_interrupts()
        self._ended.set()
        self._changed()


def condition_of_run(until: Until | Conditional, namespace: Mapping[str, Any]) -> Condition | None:
    """The condition that a run is to end at; None where ``until`` is none."""
    if until is None or until == "caught-up" or isinstance(until, int):
        return None
    if callable(until) and not _takes_moment(until):
        return None
    try:
        return Condition(cast("Conditional", until), namespace)
    except ConditionError as error:
        meant = suggest(until, ["caught-up"]) if isinstance(until, str) else ""
        if not meant:
            raise
        raise ConditionError(f"{error}; {meant}") from None


def _takes_moment(function: Callable[..., object]) -> bool:
    """True for a function of a Moment, False for one that is called without arguments."""
    try:
        inspect.signature(function).bind()
    except TypeError:
        return True
    except ValueError:
        return False
    return False
