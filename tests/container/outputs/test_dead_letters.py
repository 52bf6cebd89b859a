"""Messages that cannot be decoded, and outputs that cannot be encoded: the container fails, drops and counts,
or writes dead letters."""

from __future__ import annotations

import logging
import weakref
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from streambench.container.container import Container
from streambench.container.outputs.dead_letters import ErrorCounts
from streambench.errors import ConfigError, SerdeError, TaskError
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
)
from streambench.system.memory import MemoryProducer, MemorySystemFactory, memory_streams
from streambench.task import MessageCollector, TaskCoordinator
from streambench.testing import run_job
from tests.container.jobs import Bench, Process, echo, ignore, sending
from tests.container.outputs.letters import DEAD, JSON, OUT, letters, reasons
from tests.garbage import await_collected


class Batches:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        list(batch)


class Messages:
    def process_batch(self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        batch.messages()


@pytest.mark.parametrize("task", [ignore, Batches, Messages])
def test_the_error_shows_place_serde_reason_and_the_first_bytes(task: Any) -> None:
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
    def fails(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise ValueError("no good")

    def sends_an_object(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, object()))

    class FailsAtOnce:
        def process_batch(
            self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            raise ValueError("no good")

    for task, what in (
        (fails, "no good"),
        (FailsAtOnce, "no good"),
        (sends_an_object, "while processing mem.a.0@0"),
    ):
        with pytest.raises((TaskError, SerdeError), match=what) as caught:
            run_job(task, {"systems.mem.streams.out.samza.msg.serde": "json"}, {"mem.a": {0: [(key, 1)]}})
        assert len(str(caught.value)) < 600


def test_an_undecodable_message_becomes_a_dead_letter_and_the_job_goes_on() -> None:
    run = run_job(ignore, DEAD, {"mem.a": {0: [1, (b"key", b"{\xff"), 2]}})
    assert [message for *_, message in run.processed] == [1, 2]
    assert letters(run) == [(b"key", b"{\xff")]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "2"}}
    assert run.metrics["consumers.deserialization-errors"] == run.metrics["container.dead-letters"] == 1


ROWS = b"id,name\n1,a\n2\n3,b,c\n4,d\n"


def of_rows(path: Path, **settings: str) -> dict[str, str]:
    (path / "rows.csv").write_bytes(ROWS)
    named = {name.replace("_", "."): value for name, value in settings.items()}
    system = {
        "systems.files.samza.factory": "file",
        "systems.files.path": str(path),
        "systems.files.samza.offset.default": "oldest",
    }
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
def test_an_unreadable_row_becomes_a_dead_letter_and_others_are_processed(
    tmp_path: Path, task: Any, end: dict[str, str]
) -> None:
    serde = {"systems.files.samza.msg.serde": "json", "systems.mem.streams.out.samza.msg.serde": "json"}
    run = run_job(task, of_rows(tmp_path) | serde | end | {"task.dead.letter.stream": "mem.dead"})
    assert [message for _, message in run.outputs["mem.out"][0]] == [
        {"id": "1", "name": "a"},
        {"id": "4", "name": "d"},
    ]
    assert letters(run) == [(None, b"2"), (None, b"3,b,c")]
    assert [each["dead-letter.reason"].partition("rows.csv, ")[2] for each in reasons(run)] == [
        "line 3: 1 fields, but the header has 2 columns",
        "line 4: 3 fields, but the header has 2 columns",
    ]
    assert run.checkpoints == {"Partition 0": {"files.rows.0": str(len(ROWS) - 1)}}


@pytest.mark.parametrize("task", [echo, Rows])
def test_a_row_that_cannot_be_read_is_no_message_even_without_a_serde(
    tmp_path: Path, task: Any
) -> None:
    run = run_job(task, of_rows(tmp_path) | {"task.drop.deserialization.errors": "true"})
    assert [message for _, message in run.outputs["mem.out"][0]] == [
        b'{"id":"1","name":"a"}',
        b'{"id":"4","name":"d"}',
    ]
    assert run.metrics["consumers.deserialization-errors"] == 2


@pytest.mark.parametrize("task", [echo, Rows])
def test_a_row_that_cannot_be_read_ends_the_job_behind_those_before_it(tmp_path: Path, task: Any) -> None:
    with pytest.raises(SerdeError, match=r"files\.rows\.0@13: .*rows\.csv, line 3: 1 fields") as caught:
        run_job(task, of_rows(tmp_path) | {"task.batch.messages": "1"})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [message for _, message in run.outputs["mem.out"][0]] == [b'{"id":"1","name":"a"}']


def test_a_message_that_could_not_be_decoded_keeps_no_job_in_memory() -> None:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None: ...

    alive = weakref.ref(process)
    run_job(process, DEAD, {"mem.a": {0: [b"\xff"]}})
    del process
    await_collected(lambda: alive() is None)


def test_a_dead_letter_says_why_and_whence() -> None:
    (told,) = reasons(run_job(ignore, DEAD, {"mem.a": {2: [1, b"{"]}}))
    assert told.pop("dead-letter.reason").startswith("JSONDecodeError: ")
    assert told == {
        "dead-letter.direction": "in",
        "dead-letter.exception": "orjson.JSONDecodeError",
        "dead-letter.task": "Partition 2",
        "dead-letter.source": "mem.a.2",
        "dead-letter.offset": "1",
    }


def test_a_dead_letter_keeps_the_headers_of_the_message_and_tells_its_time() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, DEAD)
    headers = {"trace": b"\x00\xff"}
    MemoryProducer(bench.streams).send(
        "test", OutgoingMessageEnvelope(SystemStream("mem", "a"), b"{", None, None, 0, 123, headers)
    )
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
    assert [message for _, message in letters(run)] == [
        each for at, each in enumerate(messages) if str(at) not in offsets
    ]


def test_a_broadcast_message_makes_one_dead_letter_for_all_tasks() -> None:
    run = run_job(
        ignore,
        DEAD | {"task.broadcast.inputs": "mem.rules#0"},
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: [b"{", "r"]}},
    )
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

    def fails(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
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


def test_the_error_of_an_undecodable_message_says_what_can_be_set() -> None:
    with pytest.raises(
        SerdeError,
        match=r"task\.dead\.letter\.stream=SYSTEM\.STREAM, .* or task\.drop\.deserialization\.errors=true",
    ):
        run_job(ignore, JSON, {"mem.a": {0: [b"{"]}})


# Which stream


@pytest.mark.parametrize(
    "inputs",
    [{"task.inputs": "mem.a,mem.dead"}, {"task.inputs": "mem.a", "task.broadcast.inputs": "mem.dead#0"}],
)
def test_dead_letters_cannot_be_an_input_of_the_same_job(inputs: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match=r"^task\.dead\.letter\.stream: mem\.dead is an input of this job"):
        run_job(ignore, DEAD | inputs, {"mem.a": {0: [1]}, "mem.dead": {0: []}})


def sends_a_column(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    collector.send_batch(SystemStream("mem", "dead"), [b"1"])


@pytest.mark.parametrize(
    "task", [sending(OutgoingMessageEnvelope(SystemStream("mem", "dead"), b"x")), sends_a_column]
)
@pytest.mark.parametrize("before", [[], [b"{"]])
def test_a_task_cannot_send_to_the_dead_letter_stream(task: Process, before: list[Any]) -> None:
    with pytest.raises(ConfigError) as caught:
        run_job(task, DEAD, {"mem.a": {0: [*before, 1]}})
    assert caught.value.key == "task.dead.letter.stream"
    text = str(caught.value)
    assert text.startswith(
        "task.dead.letter.stream: mem.dead is the dead-letter stream, and Partition 0 sent to it"
    )
    assert f"mem.a.0@{len(before)}" in text
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert len(letters(run)) == len(before)


class Headless(MemorySystemFactory):
    """A kind of system of one's own."""

    keeps_headers: ClassVar[bool] = False


@pytest.mark.parametrize(
    ("config", "what"),
    [
        ({"task.dead.letter.stream": "dead"}, "'dead' is not a stream"),
        ({"systems.mem.streams.dead.samza.msg.serde": "json"}, "no serde applies to mem.dead"),
        (
            {"systems.f.samza.factory": "file", "systems.f.path": ".", "task.dead.letter.stream": "f.dead"},
            "a file has no headers",
        ),
        (
            {"systems.p.samza.factory": f"{__name__}.Headless", "task.dead.letter.stream": "p.dead"},
            "Headless has no headers",
        ),
    ],
)
def test_what_cannot_be_a_dead_letter_stream_is_a_wrong_configuration(
    config: dict[str, str], what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        run_job(ignore, DEAD | config, {"mem.a": {0: [1]}})


def test_a_dead_letter_stream_of_no_system_is_an_error_before_reading() -> None:
    memory_streams("mem").create(SystemStream("mem", "a"), 1)
    config = {
        "systems.mem.samza.factory": "memory",
        "task.inputs": "mem.a",
        "task.dead.letter.stream": "lgo.dead",
    }
    with pytest.raises(ConfigError, match=r"^task\.dead\.letter\.stream: there is no system 'lgo'"):
        Container.from_config(config, ignore).start()


def test_the_same_stream_may_hold_a_good_many_dead_letters_already() -> None:
    run = run_job(ignore, DEAD, {"mem.a": {0: [b"{"]}})
    assert len(letters(run_job(ignore, DEAD, {"mem.a": {0: [b"["]}}, previous=run))) == 2


# Nothing in silence


def test_each_stream_that_is_wrong_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    drop = JSON | {"task.drop.deserialization.errors": "true", "task.drop.serialization.errors": "true"}
    with caplog.at_level(logging.WARNING, "streambench"):
        run_job(
            sending(OutgoingMessageEnvelope(OUT, object())),
            drop,
            {"mem.a": {0: [b"{", 1, b"[", 2]}, "mem.b": {0: [b"{"]}},
        )
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
    def picky(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 1:
            raise ValueError("one")
        collector.send(OutgoingMessageEnvelope(OUT, object()))

    bench = Bench(
        picky, {"mem.a": {0: [b"{", b"1", b"2", b"{"]}}, DEAD | {"task.ignored.exceptions": "ValueError"}
    )
    container = bench.started()
    assert not container.error_counts
    assert container.run("caught-up") == 4
    passed_over = container.snapshot().error_counts
    assert replace(passed_over, kinds=()) == ErrorCounts(
        undecodable=2, unserialisable=1, dead_letters=3, ignored=1
    )
    assert (
        str(passed_over)
        == "2 undecodable messages dead-lettered, 1 unserialisable output dead-lettered, 1 failure ignored "
           "(ValueError)"
    )
    container.stop()
    assert container.error_counts == passed_over


# Whatever the guarantee, and whatever takes the messages


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_dead_letters_are_committed_with_the_rest(guarantee: str) -> None:
    config = DEAD | {
        "task.processing.guarantee": guarantee,
        "systems.mem.streams.out.samza.msg.serde": "long",
    }
    bad, good = OutgoingMessageEnvelope(OUT, "no number"), OutgoingMessageEnvelope(OUT, 1)
    run = run_job(sending(bad, good), config, {"mem.a": {0: [b"{", 1]}})
    assert [told["dead-letter.direction"] for told in reasons(run)] == ["in", "out"]
    assert run.outputs["mem.out"] == {0: [(None, 1)]}
    assert letters(run_job(sending(good), config, previous=run)) == letters(run)


def test_exactly_once_a_dead_letter_of_a_run_that_failed_is_there_once() -> None:
    def fails(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise ValueError(envelope.message)

    config = DEAD | {"task.processing.guarantee": "exactly-once"}
    with pytest.raises(TaskError) as caught:
        run_job(fails, config, {"mem.a": {0: [b"{", 1]}})
    assert letters(caught.value.job_run) == []  # type: ignore[attr-defined]
    assert letters(run_job(ignore, config, previous=caught.value.job_run)) == [(None, b"{")]  # type: ignore[attr-defined]


def test_undecodable_messages_of_a_batch_are_dead_letters_with_their_place() -> None:
    seen: list[Any] = []

    class Batches:
        def process_batch(
            self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            seen.extend(envelope.message for envelope in batch)

    run = run_job(Batches, DEAD, {"mem.a": {0: [1, b"{", 2, b"[", 3]}})
    assert seen == [1, 2, 3]
    assert letters(run) == [(None, b"{"), (None, b"[")]
    assert [(told["dead-letter.source"], told["dead-letter.offset"]) for told in reasons(run)] == [
        ("mem.a.0", "1"),
        ("mem.a.0", "3"),
    ]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "4"}}


def test_large_counts_of_what_was_dropped_are_grouped_like_all_others() -> None:
    assert str(ErrorCounts(undecodable=10_000)) == "10,000 undecodable messages dropped"
