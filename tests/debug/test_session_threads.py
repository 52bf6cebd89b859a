"""Sessions in the moments between two states."""

from __future__ import annotations

import signal
import sys
import threading

import pytest

import streambench as sb
from streambench.debug import Session
from streambench.system.memory import memory_streams

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
    assert waited == [True]
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
