"""Reads of the history beside a run, which fills it: only ever between two messages."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import streambench as sb
from streambench.debug import Session, compare
from streambench.debug.history.history import History
from streambench.debug.view.panel_state import PanelStateReader
from streambench.errors import ContainerStateError
from tests.debug.control.test_hot_swap import words
from tests.debug.control.test_time_travel import Counter, session_of
from tests.debug.terminal.test_terminal_view import Shown


class Other(Counter):
    """Other code for the same messages."""


def read(what: Any) -> object:
    return list(what) if isinstance(what, Iterator) else what


READS: dict[str, Callable[[History], object]] = {
    "latest": lambda history: history.latest,
    "size": lambda history: history.size,
    "numbers": lambda history: history.numbers,
    "pending": lambda history: history.pending,
    "last_commit": lambda history: history.last_commit,
    "edges": lambda history: history.edges(1),
    "message_ref": lambda history: history.message_ref(1),
    "message_refs": lambda history: history.message_refs(),
    "message_at": lambda history: history.message_at(1),
    "position_of": lambda history: history.position_of(history.inputs.ssps[0], "0"),
    "block_at": lambda history: history.block_at(0),
    "values_at": lambda history: history.values_at(0),
    "offsets_at": lambda history: history.offsets_at(0),
    "writes": lambda history: history.writes(),
    "outputs": lambda history: history.outputs(),
    "events": lambda history: history.events(),
}


def test_no_other_thread_reads_the_history_inside_a_message() -> None:
    is_inside, may_end = threading.Event(), threading.Event()

    class Held(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            if envelope.offset == "3":
                is_inside.set()
                assert may_end.wait(60)
            super().process(envelope, collector, coordinator)

    session, _ = session_of(Held, words("abcabca"))
    history = session.history
    assert history is not None
    session.run("caught-up")
    try:
        assert is_inside.wait(60)
        for what in READS.values():
            with pytest.raises(ContainerStateError, match=r"use the methods of the session, or .*between"):
                read(what(history))
        with pytest.raises(TimeoutError):
            session.between(lambda: history.latest, timeout=0)
        asked = len(inbox := session.container.status.consumers.inbox)
        answers = ThreadPoolExecutor(1).submit(session.between, lambda: (history.latest, session.position))
        while len(inbox) == asked:
            time.sleep(0.001)
    finally:
        may_end.set()
    assert session.wait(60)
    assert answers.result() == (4, 4)
    for what in READS.values():
        read(what(history))
    assert (history.latest, len(list(history.message_refs())), len(session.outputs())) == (7, 7, 2)
    session.stop()


@pytest.fixture
def others_wait(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Session]]:
    """Fails where the history of a session is read while another thread could begin to drive it. Put the
    session into the list."""
    sessions: list[Session] = []
    others = ThreadPoolExecutor(1)

    def check() -> None:
        for session in sessions:
            found = others.submit(session.snapshot_now, 0).result()
            assert found is None, "another thread could drive the container during this read"

    whole, size = History.read, History.size

    def checked(history: History) -> None:
        check()
        whole(history)

    def checked_size(history: History) -> int:
        check()
        return int(size.__get__(history))

    monkeypatch.setattr(History, "read", checked)
    monkeypatch.setattr(History, "size", property(checked_size))
    yield sessions
    sessions.clear()
    others.shutdown()


def test_all_that_shows_a_session_reads_it_between_two_messages(others_wait: list[Session]) -> None:
    session, _ = session_of(Counter, words("abcabcabcc"))
    session.watch("seen", "self.seen")
    session.step(9)
    others_wait.append(session)
    shown = Shown(session)
    reader = PanelStateReader(shown)
    frame = reader.take()
    assert frame.standing is not None
    change = frame.standing.changes[0]
    reader.standing.pick(change.task, change.store, str(change.key))
    moves: list[Callable[[], object]] = [
        lambda: session.back(2),
        lambda: session.swap(Other),
        lambda: session.step(1),
        lambda: session.go_live(),
        lambda: session.swap(Other, replay=3),
        lambda: session.back_until("message['key'] == 'a'"),
        lambda: session.forward_until("message['key'] == 'b'"),
        lambda: session.break_on("message['key'] == 'c'"),
        lambda: session.forward(5),
        lambda: session.goto(5),
        lambda: session.advance(),
        lambda: session.go_live(),
        lambda: compare(Counter, Other, session, last=4),
        lambda: session.diff(2, 5),
        lambda: session.crash(),
        lambda: session.crash_everywhere(),
        lambda: (session.landmarks(), session.last, session.cause(session.outputs()[0])),
        lambda: (session.uncommitted(), session.batch, session.upcoming(), session.message),
        lambda: session.stop(),
    ]
    for move in moves:
        move()
        reader.take()


def test_what_shows_a_failed_session_reads_it_between_two_messages(others_wait: list[Session]) -> None:
    class Failing(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            if envelope.offset == "2":
                raise ValueError
            super().process(envelope, collector, coordinator)

    session, _ = session_of(Failing, words("abc"))
    others_wait.append(session)
    with pytest.raises(sb.StreambenchError) as failed:
        session.step(3)
    assert isinstance(failed.value, sb.TaskError)
    assert session.message_of(failed.value) is not None
    assert session.rerun_to_resume == 2
    PanelStateReader(Shown(session)).take()
    session.swap(Counter)
    assert session.step() == 1
    session.stop()


def test_a_running_session_is_compared_between_two_messages() -> None:
    session, bench = session_of(Counter, words("abcabc"))
    session.step(6)
    session.run()
    found = compare(Counter, Other, session, last=4)
    assert (found.equal, found.processed) == (True, (4, 4))
    session.pause()
    assert session.history is not None and session.history.latest == 6
    session.stop()


def test_going_live_waits_for_a_read_of_the_past() -> None:
    session, _ = session_of(Counter, words("abc"))
    session.step(3)
    session.goto(1)
    goes = threading.Thread(target=session.go_live)

    def at() -> tuple[bool, int]:
        goes.start()
        goes.join(0.2)
        return session.live, session.position

    assert session.between(at) == (False, 1)
    goes.join(60)
    assert (session.live, session.position) == (True, 3)
    session.stop()


@pytest.mark.parametrize("name", ["message_refs", "writes", "outputs", "events"])
def test_a_walk_goes_on_while_a_run_fills_and_drops_the_history(name: str) -> None:
    session, bench = session_of(Counter, words("abc" * 60))
    history = session.history
    assert history is not None
    for _ in range(3):
        session.step(30)
        history.cut()
    walked = READS[name](history)
    assert isinstance(walked, Iterator)
    there = len(list(READS[name](history)))  # type: ignore[call-overload]
    first = next(walked)
    session.run(30)
    assert session.wait(60)
    history.limit = 1
    session.step(30)
    history.cut()  # drops all blocks but the last
    assert history.is_dropped and history.oldest >= 150
    rest = list(walked)
    assert len([first, *rest]) == there > 10
    session.stop()
