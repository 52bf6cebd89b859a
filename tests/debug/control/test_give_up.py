"""Giving up a message that comes to no end."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.debug.streams.by_hand import peek, send
from streambench.errors import ContainerStateError, WrongThreadError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.recording import Recording
from streambench.recording.file import check_target
from streambench.system.memory import memory_streams
from streambench.task import MessageCollector, TaskCoordinator

_PATIENCE_S = 60
_IN, _OUT = SystemStream("log", "in"), SystemStream("log", "out")


class Stuck:
    """A task that is stuck at the message 3 in a busy loop, until the test ends it. ``stubborn``: whatever is
    raised there."""

    def __init__(self, *, stubborn: bool) -> None:
        self.stubborn = stubborn
        self.reached, self.end, self.has_ended = threading.Event(), threading.Event(), threading.Event()
        self.thread: threading.Thread | None = None
        self.raised: list[BaseException] = []

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 3:
            self.thread = threading.current_thread()
            self.turn()
        try:
            collector.send(OutgoingMessageEnvelope(_OUT, envelope.message))
            coordinator.commit()
        except BaseException as error:
            self.raised.append(error)
            if not self.stubborn:
                raise

    def turn(self) -> None:
        while not self.end.is_set():
            try:
                self.reached.set()
                spin(self.end)
            except BaseException as error:
                self.raised.append(error)
                if not self.stubborn:
                    raise

    def await_stuck(self) -> None:
        assert self.reached.wait(_PATIENCE_S)

    def join(self) -> None:
        self.end.set()
        assert self.thread is not None
        self.thread.join(_PATIENCE_S)
        assert not self.thread.is_alive()


def spin(end: threading.Event) -> None:
    """A function of its own: what Python 3.13 raises at a loop's jump back is not caught by a ``try`` in the
    function around it."""
    while not end.is_set():
        pass


def config_in(folder: Path, guarantee: str) -> dict[str, Any]:
    return {
        "job.name": "stuck",
        "task.inputs": "log.in",
        "systems.log.samza.factory": "log",
        "systems.log.path": str(folder),
        "systems.log.samza.msg.serde": "json",
        "systems.log.samza.offset.default": "oldest",
        "task.processing.guarantee": guarantee,
        "stores.seen.factory": "rocksdb",
        "stores.seen.changelog": "log.seen",
        "stores.seen.key.serde": "string",
        "stores.seen.msg.serde": "string",
    }


def stuck_in(config: dict[str, Any], task: Stuck, record: Path | None = None) -> Session:
    container = Container.from_config(config, task.process)
    container.status.systems.create(_IN)
    send(container.config, _IN, [(None, number) for number in range(6)])
    session = Session(container)
    if record is not None:
        session.record(record)
    session.start()
    session.run()
    task.await_stuck()
    return session


def outputs(config: dict[str, Any]) -> list[int]:
    return [
        each["message"]
        for each in peek(
            Container.from_config(config, print).config, _OUT, limit=100, partition=None, begin="oldest"
        )
    ]


def go_on(config: dict[str, Any]) -> list[int]:
    """Run the mended task until it has caught up; what it processed."""
    seen: list[int] = []

    def mended(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.append(envelope.message)
        collector.send(OutgoingMessageEnvelope(_OUT, envelope.message))

    container = Container.from_config(config, mended)
    container.start()
    container.run("caught-up")
    container.stop()
    return seen


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_busy_loop_is_interrupted_and_the_next_start_has_the_checkpoint(
    tmp_path: Path, guarantee: str
) -> None:
    config, task = config_in(tmp_path, guarantee), Stuck(stubborn=False)
    session = stuck_in(config, task)
    assert session.give_up(_PATIENCE_S)
    assert isinstance(task.raised[0], KeyboardInterrupt)
    assert (session.state, session.wait(_PATIENCE_S)) == ("failed", True)
    assert session.container.reason == "given up in the middle of a message"
    task.join()
    assert go_on(config) == [3, 4, 5]
    assert outputs(config) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("ends", ["before the next start", "after the next start"])
def test_a_task_that_does_not_end_is_left_alone_and_does_no_harm_later(
    tmp_path: Path, guarantee: str, ends: str
) -> None:
    config, task = config_in(tmp_path, guarantee), Stuck(stubborn=True)
    session = stuck_in(config, task)
    assert not session.give_up(0.01)
    assert (session.state, session.wait(0), session.pause(0)) == ("failed", True, True)
    assert session.snapshot().processed == session.container.processed
    with pytest.raises(ContainerStateError):
        session.commit()
    if ends == "before the next start":
        task.join()
    assert go_on(config) == [3, 4, 5]
    if ends == "after the next start":
        task.join()
    assert [type(error) for error in task.raised[-1:]] == [WrongThreadError]
    assert outputs(config) == [0, 1, 2, 3, 4, 5]
    assert go_on(config) == []
    assert (session.error, session.problem) == (None, None)


def test_the_recording_of_a_task_that_does_not_end_is_closed(tmp_path: Path) -> None:
    path = tmp_path / "r"
    task = Stuck(stubborn=True)
    session = stuck_in(config_in(tmp_path, "at-least-once"), task, record=path)
    assert not session.give_up(0.01)
    check_target(path)
    assert (session.recorded_to, session.recorded and session.recorded.path) == (None, path)
    reason = "the job was given up in the middle of a message"
    with pytest.raises(ContainerStateError, match=f"is not being recorded any more .*, {reason}"):
        session.stop_recording()
    written = path.read_bytes()
    task.join()
    assert session.wait(_PATIENCE_S)
    assert path.read_bytes() == written
    recording = Recording.read(path)
    assert recording.is_complete
    (note,) = recording.notes
    assert note == (
        f"the recording ends after {len(recording)} messages: {reason}; it lacks at most about 1,000 "
        "messages or 1 s before that"
    )


def test_what_was_collected_before_the_loop_is_not_sent_when_it_ends(tmp_path: Path) -> None:
    reached, end = threading.Event(), threading.Event()
    threads: list[threading.Thread] = []
    out = SystemStream("given-up", "out")

    def collects(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(out, envelope.message))
        if envelope.message == 2:
            threads.append(threading.current_thread())
        while threads and not end.is_set():
            try:
                reached.set()
                spin(end)
            except KeyboardInterrupt:
                continue

    config = {**config_in(tmp_path, "at-least-once"), "systems.given-up.samza.factory": "memory"}
    container = Container.from_config(config, collects)
    container.status.systems.create(_IN)
    send(container.config, _IN, [(None, 1), (None, 2)])
    session = Session(container)
    session.start()
    session.run()
    assert reached.wait(_PATIENCE_S)
    assert not session.give_up(0.01)
    end.set()
    threads[0].join(_PATIENCE_S)
    assert [message for _, message in memory_streams("given-up").partition(out, 0).entries()] == [1]


def test_what_stands_still_is_given_up_without_a_commit(tmp_path: Path) -> None:
    config, task = config_in(tmp_path, "at-least-once"), Stuck(stubborn=False)
    container = Container.from_config(config, lambda *_: None)
    container.status.systems.create(_IN)
    send(container.config, _IN, [(None, 1)])
    session = Session(container)
    session.start()
    session.step()
    assert session.give_up()
    assert (session.state, task.raised) == ("failed", [])
    assert go_on(config) == [1]


def test_a_snapshot_of_a_task_that_has_been_busy_for_long_comes_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task = Stuck(stubborn=False)
    session = stuck_in(config_in(tmp_path, "at-least-once"), task)
    session._last = snapshot = object()  # type: ignore[assignment]
    asked: list[float | None] = []

    def between(what: Any, timeout: float | None = None) -> Any:
        asked.append(timeout)
        raise TimeoutError

    monkeypatch.setattr(session, "between", between)
    monkeypatch.setattr(Container, "busy_s", 12.0)
    assert session.snapshot(5.0) is snapshot
    assert asked == [0.2]
    monkeypatch.undo()
    session.give_up(_PATIENCE_S)
