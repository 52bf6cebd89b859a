"""Sessions in the moments between two states."""

from __future__ import annotations

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
