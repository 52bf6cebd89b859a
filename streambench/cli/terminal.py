"""A terminal as a full screen: single keys and an alternate screen, both undone at the end."""

from __future__ import annotations

import contextlib
import io
import os
import select
import signal
import sys
import termios
import threading
import tty
from collections import deque
from collections.abc import Iterator
from types import FrameType
from typing import Any, TextIO

from rich.console import Console, RenderableType
from rich.live import Live

_MOST_PRINTED = 1000
_ESCAPE_S = 0.03
_NAMES = {
    "\x1b[A": "up",
    "\x1b[B": "down",
    "\x1b[C": "right",
    "\x1b[D": "left",
    "\x1bOA": "up",
    "\x1bOB": "down",
    "\x1bOC": "right",
    "\x1bOD": "left",
    "\x1b[5~": "page up",
    "\x1b[6~": "page down",
    "\x1b[Z": "back tab",
    "\x1b": "escape",
    "\t": "tab",
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
}
END = "end of input"
"""The key that says that the keyboard is gone."""


class Terminal:
    """A terminal, while it is entered: keys come one by one, and ``draw`` fills the screen. It is put back as
    it was however the block ends; ``restore`` does that from any thread.

    ``printed``: the last lines that were written to standard output and error meanwhile. They are written at
    the end, to where they would have gone."""

    def __init__(self) -> None:
        self.printed: deque[str] = deque(maxlen=_MOST_PRINTED)
        self._console = Console(file=sys.stdout, highlight=False)
        self._live = Live(
            console=self._console,
            screen=True,
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        self._keyboard = sys.stdin.fileno()
        self._waking, self._wakes = os.pipe()
        os.set_blocking(self._wakes, False)
        self._former: list[Any] | None = None
        self._restoring = threading.Lock()
        self._outputs: list[_Lines] = []
        self._former_resize: Any = None

    @property
    def is_gone(self) -> bool:
        """True once nothing can be drawn any more."""
        return self._former is None

    def __enter__(self) -> Terminal:
        self._former = termios.tcgetattr(self._keyboard)
        try:
            tty.setcbreak(self._keyboard)
            _without_suspending(self._keyboard)
            self._former_resize = signal.signal(signal.SIGWINCH, self._resized)
            self._live.start()
            self._outputs = [_Lines(stream, self.printed) for stream in (sys.stdout, sys.stderr)]
            sys.stdout, sys.stderr = self._outputs
        except BaseException:
            self.restore()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        if self._outputs:
            sys.stdout, sys.stderr = (each.stream for each in self._outputs)
        self.restore()
        if self._former_resize is not None:
            signal.signal(signal.SIGWINCH, self._former_resize)
        for each in self._outputs:
            each.write_kept()

    def restore(self) -> None:
        """Leave the alternate screen, show the cursor, and take lines from the keyboard again."""
        with self._restoring:
            former, self._former = self._former, None
            if former is None:
                return
            with contextlib.suppress(OSError):  # where the terminal is gone
                self._live.stop()
            with contextlib.suppress(OSError, termios.error):
                termios.tcsetattr(self._keyboard, termios.TCSADRAIN, former)

    def draw(self, screen: RenderableType) -> None:
        """Show a screen. Raises OSError where the terminal is gone."""
        self._live.update(screen, refresh=True)

    def wake(self) -> None:
        """Have ``keys`` return. From any thread, and from a signal handler."""
        with contextlib.suppress(BlockingIOError):
            os.write(self._wakes, b".")

    def keys(self, timeout_s: float) -> list[str]:
        """The keys that are pressed within a time, by name or character; none when it is over, or woken.
        Where the keyboard is gone: ``end of input``."""
        ready, _, _ = select.select([self._keyboard, self._waking], [], [], timeout_s)
        if self._waking in ready:
            os.read(self._waking, 4096)
        if self._keyboard not in ready:
            return []
        try:
            text = os.read(self._keyboard, 1024).decode(errors="replace")
            if text.endswith("\x1b") and select.select([self._keyboard], [], [], _ESCAPE_S)[0]:
                text += os.read(self._keyboard, 1024).decode(errors="replace")
        except OSError:
            text = ""
        return list(_split(text)) if text else [END]

    def _resized(self, number: int, frame: FrameType | None) -> None:
        self.wake()


def _split(text: str) -> Iterator[str]:
    """The keys in what a terminal sent."""
    at = 0
    while at < len(text):
        length = 1
        if text[at] == "\x1b" and text[at + 1 : at + 2] in ("[", "O"):
            length = 3
            while (
                at + length < len(text)
                and not text[at + length - 1].isalpha()
                and text[at + length - 1] != "~"
            ):
                length += 1
        key = text[at : at + length]
        at += length
        if key in _NAMES:
            yield _NAMES[key]
        elif key.isprintable():
            yield key


def _without_suspending(keyboard: int) -> None:
    """Ctrl-Z would leave the shell on the alternate screen."""
    attributes = termios.tcgetattr(keyboard)
    attributes[6][termios.VSUSP] = b"\0"
    termios.tcsetattr(keyboard, termios.TCSANOW, attributes)


class _Lines(io.TextIOBase):
    """A stream whose lines are kept while the screen is full."""

    def __init__(self, stream: TextIO, printed: deque[str]) -> None:
        self.stream = stream
        self._printed = printed
        self._kept: deque[str] = deque(maxlen=_MOST_PRINTED)
        self._begun = ""
        self._number = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return self.stream.encoding

    def fileno(self) -> int:
        return self.stream.fileno()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        *lines, self._begun = (self._begun + text).split("\n")
        self._printed.extend(lines)
        self._kept.extend(lines)
        self._number += len(lines)
        return len(text)

    def write_kept(self) -> None:
        """Write what was kept to the stream itself."""
        if self._begun:
            self.write("\n")
        with contextlib.suppress(OSError):
            if left_out := self._number - len(self._kept):
                self.stream.write(f"({left_out:,} earlier lines are left out)\n")
            self.stream.write("".join(f"{line}\n" for line in self._kept))
            self.stream.flush()
