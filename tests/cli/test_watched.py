"""A container of ``run --watch``: the commands that its keys give."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

import pytest

from streambench.cli.watched import WatchedContainer
from streambench.debug.control.session import Session
from tests.container.jobs import Bench, echo

SECONDS = 20
"""The longest that a command is waited for."""


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
    ended.join(SECONDS)
    assert container.is_over
    assert container.state == "stopped"


def await_notice(notices: SimpleQueue[str]) -> str:
    """The first thing that a command could not do."""
    return next(each for each in iter(partial(notices.get, timeout=SECONDS), None) if each)


@pytest.mark.parametrize(("key", "position"), [("step 1", 1), ("step 10", 3), (" ", 0)])
def test_a_key_is_also_for_a_run_that_has_not_begun(key: str, position: int) -> None:
    notices: SimpleQueue[str] = SimpleQueue()
    container = watched(lambda: notices.put(container.notice))
    container.ask("run")
    if key == " ":
        container.toggle()
    else:
        container.ask(key)
    container.ask("toggle last")
    container.begin()
    assert "'last'" in await_notice(notices)
    assert (container.state, container.processed) == ("paused", position)
    container.leave()
    container.await_end()


def test_a_key_that_moves_nothing_is_done_during_a_run() -> None:
    notices: SimpleQueue[str] = SimpleQueue()
    container = watched(lambda: notices.put(container.notice))
    container.begin()
    container.ask("run")
    container.ask("commit")
    container.ask("break nonsense +")
    assert "nonsense" in await_notice(notices)
    assert container.state == "running"
    container.leave()
    container.await_end()


@pytest.mark.parametrize("given", ["abc", "-abc"])
def test_what_is_no_number_of_a_breakpoint_is_refused_in_words(given: str) -> None:
    notices: SimpleQueue[str] = SimpleQueue()
    container = watched(lambda: notices.put(container.notice))
    container.begin()
    container.ask(f"toggle {given}")
    assert await_notice(notices) == "toggle: 'abc' is no breakpoint; give its number"
    container.leave()
    container.await_end()


def test_a_rewound_container_keeps_its_breakpoints_and_watches() -> None:
    before = watched()
    assert before.session is not None
    made = before.session.break_on("message == 3")
    before.session.watch("m", "message")
    before.session.stop()
    after = WatchedContainer(Session(Bench(echo, {"mem.in": {0: [1, 3]}}).container), None, bool, before)
    after.start()
    assert after.session is not None
    assert after.session.breakpoints == [made] and after.session.watched == ["m"]
    after.session.run("caught-up")
    after.session.wait()
    assert str(after.session.stopped_at) == "message is 3"
    after.session.abandon()
