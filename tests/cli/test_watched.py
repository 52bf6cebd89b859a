"""A container of ``run --watch``: the commands that its keys give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import pytest

from streambench.cli.watched import WatchedContainer
from streambench.debug.session import Session
from tests.container.jobs import Bench, echo


def watched(on_change: Callable[[], None] = lambda: None) -> WatchedContainer:
    """One that is started, on three messages."""
    session = Session(Bench(echo, {"mem.in": {0: list("abc")}}, observed=False).container)
    made = WatchedContainer(session, None, on_change)
    made.start()
    return made


def test_a_container_is_left_while_a_run_is_about_to_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, left = threading.Event(), threading.Event()
    run = WatchedContainer._do["run"]

    def run_late(self: WatchedContainer, value: str) -> None:
        begun.set()
        left.wait()
        run(self, value)

    monkeypatch.setattr(WatchedContainer, "_do", {**WatchedContainer._do, "run": run_late})
    container = watched()
    container.begin()
    container.ask("run")
    begun.wait()
    container.leave()
    left.set()
    ended = threading.Thread(target=container.await_end, daemon=True)
    ended.start()
    ended.join(20)
    assert container.is_over
    assert container.state == "stopped"


@pytest.mark.parametrize("given", ["abc", "-abc"])
def test_what_is_no_number_of_a_breakpoint_is_refused_in_words(given: str) -> None:
    notices: SimpleQueue[str] = SimpleQueue()
    container = watched(lambda: notices.put(container.notice))
    container.begin()
    container.ask(f"toggle {given}")
    notice = next(each for each in iter(partial(notices.get, timeout=20), None) if each)
    assert notice == "toggle: 'abc' is no breakpoint; give its number"
    container.leave()
    container.await_end()
