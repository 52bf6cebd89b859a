"""Outputs that cannot be sent: in a branch of the past, by other code, and after a simulated crash."""

from __future__ import annotations

import re
import threading
from collections import Counter as Counted
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import streambench as sb
from streambench.debug.control.session import Session
from streambench.errors import SerdeError, StreambenchError, TaskError
from streambench.system.api import accept
from streambench.system.systems import Systems
from tests.container.jobs import Bench, ignore
from tests.debug.control.test_time_travel import STORE, Counter, session_of
from tests.debug.crash.test_crash import EXACTLY_ONCE, GUARANTEES, Counting
from tests.refusals import LOCAL, Refused, sender_of

UNSENDABLE: list[dict[str, Any]] = [
    {"headers": {"a": 5}}, {"timestamp": "x"}, {"timestamp": 1.5}, {"timestamp": 10**30}, {"partition": 9},
]  # fmt: skip
BS = {"mem.in": {0: [{"key": "b"}] * 6}}
BAD = re.compile("timestamp|header|partition")


@pytest.mark.parametrize("extras", UNSENDABLE, ids=str)
@pytest.mark.parametrize("by_column", [False, True])
def test_a_branch_fails_at_an_output_that_cannot_be_sent(extras: dict[str, Any], by_column: bool) -> None:
    class Late(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if self.seen != 3:
                return
            if by_column:
                columns = {f"{name.removesuffix('s')}s": [None, value] for name, value in extras.items()}
                collector.send_batch(sb.SystemStream.parse("mem.out"), [1, 2], **columns)
            else:
                collector.send("mem.out", 1, **extras)

    session, _ = session_of(inputs=BS)
    session.step(6)
    session.goto(1)
    session.swap(Late)
    with pytest.raises((SerdeError, TaskError), match=BAD):
        session.forward(5)
    assert session.position == 1 and session.stores() == {"Partition 0": {"n": {"b": 1}}}
    session.go_live()
    swap = session.swap(Late, replay=6)
    assert swap.replayed == 3 and swap.failed is not None and BAD.search(swap.failed)
    session.stop()


@pytest.mark.parametrize("guarantee", GUARANTEES)
@pytest.mark.parametrize("extras", UNSENDABLE, ids=str)
def test_a_crash_does_not_send_what_cannot_be_sent(guarantee: Any, extras: dict[str, Any]) -> None:
    class Late(Counting):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            bad = extras if envelope.message == "b" else {}
            collector.send("mem.out", envelope.message, **bad)

    session, _ = session_of(Late, {"mem.in": {0: ["a", "b"]}}, {**STORE, **guarantee})
    session.step()
    with pytest.raises(SerdeError, match=r"what it sent to mem\.out cannot be sent"):
        session.step()
    crash = session.crash()
    assert crash.outputs_new == () and not crash.safe
    assert crash.error is not None and "what it sent to mem.out cannot be sent" in crash.error
    assert "send no. 1 of " in crash.error and "mem.in.0@1" in crash.error
    assert [step.new for step in session.crash_everywhere().unsafe if step.new] == []


@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_a_crash_does_not_send_what_a_system_refuses(case: Refused, tmp_path: Path) -> None:
    session = session_to(case, sender_of(case.bad), tmp_path)
    session.step()
    with pytest.raises(StreambenchError, match=case.error):
        session.step()
    crash = session.crash()
    assert crash.outputs_new == () and not crash.safe
    assert crash.error is not None and re.search(case.error, crash.error) and "mem.in.0@1" in crash.error


@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_a_crash_sends_the_largest_that_a_system_takes(case: Refused, tmp_path: Path) -> None:
    session = session_to(case, sender_of(case.good), tmp_path)
    session.step(2)
    crash = session.crash()
    assert crash.error is None and len(crash.outputs_twice) == 2
    session.stop()


@pytest.mark.parametrize("by_column", [False, True])
@pytest.mark.parametrize("case", LOCAL, ids=str)
def test_a_branch_fails_at_what_a_system_refuses(case: Refused, by_column: bool, tmp_path: Path) -> None:
    def columns(envelope: Any, collector: Any, coordinator: Any) -> None:
        lists = {f"{name}s": [value] for name, value in case.bad.items() if name != "headers"}
        lists |= {"headers": [case.bad["headers"]]} if "headers" in case.bad else {}
        collector.send_batch(sb.SystemStream.parse("out.out"), lists.pop("messages"), **lists)

    session = session_to(case, sender_of(case.good), tmp_path)
    session.step(2)
    session.goto(1)
    session.swap(columns if by_column else sender_of(case.bad))
    with pytest.raises(StreambenchError, match=case.error):
        session.forward()
    assert session.position == 1
    session.go_live()
    session.stop()


TOLERANT: list[dict[str, Any]] = [
    {"task.dead.letter.stream": "mem.dead"}, {"task.drop.serialization.errors": "true"},
]  # fmt: skip


def both(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Sends a message that a log takes, and one that it refuses."""
    collector.send("out.out", b"1")
    collector.send("out.out", {"n": 1})


def both_in_memory(envelope: Any, collector: Any, coordinator: Any) -> None:
    """The same of a system in memory."""
    collector.send("mem.out", 1)
    collector.send("mem.out", threading.Lock())


def batch_in_memory(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Sends a batch of the same two."""
    collector.send_batch(sb.SystemStream.parse("mem.out"), [threading.Lock(), 1])


def headers_in_memory(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Sends a batch of two, one of which has a header that cannot be sent."""
    collector.send_batch(sb.SystemStream.parse("mem.out"), [b"2", b"1"], headers=[{"a": 5}, None])


def columns(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Sends a batch of what a log takes, and of what it refuses."""
    collector.send_batch(sb.SystemStream.parse("out.out"), [b"1", {"n": 1}])


@pytest.mark.parametrize("task", [both_in_memory, batch_in_memory, headers_in_memory])
@pytest.mark.parametrize("tolerant", TOLERANT, ids=str)
def test_a_branch_shows_the_dead_letter_of_what_is_refused(
    tolerant: dict[str, Any], task: Any, tmp_path: Path
) -> None:
    config = {**tolerant, **EXACTLY_ONCE}
    session = session_to(LOCAL[0], ignore, tmp_path, config)
    session.step(2)
    session.goto(0)
    session.swap(task)
    session.forward(2)
    sent = ["mem.out", *(["mem.dead"] if "mem.dead" in tolerant.values() else [])] * 2
    assert [each.stream for each in session.outputs()] == sent
    session.adopt()
    assert [each.stream for each in session.outputs()] == sent
    assert [len(each.outputs) for each in session.effects(0)] == [len(sent) // 2] * 2
    session.stop()


def batch_of(*messages: Any, **columns: Any) -> Any:
    """A task that sends this batch, of which only rows with ``b"1"`` or ``b"2"`` can be sent."""

    def process(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send_batch(sb.SystemStream.parse("out.out"), [*messages], **columns)

    return process


def table(envelope: Any, collector: Any, coordinator: Any) -> None:
    """The same from Arrow, where a message is too large with its headers."""
    headers = pa.array([[("a", b"x" * 2000)], None, [("a", b"x")]], pa.map_(pa.string(), pa.binary()))
    columns = {"message": [b"3", b"1", b"2"], "headers": headers, "timestamp": [1, None, 2]}
    collector.send_batch(sb.SystemStream.parse("out.out"), pa.table(columns))


PARTLY_REFUSED = {
    "objects": batch_of({"n": 1}, b"1", {"n": 2}, b"2"),
    "headers": batch_of(b"bad", b"1", b"2", headers=[{"a": 5}, None, {"a": b"x"}]),
    "partitions": batch_of(b"1", b"bad", b"2", partitions=[0, 70_000, None]),
    "sizes": batch_of(b"x" * 2001, b"1", b"y" * 2001, b"2", keys=[b"k", b"k", None, b"l"]),
    "both": batch_of(b"x" * 2001, b"1", b"bad", b"2", headers=[None, None, {"a": 5}, None]),
    "table": table,
    "twins": batch_of(b"1", b"1", b"2", headers=[{"a": 5}, None, None]),
    "all": batch_of({"n": 1}, {"n": 2}),
}
"""Batches for a log with ``max.message.bytes=2000``."""


@pytest.mark.parametrize("task", PARTLY_REFUSED.values(), ids=PARTLY_REFUSED)
@pytest.mark.parametrize("tolerant", TOLERANT, ids=str)
def test_refused_rows_of_a_batch_are_shown_as_their_dead_letters_only(
    tolerant: dict[str, Any], task: Any, tmp_path: Path
) -> None:
    session = session_to(LOCAL[1], task, tmp_path, tolerant)
    session.step(2)
    refused = session.container.error_counts.unserialisable // 2
    letters = refused if "mem.dead" in tolerant.values() else 0

    def check(outputs: Any) -> None:
        assert [each.message for each in outputs if each.stream == "out.out"] == sent
        assert len([each for each in outputs if each.stream == "mem.dead"]) == letters

    sent = [] if task is PARTLY_REFUSED["all"] else [b"1", b"2"]
    assert refused
    check(session.effects(0)[1].outputs if sent or letters else ())
    sent = sent * 2
    letters = letters * 2
    check(session.outputs())
    crash = session.crash()
    assert (crash.error, crash.outputs_new) == (None, ())
    check(crash.outputs_twice)
    session.stop()


@pytest.mark.parametrize("name", ["sizes", "table"])
@pytest.mark.parametrize("tolerant", TOLERANT, ids=str)
def test_a_crash_repeats_a_batch_of_which_a_broker_refuses_rows(
    tolerant: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = session_to(LOCAL[1], PARTLY_REFUSED[name], tmp_path, tolerant)
    session.step(2)
    monkeypatch.setattr(Systems, "check", lambda *args: accept)
    crash = session.crash()
    assert (crash.error, crash.outputs_new, crash.outputs_lost) == (None, (), ())
    twice = Counted(each.stream for each in crash.outputs_twice)
    assert twice == Counted(each.stream for each in session.outputs())
    assert twice["out.out"] == 4
    session.stop()


@pytest.mark.parametrize("tolerant", TOLERANT, ids=str)
def test_a_swap_with_replay_compares_what_streams_get(tolerant: dict[str, Any], tmp_path: Path) -> None:
    session = session_to(LOCAL[0], sender_of(LOCAL[0].good), tmp_path, tolerant)
    session.step(2)
    (changed,) = session.swap(sender_of(LOCAL[0].bad), replay=2).changed
    # Only the first difference at a message is shown.
    name = "mem.dead" if "mem.dead" in tolerant.values() else "out.out"
    assert (changed.position, changed.name) == (2, name)
    session.stop()


@pytest.mark.parametrize("task", [both, columns])
@pytest.mark.parametrize("tolerant", TOLERANT, ids=str)
def test_a_crash_repeats_the_dead_letters_of_what_is_refused(
    tolerant: dict[str, Any], task: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    session = session_to(LOCAL[0], task, tmp_path, tolerant)
    session.step(2)
    caplog.clear()
    crash = session.crash()
    assert (crash.error, crash.outputs_new, crash.outputs_lost) == (None, (), ())
    letters = [each for each in crash.outputs_twice if each.stream == "mem.dead"]
    assert len(letters) == (2 if "mem.dead" in tolerant.values() else 0)
    assert caplog.records == []
    session.stop()


SMALL_DEAD_LETTERS = {
    "task.dead.letter.stream": "small.dead", "systems.small.samza.factory": "log",
    "systems.small.max.message.bytes": 4000,
}  # fmt: skip


def both_too_large(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Sends two messages that are too large for a log. The first is too large as a dead letter, too."""
    first = envelope.message.encode()
    collector.send("out.out", first * 9000)
    collector.send("out.out", first * 2001)


def test_a_crash_repeats_dead_letters_that_were_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = {**SMALL_DEAD_LETTERS, "systems.small.path": tmp_path / "small"}
    session = session_to(LOCAL[1], both_too_large, tmp_path, config)
    session.step(2)
    monkeypatch.setattr(Systems, "check", lambda *args: accept)  # only a broker refuses
    crash = session.crash()
    assert (crash.error, crash.outputs_new, crash.outputs_lost) == (None, (), ())
    sizes = Counted((each.stream, len(each.message)) for each in session.outputs())
    assert Counted((each.stream, len(each.message)) for each in crash.outputs_twice) == sizes
    assert sum(sizes.values()) == 4
    session.stop()


def test_an_adopted_branch_sends_a_dead_letter_that_is_cut_once(tmp_path: Path) -> None:
    config = {**SMALL_DEAD_LETTERS, "systems.small.path": tmp_path / "small"}
    session = session_to(LOCAL[1], ignore, tmp_path, config)
    session.step(2)
    session.goto(0)
    session.swap(both_too_large)
    session.forward(2)
    sent = Counted((each.stream, len(each.message)) for each in session.outputs())
    assert sum(sent.values()) == 4
    session.adopt()
    assert Counted((each.stream, len(each.message)) for each in session.outputs()) == sent
    session.stop()


def session_to(case: Refused, task: Any, directory: Path, more: Any = None) -> Session:
    """A session of a job that sends to a system."""
    config = {f"systems.out.{key}": value for key, value in case.settings(directory).items()} | (more or {})
    bench = Bench(task, {"mem.in": {0: ["a", "b", "c"]}}, {**config, "task.commit.ms": -1}, observed=False)
    Systems(bench.config).create(sb.SystemStream("out", "out")) if "file" in case.name else None
    session = Session(bench.container)
    session.start()
    return session
