"""Recordings and captures of tasks with ``process_batch``: a replay has the batches of the run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench import debug
from streambench.container.container import Container
from streambench.debug import Recording
from streambench.errors import TaskError
from tests.container.test_failure_capture import config_of, failed, put
from tests.debug.control.test_time_travel import shown
from tests.debug.history.test_batches import CONFIG, ENDS, INPUTS, Counting, Failing
from tests.debug.replay.test_replay import recorded


class Fragile(Counting):
    """Fails at a bad message, when all of its batch is counted."""

    def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
        self.sizes.append(len(batch))
        for envelope in batch:
            self.store.put(envelope.message["key"], (self.store.get(envelope.message["key"]) or 0) + 1)
        if any(envelope.message.get("bad") for envelope in batch):
            raise ValueError("a bad message")


@pytest.mark.parametrize("store", ["memory", "rocksdb"])
def test_a_replay_has_the_batches_of_the_recorded_run(tmp_path: Path, store: str) -> None:
    session, path = recorded(
        tmp_path, Counting, {**CONFIG, "stores.n.factory": store, "task.window.ms": 10}, INPUTS
    )
    seen = {0: shown(session)}
    for n in (3, 2, 1, 3, 3, 3, 3):
        session.step(n)
        session.container.status.clock.advance(7)  # type: ignore[attr-defined]
        seen[session.position] = shown(session)
    session.stop()
    opened = debug.open(path)
    assert opened.position == 10
    for position in reversed(seen):
        assert opened.goto(position) == position
        assert shown(opened)[:3] == seen[position][:3]
        assert [each[1:] for each in shown(opened)[3]] == [each[1:] for each in seen[position][3]]


def test_a_failing_batch_opens_before_it_and_comes_again_as_a_whole(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, Failing, CONFIG, INPUTS)
    with pytest.raises(TaskError):
        session.run("caught-up")
        session.wait()
    session.stop()
    opened = debug.open(path)
    assert opened.position == 6
    assert opened.message is not None and opened.message.offset == "3"
    assert opened.stores()["Partition 0"] == {"n": {"a": 2, "b": 1}}
    with pytest.raises(TaskError, match="a run of 3 messages"):
        opened.step()
    opened.swap(Counting)
    assert opened.step() == 3
    assert opened.attributes()["Partition 0"]["sizes"] == [3, 3]
    assert [opened.back(), opened.back()] == [6, ENDS[0]]


def test_a_failing_batch_is_shrunk_to_the_messages_that_it_needs(tmp_path: Path) -> None:
    session, path = recorded(tmp_path, Failing, CONFIG, INPUTS)
    with pytest.raises(TaskError):
        session.run("caught-up")
        session.wait()
    session.stop()
    recording = Recording.read(path)
    assert "bad luck" in recording.failure.text if recording.failure is not None else False
    small = debug.shrink(recording)
    assert [each.offset for each in small] == ["4"]
    assert small.failure is not None and (small.failure.kind, small.failure.offset) == ("ValueError", "4")
    assert small.batches == []


def test_a_capture_of_a_run_has_the_batch_that_failed(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__batch__messages=4, task__inputs="log.in,log.more")
    put(config, "log.more", *({"key": key} for key in "xyz"))
    put(config, "log.in", *({"key": key} for key in "abcdef"), {"key": "g", "bad": True}, {"key": "h"})
    _, path = failed(config, Fragile)
    recording = Recording.read(path)
    assert recording.failure is not None
    assert not recording.header.has_batches
    [(end, count)] = recording.batches
    assert (end, count) == (len(recording), len(recording) - recording.failure.position)
    opened = debug.open(path)
    assert opened.position == recording.failure.position
    assert opened.message is not None and opened.message.offset == recording.failure.offset
    with pytest.raises(TaskError, match=f"a run of {count} messages"):
        opened.step()
    opened.swap(Counting)
    assert opened.step() == count
    assert opened.attributes()["Partition 0"]["sizes"][-1] == count


def test_a_task_of_batches_becomes_a_test(tmp_path: Path) -> None:
    config = config_of(tmp_path, task__batch__messages=4)
    put(config, "log.in", *({"key": key} for key in "abcdef"), {"key": "g", "bad": True})
    with pytest.raises(TaskError) as raised, Container(config, Fragile) as container:
        container.run("caught-up")
    test = Recording.read(str(raised.value).rpartition(" ")[2]).to_test(tmp_path / "test_batch.py")
    names: dict[str, Any] = {"__file__": str(test)}
    exec(compile(test.read_text(), str(test), "exec"), names)
    run = names["test_sums_1_processes_the_recording"]
    with pytest.raises(TaskError, match="a bad message"):
        run()
    names["TASK"] = Counting
    run()
