"""A terminal as a full screen."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.terminal_screen import TerminalScreen

Start = Callable[[str], TerminalScreen]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """A function that runs code inside of a Terminal ``terminal``."""
    opened = []

    def start(code: str) -> TerminalScreen:
        lines = "".join(f"    {line}\n" for line in code.splitlines())
        begin = (
            "import sys, time\nfrom streambench.cli.terminal import Terminal\nwith Terminal() as terminal:\n"
        )
        opened.append(TerminalScreen([sys.executable, "-c", begin + lines], tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def test_keys_have_names_and_come_one_by_one(start: Start) -> None:
    screen = start(
        "seen = []\nwhile 'q' not in seen:\n    terminal.draw(' '.join(seen) or 'ready')\n"
        "    seen += terminal.keys(0.1)\n"
    )
    screen.await_text("ready")
    screen.press("a\x1b[C\x1b[5~\tbä\x1b[Z\x7f\r")
    screen.await_text("a right page up tab b ä back tab backspace enter")
    screen.press("\x1b")
    screen.await_text("enter escape")
    screen.press("q")
    assert screen.await_end() == 0


def test_the_terminal_is_as_before_after_an_exception(start: Start) -> None:
    screen = start(
        "terminal.draw('shown')\nprint('of the task')\nprint('of its errors', file=sys.stderr)\n"
        "terminal.keys(60)\nraise ValueError('boom')\n"
    )
    screen.await_text("shown")
    assert screen.is_full and not screen.has_cursor and not screen.takes_lines
    screen.press("x")
    assert screen.await_end() == 1
    assert not screen.is_full and screen.has_cursor and screen.takes_lines
    for said in ("of the task", "of its errors", "ValueError: boom"):
        assert said in screen.scrolled


def test_only_the_last_lines_that_were_printed_are_kept(start: Start) -> None:
    screen = start("for n in range(3000):\n    print('line', n)\nprint('without an end', end='')\n")
    assert screen.await_end() == 0
    assert "line 2999" in screen.scrolled and "without an end" in screen.scrolled
    assert "line 1999\r" not in screen.scrolled
    assert "2,001 earlier lines are left out" in screen.scrolled
