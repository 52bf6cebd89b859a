"""Messages that cannot be decoded, and outputs that cannot be encoded: the container fails, drops and counts, or writes dead letters."""

from __future__ import annotations

import gc
import logging
import re
import weakref
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.config import Config
from streambench.container.container import Container
from streambench.container.rejects import PassedOver
from streambench.errors import ConfigError, MessageTooLargeError, SerdeError, TaskError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.system.memory import MemoryProducer, memory_streams
from streambench.system.reader import read_to_head
from streambench.system.systems import Systems
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import JobRun, ManualClock, run_job
from tests.container.jobs import Bench, Process, echo, ignore

JSON = {"systems.mem.samza.msg.serde": "json"}
DEAD = JSON | {"task.dead.letter.stream": "mem.dead"}
OUT = SystemStream("mem", "out")


def sends(*envelopes: OutgoingMessageEnvelope) -> Process:
    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for each in envelopes:
            collector.send(each)

    return process


def letters(run: JobRun) -> list[tuple[Any, Any]]:
    return [entry for entries in run.outputs.get("mem.dead", {}).values() for entry in entries]


def reasons(run: JobRun) -> list[dict[str, str]]:
    """The headers of the dead letters."""
    found = []
    for partition in run._streams.of(SystemStream("mem", "dead")):
        for _, extra in zip(partition.entries(), partition.fields[2::3], strict=True):
            found.append({name: value.decode() for name, value in extra[1].items()})
    return found


class Batches:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        list(batch)


class Messages:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        batch.messages()


@pytest.mark.parametrize("task", [ignore, Batches, Messages])
def test_the_error_shows_the_place_the_serde_the_reason_and_the_beginning_of_the_bytes(task: Any) -> None:
    with pytest.raises(SerdeError) as caught:
        run_job(task, JSON, {"mem.a": {0: [(b"k", b"{" + b"x" * 1000)]}})
    text = str(caught.value)
    for part in ("mem.a.0@0", "b'k'", "JsonSerde", "JSONDecodeError", "b'{xxx", "(1001 bytes)"):
        assert part in text
    assert len(text) < 600


class Torn:
    """A key that cannot even be printed."""

    def __repr__(self) -> str:
        raise RuntimeError("torn")


@pytest.mark.parametrize("key", [Torn(), b"k" * 100_000])
def test_no_key_is_too_odd_or_too_long_for_an_error(key: Any) -> None:
    def fails(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise ValueError("no good")

    def sends_an_object(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, object()))

    class FailsAtOnce:
        def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            raise ValueError("no good")

    for task, what in ((fails, "no good"), (FailsAtOnce, "no good"), (sends_an_object, "while processing mem.a.0@0")):
        with pytest.raises((TaskError, SerdeError), match=what) as caught:
            run_job(task, {"systems.mem.streams.out.samza.msg.serde": "json"}, {"mem.a": {0: [(key, 1)]}})
        assert len(str(caught.value)) < 600


def test_an_undecodable_message_goes_to_the_dead_letters_as_it_is_and_the_job_goes_on() -> None:
    run = run_job(ignore, DEAD, {"mem.a": {0: [1, (b"key", b"{\xff"), 2]}})
    assert [message for *_, message in run.processed] == [1, 2]
    assert letters(run) == [(b"key", b"{\xff")]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "2"}}
    assert run.metrics["consumers.deserialization-errors"] == run.metrics["container.dead-letters"] == 1


ROWS = b"id,name\n1,a\n2\n3,b,c\n4,d\n"


def of_rows(path: Path, **settings: str) -> dict[str, str]:
    (path / "rows.csv").write_bytes(ROWS)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    system = {"systems.files.samza.factory": "file", "systems.files.path": str(path), "systems.files.samza.offset.default": "oldest"}
    return {"task.inputs": "files.rows", **system, **named}


class Rows:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for each in batch:
            collector.send(OutgoingMessageEnvelope(OUT, each.message))


class Tables:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        for row in batch.table("offset").to_pylist():
            collector.send(OutgoingMessageEnvelope(OUT, {"id": row["id"], "name": row["name"]}))


@pytest.mark.parametrize("task", [echo, Rows, Tables])
@pytest.mark.parametrize("end", [{}, {"systems.files.streams.rows.samza.bounded": "true"}])
def test_a_row_of_a_file_that_cannot_be_read_goes_to_the_dead_letters_and_the_others_are_processed(
    tmp_path: Path, task: Any, end: dict[str, str]
) -> None:
    serde = {"systems.files.samza.msg.serde": "json", "systems.mem.streams.out.samza.msg.serde": "json"}
    run = run_job(task, of_rows(tmp_path) | serde | end | {"task.dead.letter.stream": "mem.dead"})
    assert [message for _, message in run.outputs["mem.out"][0]] == [{"id": "1", "name": "a"}, {"id": "4", "name": "d"}]
    assert letters(run) == [(None, b"2"), (None, b"3,b,c")]
    assert [each["dead-letter.reason"].partition("rows.csv, ")[2] for each in reasons(run)] == [
        "line 3: 1 fields, but the header has 2 columns",
        "line 4: 3 fields, but the header has 2 columns",
    ]
    assert run.checkpoints == {"Partition 0": {"files.rows.0": str(len(ROWS) - 1)}}


@pytest.mark.parametrize("task", [echo, Rows])
def test_a_row_that_cannot_be_read_is_no_message_even_where_there_is_no_serde(tmp_path: Path, task: Any) -> None:
    run = run_job(task, of_rows(tmp_path) | {"task.drop.deserialization.errors": "true"})
    assert [message for _, message in run.outputs["mem.out"][0]] == [b'{"id":"1","name":"a"}', b'{"id":"4","name":"d"}']
    assert run.metrics["consumers.deserialization-errors"] == 2


@pytest.mark.parametrize("task", [echo, Rows])
def test_a_row_that_cannot_be_read_ends_the_job_behind_those_before_it(tmp_path: Path, task: Any) -> None:
    with pytest.raises(SerdeError, match=r"files\.rows\.0@13: .*rows\.csv, line 3: 1 fields") as caught:
        run_job(task, of_rows(tmp_path) | {"task.batch.messages": "1"})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for _, message in run.outputs["mem.out"][0]] == [b'{"id":"1","name":"a"}']


def test_a_message_that_could_not_be_decoded_keeps_no_job_in_memory() -> None:
    def process(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None: ...

    alive = weakref.ref(process)
    run_job(process, DEAD, {"mem.a": {0: [b"\xff"]}})
    del process
    gc.collect()
    assert alive() is None


def test_a_dead_letter_says_why_and_whence() -> None:
    (told,) = reasons(run_job(ignore, DEAD, {"mem.a": {2: [1, b"{"]}}))
    assert told.pop("dead-letter.reason").startswith("JSONDecodeError: ")
    assert told == {
        "dead-letter.direction": "in", "dead-letter.exception": "orjson.JSONDecodeError", "dead-letter.task": "Partition 2",
        "dead-letter.source": "mem.a.2", "dead-letter.offset": "1",
    }  # fmt: skip


def test_a_dead_letter_keeps_the_headers_of_the_message_and_tells_its_time() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, DEAD)
    headers = {"trace": b"\x00\xff"}
    MemoryProducer(bench.streams).send("test", OutgoingMessageEnvelope(SystemStream("mem", "a"), b"{", None, None, 0, 123, headers))
    bench.started().run("caught-up")
    (told,) = [headers for _, headers in bench.streams.partition(SystemStream("mem", "dead"), 0).fields[2::3]]
    assert told["trace"] == b"\x00\xff"
    assert told["dead-letter.timestamp"] == b"123"
    bench.container.stop()


def test_a_key_that_cannot_be_decoded_is_kept_as_it_is() -> None:
    run = run_job(ignore, DEAD | {"systems.mem.samza.key.serde": "long"}, {"mem.a": {0: [(b"no long", 7)]}})
    assert letters(run) == [(b"no long", b"7")]


@given(st.lists(st.one_of(st.integers(-9, 9), st.binary(max_size=5)), max_size=20))
def test_every_message_is_either_processed_or_a_dead_letter(messages: list[Any]) -> None:
    run = run_job(ignore, DEAD, {"mem.a": {0: messages}})
    decodable = JSON | {"task.drop.deserialization.errors": "true"}
    good = run_job(ignore, decodable, {"mem.a": {0: messages}})
    assert run.processed == good.processed
    offsets = {offset for _, offset, *_ in run.processed}
    assert [message for _, message in letters(run)] == [each for at, each in enumerate(messages) if str(at) not in offsets]


def test_a_broadcast_message_makes_one_dead_letter_for_all_tasks() -> None:
    run = run_job(ignore, DEAD | {"task.broadcast.inputs": "mem.rules#0"}, {"mem.a": {0: [], 1: []}, "mem.rules": {0: [b"{", "r"]}})
    assert letters(run) == [(None, b"{")]
    assert [told["dead-letter.task"] for told in reasons(run)] == ["Partition 0"]
    assert run.checkpoints == {"Partition 0": {"mem.rules.0": "1"}, "Partition 1": {"mem.rules.0": "1"}}


def test_a_dead_letter_waits_for_the_turn_of_its_message() -> None:
    config = DEAD | {"systems.mem.streams.high.samza.priority": "1"}
    run = run_job(echo, config, {"mem.low": {0: [b"{"]}, "mem.high": {0: ["h1", "h2"]}})
    assert [call.detail for call in run.calls if call.event == "send"] == ["mem.out", "mem.out", "mem.dead"]


def test_a_dead_letter_is_committed_with_the_offset_of_its_message() -> None:
    run = run_job(ignore, DEAD | {"task.commit.ms": "0"}, {"mem.a": {0: [b"{", 1]}}, max_messages=1)
    again = run_job(ignore, DEAD, previous=run)
    assert letters(again) == [(None, b"{")]
    assert [message for *_, message in again.processed] == [1]


def test_a_dead_letter_of_a_run_that_failed_comes_again() -> None:
    """As any output does at least once."""

    def fails(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise ValueError(envelope.message)

    with pytest.raises(Exception, match="at mem.a.0@1") as caught:
        run_job(fails, DEAD, {"mem.a": {0: [b"{", 1]}})
    run = run_job(ignore, DEAD, previous=caught.value.job_run)  # type: ignore[attr-defined]
    assert letters(run) == [(None, b"{"), (None, b"{")]


def test_no_serde_of_the_system_applies_to_dead_letters() -> None:
    config = DEAD | {"systems.mem.samza.key.serde": "long", "systems.mem.samza.msg.serde": "json"}
    assert letters(run_job(ignore, config, {"mem.a": {0: [(5, b"{")]}})) == [(b"\0" * 7 + b"\5", b"{")]


def test_dead_letters_go_where_their_keys_say() -> None:
    config = DEAD | {"systems.mem.streams.dead.partitions": "8"}
    run = run_job(ignore, config, {"mem.a": {0: [(b"k%d" % (number % 5), b"{") for number in range(50)]}})
    held = [{key for key, _ in entries} for entries in run.outputs["mem.dead"].values()]
    assert sum(map(len, held)) == 5 and max(map(len, held)) < 5


# Outputs


def test_an_unserialisable_output_goes_to_the_dead_letters_with_its_input() -> None:
    bad, good = OutgoingMessageEnvelope(OUT, {"a": {1, 2}}, key="k"), OutgoingMessageEnvelope(OUT, 1)
    run = run_job(sends(bad, good), DEAD, {"mem.a": {3: ["x"]}})
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
    run = run_job(Windowed, DEAD | {"task.window.ms": "10"}, {"mem.a": {0: ["x"]}}, clock=clock, max_messages=1)
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
    ("message", "kept"), [(b"raw", b"raw"), ("t\ud800", b"t\\ud800"), (1j, b"1j"), (Unprintable(), b"whose repr raises ValueError")]
)
def test_of_an_object_that_cannot_be_encoded_the_dead_letter_keeps_what_it_can(message: Any, kept: bytes) -> None:
    config = {"systems.mem.streams.out.samza.msg.serde": "long", "task.dead.letter.stream": "mem.dead"}
    ((_, found),) = letters(run_job(sends(OutgoingMessageEnvelope(OUT, message)), config, {"mem.a": {0: ["x"]}}))
    assert kept in found


def test_an_output_to_a_partition_that_is_not_there_is_a_dead_letter_too() -> None:
    run = run_job(sends(OutgoingMessageEnvelope(OUT, "m", partition=9)), DEAD, {"mem.a": {0: [1]}})
    assert letters(run) == [(None, b"m")]


def test_what_a_system_does_not_take_is_unserialisable(tmp_path: Any) -> None:
    """A log takes bytes: without a serde, an object is refused by the system itself."""
    config = {
        "systems.log.samza.factory": "log", "systems.log.path": tmp_path, "task.dead.letter.stream": "log.dead",
    }  # fmt: skip
    bad = (
        OutgoingMessageEnvelope(SystemStream("log", "out"), {"a": 1}),
        OutgoingMessageEnvelope(SystemStream("log", "out"), b"x", headers={"n": 1}),
    )  # type: ignore[dict-item]
    run = run_job(sends(*bad), config, {"mem.a": {0: [1]}})
    assert run.metrics["producers.serialization-errors"] == run.metrics["container.dead-letters"] == 2


# Which send it was


def send_no(number: int, callback: Any) -> str:
    return rf"send no\. {number} of {re.escape(callback.__qualname__)}, defined at test_rejects\.py:{callback.__code__.co_firstlineno}\)$"


class SendsThree:
    def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
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


def test_the_error_of_an_output_names_the_callback_and_which_of_its_sends_it_was() -> None:
    inputs = {"mem.a": {0: [[1], [2, 1j, 3], [4]]}}
    with pytest.raises(SerdeError, match=r"while processing mem\.a\.0@1, key None: " + send_no(2, SendsThree.process)):
        run_job(SendsThree, OUT_JSON, inputs)
    with pytest.raises(SerdeError, match=r"while processing mem\.a\.0@0\.\.2 .*: " + send_no(2, SendsInRuns.process_batch)):
        run_job(SendsInRuns, OUT_JSON, inputs)
    with pytest.raises(SerdeError, match="while processing .*: " + send_no(1, sends_nothing_good)):
        run_job(sends_nothing_good, OUT_JSON, inputs)


def sends_nothing_good(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    collector.send(OutgoingMessageEnvelope(OUT, 1j))


def test_the_error_of_what_window_and_the_end_send_names_them() -> None:
    class Late(SendsThree):
        def process(self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            super().process(envelope, collector, coordinator)
            clock.advance(10)

    clock = ManualClock()
    with pytest.raises(SerdeError, match=r"while processing mem\.a\.0@0, key None: " + send_no(2, SendsThree.window)):
        run_job(Late, OUT_JSON | {"task.window.ms": "10"}, {"mem.a": {0: [[1, 2]]}}, clock=clock)
    with pytest.raises(SerdeError, match=r"\(" + send_no(1, SendsAtTheEnd.end_of_stream)):
        run_job(SendsAtTheEnd, OUT_JSON | {"systems.mem.streams.a.samza.bounded": "true"}, {"mem.a": {0: [[1, 2]]}})


@pytest.mark.parametrize("stream", ["mem.out", ["mem", "out"], SystemStream("", "out"), SystemStream("mem", ""), None, "out"])
def test_what_is_no_stream_is_told_with_how_one_is_made(stream: Any) -> None:
    with pytest.raises(SerdeError, match=r"which is no stream: give SystemStream\.parse\('\w+\.out'\), or SystemStream\('\w+', 'out'\)"):
        run_job(sends(OutgoingMessageEnvelope(stream, 1)), {}, {"mem.a": {0: [1]}})


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


def sends_one_by_one(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    for each in (b"a", HUGE, FITS):
        collector.send(OutgoingMessageEnvelope(LOG_OUT, each, key=b"k", headers={"own": b"h"}))


def sends_columns(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    collector.send_batch(LOG_OUT, [b"a", HUGE, FITS], keys=[b"k"] * 3)


@pytest.mark.parametrize("task", [sends_one_by_one, sends_columns])
def test_an_output_that_is_too_large_is_a_dead_letter_as_far_as_it_fits(tmp_path: Path, task: Any) -> None:
    config = {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "task.dead.letter.stream": "log.dead"}
    run = run_job(task, config | TAKES, {"mem.a": {0: [1]}})
    assert [each.message for each in in_log(tmp_path, "out")] == [b"a", FITS]
    (letter,) = in_log(tmp_path, "dead")
    assert (letter.key, letter.message) == (b"k", HUGE[:4096])
    told = {name: value.decode() for name, value in (letter.headers or {}).items()}
    assert "bytes is larger than systems.log.max.message.bytes=10000" in told.pop("dead-letter.reason")
    assert told == {
        "dead-letter.direction": "out", "dead-letter.stream": "log.out", "dead-letter.task": "Partition 0", "dead-letter.size": "30001",
        "dead-letter.exception": "streambench.errors.MessageTooLargeError", "dead-letter.source": "mem.a.0", "dead-letter.offset": "0",
    }  # fmt: skip
    assert run.metrics["producers.serialization-errors"] == run.metrics["container.dead-letters"] == 1
    assert [call.detail for call in run.calls if call.event == "send"] == ["log.out", "log.out", "log.dead"]


def test_a_dead_letter_is_whole_where_its_stream_takes_it(tmp_path: Path) -> None:
    config = {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "task.dead.letter.stream": "mem.dead"}
    assert letters(run_job(sends_one_by_one, config | TAKES, {"mem.a": {0: [1]}})) == [(b"k", HUGE)]


def test_outputs_that_are_too_large_can_be_dropped(tmp_path: Path) -> None:
    config = {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "task.drop.serialization.errors": "true"}
    run = run_job(sends_one_by_one, config | TAKES, {"mem.a": {0: [1]}})
    assert [each.message for each in in_log(tmp_path, "out")] == [b"a", FITS]
    assert run.metrics["producers.serialization-errors"] == 1


def test_an_input_that_is_too_large_for_the_dead_letters_is_cut_too(tmp_path: Path) -> None:
    config = JSON | {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "task.dead.letter.stream": "log.dead"}
    run_job(ignore, config | TAKES, {"mem.a": {0: [(HUGE, b"{" + HUGE), 2]}})
    (letter,) = in_log(tmp_path, "dead")
    assert (letter.key, letter.message) == (HUGE[:64], b"{" + HUGE[:4095])
    assert letter.headers is not None and letter.headers["dead-letter.size"] == b"60001"


def test_a_stream_that_takes_not_even_the_reason_ends_the_job(tmp_path: Path) -> None:
    config = JSON | {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "task.dead.letter.stream": "log.dead"}
    with pytest.raises(MessageTooLargeError, match=r"task\.dead\.letter\.stream: log\.dead does not take this dead letter"):
        run_job(ignore, config | {"systems.log.max.message.bytes": "50"}, {"mem.a": {0: [b"{" + HUGE]}})


@pytest.mark.parametrize("task", [sends_one_by_one, sends_columns])
def test_without_a_setting_an_output_that_is_too_large_ends_the_job_and_the_error_says_what_can_be_set(tmp_path: Path, task: Any) -> None:
    config = {"systems.log.samza.factory": "log", "systems.log.path": tmp_path}
    with pytest.raises(MessageTooLargeError) as caught:
        run_job(task, config | TAKES, {"mem.a": {0: [1]}})
    for part in ("Partition 0", "log.out", "key b'k'", "task.dead.letter.stream", "task.drop.serialization.errors", "mem.a.0@0"):
        assert part in str(caught.value)


def test_the_error_of_an_undecodable_message_says_what_can_be_set() -> None:
    with pytest.raises(SerdeError, match=r"task\.dead\.letter\.stream=SYSTEM\.STREAM, .* or task\.drop\.deserialization\.errors=true"):
        run_job(ignore, JSON, {"mem.a": {0: [b"{"]}})


# Which stream


@pytest.mark.parametrize("inputs", [{"task.inputs": "mem.a,mem.dead"}, {"task.inputs": "mem.a", "task.broadcast.inputs": "mem.dead#0"}])
def test_dead_letters_cannot_be_an_input_of_the_same_job(inputs: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^task\.dead\.letter\.stream: mem\.dead is an input of this job"):
        run_job(ignore, DEAD | inputs, {"mem.a": {0: [1]}, "mem.dead": {0: []}})


def sends_a_column(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
    collector.send_batch(SystemStream("mem", "dead"), [b"1"])


@pytest.mark.parametrize("task", [sends(OutgoingMessageEnvelope(SystemStream("mem", "dead"), b"x")), sends_a_column])
@pytest.mark.parametrize("before", [[], [b"{"]])
def test_a_task_cannot_send_to_the_dead_letter_stream(task: Process, before: list[Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        run_job(task, DEAD, {"mem.a": {0: [*before, 1]}})
    assert caught.value.key == "task.dead.letter.stream"
    text = str(caught.value)
    assert text.startswith("task.dead.letter.stream: mem.dead is the dead-letter stream, and Partition 0 sent to it")
    assert f"mem.a.0@{len(before)}" in text
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert len(letters(run)) == len(before)


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"task.dead.letter.stream": "dead"}, "'dead' is not a stream"),
        ({"systems.mem.streams.dead.samza.msg.serde": "json"}, "no serde applies to mem.dead"),
        ({"systems.f.samza.factory": "file", "systems.f.path": ".", "task.dead.letter.stream": "f.dead"}, "a file has no headers"),
    ],
)
def test_what_cannot_be_a_dead_letter_stream_is_a_wrong_configuration(config: dict[str, str], what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        run_job(ignore, DEAD | config, {"mem.a": {0: [1]}})


def test_a_dead_letter_stream_of_no_system_is_an_error_before_anything_is_read() -> None:
    memory_streams("mem").create(SystemStream("mem", "a"), 1)
    config = {"systems.mem.samza.factory": "memory", "task.inputs": "mem.a", "task.dead.letter.stream": "lgo.dead"}
    with pytest.raises(ConfigError, match=r"^task\.dead\.letter\.stream: there is no system 'lgo'"):
        Container.from_config(config, ignore).start()


def test_the_same_stream_may_hold_a_good_many_dead_letters_already() -> None:
    run = run_job(ignore, DEAD, {"mem.a": {0: [b"{"]}})
    assert len(letters(run_job(ignore, DEAD, {"mem.a": {0: [b"["]}}, previous=run))) == 2


# Nothing in silence


def test_each_stream_that_is_wrong_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    drop = JSON | {"task.drop.deserialization.errors": "true", "task.drop.serialization.errors": "true"}
    with caplog.at_level(logging.WARNING, "streambench"):
        run_job(sends(OutgoingMessageEnvelope(OUT, object())), drop, {"mem.a": {0: [b"{", 1, b"[", 2]}, "mem.b": {0: [b"{"]}})
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 3
    assert sum("mem.a.0@0" in text and "it is dropped" in text for text in told) == 1
    assert sum("mem.out" in text for text in told) == 1


def test_dead_letters_win_over_dropping_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "streambench"):
        run = run_job(ignore, DEAD | {"task.drop.deserialization.errors": "true"}, {"mem.a": {0: [b"{"]}})
    assert len(letters(run)) == 1
    assert "task.drop.deserialization.errors has no effect: task.dead.letter.stream is set" in caplog.text


def test_a_container_tells_what_it_passed_over() -> None:
    def picky(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        if envelope.message == 1:
            raise ValueError("one")
        collector.send(OutgoingMessageEnvelope(OUT, object()))

    bench = Bench(picky, {"mem.a": {0: [b"{", b"1", b"2", b"{"]}}, DEAD | {"task.ignored.exceptions": "ValueError"})
    container = bench.started()
    assert not container.passed_over
    assert container.run("caught-up") == 4
    passed_over = container.snapshot().passed_over
    assert passed_over == PassedOver(undecodable=2, unserialisable=1, dead_letters=3, ignored=1)
    assert str(passed_over) == "2 undecodable messages dead-lettered, 1 unserialisable output dead-lettered, 1 failure ignored"
    container.stop()
    assert container.passed_over == passed_over


# Whatever the guarantee, and whatever takes the messages


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_dead_letters_are_committed_with_the_rest(guarantee: str) -> None:
    config = DEAD | {"task.processing.guarantee": guarantee, "systems.mem.streams.out.samza.msg.serde": "long"}
    bad, good = OutgoingMessageEnvelope(OUT, "no number"), OutgoingMessageEnvelope(OUT, 1)
    run = run_job(sends(bad, good), config, {"mem.a": {0: [b"{", 1]}})
    assert [told["dead-letter.direction"] for told in reasons(run)] == ["in", "out"]
    assert run.outputs["mem.out"] == {0: [(None, 1)]}
    assert letters(run_job(sends(good), config, previous=run)) == letters(run)


def test_exactly_once_a_dead_letter_of_a_run_that_failed_is_there_once() -> None:
    def fails(envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        raise ValueError(envelope.message)

    config = DEAD | {"task.processing.guarantee": "exactly-once"}
    with pytest.raises(TaskError) as caught:
        run_job(fails, config, {"mem.a": {0: [b"{", 1]}})
    assert letters(caught.value.job_run) == []  # type: ignore[attr-defined]
    assert letters(run_job(ignore, config, previous=caught.value.job_run)) == [(None, b"{")]  # type: ignore[attr-defined]


def test_of_a_batch_the_undecodable_messages_are_dead_letters_with_their_own_place() -> None:
    seen: list[Any] = []

    class Batches:
        def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            seen.extend(envelope.message for envelope in batch)

    run = run_job(Batches, DEAD, {"mem.a": {0: [1, b"{", 2, b"[", 3]}})
    assert seen == [1, 2, 3]
    assert letters(run) == [(None, b"{"), (None, b"[")]
    assert [(told["dead-letter.source"], told["dead-letter.offset"]) for told in reasons(run)] == [("mem.a.0", "1"), ("mem.a.0", "3")]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "4"}}
