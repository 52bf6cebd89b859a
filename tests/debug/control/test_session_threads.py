"""Sessions in the moments between two states."""

from __future__ import annotations

import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.debug import Session
from streambench.debug.history.history import History
from streambench.debug.past.past import Past
from streambench.errors import ContainerStateError
from streambench.system.memory import memory_streams
from tests.debug.control.test_hot_swap import words
from tests.debug.control.test_time_travel import Counter, session_of

CONFIG = {"job.name": "threads", "systems.threads.samza.factory": "memory", "task.inputs": "threads.a"}


def test_it_can_be_waited_for_while_its_thread_is_about_to_start(monkeypatch: pytest.MonkeyPatch) -> None:
    memory_streams("threads").create(sb.SystemStream("threads", "a"), 1)
    session = Session(sb.Container.from_config(CONFIG, lambda *_: None))
    session.start()
    waited: list[bool] = []
    start = threading.Thread.start

    def waited_for(thread: threading.Thread) -> None:
        waited.append(session.wait(0))
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", waited_for)
    session.run("caught-up")
    monkeypatch.undo()
    assert session.wait(60)
    assert waited == [False]
    session.stop()


@pytest.mark.parametrize("runs", [False, True])
def test_an_interrupt_while_a_step_begins_leaves_nothing_running(
    runs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Slow(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            time.sleep(0.001)

    session, _ = session_of(Slow, words("ab" * 5_000))
    start, notices = threading.Thread.start, list[str]()

    def interrupted(thread: threading.Thread) -> None:
        monkeypatch.undo()
        if runs:
            start(thread)
        else:
            monkeypatch.setattr("streambench.debug.control.session._MOMENT_S", 0.0)
        raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session.step(10_000, on_interrupt=lambda: notices.append(""))
    assert (session.state, len(notices)) == ("paused", runs)
    before = session.position
    assert before < 10_000
    assert session.step(3) == 3
    assert session.position == before + 3
    session.stop()


def test_an_interrupt_at_the_end_of_a_start_leaves_no_store_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(history: History) -> None:
        monkeypatch.undo()
        raise KeyboardInterrupt

    config = {"stores.n.factory": "rocksdb", "job.logged.store.base.dir": str(tmp_path)}
    monkeypatch.setattr(History, "begin", interrupted)
    with pytest.raises(KeyboardInterrupt):
        session_of(inputs=words("ab"), config=config)
    session, _ = session_of(inputs=words("ab"), config=config)
    assert session.step(2) == 2
    session.stop()


@pytest.mark.parametrize("waiting", ["wait", "pause"])
def test_interrupting_who_waits_for_a_run_leaves_it_running(waiting: str) -> None:
    stream = sb.SystemStream("interrupted", "a")
    memory_streams("interrupted").create(stream, 1)
    memory_streams("interrupted").partition(stream, 0).append(sb.OutgoingMessageEnvelope(stream, 1), None, 1)
    main = threading.get_ident()
    go_on, interrupted = threading.Event(), threading.Event()

    def interrupt_once(*_: object) -> None:
        if not interrupted.is_set():
            interrupted.set()
            raise KeyboardInterrupt

    def interrupt_who_waits(*_: object) -> None:
        while sys._current_frames()[main].f_code.co_filename != threading.__file__:
            threading.Event().wait(0.001)
        # A signal that comes just before the thread begins to wait is seen only when it has waited.
        while not interrupted.is_set():
            signal.pthread_kill(main, signal.SIGINT)
            interrupted.wait(0.05)
        assert go_on.wait(60)

    before = signal.signal(signal.SIGINT, interrupt_once)

    config = {
        "job.name": waiting, "systems.interrupted.samza.factory": "memory", "task.inputs": "interrupted.a",
        "systems.interrupted.samza.offset.default": "oldest",
    }  # fmt: skip
    session = Session(sb.Container.from_config(config, interrupt_who_waits))
    session.start()
    try:
        session.run()
        with pytest.raises(KeyboardInterrupt):
            getattr(session, waiting)(60)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (session.running, session.state) == (True, "running")
    go_on.set()
    session.stop()
    assert session.container.processed == 1


def test_going_back_in_a_run_is_refused_and_leaves_its_history_whole() -> None:
    reached, go_on = threading.Event(), threading.Event()

    class Waiting(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.store, self.number = context.store("n"), 0

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.number += 1
            self.store.put("k", self.number)
            if self.number == 30:
                reached.set()
                assert go_on.wait(60)

    session, _ = session_of(Waiting, words("a" * 40))
    session.run("caught-up")
    assert reached.wait(60)
    with pytest.raises(ContainerStateError, match="is running: pause it first"):
        session.back_until("True")
    go_on.set()
    session.wait(60)
    assert [each.position for each in session.changes("n", "k")] == [*range(1, 41)]
    session.stop()


def test_a_run_that_begins_while_another_thread_goes_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    session, _ = session_of(Counter, words("a" * 6))
    session.step(4)
    inside, go_on, begins = threading.Event(), threading.Event(), threading.Event()
    go_to, require = Past.go_to, session._require_live
    errors: list[str] = []

    def slow(past: Past, position: int) -> None:
        inside.set()
        assert go_on.wait(60)
        go_to(past, position)

    def required(what: str) -> None:
        require(what)
        begins.set()

    def run() -> None:
        try:
            session.run("caught-up")
        except ContainerStateError as error:
            errors.append(str(error))

    monkeypatch.setattr(Past, "go_to", slow)
    monkeypatch.setattr(session, "_require_live", required)
    goes, runs = threading.Thread(target=session.back), threading.Thread(target=run)
    goes.start()
    assert inside.wait(60)
    runs.start()
    assert begins.wait(60)
    go_on.set()
    goes.join(60)
    runs.join(60)
    assert len(errors) == 1 and "stands in the past, at 3 of 4" in errors[0]
    assert (session.live, session.latest) == (False, 4)
    session.stop()
