"""``streambench run --watch``: a job that is run, stepped and taken back in time on a full screen."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from typing import Any

import typer
from msgspec.structs import replace

from streambench.cli.terminal import Terminal, is_end
from streambench.config import Config
from streambench.container.container import Until
from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.container.timers import WindowsLeft
from streambench.debug.conditions import named_expression
from streambench.debug.panel_state import PanelStateReader
from streambench.debug.restore_progress import show_restore_progress
from streambench.debug.session import Session
from streambench.debug.terminal_view import Screen
from streambench.errors import StreambenchError
from streambench.job.result import ContainerRun, Ended, RunResult
from streambench.job.run import container_of
from streambench.job.runner import positions
from streambench.job.signals import StopSignals

CHOICES = 160
"""The number of the last choices that are remembered, to be shown."""

_FRAME_S = 0.25
_SNAPSHOT_S = 0.2
_LOOK_S = 0.05
_BUSY_S = 2.0
_PROMPTS = {
    "/": ("search", "search stores and keys: "),
    "u": ("until", "run until: "),
    ".": ("break", "break on a message where: "),
    "w": ("watch", "watch NAME=EXPRESSION: "),
    "x": ("toggle", "enable or disable breakpoint (-ID removes it): "),
}
_COMMANDS = {
    "s": "step 1",
    "right": "step 1",
    "S": "step 10",
    "b": "back 1",
    "left": "back 1",
    "B": "back 10",
    "f": "forward 1",
    "F": "forward 10",
    "l": "live",
    "c": "commit",
}
_MOVES = frozenset({"step", "back", "forward", "until"})
"""Commands that pause what runs."""
_LOOKS = frozenset({"back", "forward", "live", "search", "watch"})
"""Commands that a job which has failed still takes."""
_SCROLLED = {"up": -1, "down": 1, "page up": -10, "page down": 10}


def check_terminal() -> None:
    """Raise BadParameter where there is no terminal to draw on."""
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") in (None, "", "dumb"):
        raise typer.BadParameter(
            "it draws on a whole terminal and takes keys from it, and here is none: leave it out, or give "
            "--json for programs",
            param_hint="--watch",
        )


def watch(config: Config, goal: Until, number: int | None) -> RunResult:
    """Run a container on the full screen of the terminal, until ``goal`` is reached or it is left by a key or
    a signal. Raises what the container failed with, and KeyboardInterrupt where it was left in the middle of
    a message."""
    count = config.integer("job.container.count")
    if number is None and count > 1:
        raise typer.BadParameter(
            f"it shows one container, and job.container.count is {count}: name one with --container",
            param_hint="--watch",
        )
    began = time.monotonic()
    session = Session(container_of(config, None, number, remember_choices=CHOICES))
    with show_restore_progress(session.container):
        session.start()
    first = positions(session.snapshot())
    watched = Watch(session, goal)
    watched.run()
    last = positions(session.snapshot())
    container = session.container
    offsets = {ssp: (position, last.get(ssp, position)) for ssp, position in first.items()}
    left = container.windows_left if goal is not None else WindowsLeft()
    seconds = time.monotonic() - began
    run = ContainerRun(
        container.number,
        container.processed,
        offsets,
        seconds,
        watched.ended,
        container.error_counts,
        windows_left=left,
    )
    return RunResult(session.name, (run,), seconds)


class Watch:
    """A session on a full screen. The main thread draws and takes keys; a thread of its own does what they
    ask for, one thing after the other."""

    def __init__(self, session: Session, goal: Until) -> None:
        self.session: Session | None = session
        self.name = session.name
        self.ended: Ended = "signal"
        self._of = session
        self._goal = goal
        self._reader = PanelStateReader(self)
        self._commands: SimpleQueue[str | None] = SimpleQueue()
        self._screen: Screen | None = None
        self._view: dict[str, Any] = {"page": 0, "scroll": 0, "help": False}
        self._prompt = ""
        self._typed = ""
        self._notice = ""
        self._leaving = self._is_over = False
        self._problem: BaseException | None = None
        self._terminal = Terminal()
        self._pausing = threading.Event()

    @property
    def state(self) -> str:
        return self._of.state

    @property
    def busy_at(self) -> str:
        busy = self._of.busy
        return "" if busy is None or busy.seconds < _BUSY_S else busy.described()

    def snapshot(self) -> ContainerSnapshot:
        return replace(self._of.snapshot(_SNAPSHOT_S), state=self._of.state)

    def run(self) -> None:
        """Show it until it has ended. Raises what it failed with."""
        worker = threading.Thread(target=self._work, name="streambench keys", daemon=True)
        terminal = self._terminal
        with StopSignals(self.leave, kill=terminal.restore), terminal:
            self._of.on_change(terminal.wake)
            self._draw()  # a frame of before the first message, which may take long
            worker.start()
            self._commands.put("run")
            while not self._is_over:
                self._draw()
                for key in terminal.keys(_FRAME_S):
                    self._press(key)
        if self._problem is not None:
            raise self._problem
        error = self._of.error
        if error is not None:
            raise error

    def leave(self) -> None:
        """Have it stop cleanly after the message it is at, and end. From any thread."""
        self._leaving = True
        self._pausing.set()
        self._commands.put("leave")
        self._terminal.wake()

    def _draw(self) -> None:
        try:
            frame = self._reader.take(self._notice)
        except StreambenchError as error:
            if self._screen is None:
                return
            frame = replace(self._screen.frame, notice=str(error))
        prompt = f"{self._prompt}{self._typed}" if self._prompt else ""
        leaving = "stopping: the message it is at is finished, then everything is committed (q: at once)"
        self._screen = Screen(
            frame,
            prompt=prompt,
            notice=leaving if self._leaving else self._notice,
            printed=tuple(self._terminal.printed),
            **self._view,
        )
        try:
            self._terminal.draw(self._screen)
        except OSError:
            if not self._leaving:
                self.leave()

    def _press(self, key: str) -> None:
        if is_end(key):
            if not self._leaving:
                self.leave()
            self._terminal.restore()
        elif self._prompt:
            self._type(key)
        elif key == "q":
            if self._leaving:
                raise KeyboardInterrupt("it was left in the middle of a message")
            self.leave()
        elif key in _PROMPTS:
            self._prompt, self._typed = _PROMPTS[key][1], ""
        elif key == " ":
            self._toggle()
        elif key in _COMMANDS:
            self._ask(_COMMANDS[key])
        else:
            self._look(key)

    def _look(self, key: str) -> None:
        """Keys that change what is shown only."""
        view = self._view
        if key in ("?", "escape"):
            view["help"] = key == "?" and not view["help"]
        elif key in _SCROLLED:
            view["scroll"] = max(0, view["scroll"] + _SCROLLED[key])
        elif key in ("tab", "back tab"):
            view.update(page=view["page"] + (1 if key == "tab" else -1), scroll=0)
        elif key.isdecimal() and key != "0":
            view.update(page=int(key) - 1, scroll=0)

    def _type(self, key: str) -> None:
        if key == "enter":
            command = next(name for name, text in _PROMPTS.values() if text == self._prompt)
            self._ask(f"{command} {self._typed.strip()}")
            self._prompt = ""
        elif key == "escape":
            self._prompt = ""
        elif key == "backspace":
            self._typed = self._typed[:-1]
        elif len(key) == 1:
            self._typed += key

    def _toggle(self) -> None:
        if self._of.running:
            self._pausing.set()
        else:
            self._ask("run")

    def _ask(self, command: str) -> None:
        """Have the worker do something; what moves the job pauses it first."""
        name = command.split()[0]
        if self._of.state == "failed" and name not in _LOOKS and (self._of.live or name != "step"):
            self._notice = "it has failed: b goes back to see why, q leaves and shows where in the code"
            return
        if name in _MOVES:
            self._pausing.set()
        self._commands.put(command)

    def _work(self) -> None:
        while (command := self._commands.get()) is not None and not self._is_over:
            name, _, value = command.partition(" ")
            self._notice = ""
            try:
                if self._leaving:
                    self._end()
                else:
                    self._do[name](self, value)
            except Exception as error:
                # What the task raised stands in the state of the job.
                if self._leaving:
                    self._problem, self._is_over = error, True
                self._notice = "" if self._of.state == "failed" else f"{name}: {error}"
            self._terminal.wake()

    def _run(self, value: str) -> None:
        self._pausing.clear()
        session = self._of
        if not session.live:
            session.go_live()
        until = self._until()
        if until != 0:
            session.run(until)
            self._await()
        self._check_goal()

    def _await(self) -> None:
        """Wait for a run, and pause it when that is asked for. Raises what it failed with."""
        while not self._of.wait(_LOOK_S):
            if self._pausing.is_set():
                self._of.pause()

    def _until(self) -> Until:
        """The goal, less what is done."""
        if isinstance(self._goal, int):
            return max(0, self._goal - self._of.latest)
        return self._goal

    def _run_until(self, value: str) -> None:
        self._pausing.clear()
        self._of.run(value or None)
        self._await()
        self._check_goal()

    def _step(self, value: str) -> None:
        self._pausing.clear()
        done = 0
        while done < int(value) and not self._pausing.is_set() and self._of.step():
            done += 1
        if not done and not self._pausing.is_set():
            self._notice = "nothing to read: it has caught up with its inputs"
        self._check_goal(caught_up=False)

    def _check_goal(self, *, caught_up: bool = True) -> None:
        """End where the goal is reached, its tasks have shut it down, or its inputs have ended."""
        session, container = self._of, self._of.container
        if container.state != "running":
            if container.state == "stopped":
                self.ended, self._is_over = "shutdown", True
            return
        if container.at_end:
            self.ended = "end-of-stream"
        elif isinstance(self._goal, int) and session.latest >= self._goal:
            self.ended = "count"
        elif (
            self._goal == "caught-up"
            and caught_up
            and not self._pausing.is_set()
            and session.stopped_at is None
        ):
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
        self._is_over = True

    def _search(self, value: str) -> None:
        self._reader.standing.search = value

    def _watch(self, value: str) -> None:
        self._of.watch(*named_expression(value))

    def _toggle_breakpoint(self, value: str) -> None:
        if value.startswith("-"):
            self._of.remove(int(value[1:]))
            return
        found = next((each for each in self._of.breakpoints if str(each.id) == value), None)
        self._of.enable(int(value), not (found is not None and found.enabled))

    _do: Mapping[str, Callable[[Watch, str], object]] = {
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
