"""The blocks of a history: its bound, and the messages that come again."""

from __future__ import annotations

import threading
from typing import Any

import streambench as sb
from streambench.clock import SystemClock
from streambench.debug import Session
from tests.container.jobs import Bench
from tests.debug.control.test_hot_swap import words
from tests.debug.control.test_time_travel import STORE, Counter, session_of

MANY = 500


def test_windows_of_an_idle_job_keep_to_the_memory_of_the_history() -> None:
    are_many = threading.Event()

    class Idle(Counter):
        def window(self, collector: Any, coordinator: Any) -> None:
            super().window(collector, coordinator)
            collector.send("mem.out", b"x" * 10_000)
            if self.context.user.windows == MANY:
                are_many.set()

    config = {**STORE, "task.window.ms": "1"}
    bench = Bench(Idle, words("ab"), config, clock=SystemClock(), observed=False)
    session = Session(bench.container, history=1)
    session.start()
    session.run()
    assert are_many.wait(120)
    session.pause()
    history = session.history
    assert history is not None and session.position == 2
    assert history.size < 1.5 * history.limit
    assert stored_windows(session) >= MANY
    assert 0 < len(session.outputs(1)) < MANY
    session.stop()


def stored_windows(session: Session) -> int:
    ((_, stores),) = session.stores().items()
    return int(stores["n"]["windows"])


def test_messages_come_again_that_their_own_task_has_not_committed() -> None:
    class Hasty(Counter):
        commits_after = 1_000

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if envelope.ssp.partition == 0:
                coordinator.commit(sb.RequestScope.CURRENT_TASK)

    session, _ = session_of(Hasty, {"mem.in": {0: [{"key": "a"}] * 3, 1: [{"key": "b"}] * 6}})
    while session.step():
        assert session.uncommitted()[0] == len(session.crash().again)
    assert session.uncommitted()[0] == 6
    session.commit()
    assert session.uncommitted()[0] == 0
    session.stop()
