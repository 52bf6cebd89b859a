"""The recorder: how much it writes at once, and what it does where it cannot write."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streambench as sb
from streambench.container.container import Container
from streambench.debug.control.session import Session
from streambench.recording import Recording
from streambench.recording.file import RecordingWriter
from tests.container.test_failure_capture import config_of, process_all, put

BYTES = {"stores.n.msg.serde": "bytes"}


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
