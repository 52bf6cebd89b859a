"""Outputs that cannot be encoded, or that their system does not take."""

from __future__ import annotations

import re
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy
import pytest

from streambench.config import Config
from streambench.errors import MessageTooLargeError, SerdeError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, ignore, sending
from tests.container.outputs.letters import DEAD, JSON, OUT, letters, reasons

TO = SystemStream("out", "to")


def test_an_unserialisable_output_goes_to_the_dead_letters_with_its_input() -> None:
    bad, good = OutgoingMessageEnvelope(OUT, {"a": {1, 2}}, key="k"), OutgoingMessageEnvelope(OUT, 1)
    run = run_job(sending(bad, good), DEAD, {"mem.a": {3: ["x"]}})
    assert run.outputs["mem.out"] == {0: [(None, 1)]}
    assert letters(run) == [(b"k", b'{"a":[1,2]}')]
    (told,) = reasons(run)
    assert told.pop("dead-letter.reason").startswith("TypeError: Type is not JSON serializable: set")
    assert told == {
        "dead-letter.direction": "out", "dead-letter.stream": "mem.out", "dead-letter.exception": "TypeError",
        "dead-letter.task": "Partition 3", "dead-letter.source": "mem.a.3", "dead-letter.offset": "0",
    }  # fmt: skip
    assert run.metrics["producers.serialization-errors"] == 1
    assert run.metrics["producers.sends"] == 2
    assert [call.detail for call in run.calls if call.event == "send"] == ["mem.out", "mem.dead"]


def test_what_window_sent_has_no_input_where_there_was_none() -> None:
    class Windowed:
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            clock.advance(10)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            collector.send(OutgoingMessageEnvelope(OUT, object()))
            clock.advance(10)

    clock = ManualClock()
    run = run_job(
        Windowed, DEAD | {"task.window.ms": "10"}, {"mem.a": {0: ["x"]}}, clock=clock, max_messages=1
    )
    assert [told.get("dead-letter.source") for told in reasons(run)] == ["mem.a.0"]
    bench = Bench(Windowed, {"mem.a": {0: []}}, DEAD | {"task.window.ms": "10"}, clock=clock)
    container = bench.started()
    clock.advance(10)
    container.run("caught-up")
    container.stop()
    extras = [extra for _, extra in bench.streams.partition(SystemStream("mem", "dead"), 0).fields[2::3]]
    assert extras and all("dead-letter.source" not in headers for headers in extras)


class Unprintable:
    def __repr__(self) -> str:
        raise ValueError("no")


@pytest.mark.parametrize(
    ("message", "kept"),
    [
        (b"raw", b"raw"),
        ("t\ud800", b"t\\ud800"),
        (1j, b"1j"),
        (Unprintable(), b"whose repr raises ValueError"),
    ],
)
def test_the_dead_letter_of_an_unencodable_object_keeps_what_it_can(
    message: Any, kept: bytes
) -> None:
    config = {"systems.mem.streams.out.samza.msg.serde": "long", "task.dead.letter.stream": "mem.dead"}
    ((_, found),) = letters(
        run_job(sending(OutgoingMessageEnvelope(OUT, message)), config, {"mem.a": {0: ["x"]}})
    )
    assert kept in found


def test_an_output_to_a_partition_that_is_not_there_is_a_dead_letter_too() -> None:
    run = run_job(sending(OutgoingMessageEnvelope(OUT, "m", partition=9)), DEAD, {"mem.a": {0: [1]}})
    assert letters(run) == [(None, b"m")]


def test_what_a_system_does_not_take_is_unserialisable(tmp_path: Any) -> None:
    """A log takes bytes: without a serde, an object is refused by the system itself."""
    config = {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "task.dead.letter.stream": "log.dead",
    }
    bad = (
        OutgoingMessageEnvelope(SystemStream("log", "out"), {"a": 1}),
        OutgoingMessageEnvelope(SystemStream("log", "out"), b"x", headers={"n": 1}),
    )  # type: ignore[dict-item]
    run = run_job(sending(*bad), config, {"mem.a": {0: [1]}})
    assert run.metrics["producers.serialization-errors"] == run.metrics["container.dead-letters"] == 2


UNSENDABLE: list[Any] = [
    {"headers": {"a": 5}}, {"headers": {"a": "text"}}, {"headers": {1: b"x"}}, {"headers": 5},
    {"timestamp": "x"}, {"timestamp": 10**30}, {"timestamp": 1.5}, {"timestamp": 1.0}, {"timestamp": True},
    {"timestamp": datetime(2026, 1, 1)},
]  # fmt: skip
FACTORIES = ["memory", "log", "file"]


def out_of(factory: str, path: Path) -> dict[str, Any]:
    """The configuration of a system ``out`` of a kind."""
    of_kind = {} if factory == "memory" else {"systems.out.path": path / "out"}
    if factory == "file":
        of_kind = {"systems.out.streams.to.path": path / "to.jsonl"}
        (path / "to.jsonl").touch()
    return {"systems.out.samza.factory": factory, "systems.out.samza.msg.serde": "json", **of_kind}


@pytest.mark.parametrize("factory", FACTORIES)
@pytest.mark.parametrize("extras", UNSENDABLE, ids=repr)
def test_a_bad_header_or_timestamp_is_refused_in_every_system(
    factory: str, extras: Any, tmp_path: Path
) -> None:
    config = out_of(factory, tmp_path)
    ((what, value),) = extras.items()
    place = r"Partition 0: what it sent to out\.to cannot be sent \(key b'k', message 7\): "
    send = r"while processing mem\.a\.0@0, key None: send no\. 2 of "
    task = sending(OutgoingMessageEnvelope(TO, 1), OutgoingMessageEnvelope(TO, 7, b"k", **extras))
    with pytest.raises(SerdeError, match=rf"{place}.*{what[:-1]}.*{send}"):
        run_job(task, config, {"mem.a": {0: [1]}})
    dropped = run_job(task, config | {"task.drop.serialization.errors": "true"}, {"mem.a": {0: [1]}})
    assert dropped.metrics["producers.serialization-errors"] == 1
    dead = run_job(task, config | {"task.dead.letter.stream": "mem.dead"}, {"mem.a": {0: [1]}})
    assert letters(dead) == [(b"k", b"7")]


@pytest.mark.parametrize("extras", UNSENDABLE, ids=repr)
def test_a_window_is_held_to_the_same_headers_and_timestamps(extras: Any) -> None:
    class Windowed:
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            clock.advance(10)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            collector.send(TO, b"x", **extras)

    clock = ManualClock()
    config = {"systems.out.samza.factory": "memory", "task.window.ms": "10"}
    with pytest.raises(SerdeError, match=r"what it sent to out\.to cannot be sent .*Windowed\.window"):
        run_job(Windowed, config, {"mem.a": {0: [1]}}, clock=clock)


@pytest.mark.parametrize("timestamp", [0, -1, (1 << 63) - 1, -(1 << 63), numpy.int64(5), numpy.uint8(5)])
@pytest.mark.parametrize("factory", FACTORIES)
def test_whole_numbers_of_64_bits_are_timestamps(factory: str, timestamp: Any, tmp_path: Path) -> None:
    task = sending(OutgoingMessageEnvelope(TO, 7, timestamp=timestamp))
    run = run_job(task, out_of(factory, tmp_path), {"mem.a": {0: [1]}})
    assert run.metrics["producers.sends"] == 1


@pytest.mark.parametrize("headers", [{"a": 5}, {"a": "text"}, {1: b"x"}, 5, "x"], ids=repr)
@pytest.mark.parametrize("factory", ["memory", "log"])
def test_a_bad_header_of_a_column_is_that_of_one_message(
    factory: str, headers: Any, tmp_path: Path
) -> None:
    def task(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send_batch(TO, [1, 2, 3], keys=[b"k"] * 3, headers=[{"h": b"1"}, headers, [("h", b"2")]])

    config = out_of(factory, tmp_path)
    with pytest.raises(SerdeError, match=r"what it sent to out\.to cannot be sent .*message 2.*header.*task"):
        run_job(task, config, {"mem.a": {0: [1]}})
    run = run_job(task, config | {"task.dead.letter.stream": "mem.dead"}, {"mem.a": {0: [1]}})
    assert letters(run) == [(b"k", b"2")]


# Which send it was


def send_no(number: int, callback: Any) -> str:
    place = rf"test_unsent\.py:{callback.__code__.co_firstlineno}"
    return rf"send no\. {number} of {re.escape(callback.__qualname__)}, defined at {place}\)$"


class SendsThree:
    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        for each in envelope.message:
            collector.send(OutgoingMessageEnvelope(OUT, each))

    def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, 1))
        collector.send(OutgoingMessageEnvelope(OUT, 1j))


class SendsAtTheEnd(SendsThree):
    def end_of_stream(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, 1j))


class SendsInRuns:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, 1))
        collector.send(OutgoingMessageEnvelope(OUT, 1j))


OUT_JSON = {"systems.mem.streams.out.samza.msg.serde": "json"}


def test_the_error_of_an_output_names_the_callback_and_which_of_its_sends() -> None:
    inputs = {"mem.a": {0: [[1], [2, 1j, 3], [4]]}}
    with pytest.raises(
        SerdeError, match=r"while processing mem\.a\.0@1, key None: " + send_no(2, SendsThree.process)
    ):
        run_job(SendsThree, OUT_JSON, inputs)
    with pytest.raises(
        SerdeError, match=r"while processing mem\.a\.0@0\.\.2 .*: " + send_no(2, SendsInRuns.process_batch)
    ):
        run_job(SendsInRuns, OUT_JSON, inputs)
    with pytest.raises(SerdeError, match="while processing .*: " + send_no(1, sends_nothing_good)):
        run_job(sends_nothing_good, OUT_JSON, inputs)


def sends_nothing_good(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    collector.send(OutgoingMessageEnvelope(OUT, 1j))


def test_the_error_of_what_window_and_the_end_send_names_them() -> None:
    class Late(SendsThree):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            clock.advance(10)

    clock = ManualClock()
    with pytest.raises(
        SerdeError, match=r"while processing mem\.a\.0@0, key None: " + send_no(2, SendsThree.window)
    ):
        run_job(Late, OUT_JSON | {"task.window.ms": "10"}, {"mem.a": {0: [[1, 2]]}}, clock=clock)
    with pytest.raises(SerdeError, match=r"\(" + send_no(1, SendsAtTheEnd.end_of_stream)):
        run_job(
            SendsAtTheEnd,
            OUT_JSON | {"systems.mem.streams.a.samza.bounded": "true"},
            {"mem.a": {0: [[1, 2]]}},
        )


@pytest.mark.parametrize(
    "stream", ["mem.out", ["mem", "out"], SystemStream("", "out"), SystemStream("mem", ""), None, "out"]
)
def test_what_is_no_stream_is_told_with_how_one_is_made(stream: Any) -> None:
    with pytest.raises(
        SerdeError,
        match=r"which is no stream: give SystemStream\.parse\('\w+\.out'\), or SystemStream\('\w+', 'out'\)",
    ):
        run_job(sending(OutgoingMessageEnvelope(stream, 1)), {}, {"mem.a": {0: [1]}})


# Outputs that are too large


LOG_OUT = SystemStream("log", "out")
FITS = b"x" * 9_000
HUGE = b"x" * 30_000
TAKES = {"systems.log.max.message.bytes": "10000"}


def in_log(path: Path, stream: str) -> list[IncomingMessageEnvelope]:
    systems = Systems(Config({"systems.log.samza.factory": "log", "systems.log.path": str(path)}))
    ssp = SystemStreamPartition("log", stream, 0)
    try:
        return read_to_head(systems.consumer("log", MetricsRegistry()), {ssp: "0"})[ssp]
    finally:
        systems.close()


def sends_one_by_one(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    for each in (b"a", HUGE, FITS):
        collector.send(OutgoingMessageEnvelope(LOG_OUT, each, key=b"k", headers={"own": b"h"}))


def sends_columns(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    collector.send_batch(LOG_OUT, [b"a", HUGE, FITS], keys=[b"k"] * 3)


@pytest.mark.parametrize("task", [sends_one_by_one, sends_columns])
def test_an_output_that_is_too_large_is_a_dead_letter_as_far_as_it_fits(tmp_path: Path, task: Any) -> None:
    config = {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "task.dead.letter.stream": "log.dead",
    }
    run = run_job(task, config | TAKES, {"mem.a": {0: [1]}})
    assert [each.message for each in in_log(tmp_path, "out")] == [b"a", FITS]
    (letter,) = in_log(tmp_path, "dead")
    assert (letter.key, letter.message) == (b"k", HUGE[:4096])
    told = {name: value.decode() for name, value in (letter.headers or {}).items()}
    assert "bytes is larger than systems.log.max.message.bytes=10000" in told.pop("dead-letter.reason")
    assert told == {
        "dead-letter.direction": "out",
        "dead-letter.stream": "log.out",
        "dead-letter.task": "Partition 0",
        "dead-letter.size": "30001",
        "dead-letter.exception": "streambench.errors.MessageTooLargeError",
        "dead-letter.source": "mem.a.0",
        "dead-letter.offset": "0",
    }
    assert run.metrics["producers.serialization-errors"] == run.metrics["container.dead-letters"] == 1
    assert [call.detail for call in run.calls if call.event == "send"] == ["log.out", "log.out", "log.dead"]


def test_a_dead_letter_is_whole_where_its_stream_takes_it(tmp_path: Path) -> None:
    config = {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "task.dead.letter.stream": "mem.dead",
    }
    assert letters(run_job(sends_one_by_one, config | TAKES, {"mem.a": {0: [1]}})) == [(b"k", HUGE)]


def test_outputs_that_are_too_large_can_be_dropped(tmp_path: Path) -> None:
    config = {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "task.drop.serialization.errors": "true",
    }
    run = run_job(sends_one_by_one, config | TAKES, {"mem.a": {0: [1]}})
    assert [each.message for each in in_log(tmp_path, "out")] == [b"a", FITS]
    assert run.metrics["producers.serialization-errors"] == 1


def test_an_input_that_is_too_large_for_the_dead_letters_is_cut_too(tmp_path: Path) -> None:
    config = JSON | {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "task.dead.letter.stream": "log.dead",
    }
    run_job(ignore, config | TAKES, {"mem.a": {0: [(HUGE, b"{" + HUGE), 2]}})
    (letter,) = in_log(tmp_path, "dead")
    assert (letter.key, letter.message) == (HUGE[:64], b"{" + HUGE[:4095])
    assert letter.headers is not None and letter.headers["dead-letter.size"] == b"60001"


def test_a_stream_that_takes_not_even_the_reason_ends_the_job(tmp_path: Path) -> None:
    config = JSON | {
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "task.dead.letter.stream": "log.dead",
    }
    with pytest.raises(
        MessageTooLargeError, match=r"task\.dead\.letter\.stream: log\.dead does not take this dead letter"
    ):
        run_job(ignore, config | {"systems.log.max.message.bytes": "50"}, {"mem.a": {0: [b"{" + HUGE]}})


@pytest.mark.parametrize("task", [sends_one_by_one, sends_columns])
def test_a_too_large_output_ends_the_job_by_default_and_names_the_setting(
    tmp_path: Path, task: Any
) -> None:
    config = {"systems.log.samza.factory": "log", "systems.log.path": tmp_path}
    with pytest.raises(MessageTooLargeError) as caught:
        run_job(task, config | TAKES, {"mem.a": {0: [1]}})
    for part in (
        "Partition 0",
        "log.out",
        "key b'k'",
        "task.dead.letter.stream",
        "task.drop.serialization.errors",
        "mem.a.0@0",
    ):
        assert part in str(caught.value)
