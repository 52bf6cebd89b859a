"""Remedies in the words of the caller."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

from streambench.wording import _WORDS, command, speaking, words


def test_python_is_told_of_calls_and_a_notebook_of_magics() -> None:
    assert words("live") == "session.go_live()"
    with speaking("magics"):
        assert words("live") == "%stream live"
        assert words("break on", "output") == "--on output"
    assert words("live") == "session.go_live()"


def test_a_thread_with_the_context_of_a_magic_speaks_as_it_does() -> None:
    said: list[str] = []
    with speaking("magics"):
        context = copy_context()
    thread = threading.Thread(target=context.run, args=(lambda: said.append(words("swap")),))
    thread.start()
    thread.join()
    assert said == ["%stream swap"]


@pytest.mark.parametrize("remedy", _WORDS)
def test_only_python_is_told_of_python(remedy: str) -> None:
    for speaker in ("magics", "terminal"):
        with speaking(speaker):  # type: ignore[arg-type]
            assert "()" not in words(remedy, "x") and "session." not in words(remedy, "x")


def test_a_command_is_a_magic_in_a_notebook() -> None:
    assert command("replay 'my capture'") == "streambench replay 'my capture'"
    assert command("checkpoints --rewind oldest", "a b") == "streambench checkpoints --rewind oldest -c 'a b'"
    with speaking("magics"):
        assert command("checkpoints --rewind oldest", "a b") == "%stream rewind oldest"
        assert command("streams create log.a", "a b") == "%stream streams create log.a"
