"""Remedies in the words of the caller."""

from __future__ import annotations

import threading
from contextvars import copy_context

import pytest

from streambench.debug.wording import _WORDS, speaking, words


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
