"""The recorder: how much it writes at once, and what it does where it cannot write."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streambench as sb
from streambench import debug
from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.errors import ContainerStateError, StreambenchError, TaskError
from streambench.recording import Recording
from streambench.recording.file import RecordingWriter
from tests.container.jobs import Bench
from tests.container.test_failure_capture import GOOD, Sums, config_of, process_all, put

BYTES = {"stores.n.msg.serde": "bytes"}


def started(directory: Path) -> Session:
    """A session that has begun, with a few good messages to process."""
    put(config_of(directory), "log.in", *GOOD)
    session = Session(Container(config_of(directory), process_all))
    session.start()
    return session


@pytest.mark.parametrize(
    "error", [TypeError("no array"), pa.ArrowInvalid("too large"), OverflowError("2**70")]
)
def test_a_block_that_cannot_be_made_ends_the_recording_not_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: Exception
) -> None:
    put(config_of(tmp_path), "log.in", *({"key": str(number)} for number in range(30)))
    session = Session(Container(config_of(tmp_path), process_all))
    session.record(tmp_path / "r")
    session.start()
    session.step(10)
    make = RecordingWriter._batch

    def fail(self: RecordingWriter, columns: Mapping[str, list[Any]]) -> pa.RecordBatch:
        if "message" in columns["kind"]:
            raise error
        return make(self, columns)

    monkeypatch.setattr(RecordingWriter, "_batch", fail)
    session.step(20)
    assert (session.position, session.recorded_to, session.state) == (30, None, "paused")
    session.stop()
    found = f"ends after 10 messages: {type(error).__name__}: {error}"
    assert f"{found}; the job goes on" in caplog.text
    recording = Recording.read(tmp_path / "r")
    assert (len(recording), recording.is_complete) == (10, True)
    assert recording.notes == [f"the recording {found}"]


def test_large_entries_of_a_store_end_at_the_size_of_the_recording(tmp_path: Path) -> None:
    class Large(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.store = context.store("n")

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.store.put(envelope.message["key"], os.urandom(1 << 20))
            coordinator.commit()

    config = config_of(tmp_path, **BYTES)
    put(config, "log.in", *({"key": str(number)} for number in range(6)))
    session = Session(Container(config, Large))
    session.start()
    session.step(6)
    session.record(tmp_path / "r", mb=2)
    session.stop()
    recording = Recording.read(tmp_path / "r")
    assert len(recording.stores["Partition 0"]["n"]) == 2
    assert "the store n of Partition 0 is too large: a replay begins with a part of it" in recording.notes


class LargeState(Sums):
    """Has a store of some megabytes from its ``init`` on."""

    def init(self, context: sb.TaskContext) -> None:
        super().init(context)
        large = context.store("large")
        for number in range(60):
            large.put(f"k{number}", os.urandom(50_000))


LARGE_STORE = {
    "stores.large.factory": "memory", "stores.large.key.serde": "string", "stores.large.msg.serde": "bytes",
}  # fmt: skip


def test_a_capture_larger_than_its_limit_has_the_failing_message(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path, task__capture__mb=1, **LARGE_STORE)
    put(config, "log.in", *GOOD, {"key": "c", "bad": True})
    session = Session(Container(config, LargeState))
    session.start()
    with pytest.raises(TaskError, match="a bad message; captured: "):
        session.step(10)
    assert "no capture" not in caplog.text
    (path,) = tmp_path.rglob("*.capture")
    recording = Recording.read(path)
    assert recording.failure is not None
    assert recording.messages[-1].offset == recording.failure.offset == "6"
    opened = debug.open(path)
    assert opened.message is not None and opened.message.message == {"key": "c", "bad": True}


def random_texts(count: int, size: int) -> list[dict[str, str]]:
    return [{"key": os.urandom(size // 2).hex()} for _ in range(count)]


def test_a_recording_ends_within_a_few_messages_of_its_size(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(tmp_path)
    put(config, "log.in", *random_texts(600, 10_000))
    session = Session(Container(config, process_all))
    session.record(tmp_path / "r", mb=1)
    session.start()
    assert session.step(600) == 600
    assert (tmp_path / "r").stat().st_size < 1.1 * (1 << 20)
    recording = Recording.read(tmp_path / "r")
    assert 50 < len(recording) < 600
    assert debug.open(recording, process_all).position == len(recording)
    # Known at once, and it is over: not only at the stop.
    assert session.recorded is not None and session.recorded.messages == len(recording)
    assert "its size, 1 MB" in session.recorded.reason
    with pytest.raises(ContainerStateError, match=r"not being recorded any more .* at its size, 1 MB"):
        session.stop_recording()
    session.record(tmp_path / "again")
    session.stop()
    assert caplog.text.count("the recording ended at its size") == 1


def test_a_recording_that_cannot_be_closed_does_not_end_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(config_of(tmp_path), "log.in", *GOOD)
    session = Session(Container(config_of(tmp_path), process_all))
    session.record(tmp_path / "r")
    session.start()
    session.step(3)

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr("streambench.recording.file.os.fsync", fail)
        assert session.stop_recording().reason == "Input/output error"
    assert session.step(3) == 3
    session.stop()


def test_two_jobs_do_not_record_to_one_file(tmp_path: Path) -> None:
    sessions = []
    for name in ("a", "b"):
        config = config_of(tmp_path / name, job__name=name)
        put(config, "log.in", *GOOD)
        sessions.append(Session(Container(config, process_all)))
        sessions[-1].record(tmp_path / "r")
    first, second = sessions
    first.start()
    with pytest.raises(StreambenchError, match="cannot record to .*r: another recording is being written"):
        second.start()
    with pytest.raises(StreambenchError, match="cannot record to .*r: another recording is being written"):
        Session(Container(config, process_all)).record(tmp_path / "r")
    first.step(6)
    with pytest.raises(StreambenchError, match="cannot save to .*r: another recording is being written"):
        Recording.read(tmp_path / "r").save(tmp_path / "r")
    first.stop()
    recording = Recording.read(tmp_path / "r")
    assert (recording.job, len(recording)) == ("a-1", 6)


class LogsIn(Sums):
    """Keeps the password of a system."""

    def init(self, context: sb.TaskContext) -> None:
        super().init(context)
        password = context.config.get("systems.db.password") or "none in a replay"
        self.credentials = {"user": "me", "password": password}
        self.raw = password.encode()
        self.user = "me"


def test_an_attribute_with_a_secret_is_not_in_a_capture(tmp_path: Path) -> None:
    secret = "-".join(["recorder", "s3cret"])
    config = config_of(tmp_path, systems__db__samza__factory="memory", systems__db__password=secret)
    put(config, "log.in", *GOOD, {"key": "c", "bad": True})
    session = Session(Container(config, LogsIn))
    session.start()
    with pytest.raises(TaskError):
        session.step(10)
    (path,) = tmp_path.rglob("*.capture")
    recording = Recording.read(path)
    assert recording.attributes["Partition 0"] == {"user": "me"}
    assert [each.partition(" (")[0] for each in recording.notes] == [
        "Partition 0: the attribute credentials is not recorded",
        "Partition 0: the attribute raw is not recorded",
    ]
    assert all("it holds a secret of the configuration" in each for each in recording.notes)
    assert debug.open(path, LogsIn).attributes()["Partition 0"]["user"] == "me"


def commits_observed(session: Session) -> int:
    """The number of observers of commits, as a debugger that looks for leaks counts them."""
    return len(session.container.status.observation.observers)


def test_recordings_that_were_given_up_leave_nothing_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = started(tmp_path)
    before = commits_observed(session)
    for number in range(3):
        session.step(1)
        session.record(tmp_path / f"r{number}")
        assert session.stop_recording().size == 0
    assert commits_observed(session) == before
    session.stop()
    assert "nothing was recorded" not in caplog.text
    assert not list(tmp_path.glob("r*"))


def test_a_recording_begins_with_the_commit_after_one_that_was_given_up(tmp_path: Path) -> None:
    session = started(tmp_path)
    session.step(1)
    before = commits_observed(session)
    session.record(tmp_path / "given_up")
    session.stop_recording()
    session.record(tmp_path / "first")
    session.commit()
    session.step(2)
    assert session.stop_recording().messages == 2
    session.record(tmp_path / "second")
    session.commit()
    session.step(3)
    assert session.stop_recording().messages == 3
    assert commits_observed(session) == before
    session.stop()


class Alone(sb.StreamTask):
    """Commits itself with each message, and sends each."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", envelope.offset)
        if envelope.message:
            coordinator.commit()


def test_a_recording_begins_where_all_tasks_are_committed(tmp_path: Path) -> None:
    inputs = {"mem.in": {0: [1, 1, 1, 1], 1: [0, 0, 0, 1]}}
    session = Session(Bench(Alone, inputs, {"task.commit.ms": -1}, observed=False).container)
    session.start()
    session.step(3)
    assert session.container.tasks[0].committed and not session.container.tasks[1].committed
    session.record(tmp_path / "r")
    session.step(2)
    assert session.recorded_to is None, "the second task has not committed yet"
    session.step(3)
    assert session.position == 8 and session.recorded_to is not None
    assert session.stop_recording().messages == 0
    session.stop()


def test_a_crash_in_a_recording_comes_again_from_its_begin(tmp_path: Path) -> None:
    inputs = {"mem.in": {0: [1, 1, 1, 1], 1: [0, 0, 0, 0]}}
    session = Session(Bench(Alone, inputs, {"task.commit.ms": -1}, observed=False).container)
    session.start()
    session.step(3)
    session.record(tmp_path / "r")
    session.step()
    session.commit()
    session.step(2)
    live = session.crash()
    session.stop_recording()
    session.stop()
    replayed = debug.open(tmp_path / "r", Alone)
    again = [each.ssp.partition for each in replayed.crash().again]
    assert again == [each.ssp.partition for each in live.again] == [1]


def test_a_job_that_was_abandoned_warns_once_of_its_pending_recording(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = started(tmp_path)
    session.step(3)
    session.record(tmp_path / "pending")
    session.abandon()
    for position in (1, 0, 2):
        session.goto(position)
    assert caplog.text.count("nothing was recorded to") == 1


def test_a_recording_lies_where_it_was_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    session = started(tmp_path)
    session.step(1)
    monkeypatch.chdir(tmp_path / "here")
    session.record("r")
    monkeypatch.chdir(tmp_path / "there")
    session.commit()
    session.step(2)
    session.stop()
    assert session.recorded is not None and session.recorded.path == tmp_path / "here" / "r"
    assert len(Recording.read(tmp_path / "here" / "r")) == 2
