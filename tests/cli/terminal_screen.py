"""A command in a terminal of its own, and what its user sees there."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.job.project import CHECKOUT

PATIENCE_S = 60.0


class TerminalOutput(io.StringIO):
    """Standard output of this process, as if it were a terminal."""

    def isatty(self) -> bool:
        return True


def stdout_of_columns(monkeypatch: pytest.MonkeyPatch, columns: int) -> TerminalOutput:
    """Give this process a standard output that is a terminal of so many columns."""
    terminal = TerminalOutput()
    # Of a dumb terminal both must be given: else rich takes it to have 80 columns.
    given = {"COLUMNS": str(columns), "LINES": "50", "NO_COLOR": "1", "TERM": "dumb"}
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", terminal)
    return terminal


# Ctrl-C is a signal only for the command to which the terminal belongs.
_IN_FRONT = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

_SEQUENCE = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])")
_BEGUN = re.compile(r"\x1b(\[[?\d;]*)?$")


class TerminalScreen:
    """A terminal of the few sequences that rich sends. ``is_full``: it shows its alternate screen.
    ``scrolled``: what was written outside of that."""

    def __init__(self, arguments: list[str], folder: Path, rows: int = 24, columns: int = 80) -> None:
        self.is_full, self.has_cursor = False, True
        self.scrolled = ""
        self._rest = ""
        self._clear(rows, columns)
        self._terminal, command_end = pty.openpty()
        _set_size(command_end, rows, columns)
        environment = {name: text for name, text in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _IN_FRONT, *arguments],
            cwd=folder,
            env={**environment, "TERM": "xterm-256color", "PYTHONPATH": str(CHECKOUT)},
            stdin=command_end,
            stdout=command_end,
            stderr=command_end,
            start_new_session=True,
        )
        os.close(command_end)

    @property
    def text(self) -> str:
        """The screen, line by line."""
        return "\n".join("".join(row).rstrip() for row in self._cells)

    @property
    def takes_lines(self) -> bool:
        """True where the keyboard echoes and gives lines, as a shell needs it."""
        flags = termios.tcgetattr(self._terminal)[3]
        return bool(flags & termios.ICANON) and bool(flags & termios.ECHO)

    def press(self, keys: str) -> None:
        os.write(self._terminal, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        self._clear(rows, columns)
        _set_size(self._terminal, rows, columns)

    def await_text(self, pattern: str) -> None:
        """Wait until the screen has this text."""
        self._await(lambda: self.process.poll() is None and bool(re.search(pattern, self.text)), pattern)

    def await_end(self) -> int:
        """Wait until the command has ended; its exit code."""
        self._await(lambda: self.process.poll() is not None, "its end")
        while self._read():
            pass
        return self.process.returncode

    def hang_up(self) -> None:
        """Close the terminal, as its window would be."""
        os.close(self._terminal)
        self._terminal = -1

    def close(self) -> None:
        """Kill the command if it still runs."""
        self.process.kill()
        self.process.wait()
        if self._terminal >= 0:
            os.close(self._terminal)

    def _await(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < deadline, f"there was no {what}:\n{self.text}\n{self.scrolled}"
            self._read()

    def _read(self) -> bool:
        if self._terminal < 0 or not select.select([self._terminal], [], [], 0.05)[0]:
            return False
        try:
            read = os.read(self._terminal, 65536).decode(errors="replace")
        except OSError:  # the command has ended
            return False
        self._draw(self._rest + read)
        return bool(read)

    def _draw(self, text: str) -> None:
        begun = _BEGUN.search(text)
        self._rest = begun.group() if begun else ""
        text = text[: begun.start()] if begun else text
        at = 0
        while at < len(text):
            if found := _SEQUENCE.match(text, at):
                self._obey(*found.groups())
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _obey(self, argument: str, command: str) -> None:
        if command == "H":
            self._row = self._column = 0
        elif argument == "?1049":
            self.is_full = command == "h"
        elif argument == "?25":
            self.has_cursor = command == "h"

    def _put(self, character: str) -> None:
        if not self.is_full:
            self.scrolled += character
        elif character == "\n":
            self._row, self._column = min(len(self._cells) - 1, self._row + 1), 0
        elif character == "\r":
            self._column = 0
        elif self._column < len(self._cells[0]):
            self._cells[self._row][self._column] = character
            self._column += 1

    def _clear(self, rows: int, columns: int) -> None:
        self._cells = [[" "] * columns for _ in range(rows)]
        self._row = self._column = 0


def _set_size(terminal: int, rows: int, columns: int) -> None:
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
