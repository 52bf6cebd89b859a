"""``streambench run --watch``: a job that is run, stepped and taken back in time on a full screen.

All its containers are in this process, a thread each. The screen shows one of them; keys are for that one."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

import typer
from msgspec.structs import replace

from streambench.cli.output import is_cell
from streambench.cli.terminal import END, Terminal
from streambench.cli.watched import WatchedContainer
from streambench.config import Config
from streambench.container.container import Container, Until
from streambench.debug.control.session import Session
from streambench.debug.terminal.terminal_view import Screen
from streambench.debug.view.panel_state import Notice
from streambench.errors import StreambenchError
from streambench.job.result import RunResult
from streambench.job.rewind import planned_rewind
from streambench.job.run import container_of, containers_of
from streambench.job.signals import StopSignals

CHOICES = 160
"""The number of the last choices that are remembered, to be shown."""

_FRAME_S = 0.25
_HISTORY_MB = 256
"""Memory for going back in time, of all containers together."""
_PROMPTS = {
    "/": ("search", "search stores and keys: "),
    "u": ("until", "run until: "),
    ".": ("break", "break on a message where: "),
    "w": ("watch", "watch NAME=EXPRESSION: "),
    "x": ("toggle", "enable or disable breakpoint (-ID removes it): "),
    "r": ("rewind", "rewind the job to a commit, such as 1.3, or oldest: "),
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
_SCROLLED = {"up": -1, "down": 1, "page up": -10, "page down": 10}
_LEAVING = "stopping: the message it is at is finished, then everything is committed (q or Ctrl-C: at once)"


def check_terminal() -> None:
    """Raise BadParameter where there is no terminal to draw on."""
    if is_cell():
        raise typer.BadParameter(
            "it takes keys from a terminal, and a cell of a notebook has none: leave it out, or use %stream "
            "show",
            param_hint="--watch",
        )
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") in (None, "", "dumb"):
        raise typer.BadParameter(
            "it draws on a whole terminal and takes keys from it, and here is none: leave it out, or give "
            "--json for programs",
            param_hint="--watch",
        )


def watch(config: Config, goal: Until, number: int | None) -> RunResult:
    """Run a job, or one of its containers, on the full screen of the terminal. It ends when ``goal`` is
    reached, or by a key or a signal. Raises what a container failed with, and KeyboardInterrupt where it was
    left in the middle of a message."""
    count = config.integer("job.container.count")
    if number is None and count > 1 and isinstance(goal, int):
        raise typer.BadParameter(
            f"job.container.count is {count}, and several containers cannot stop at a number of messages "
            "together: name one with --container",
            param_hint="--messages",
        )
    began = time.monotonic()
    watched = Watch(config, goal, number)
    watched.run()
    seconds = time.monotonic() - began
    return RunResult(watched.name, tuple(each.result(seconds) for each in watched.containers), seconds)


class Watch:
    """The containers of a job on a full screen. The main thread draws and takes keys."""

    def __init__(self, config: Config, goal: Until, number: int | None) -> None:
        self._config = config
        self._goal = goal
        self._number = number
        self._terminal = Terminal()
        self._signals = StopSignals(self.leave, kill=self._terminal.restore)
        self._selected = 0
        self._screen: Screen | None = None
        self._view: dict[str, Any] = {"page": 0, "scroll": 0, "help": False}
        self._prompt = self._typed = self._notice = ""
        self._leaving = False
        self._rewinding = threading.Lock()
        self._problem: BaseException | None = None
        self.containers = self._watched()
        self.name = self.containers[0].name
        for each in self.containers:
            each.start()

    def _watched(self, before: Sequence[WatchedContainer] = ()) -> list[WatchedContainer]:
        """The containers of the job; ``before``: those from which they take over."""
        config, number = self._config, self._number
        made: list[Container]
        if number is None:
            made = containers_of(config, remember_choices=CHOICES)
        else:
            made = [container_of(config, None, number, remember_choices=CHOICES)]
        return [
            WatchedContainer(
                Session(each, history=_HISTORY_MB // len(made)),
                self._goal,
                self._terminal.wake,
                before[at] if at < len(before) else None,
            )
            for at, each in enumerate(made)
        ]

    @property
    def _shown(self) -> WatchedContainer:
        return self.containers[self._selected]

    def run(self) -> None:
        """Show it until all containers have ended. Raises what one of them failed with."""
        terminal = self._terminal
        try:
            with self._signals, terminal:
                self._draw()  # a frame before the first message, which may take long
                for each in self.containers:
                    each.begin()
                    each.ask("run")
                while not self._is_over:
                    self._draw()
                    for key in terminal.keys(_FRAME_S):
                        self._press(key)
        except KeyboardInterrupt:
            raise KeyboardInterrupt(self._left_at()) from None
        raised = (self._problem, *(each.error for each in self.containers))
        if (error := next((each for each in raised if each is not None), None)) is not None:
            raise error

    def _left_at(self) -> str:
        """The outcome of leaving at once: what is committed, and the messages that were not finished."""
        places = [f"  container {each.number}: {each.busy_at}" for each in self.containers if each.busy_at]
        where = ["the task was here:", *places] if places else []
        return "\n".join(["what was committed stays committed", *where])

    @property
    def _is_over(self) -> bool:
        if self._rewinding.locked():
            return False
        return self._problem is not None or all(each.is_over for each in self.containers)

    def leave(self) -> None:
        """Have all containers stop cleanly after the message they are at, and end. From any thread."""
        self._leaving = True
        for each in self.containers:
            each.leave()
        self._terminal.wake()

    def _draw(self) -> None:
        containers, shown = self.containers, self._shown
        try:
            frame = shown.frame()
            lines = [each.line(is_selected=each is shown) for each in containers] if containers[1:] else []
        except StreambenchError as error:
            if self._screen is None:
                return
            frame = replace(self._screen.frame, notice=Notice(str(error)))
            lines = list(self._screen.containers)
        self._screen = Screen(
            frame,
            prompt=f"{self._prompt}{self._typed}" if self._prompt else "",
            notice=_LEAVING if self._leaving else self._notice,
            printed=tuple(self._terminal.printed),
            containers=lines,
            **self._view,
        )
        try:
            self._terminal.draw(self._screen)
        except OSError:
            if not self._leaving:
                self.leave()

    def _press(self, key: str) -> None:
        if key == END:
            if not self._leaving:
                self.leave()
            self._terminal.restore()
        elif self._prompt:
            self._type(key)
        elif key == "q":
            if self._leaving:
                raise KeyboardInterrupt
            self._signals.count_stop()
            self.leave()
        elif key in _PROMPTS:
            self._prompt, self._typed = _PROMPTS[key][1], ""
        elif not self._look(key):
            self._notice = ""
            self._move(key)

    def _move(self, key: str) -> None:
        """Keys that move containers."""
        if self._rewinding.locked():
            self._notice = "it is being rewound"
        elif key == " ":
            self._shown.toggle()
        elif key == "A":
            moving = [each for each in self.containers if each.is_moving]
            for each in moving or self.containers:
                if not each.is_over:
                    each.toggle()
        elif key in _COMMANDS:
            self._shown.ask(_COMMANDS[key])

    def _look(self, key: str) -> bool:
        """Keys that change what is shown only; False for another one."""
        view = self._view
        if key in ("?", "escape"):
            view["help"] = key == "?" and not view["help"]
        elif key in ("n", "N"):
            self._selected = (self._selected + (1 if key == "n" else -1)) % len(self.containers)
            view["scroll"] = 0
        elif key in _SCROLLED:
            view["scroll"] = max(0, view["scroll"] + _SCROLLED[key])
        elif key in ("tab", "back tab"):
            view.update(page=view["page"] + (1 if key == "tab" else -1), scroll=0)
        elif key.isdecimal() and key != "0":
            view.update(page=int(key) - 1, scroll=0)
        else:
            return False
        return True

    def _type(self, key: str) -> None:
        if key == "enter":
            command = next(name for name, text in _PROMPTS.values() if text == self._prompt)
            self._prompt, value = "", self._typed.strip()
            if command == "rewind":
                self._ask_rewind(value)
            else:
                self._shown.ask(f"{command} {value}")
        elif key == "escape":
            self._prompt = ""
        elif key == "backspace":
            self._typed = self._typed[:-1]
        elif len(key) == 1:
            self._typed += key

    def _ask_rewind(self, where: str) -> None:
        if self._number is not None and self._config.integer("job.container.count") > 1:
            self._notice = (
                f"a rewind concerns all containers, and this is container {self._number} only: "
                f"{self._config.command('checkpoints --rewind PARTITION@OFFSET')}"
            )
        elif where and not self._leaving and self._rewinding.acquire(blocking=False):
            self._notice = f"rewinding to {where}"
            threading.Thread(
                target=self._rewind, args=(where,), name="streambench rewind", daemon=True
            ).start()

    def _rewind(self, where: str) -> None:
        """Stop all containers with a commit, rewind the job, and start them again; nothing is stopped where
        the place is none."""
        is_stopped = False
        try:
            with planned_rewind(self._config, self.name, where):
                pass
            before, is_stopped = self.containers, True
            for each in before:
                each.leave()
            for each in before:
                each.await_end()
            with planned_rewind(self._config, self.name, where) as rewind:
                rewind.apply()
            after = self._watched(before)
            for each in after:
                each.start()
                each.begin()
            self.containers = after
            self._notice = f"rewound to {where}: s processes the message after it, space runs"
        except Exception as error:
            self._notice = f"rewind: {error}"
            if is_stopped:
                self._problem = error
        finally:
            self._rewinding.release()
            if self._leaving:
                self.leave()
            self._terminal.wake()
