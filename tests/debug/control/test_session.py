"""A container under somebody's hands: stepped, run, paused, looked at, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from streambench.debug.control import pace
from streambench.debug.control.session import Session
from streambench.errors import (
    ContainerStateError,
    FencedError,
    StreambenchError,
    StreamSystemError,
    TaskError,
)
from streambench.model import IncomingMessageEnvelope
from streambench.system.memory import MemoryStreams
from streambench.task import MessageCollector, RequestScope, TaskCoordinator
from tests.container.jobs import Bench, Process, ignore, send
from tests.container.noted_calls import Failing

_PATIENCE_S = 60
"""How long a test waits for what must come; only a failing test waits so long."""


class Gate:
    """A task that stops at each message until it is let go on."""

    def __init__(self) -> None:
        self.reached = threading.Semaphore(0)
        self.open = threading.Semaphore(0)

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        self.reached.release()
        assert self.open.acquire(timeout=_PATIENCE_S)

    def await_message(self) -> None:
        """Until the task is at the next message."""
        assert self.reached.acquire(timeout=_PATIENCE_S)

    def release(self, messages: int = 1) -> None:
        self.open.release(messages)


def gated(count: int = 5, **options: Any) -> tuple[Session, Bench, Gate]:
    gate = Gate()
    bench = Bench(lambda *arguments: gate.process(*arguments), {"mem.a": {0: list(range(count))}}, **options)
    session = Session(bench.container)
    session.start()
    return session, bench, gate


def simple(task: Process = ignore, count: int = 5, **options: Any) -> tuple[Session, Bench]:
    bench = Bench(task, {"mem.a": {0: list(range(count))}}, **options)
    return Session(bench.container), bench


def elsewhere(what: Callable[[], Any]) -> tuple[threading.Thread, list[Any]]:
    """Call ``what`` on a thread of its own; what it returned or raised is in the list when the thread has
    ended."""
    answers: list[Any] = []

    def call() -> None:
        try:
            answers.append(what())
        except BaseException as error:
            answers.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    return thread, answers


def joined(thread: threading.Thread) -> None:
    thread.join(_PATIENCE_S)
    assert not thread.is_alive()


# States


def test_a_session_goes_from_new_over_paused_to_stopped() -> None:
    session, bench = simple()
    states = [session.state]
    session.start()
    states.append(session.state)
    assert session.step(2) == 2
    session.stop()
    states.append(session.state)
    assert states == ["new", "paused", "stopped"]
    assert bench.committed() == {"mem.a.0": "1"}


def test_a_session_has_the_name_of_its_job_or_the_one_it_is_given() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, {"job.name": "clicks"})
    assert Session(bench.container).name == "clicks-1"
    assert Session(bench.container, "mine").name == "mine"


def test_a_session_tells_where_it_is() -> None:
    bench = Bench(ignore, {"mem.a": {0: list(range(5))}})
    session = Session(bench.container, "a job")
    assert repr(session) == "<session of a job: new at 0>"
    session.start()
    session.step(3)
    assert repr(session) == "<session of a job: paused at 3>"
    session.back()
    assert repr(session) == "<session of a job: paused at 2 of 3, in the past>"
    session.stop()
    assert repr(session).startswith("<session of a job: stopped")
    assert repr(bench.container) == f"<container {bench.container.name}: stopped>"


def test_a_run_goes_on_by_itself_until_it_has_caught_up() -> None:
    session, bench = simple()
    session.start()
    session.run("caught-up")
    assert session.wait(_PATIENCE_S)
    assert (session.state, len(bench.places())) == ("paused", 5)
    bench.put("mem.a.0", "later")
    session.run(1)
    assert session.wait(_PATIENCE_S)
    assert session.container.processed == 6


def test_a_run_at_a_speed_has_each_message_wait_until_it_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []
    now = [100.0]

    def wait(self: threading.Event, timeout: float | None = None) -> bool:
        if threading.current_thread().name.startswith("streambench"):
            waits.append(round(timeout or 0, 3))
            now[0] += timeout or 0
            return False
        return await_event(self, timeout)

    await_event = threading.Event.wait
    monkeypatch.setattr(pace, "time", SimpleNamespace(monotonic=lambda: now[0]))
    session, _ = simple(count=4)
    session.start()
    monkeypatch.setattr(threading.Event, "wait", wait)
    session.run("caught-up", speed=4)
    assert session.wait(_PATIENCE_S)
    # In slices, and behind the last one as well.
    assert (session.position, round(sum(waits), 6), max(waits)) == (4, 1.0, 0.02)


def test_between_messages_of_a_slow_run_all_questions_are_answered() -> None:
    session, _, gate = gated(4)
    session.run(speed=0.001)
    gate.await_message()
    gate.release(4)
    while session.position < 1:
        assert session.snapshot_now(_PATIENCE_S) is not None
    assert (session.busy_s, session.busy, session.state) == (0.0, None, "running")
    assert session.position_of(1) == 1
    assert session.pause(_PATIENCE_S)
    assert session.position == 1
    session.run("caught-up")
    assert session.wait(_PATIENCE_S) and session.position == 4


def test_while_it_runs_it_is_running() -> None:
    session, _, gate = gated()
    session.run()
    gate.await_message()
    assert (session.state, session.running) == ("running", True)
    gate.release(5)
    assert session.pause(_PATIENCE_S)
    assert session.state == "paused"
    session.stop()


@pytest.mark.parametrize("verb", ["start", "step", "run"])
def test_what_needs_it_to_stand_still_is_refused_while_it_runs(verb: str) -> None:
    session, _, gate = gated()
    session.run()
    gate.await_message()
    with pytest.raises(ContainerStateError, match="job-1 is running: pause it first"):
        getattr(session, verb)()
    gate.release(5)
    session.stop()


@pytest.mark.parametrize("verb", ["step", "run", "commit"])
def test_a_session_that_is_stopped_cannot_go_on(verb: str) -> None:
    session, _ = simple()
    session.start()
    session.stop()
    with pytest.raises(ContainerStateError, match="the container is stopped"):
        getattr(session, verb)()
    assert (session.state, session.error) == ("stopped", None)


# Pausing and waiting


def test_a_pause_lets_the_message_it_is_at_finish() -> None:
    session, bench, gate = gated()
    session.run()
    gate.await_message()
    thread, answers = elsewhere(lambda: session.pause(_PATIENCE_S))
    gate.release()
    joined(thread)
    assert answers == [True]
    assert (session.state, session.container.processed) == ("paused", 1)
    gate.release(4)
    session.run("caught-up")
    assert session.wait(_PATIENCE_S)
    assert bench.places() == [f"mem.a.0@{at}" for at in range(5)]


def test_a_pause_that_cannot_wait_longer_says_so_and_holds_all_the_same() -> None:
    session, _, gate = gated()
    session.run()
    gate.await_message()
    assert session.pause(0) is False
    gate.release()
    assert session.wait(_PATIENCE_S)
    assert session.container.processed == 1
    session.abandon()


def test_a_pause_of_what_stands_still_is_no_pause_of_the_next_run() -> None:
    session, _ = simple()
    session.start()
    assert session.pause(0)
    session.run("caught-up")
    assert session.wait(_PATIENCE_S)
    assert session.container.processed == 5


def test_a_pause_reaches_a_step_on_another_thread() -> None:
    session, _, gate = gated()
    stepping, answers = elsewhere(lambda: session.step(5))
    gate.await_message()
    assert session.pause(0) is False
    gate.release(5)
    joined(stepping)
    assert answers == [1]
    session.abandon()


def test_a_pause_right_after_a_run_holds() -> None:
    for _ in range(20):
        session, _bench = simple()
        session.start()
        session.run()
        assert session.pause(_PATIENCE_S)
        assert session.state == "paused"
        session.abandon()


def test_the_task_can_have_itself_paused() -> None:
    answers: list[bool] = []

    def pauses(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 2:
            answers.append(session.pause())

    session, _ = simple(pauses)
    session.start()
    session.run()
    assert session.wait(_PATIENCE_S)
    assert (answers, session.container.processed) == ([False], 3)
    session.stop()


def test_to_wait_is_not_to_wait_for_ever() -> None:
    session, _, gate = gated()
    session.run()
    gate.await_message()
    assert session.wait(0) is False
    gate.release(5)
    session.stop()


# Commits and stops while it runs


def test_a_commit_happens_between_two_messages_while_it_runs() -> None:
    session, bench, gate = gated()
    session.run()
    gate.await_message()
    gate.release()
    gate.await_message()
    thread, answers = elsewhere(session.commit)
    gate.release()
    joined(thread)
    assert answers == [None]
    assert bench.committed() in ({"mem.a.0": "0"}, {"mem.a.0": "1"})
    gate.release(3)
    session.stop()


def test_a_stop_ends_the_run_and_commits() -> None:
    session, bench, gate = gated()
    session.run()
    gate.await_message()
    thread, _ = elsewhere(session.stop)
    gate.release()
    joined(thread)
    assert session.state == "stopped"
    assert bench.committed() == {"mem.a.0": "0"}
    session.stop()


def test_to_abandon_is_to_commit_nothing() -> None:
    session, bench, gate = gated()
    session.run()
    gate.await_message()
    gate.release(1)
    session.abandon()
    assert (session.state, session.container.reason) == ("failed", "abandoned")
    assert bench.committed() == {}


@pytest.mark.parametrize("driven", ["step", "run"])
def test_a_container_that_its_tasks_shut_down_is_stopped(driven: str) -> None:
    def shuts_down(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 1:
            coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)

    session, bench = simple(shuts_down)
    session.start()
    if driven == "step":
        assert session.step(5) == 2
    else:
        session.run()
        assert session.wait(_PATIENCE_S)
    assert session.state == "stopped"
    assert bench.committed() == {"mem.a.0": "1"}


# Failures


def fails_at_one(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    if envelope.message == 1:
        raise ValueError("no")


def test_a_failure_on_its_own_thread_is_raised_by_wait() -> None:
    session, _ = simple(fails_at_one)
    session.start()
    session.run()
    with pytest.raises(TaskError, match="ValueError: no"):
        session.wait(_PATIENCE_S)
    assert session.state == "failed"
    assert isinstance(session.error, TaskError)
    session.stop()
    with pytest.raises(ContainerStateError):
        session.step()
    assert isinstance(session.error, TaskError)


def test_a_failure_of_a_step_is_raised_there_and_remembered() -> None:
    session, _ = simple(fails_at_one)
    session.start()
    with pytest.raises(TaskError, match="ValueError: no"):
        session.step(5)
    assert isinstance(session.error, TaskError)


def test_a_start_that_fails_is_remembered() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, {"task.inputs": "mem.nothing"})
    session = Session(bench.container)
    with pytest.raises(StreamSystemError):
        session.start()
    assert (session.state, type(session.error).__name__) == ("failed", "UnknownStreamError")


def test_a_failing_commit_of_a_run_reaches_the_caller_and_ends_the_run() -> None:
    session, bench, gate = gated()
    session.run()
    gate.await_message()
    gate.release()
    gate.await_message()
    Bench(
        ignore, {}, {"task.inputs": "mem.a"}, streams=bench.streams, checkpoints=bench.checkpoints.sibling()
    ).started()
    thread, answers = elsewhere(session.commit)
    gate.release()
    joined(thread)
    assert isinstance(answers[0], FencedError)
    with pytest.raises(FencedError):
        session.wait(_PATIENCE_S)
    assert session.state == "failed"


def test_a_stop_that_cannot_commit_fails() -> None:
    def sends(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        send(collector, "x")

    streams = MemoryStreams()
    session, _ = simple(sends, factory=Failing(streams), streams=streams)
    session.start()
    session.step()
    with pytest.raises(StreamSystemError, match="the disk is full"):
        session.stop()
    assert session.state == "failed"
    assert isinstance(session.error, StreamSystemError)


# Looking at it


def test_a_snapshot_can_be_taken_in_every_state() -> None:
    session, _ = simple()
    states = [session.snapshot().state]
    session.start()
    states.append(session.snapshot().state)
    session.run("caught-up")
    states.append(session.snapshot().state)
    session.wait(_PATIENCE_S)
    session.stop()
    states.append(session.snapshot().state)
    assert states == ["new", "running", "running", "stopped"]


def test_a_snapshot_while_it_runs_is_taken_between_two_messages() -> None:
    session, _, gate = gated()
    session.run()
    gate.await_message()
    gate.release()
    gate.await_message()
    thread, answers = elsewhere(lambda: session.snapshot(_PATIENCE_S))
    gate.release(4)
    joined(thread)
    assert 1 <= answers[0].processed <= 5
    assert answers[0].processed == int(answers[0].partitions[0].position)
    session.stop()


def test_a_snapshot_of_a_task_that_is_busy_is_the_last_one_there_was() -> None:
    session, _, gate = gated()
    before = session.snapshot()
    session.run()
    gate.await_message()
    assert session.snapshot(0.01) == before
    gate.release(5)
    session.stop()


@pytest.mark.parametrize("driven", ["step", "run"])
def test_a_snapshot_of_a_busy_task_that_was_never_looked_at_is_an_error(driven: str) -> None:
    session, _, gate = gated()
    thread, _answers = elsewhere(session.step if driven == "step" else session.run)
    gate.await_message()
    with pytest.raises(
        StreambenchError,
        match=r"job-1 has been busy with one message for 0\.01 s; there is no snapshot of it yet",
    ):
        session.snapshot(0.01)
    gate.release(5)
    joined(thread)
    session.stop()


def test_a_function_that_a_run_asks_may_take_snapshots() -> None:
    session, _ = simple()
    seen: list[int] = []
    session.start()

    def until() -> bool:
        seen.append(session.snapshot().processed)
        return len(seen) == 3

    session.run(until)
    assert session.wait(_PATIENCE_S)
    assert seen == [1, 2, 3]
    session.stop()


def test_an_error_of_the_until_function_reaches_the_caller_alone() -> None:
    session, bench = simple()
    session.start()
    session.run(lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        session.wait(_PATIENCE_S)
    assert (session.state, session.error) == ("paused", None)
    session.run("caught-up")
    assert session.wait(_PATIENCE_S)
    assert len(bench.places()) == 5
    session.stop()


def test_an_error_in_close_goes_to_the_caller_that_waits_for_the_ended_run() -> None:
    class Stubborn:
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)

        def close(self) -> None:
            raise RuntimeError("I stay")

    session = Session(Bench(Stubborn, {"mem.a": {0: ["x"]}}).container)
    session.start()
    session.run()
    with pytest.raises(TaskError, match=r"failed in close\(\): RuntimeError: I stay"):
        session.wait(_PATIENCE_S)
    assert session.state == "stopped"


def test_many_threads_may_ask_and_command_at_once() -> None:
    session, bench = simple(count=2000)
    session.start()
    session.run()

    def look() -> int:
        return sum(session.snapshot(_PATIENCE_S).processed >= 0 for _ in range(10))

    def commit() -> int:
        for _ in range(5):
            session.commit()
        return 10

    asking = [elsewhere(each) for each in (look, look, commit, look)]
    for thread, _ in asking:
        joined(thread)
    assert [answers for _, answers in asking] == [[10]] * 4
    session.stop()
    assert (
        bench.committed() == {"mem.a.0": str(session.container.processed - 1)}
        or session.container.processed == 0
    )


# Being told


def test_listeners_are_told_when_something_changed() -> None:
    session, _ = simple(fails_at_one)
    states: list[str] = []
    session.on_change(lambda: states.append(session.state))
    session.start()
    session.step()
    with pytest.raises(TaskError):
        session.step()
    assert states == ["paused", "running", "paused", "running", "failed"]


def test_listeners_are_told_of_the_end_of_a_run() -> None:
    session, _ = simple()
    session.start()
    ended = threading.Event()
    session.on_change(lambda: ended.set() if session.state == "paused" else None)
    session.run("caught-up")
    assert ended.wait(_PATIENCE_S)
    session.stop()
