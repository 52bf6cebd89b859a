"""One container of ``run --watch``: its session, and the thread that does what keys ask for."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue

from msgspec.structs import replace

from streambench.container.container import Until
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.container.timers import WindowsLeft
from streambench.debug.control.session import Session
from streambench.debug.stopping.conditions import named_expression
from streambench.debug.terminal.terminal_containers import ContainerLine
from streambench.debug.view.panel_state import Notice, PanelState, PanelStateReader
from streambench.debug.view.rates import Rates
from streambench.debug.view.restore_progress import show_restore_progress
from streambench.errors import StreambenchError, TaskError
from streambench.job.result import ContainerRun, Ended
from streambench.job.runner import positions
from streambench.model import SystemStreamPartition
from streambench.wording import speaking

_SNAPSHOT_S = 0.2
_GLANCE_S = 0.05
"""Seconds that the line of a container that is not selected may take."""
_LOOK_S = 0.05
_BUSY_S = 2.0
_MOVES = frozenset({"step", "back", "forward", "until"})
"""Commands that pause what was asked for before them."""
_RUNS = frozenset({"run", "until"})
_WHILE_RUNNING = frozenset({"commit", "search", "watch", "break", "toggle"})
"""Commands that are done between two messages of a run."""
_LOOKS = frozenset({"back", "forward", "live", "search", "watch"})
"""Commands that a container which has failed still takes."""


class WatchedContainer:
    """A container that is watched: a job for ``PanelStateReader``. Its commands are done on a thread of its
    own, one after the other, from ``begin`` on.

    ``ended``: why it ended, once ``is_over``. ``problem``: what stopping it raised. ``notice``: what the last
    command could not do. ``first``: the positions of its first start."""

    def __init__(
        self,
        session: Session,
        goal: Until,
        on_change: Callable[[], None],
        before: WatchedContainer | None = None,
    ) -> None:
        """``before``: the one that it takes over from, after a rewind, with its breakpoints and watches."""
        self.session: Session | None = session
        self.name = session.name
        self.number = session.container.number
        self.ended: Ended = "signal"
        self.is_over = False
        self.problem: BaseException | None = None
        self.notice = ""
        self._of = session
        if before is not None:
            session.take_over(before._of)
        self._goal = goal
        self._on_change = on_change
        self._done_before = 0 if before is None else before.processed
        self._errors_before = ErrorCounts() if before is None else before.errors
        self.first: Mapping[SystemStreamPartition, str] = {} if before is None else before.first
        self._reader = PanelStateReader(self)
        self._rates = Rates()
        self._commands: SimpleQueue[tuple[int, str]] = SimpleQueue()
        self._next: tuple[int, str] | None = None
        # Commands are numbered as they are asked for: a pause is for those before it, also for one that has
        # not begun yet, and never for those behind it.
        self._asked = self._doing = self._last_run = self._begun = self._paused_below = 0
        self._leaving = False
        self._worker = threading.Thread(
            target=self._work, name=f"streambench keys {self.number}", daemon=True
        )

    @property
    def state(self) -> str:
        return self._of.state

    @property
    def busy_at(self) -> str:
        busy = self._of.busy
        return "" if busy is None or busy.seconds < _BUSY_S else busy.described()

    @property
    def is_moving(self) -> bool:
        return self._of.running

    @property
    def error(self) -> BaseException | None:
        """The error of stopping it, or the one that it failed with."""
        return self.problem or self._of.error

    @property
    def processed(self) -> int:
        return self._done_before + self._of.container.processed

    @property
    def errors(self) -> ErrorCounts:
        return self._errors_before + self._of.container.error_counts

    def start(self) -> None:
        """Start its container; a restore of its state that takes long is shown. Raises what that raises."""
        with show_restore_progress(self._of.container):
            self._of.start()
        self.first = self.first or positions(self._of.snapshot())

    def begin(self) -> None:
        """Take commands from now on."""
        self._of.on_change(self._on_change)
        self._worker.start()

    def snapshot(self) -> ContainerSnapshot:
        return replace(self._of.snapshot(_SNAPSHOT_S), state=self._of.state)

    def frame(self) -> PanelState:
        """The frame to be shown of it. Raises StreambenchError where there is no snapshot of it yet."""
        return self._reader.take(Notice(self.notice))

    def line(self, *, is_selected: bool) -> ContainerLine:
        """Its line in the list of containers."""
        snapshot = self._of.snapshot(_GLANCE_S)
        self._rates.add(snapshot)
        is_past, live = not self._of.live, "busy" if self.busy_at else self._of.state
        return ContainerLine(
            self.number,
            "past" if is_past else live,
            self._of.position if is_past else snapshot.processed,
            snapshot.lag,
            self._rates.total() if self._of.running else None,
            is_selected,
        )

    def ask(self, command: str) -> None:
        """Have a command done. One that moves the container pauses it first; the others are done during a
        run."""
        name = command.split()[0]
        if self.is_over:
            self.notice = f"container {self.number} has ended: {self.ended}"
            return
        if self._of.state == "failed" and name not in _LOOKS and (self._of.live or name != "step"):
            self.notice = "it has failed: b goes back to see why, q leaves and shows where in the code"
            return
        if name in _MOVES:
            self._pause()
        self._put(command)

    def toggle(self) -> None:
        """Pause it where it runs or is about to, run it where it does not or is about to pause."""
        if self._last_run >= self._paused_below and (self._of.running or self._last_run > self._begun):
            self._pause()
        else:
            self.ask("run")

    def leave(self) -> None:
        """Stop it cleanly after its present message. From any thread."""
        self._leaving = True
        self._pause()
        self._put("leave")

    def await_end(self) -> None:
        """Wait until it has ended, after ``leave``. Raises what stopping it raised."""
        self._worker.join()
        if self.problem is not None:
            raise self.problem

    def result(self, seconds: float) -> ContainerRun:
        """Result of the container, from its first start on."""
        container, last = self._of.container, positions(self._of.snapshot())
        return ContainerRun(
            self.number,
            self.processed,
            {ssp: (position, last.get(ssp, position)) for ssp, position in self.first.items()},
            seconds,
            self.ended,
            self.errors,
            windows_left=container.windows_left if self._goal is not None else WindowsLeft(),
        )

    def _put(self, command: str) -> None:
        """Queue a command. Called by the thread that takes keys; ``leave`` may come from any."""
        self._asked += 1
        if command.split()[0] in _RUNS:
            self._last_run = self._asked
        self._commands.put((self._asked, command))

    def _pause(self) -> None:
        """Pause what was asked for so far."""
        self._paused_below = self._asked + 1

    @property
    def _is_paused(self) -> bool:
        """True where the command that is being done is to end."""
        return self._leaving or self._doing < self._paused_below

    def _work(self) -> None:
        while not self.is_over:
            (self._doing, command), self._next = self._next or self._commands.get(), None
            self._perform("leave" if self._leaving else command)
            self._begun = self._doing

    def _perform(self, command: str) -> None:
        name, _, value = command.partition(" ")
        self.notice, before = "", self._of.state
        try:
            with speaking("terminal"):
                self._do[name](self, value)
        except Exception as error:
            # What the task raised stands in the state of the container.
            if name == "leave":
                self.problem, self.is_over = error, True
            is_shown = self._of.state == "failed" and (before != "failed" or isinstance(error, TaskError))
            self.notice = "" if is_shown else f"{name}: {error}"
        self._on_change()

    def _perform_others(self) -> None:
        """Do what is asked for during a run, up to the first command that has to wait for its end."""
        while self._next is None and not self._commands.empty():
            command = self._commands.get()
            if command[1].split()[0] in _WHILE_RUNNING:
                self._perform(command[1])
            else:
                self._next = command

    def _run(self, value: str) -> None:
        if self._is_paused:
            return
        session = self._of
        if not session.live:
            session.go_live()
        until = self._until()
        if until != 0:
            session.run(until)
            self._begun = self._doing
            self._await()
        self._check_goal()

    def _await(self) -> None:
        """Wait for a run, and pause it when that is asked for. Raises what it failed with."""
        while not self._of.wait(_LOOK_S):
            if self._is_paused:
                self._of.pause()
            else:
                self._perform_others()

    def _until(self) -> Until:
        """The goal, less what is done."""
        if isinstance(self._goal, int):
            return max(0, self._goal - self._done_before - self._of.latest)
        return self._goal

    def _run_until(self, value: str) -> None:
        if self._is_paused:
            return
        self._of.run(value or None)
        self._begun = self._doing
        self._await()
        self._check_goal()

    def _step(self, value: str) -> None:
        done = 0
        # A pause ends the steps after the first one: a key that is pressed twice makes two steps.
        while done < int(value) and not (done and self._is_paused) and self._of.step():
            done += 1
        if not done:
            self.notice = "nothing to read: it has caught up with its inputs"
        self._check_goal(caught_up=False)

    def _check_goal(self, *, caught_up: bool = True) -> None:
        """End where the goal is reached, its tasks have shut it down, or its inputs have ended."""
        session, container = self._of, self._of.container
        if container.state != "running":
            if container.state == "stopped":
                self.ended, self.is_over = "shutdown", True
            return
        if container.at_end:
            self.ended = "end-of-stream"
        elif isinstance(self._goal, int) and self._until() == 0:
            self.ended = "count"
        elif self._goal == "caught-up" and caught_up and not self._is_paused and session.stopped_at is None:
            self.ended = "caught-up"
        else:
            return
        if self._goal is not None:
            session.end_run()
            if self._goal == "caught-up" and not container.shut_down:
                session.run("caught-up")  # the last windows may have sent to inputs of this very job
                session.wait()
        self._end()

    def _end(self) -> None:
        self._of.stop()
        self.is_over = True

    def _search(self, value: str) -> None:
        self._reader.standing.search = value

    def _watch(self, value: str) -> None:
        self._of.watch(*named_expression(value))

    def _toggle_breakpoint(self, value: str) -> None:
        digits = value.removeprefix("-")
        if not digits.isdecimal():
            raise StreambenchError(f"'{digits}' is no breakpoint; give its number")
        number = int(digits)
        if value.startswith("-"):
            self._of.remove(number)
            return
        found = next((each for each in self._of.breakpoints if each.id == number), None)
        self._of.enable(number, not (found is not None and found.enabled))

    _do: Mapping[str, Callable[[WatchedContainer, str], object]] = {
        "leave": lambda self, value: self._end(),
        "run": _run,
        "until": _run_until,
        "step": _step,
        "back": lambda self, value: self._of.back(int(value)),
        "forward": lambda self, value: self._of.forward(int(value)),
        "live": lambda self, value: self._of.go_live(),
        "commit": lambda self, value: self._of.commit(),
        "search": _search,
        "watch": _watch,
        "break": lambda self, value: self._of.break_on(value),
        "toggle": _toggle_breakpoint,
    }
