"""Looking at a container that has failed or stopped, and going on at the message that failed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.debug.control.session import Session
from streambench.errors import ContainerStateError, TaskError
from streambench.store import traced
from tests.container.jobs import Bench
from tests.debug.control.test_time_travel import STORE, Counter, session_of, shown

ENGINES = ["memory", "rocksdb"]
GUARANTEES = ["at-least-once", "exactly-once"]


class Failing(Counter):
    """Fails at the fifth message, when it has done everything that it does with a message."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        if self.seen == 5:
            collector.send("mem.out", "of the failed message")
            coordinator.commit()
            raise ValueError("the fifth")


class Mended(Counter):
    """Does the same, and does not fail."""


def engine(name: str, tmp_path: Path) -> dict[str, Any]:
    return {
        "stores.n.factory": name,
        "job.logged.store.base.dir": tmp_path,
        "job.non-logged.store.base.dir": tmp_path,
        "job.name": "closed",
    }


def ended(how: str, config: dict[str, Any]) -> Session:
    """A session that has processed four messages, and has failed or stopped then."""
    session, _ = session_of(Failing, {"mem.in": {0: [{"key": "a"}] * 4 + [{"key": "gone"}]}}, config)
    if how == "stopped":
        session.step(4)
        session.stop()
    else:
        with pytest.raises(TaskError, match="the fifth"):
            session.step(5)
        if how == "closed":
            session.container.failure_hold.end()
    assert session.state == ("stopped" if how == "stopped" else "failed")
    return session


@pytest.mark.parametrize("name", ENGINES)
@pytest.mark.parametrize("how", ["stopped", "failed", "closed"])
def test_a_job_that_has_ended_shows_its_state_and_its_history(how: str, name: str, tmp_path: Path) -> None:
    session = ended(how, engine(name, tmp_path))
    assert session.position == 4
    assert session.stores() == {"Partition 0": {"n": {"a": 4}}}
    assert [each.position for each in session.outputs()] == [3]
    assert [each.after for each in session.changes("n", "a")] == [1, 2, 3, 4]
    assert session.back(2) == 2
    assert session.stores() == {"Partition 0": {"n": {"a": 2}}}
    assert session.attributes()["Partition 0"]["seen"] == 2
    assert session.forward(5) == 4 and session.live
    assert session.diff(1, 4).stores == {"Partition 0": {"n": {"a": (1, 4)}}}
    session.abandon()


def test_stores_too_large_to_be_kept_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traced, "_MOST_KEPT", 1)
    session = ended("stopped", {})
    with pytest.raises(ContainerStateError, match="too large to be kept in memory"):
        session.back()
    assert [each.after for each in session.changes("n", "a")] == [1, 2, 3, 4]


def test_a_container_that_failed_at_its_start_has_no_history() -> None:
    class Unstartable(Counter):
        def init(self, context: sb.TaskContext) -> None:
            raise ValueError("no")

    session = Session(Bench(Unstartable, {"mem.in": {0: []}}, STORE).container)
    with pytest.raises(TaskError):
        session.start()
    with pytest.raises(ContainerStateError, match="failed before it had one"):
        session.back()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("name", ENGINES)
def test_a_mended_task_goes_on_at_the_message_that_failed(name: str, guarantee: str, tmp_path: Path) -> None:
    keys = ["a", "b", "a", "c", "gone", "a", "b"]
    inputs = {"mem.in": {0: [{"key": key} for key in keys]}}
    config = {**engine(name, tmp_path), "task.processing.guarantee": guarantee}
    session, bench = session_of(Failing, inputs, {**config, "task.checkpoint.system": "mem"})
    with pytest.raises(TaskError, match="the fifth"):
        session.step(7)
    assert session.message is not None and session.message.offset == "4"
    session.swap(Mended)
    assert session.state == "paused" and session.error is None
    session.step(1)
    assert session.message.offset == "4" and session.message.message == {"key": "gone"}
    session.run("caught-up")
    session.wait()
    fresh, _ = session_of(Mended, inputs, {"task.processing.guarantee": guarantee})
    fresh.step(7)
    assert shown(session) == shown(fresh)
    assert session.back(3) == 4 and session.go_live() == 7
    session.stop()
    fresh.stop()
    assert bench.committed() == {"mem.in.0": "6"}


def test_what_a_failed_message_sent_and_asked_for_is_dropped() -> None:
    session, bench = session_of(Failing, {"mem.in": {0: [{"key": "a"}] * 6}})
    with pytest.raises(TaskError):
        session.run("caught-up")
        session.wait()
    session.swap(Mended)
    session.step(6)
    assert "of the failed message" not in [each.message for each in session.outputs()]
    assert not bench.committed()
    session.stop()


def test_a_message_that_fails_again_can_be_tried_again() -> None:
    session, _ = session_of(Failing, {"mem.in": {0: [{"key": "a"}] * 6}})
    for _ in range(3):
        with pytest.raises(TaskError, match="the fifth"):
            session.step(6)
        assert session.stores() == {"Partition 0": {"n": {"a": 4}}}
        assert session.position == 4
    session.stop()
    assert session.state == "failed" and not session.can_resume


def test_an_interrupt_on_the_way_to_a_failed_message_loses_nothing() -> None:
    class Interrupted(Failing):
        is_interrupted = False

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            if Interrupted.is_interrupted:
                raise KeyboardInterrupt
            super().process(envelope, collector, coordinator)

    session, _ = session_of(Interrupted, {"mem.in": {0: [{"key": "a"}] * 6}})
    with pytest.raises(TaskError, match="the fifth"):
        session.step(6)
    Interrupted.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        session.step()
    assert session.can_resume
    Interrupted.is_interrupted = False
    session.swap(Mended)
    assert session.step(6) == 2 and session.stores() == {"Partition 0": {"n": {"a": 6}}}
    session.stop()


def test_a_broadcast_message_is_given_to_all_its_tasks_again() -> None:
    class Broadcast(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.name, self.store = context.task_name, context.store("n")

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            key = envelope.message["key"]
            self.store.put(key, (self.store.get(key) or 0) + 1)
            if self.name == "Partition 1" and self.fails:
                raise ValueError("the second task")

        fails = True

    class Sound(Broadcast):
        fails = False

    inputs = {"mem.in": {0: [], 1: []}, "mem.all": {0: [{"key": "x"}, {"key": "y"}]}}
    config = {"task.inputs": "mem.in", "task.broadcast.inputs": "mem.all#0"}
    session, _ = session_of(Broadcast, inputs, config)
    with pytest.raises(TaskError, match="the second task"):
        session.step(2)
    session.swap(Sound)
    assert session.step(2) == 2
    assert session.stores() == {f"Partition {n}": {"n": {"x": 1, "y": 1}} for n in (0, 1)}
    session.stop()


def test_the_next_start_of_a_job_closes_the_one_that_failed(tmp_path: Path) -> None:
    session = ended("failed", engine("rocksdb", tmp_path))
    again, _ = session_of(Counter, {"mem.in": {0: [{"key": "a"}]}}, engine("rocksdb", tmp_path))
    assert not session.can_resume
    with pytest.raises(ContainerStateError, match="is failed"):
        session.step()
    assert session.back() == 3
    again.stop()


def test_a_failure_in_window_closes_the_container() -> None:
    class Windows(Counter):
        def window(self, collector: Any, coordinator: Any) -> None:
            raise ValueError("no window")

    session, bench = session_of(Windows, {"mem.in": {0: [{"key": "a"}] * 4}}, {"task.window.ms": 10})
    session.step(2)
    bench.clock.advance(20)
    with pytest.raises(TaskError, match="no window"):
        session.step(2)
    assert session.state == "failed" and not session.can_resume
    assert session.back(1) == session.latest - 1
