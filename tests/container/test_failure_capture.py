"""The captures of containers that fail."""

from __future__ import annotations

import errno
import json
import re
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench import debug
from streambench.config import Config
from streambench.container.container import Container
from streambench.container.outputs.direct_writer import writing
from streambench.errors import TaskError
from streambench.recording import Recording, captures
from streambench.recording.file import RecordingWriter
from streambench.system.systems import Systems

STORE = {"stores.n.factory": "memory", "stores.n.key.serde": "string", "stores.n.msg.serde": "integer"}


class Sums(sb.StreamTask):
    """Counts by key, and fails at a message, half done."""

    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("n")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        key = envelope.message["key"]
        self.store.put(key, (self.store.get(key) or 0) + 1)
        self.store.put("all", (self.store.get("all") or 0) + 1)
        if envelope.message.get("bad"):
            raise ValueError("a bad message")
        if envelope.message.get("commit"):
            coordinator.commit()
        collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), envelope.message))


def config_of(path: Path, **more: Any) -> Config:
    values = {
        "job.name": "sums", "task.inputs": "log.in", "systems.log.samza.factory": "log",
        "systems.log.path": str(path / "log"), "systems.log.samza.msg.serde": "json",
        "systems.log.samza.offset.default": "oldest", "task.commit.ms": -1, **STORE,
    }  # fmt: skip
    return Config({**values, **{key.replace("__", "."): value for key, value in more.items()}})


def put(config: Config, stream: str, *messages: Any, partition: int = 0, partitions: int = 1) -> None:
    systems = Systems(config)
    of = sb.SystemStream.parse(stream)
    systems.create(of, partitions)
    with writing(systems, of, partitions, "test") as writer:
        writer.send(sb.OutgoingMessageEnvelope(of, encoded(each), None, None, partition) for each in messages)
    systems.close()


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def failed(config: Config, task: Any = Sums) -> tuple[TaskError, Path]:
    """Run until it fails; the error, and the capture that it names."""
    container = Container(config, task)
    container.start()
    with pytest.raises(TaskError) as raised:
        container.run("caught-up")
    named = re.search(r"captured: streambench replay (\S+)", str(raised.value))
    assert named is not None, raised.value
    return raised.value, Path(named[1])


SECRET = "-".join(["hunter2", "secret"])
GOOD = [{"key": key} for key in "abacab"]


def test_a_capture_opens_before_the_failing_message_with_its_state(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    put(config, "log.in", *GOOD[:4], {"key": "a", "commit": True}, *GOOD[4:], {"key": "c", "bad": True})
    error, path = failed(config)
    assert path == tmp_path / "log" / "_jobs" / "sums-1" / "captures" / "1-c0.capture"
    session = debug.open(path)
    assert session.message is not None
    assert (session.message.ssp, session.message.offset) == (error.ssp, error.offset)
    assert session.message.message == {"key": "c", "bad": True}
    assert session.stores() == {"Partition 0": {"n": {"a": 4, "b": 2, "c": 1, "all": 7}}}
    session.back(2)
    assert session.stores() == {"Partition 0": {"n": {"a": 3, "b": 1, "c": 1, "all": 5}}}
    session.go_live()
    with pytest.raises(TaskError, match="a bad message"):
        session.step()


def test_a_replay_changes_nothing_of_the_job(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    put(config, "log.in", *GOOD, {"key": "c", "bad": True})
    _, path = failed(config)

    def files() -> dict[Path, bytes]:
        return {each: each.read_bytes() for each in sorted(tmp_path.rglob("*")) if each.is_file()}

    before = files()
    session = debug.open(path)
    session.swap(process_all)
    assert session.step(5) == 1
    session.stop()
    assert files() == before


def process_all(envelope: Any, collector: Any, coordinator: Any) -> None:
    collector.send(sb.OutgoingMessageEnvelope(sb.SystemStream("log", "out"), envelope.message))


def test_two_containers_that_fail_write_two_captures(tmp_path: Path) -> None:
    config = config_of(tmp_path)
    put(config, "log.in", {"key": "c", "bad": True})
    paths = {failed(config)[1] for _ in range(3)}
    assert sorted(path.name for path in paths) == ["1-c0.capture", "2-c0.capture", "3-c0.capture"]


def test_only_the_newest_captures_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captures, "KEPT", 2)
    config = config_of(tmp_path)
    put(config, "log.in", {"key": "c", "bad": True})
    path = [failed(config)[1] for _ in range(4)][-1]
    assert sorted(each.name for each in path.parent.iterdir()) == ["3-c0.capture", "4-c0.capture"]


def test_a_failing_message_larger_than_a_capture_is_captured(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__capture__mb=1)
    put(config, "log.in", {"key": "a"}, {"key": "b", "bad": True, "text": "x" * 2_000_000})
    _, path = failed(config)
    session = debug.open(path)
    assert session.message is not None and len(session.message.message["text"]) == 2_000_000
    with pytest.raises(TaskError, match="a bad message"):
        session.step()


def test_a_capture_that_would_be_too_large_says_what_it_lacks(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__capture__mb=1)
    text = "x" * 100_000
    put(config, "log.in", *[{"key": "a", "text": text}] * 15, {"key": "b", "bad": True})
    _, path = failed(config)
    recording = Recording.read(path)
    assert len(recording) == 1
    assert any("task.capture.mb=1 were read" in each for each in recording.notes)
    assert any("wrote to stores before it failed" in each for each in recording.notes)
    assert path.stat().st_size < 1 << 20
    assert debug.open(path).stores() == {"Partition 0": {"n": {"a": 15, "b": 1, "all": 16}}}


def test_state_that_is_too_large_is_left_out_and_named(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__capture__mb=1, stores__n__msg__serde="string")

    class Large(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.store = context.store("n")

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            for number in range(20):
                self.store.put(f"{envelope.offset}-{number}", "y" * 100_000)
            coordinator.commit()
            if envelope.message.get("bad"):
                raise ValueError("a bad message")

    put(config, "log.in", {"key": "a"}, {"key": "b", "bad": True})
    _, path = failed(config, Large)
    recording = Recording.read(path)
    assert len(recording) == 1
    assert recording.stores == {}
    assert any("the store n is too large" in each for each in recording.notes)


def test_a_full_disk_does_not_hide_the_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Any, columns: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(RecordingWriter, "write_columns", full)
    config = config_of(tmp_path)
    put(config, "log.in", {"key": "c", "bad": True})
    container = Container(config, Sums)
    container.start()
    with pytest.raises(TaskError, match="a bad message"):
        container.run("caught-up")
    assert "no capture of the failure was written" in caplog.text
    assert "No space left" in caplog.text
    assert list((tmp_path / "log" / "_jobs" / "sums-1" / "captures").iterdir()) == []


def test_captures_can_be_switched_off_and_sent_elsewhere(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__capture="off")
    put(config, "log.in", {"key": "c", "bad": True})
    container = Container(config, Sums)
    container.start()
    with pytest.raises(TaskError) as raised:
        container.run("caught-up")
    assert "captured" not in str(raised.value)
    _, path = failed(config.with_values({"task.capture": "on", "task.capture.path": tmp_path / "there"}))
    assert path == tmp_path / "there" / "sums-1" / "1-c0.capture"


def test_a_capture_of_several_partitions_says_that_their_order_is_unknown(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__inputs="log.in,log.more")
    put(config, "log.in", *GOOD, {"key": "c", "bad": True})
    put(config, "log.more", *GOOD)
    _, path = failed(config)
    recording = Recording.read(path)
    assert not recording.header.ordered
    assert any("between partitions" in each for each in recording.notes)
    assert recording.messages[-1].message == encoded({"key": "c", "bad": True})
    for stream in ("log.in.0", "log.more.0"):
        offsets = [int(each.offset) for each in recording if str(each.ssp) == stream]
        assert offsets == sorted(offsets)


def test_the_capture_of_a_failed_batch_opens_before_its_first_message(tmp_path: Path) -> None:
    class Batches(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.store = context.store("n")

        def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
            for each in batch:
                if each.message.get("bad"):
                    raise ValueError("a bad message")
            self.store.put("all", (self.store.get("all") or 0) + len(batch))

    config = config_of(tmp_path, task__batch__messages=4)
    put(config, "log.in", *GOOD, {"key": "c", "bad": True}, {"key": "d"})
    error, path = failed(config, Batches)
    assert error.last_offset == "7"
    recording = Recording.read(path)
    assert recording.failure is not None
    assert (recording.failure.position, len(recording)) == (4, 8)
    session = debug.open(path)
    assert session.position == 4
    assert session.stores() == {"Partition 0": {"n": {"all": 4}}}


def test_no_secret_stands_in_a_capture(tmp_path: Path) -> None:
    config = config_of(tmp_path, systems__k__samza__factory="kafka", systems__k__bootstrap__servers="h:1",
                       systems__k__sasl__plain__password=SECRET)  # fmt: skip

    class Leaks(sb.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            raise ValueError(f"the password is {SECRET}")

    put(config, "log.in", {"key": "c", "bad": True})
    config.text("systems.k.sasl.plain.password")
    _, path = failed(config, Leaks)
    assert SECRET not in str(Recording.read(path)._rows)
    assert SECRET.encode() not in path.read_bytes()
