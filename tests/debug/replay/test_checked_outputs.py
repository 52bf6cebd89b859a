"""Replays refuse the outputs that the producers of the recorded systems refuse."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import streambench as sb
from streambench import debug
from streambench.config import Config
from streambench.debug import Recording
from streambench.debug.control.session import Session
from streambench.errors import StreambenchError
from streambench.metrics.registry import MetricsRegistry
from streambench.system.memory import MemoryProducer, MemorySystemFactory
from tests.conftest import CHECKOUT
from tests.container.jobs import Bench
from tests.refusals import REFUSED, Refused, sender_of


def recorded(tmp_path: Path, task: Any, config: Mapping[str, Any] | None = None) -> Path:
    """The recording of a job that gets three messages."""
    bench = Bench(task, {"mem.in": {0: ["a", "b", "c"]}}, config, observed=False, remember_choices=10)
    session = Session(bench.container)
    session.start()
    session.record(tmp_path / "run.recording")
    try:
        session.run("caught-up")
        session.wait()
    except StreambenchError:
        session.abandon()
    else:
        session.stop()
    return tmp_path / "run.recording"


def elsewhere(recording: Path, settings: Mapping[str, Any]) -> Recording:
    """The recording, as if the job had written to a system with these settings."""
    found = Recording.read(recording)
    config = {**found.header.config, **{f"systems.out.{key}": str(each) for key, each in settings.items()}}
    return found.with_header(replace(found.header, config=config))


def run(recording: Path | Recording, task: Any) -> Session:
    session = debug.open(recording, task=task, at_end=False)
    session.run("caught-up")
    session.wait()
    return session


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_replay_fails_at_what_a_producer_refuses(case: Refused, tmp_path: Path) -> None:
    good, bad = sender_of(case.good), sender_of(case.bad)
    recording = elsewhere(recorded(tmp_path, good), case.settings(tmp_path))
    assert run(recording, good).position == 3
    with pytest.raises(StreambenchError, match=case.error):
        run(recording, bad)


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_replay_counts_what_it_is_to_drop(case: Refused, tmp_path: Path) -> None:
    recording = recorded(tmp_path, sender_of(case.good), {"task.drop.serialization.errors": "true"})
    session = run(elsewhere(recording, case.settings(tmp_path)), sender_of(case.bad))
    assert session.position == 3
    assert session.metrics()["producers.serialization-errors"] == 1


@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_a_branch_of_a_replay_fails_at_what_is_refused(case: Refused, tmp_path: Path) -> None:
    recording = elsewhere(recorded(tmp_path, sender_of(case.good)), case.settings(tmp_path))
    session = run(recording, sender_of(case.good))
    session.goto(0)
    session.swap(sender_of(case.bad))
    with pytest.raises(StreambenchError, match=case.error):
        session.forward(3)


def send_objects(envelope: Any, collector: Any, coordinator: Any) -> None:
    collector.send("out.out", {"n": 1})


def test_the_test_of_a_recording_fails_at_what_is_refused(tmp_path: Path) -> None:
    case = REFUSED[0]
    recording = elsewhere(recorded(tmp_path, sender_of(case.good)), case.settings(tmp_path))
    with pytest.raises(StreambenchError, match=case.error):
        recording.to_test(tmp_path / "test_it.py", task=send_objects)


class Limiting(MemoryProducer):
    """A producer whose broker has told it the largest message of a stream."""

    def largest_message(self, stream: sb.SystemStream) -> int:
        return 10


class LimitedSystem(MemorySystemFactory):
    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> Any:
        return Limiting(self._streams(system))

    def get_check(self, system: str, config: Config, stream: Any, largest: int | None = None) -> Any:
        def send(source: str, envelope: Any, key: Any, message: Any, partition: int) -> None:
            if largest is not None and len(message) > largest:
                raise sb.MessageTooLargeError(f"{len(message)} bytes are more than {largest}")

        return send


LIMITED = {"systems.out.samza.factory": f"{__name__}:LimitedSystem"}


def test_a_recording_keeps_the_size_limits_that_brokers_gave(tmp_path: Path) -> None:
    good, bad = sender_of({"message": b"x" * 10}), sender_of({"message": b"x" * 11})
    path = recorded(tmp_path, good, LIMITED)
    assert Recording.read(path).size_limits == {sb.SystemStream("out", "out"): 10}
    assert run(path, good).position == 3
    with pytest.raises(StreambenchError, match="11 bytes are more than 10"):
        run(path, bad)
    copy = Recording.read(path).only([1]).save(tmp_path / "small.recording")
    assert Recording.read(copy).size_limits == {sb.SystemStream("out", "out"): 10}


def test_a_capture_keeps_the_size_limits_that_brokers_gave(tmp_path: Path) -> None:
    def failing(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("out.out", b"1")
        if envelope.message == "c":
            raise ValueError("the third")

    config = {**LIMITED, "task.capture.path": str(tmp_path / "captures")}
    bench = Bench(failing, {"mem.in": {0: ["a", "b", "c"]}}, config, observed=False)
    with pytest.raises(sb.TaskError) as raised:
        bench.started().run("caught-up")
    named = re.search(r"captured: streambench replay (\S+)", str(raised.value))
    assert named is not None, raised.value
    assert Recording.read(named[1]).size_limits == {sb.SystemStream("out", "out"): 10}


def test_a_replay_warns_once_of_a_system_whose_limits_are_not_known(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    task = sender_of({"message": b"1"})
    recording = elsewhere(recorded(tmp_path, task), {"samza.factory": "gone.of.this:Machine"})
    with caplog.at_level(logging.WARNING):
        assert run(recording, task).position == 3
        debug.shrink(recording, lambda smaller: run(smaller, task).position == len(smaller))
    warnings = [each.getMessage() for each in caplog.records if "'out'" in each.getMessage()]
    assert len(warnings) == 1 and "gone.of.this" in warnings[0]


def test_a_replay_needs_no_secrets_and_no_address(tmp_path: Path) -> None:
    """The settings of each system as a recording has them, on another machine."""
    settings = {
        "amqp": {"url": "amqp://***@broker/vhost", "tls.ca": "/gone.pem"},
        "webhook": {"url": "https://example.org/***", "token": "${env:NOT_SET_HERE}"},
        "kafka": {"bootstrap.servers": "${env:NOT_SET_HERE}", "producer.sasl.plain.password": "***"},
        "tcp": {"streams.out.connect": "gone.invalid:1", "tls.ca": "/gone.pem"},
        "log": {"path": "/gone/log"},
    }
    task = sender_of({"message": {"n": 1}})
    path = recorded(tmp_path, sender_of({"message": b"1"}))
    for kind, others in settings.items():
        recording = elsewhere(path, {"samza.factory": kind, **others})
        with pytest.raises(StreambenchError, match="dict"):
            run(recording, task)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_replay_fails_at_a_change_too_large_for_its_changelog(guarantee: str, tmp_path: Path) -> None:
    def putting(length: int) -> Any:
        class Put(sb.StreamTask):
            def init(self, context: sb.TaskContext) -> None:
                self.store = context.store("n")

            def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
                self.store.put("k", "x" * (length if envelope.message == "b" else 1))
                coordinator.commit()

        return Put

    stores = {"stores.n.factory": "memory", "stores.n.key.serde": "string", "stores.n.msg.serde": "string"}
    config = {**stores, "stores.n.changelog": "out.n", "task.processing.guarantee": guarantee}
    path = recorded(tmp_path, putting(1999), config)
    recording = elsewhere(path, {"samza.factory": "log", "path": "/gone/log", "max.message.bytes": 2000})
    assert run(recording, putting(1999)).position == 3
    with pytest.raises(StreambenchError, match="a value of 2000 bytes is too large for the changelog"):
        run(recording, putting(2000))


def test_a_replay_checks_plain_messages_of_a_plug_in(tmp_path: Path) -> None:
    table = {"samza.factory": f"{CHECKOUT}/docs/examples/tables.py:TableSystem"}
    recording = elsewhere(recorded(tmp_path, sender_of({"message": b"1"})), table)
    assert run(recording, sender_of({"message": b"2"})).position == 3
    with pytest.raises(StreambenchError, match="its messages are bytes"):
        run(recording, sender_of({"message": 5}))
