"""Two tasks or configurations over the same messages."""

from __future__ import annotations

import random
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

import streambench as sb
from streambench.container.outputs.direct_writer import writing
from streambench.debug import compare
from streambench.debug.comparison.comparison_lines import comparison_lines
from streambench.debug.control.session import Session
from streambench.debug.effects.differences import Difference, differences_in_parts
from streambench.errors import ConfigError, ContainerStateError, StreambenchError
from tests.container.jobs import Bench
from tests.container.stateful import with_systems
from tests.debug.control.test_hot_swap import Doubling, Failing, words
from tests.debug.control.test_time_travel import STORE, Counter, messages, session_of, shown
from tests.debug.dropped_interrupt import DroppedInterrupt
from tests.debug.test_random_walks import Quiet, Renaming
from tests.surroundings import SOAK

CONFIG = {**STORE, "systems.mem.samza.factory": "memory"}
LOG = {
    **STORE,
    "systems.log.samza.factory": "log",
    "systems.log.samza.msg.serde": "json",
    "systems.log.samza.key.serde": "string",
}


class Last(sb.StreamTask):
    """Keeps the message before, and sends the pair: what it does depends on the order."""

    def init(self, context: sb.TaskContext) -> None:
        self.store = context.store("n")

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.pairs", [self.store.get("last"), envelope.message])
        self.store.put("last", envelope.message)


def two_streams() -> dict[str, dict[int, list[Any]]]:
    return {"mem.a": {0: ["a1", "a2", "a3"]}, "mem.b": {0: ["b1", "b2", "b3"]}}


def test_equal_tasks_are_equal() -> None:
    found = compare(Counter, Counter, messages(20), config=CONFIG)
    assert found.equal
    assert (found.first, found.stores, found.errors, found.order) == (None, {}, (None, None), None)
    assert found.processed[0] == found.processed[1] > 20
    assert all(a == b for a, b in found.outputs.values())


def test_the_first_difference_comes_with_its_message_and_the_state_of_both() -> None:
    found = compare(Counter, Doubling, words("abcab"), config=CONFIG)
    assert not found.equal
    assert [str(each) for each in found.differing] == ["2: n[b] 1 -> 2", "5: n[b] 2 -> 4"]
    assert found.first == found.differing[0]
    assert found.message is not None and found.message.message == {"key": "b"}
    assert found.stores == {"Partition 0": {"n": {"b": (2, 4)}}}
    assert found.counts == {"mem.out": (1, 1)}


def test_what_both_do_alike_to_values_that_differ_is_no_new_difference() -> None:
    class Once(Counter):
        """Counts the first message of the key b twice."""

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            if envelope.message["key"] == "b" and self.store.get("b") is None:
                self.store.put("b", 1)
            super().process(envelope, collector, coordinator)

    found = compare(Counter, Once, words("abbbbb"), config=CONFIG)
    assert [str(each) for each in found.differing] == ["2: n[b] 1 -> 2"]
    assert found.stores == {"Partition 0": {"n": {"b": (5, 6)}}}
    assert not found.equal


def test_a_task_that_takes_batches_is_compared_by_messages() -> None:
    class InBatches(Counter):
        def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
            for envelope in batch:
                self.process(envelope, collector, coordinator)

    assert compare(Counter, InBatches, words("abcab"), config=CONFIG).equal


def test_outputs_that_differ_are_side_by_side() -> None:
    def one(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", envelope.message * 2)

    def other(envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message != 2:
            collector.send("mem.out", envelope.message + envelope.message)

    found = compare(one, other, [1, 2, 3])
    assert str(found.first) == "2: -> mem.out 4 -> -"
    one_sent, other_sent = found.outputs["mem.out"]
    assert [each.message for each in one_sent] == [2, 4, 6]
    assert [each.message for each in other_sent] == [2, 6]
    assert not found.equal


def test_the_repr_of_a_comparison_counts_the_outputs() -> None:
    def double(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", {"a": 2 * envelope.message["a"]})

    def triple(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", {"a": 3 * envelope.message["a"]})

    found = compare(double, triple, [{"a": n} for n in range(1, 500)])
    assert "counts={'mem.out': (499, 499)}, processed=(499, 499)" in repr(found)
    assert f"first={found.first!r}" in repr(found)
    assert len(repr(found)) < 1_000


def test_a_version_that_fails_differs_at_its_message() -> None:
    found = compare(Counter, Failing, words("aaaaa"), config=CONFIG)
    assert found.first is not None and found.first.what == "error"
    assert (found.first.position, found.first.offset, found.processed) == (4, "3", (5, 3))
    assert found.errors[0] is None and "the fourth" in str(found.errors[1])


def test_two_versions_that_fail_alike_are_equal_and_say_that_both_fail() -> None:
    found = compare(Failing, Failing, words("aaaaa"), config=CONFIG)
    assert found.equal
    lines = comparison_lines(found, ("A", "B"))
    assert lines[0] == "3 messages through A and B: equal, and both fail"
    assert lines[1].strip().startswith("both fail: Partition 0 failed at mem.in.0@3")


def test_another_chooser_is_compared_by_messages_not_by_positions() -> None:
    first = {"systems.mem.streams.b.samza.priority": 1}
    found = compare({}, first, two_streams(), task=Last, config=CONFIG)
    assert found.order is not None and str(found.order) == "1: mem.a.0@0 -> mem.b.0@0"
    assert str(found.first).startswith("1: -> mem.pairs")
    assert found.outputs["mem.pairs"][1][0].message == [None, "b1"]
    assert found.stores == {"Partition 0": {"n": {"last": ("b3", "a3")}}}

    def alone(envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", envelope.message)

    harmless = compare({}, first, two_streams(), task=alone, config=CONFIG)
    assert harmless.equal and harmless.order is not None and harmless.first == harmless.order


def test_configurations_with_tasks_of_their_own_are_compared() -> None:
    one = sb.Config({**CONFIG, "task.class": "tests.debug.control.test_time_travel:Counter"})
    other = sb.Config({**CONFIG, "task.class": "tests.debug.control.test_hot_swap:Doubling"})
    found = compare(one, other, words("abb"))
    assert [str(each) for each in found.differing] == ["2: n[b] 1 -> 2", "3: n[b] 2 -> 4"]


def test_the_history_of_a_session_is_compared_from_its_state_on() -> None:
    session, bench = session_of(inputs=words("abcab"))
    session.step(5)
    before = bench.outputs(), shown(session)
    found = compare(Counter, Doubling, session, last=3)
    assert [str(each) for each in found.differing] == ["5: n[b] 2 -> 3"]
    assert found.processed == (3, 3)
    assert (bench.outputs(), shown(session)) == before
    whole = compare(Counter, Doubling, session)
    assert whole.processed == (5, 5)
    failing = compare(Counter, Failing, session)
    assert failing.errors[1] is not None and failing.first is not None and failing.first.offset == "3"
    with pytest.raises(ConfigError, match="over the history of a session tasks are compared"):
        compare({}, {}, session)
    session.back(2)
    session.swap(Doubling)
    with pytest.raises(ContainerStateError, match="go_live"):
        compare(Counter, Doubling, session)
    session.go_live()
    session.stop()


def test_an_interrupt_ends_a_comparison_with_what_was_found(tmp_path: Path) -> None:
    class Interrupted(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if self.seen == 3_000:
                signal.raise_signal(signal.SIGINT)

    progress: list[tuple[int, int]] = []
    found = compare(
        Doubling, Interrupted, words("ab" * 2_500), config=CONFIG,
        progress=lambda done, total: progress.append((done, total)),
    )  # fmt: skip
    assert found.interrupted
    ran = [each for each in progress if each[1] == 5_000]
    assert ran == sorted(ran)
    assert 0 < ran[-1][0] < 3_000
    at, other = found.processed
    assert at == other and 3_000 <= at < 5_000
    assert comparison_lines(found, ("one", "other"))[0].startswith(f"interrupted after {at:,} messages")
    assert found.stores and found.differing


def test_an_interrupt_ends_a_comparison_before_its_first_message() -> None:
    has_begun = threading.Event()

    class Slow(Doubling):
        def init(self, context: sb.TaskContext) -> None:
            super().init(context)
            if is_slow:
                signal.raise_signal(signal.SIGINT)
                has_begun.wait(60)
                has_begun.set()

    is_slow = True
    session, _ = session_of(inputs=words("ab"))
    session.step(2)
    for over in (words("ab"), session):
        with pytest.raises(KeyboardInterrupt):
            compare(Counter, Slow, over, config=None if over is session else CONFIG)
        assert not has_begun.is_set()
    is_slow = False
    assert compare(Counter, Slow, session).processed == (2, 2)
    session.stop()


def test_an_interrupt_before_the_first_message_is_no_verdict() -> None:
    found = compare(Doubling, Doubling, words("a"), config=CONFIG)
    none = msgspec.structs.replace(found, processed=(0, 0), interrupted=True)
    (line,) = comparison_lines(none, ("one", "other"))[:1]
    assert line == "interrupted before the first message: nothing of one and other was compared"


def test_an_interrupt_ends_a_comparison_over_a_session_with_what_was_found() -> None:
    has_ended = threading.Event()

    class Waiting(Doubling):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if self.seen == 1_000:
                has_ended.wait()

    progress: list[tuple[int, int]] = []

    def show(done: int, total: int) -> None:
        progress.append((done, total))
        if len(progress) == 1:
            raise KeyboardInterrupt
        has_ended.set()  # it was noticed, as this is called again

    session, _ = session_of(inputs=words("ab" * 2_500))
    session.step(5_000)
    found = compare(Counter, Waiting, session, progress=show)
    assert found.interrupted
    at, other = found.processed
    assert at == other and 2 <= at < 5_000
    assert found.first is not None and found.first.position == 2
    ran = [each for each in progress if each[1] == 5_000]
    assert ran == sorted(ran)
    assert compare(Counter, Doubling, session).processed == (5_000, 5_000)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("kind", ["messages", "session"])
def test_an_interrupt_that_python_drops_ends_a_comparison(kind: str) -> None:
    interrupt, was_noted = DroppedInterrupt(), threading.Event()
    calls: list[int] = []

    class Waiting(Doubling):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if kind == "session" and self.seen == 1_000:
                was_noted.wait(60)

    def progress(done: int, total: int) -> None:
        interrupt.press()
        calls.append(done)
        if len(calls) == 2:
            was_noted.set()

    inputs = words("ab" * 2_500)
    session, _ = session_of(inputs=inputs)
    session.step(5_000)
    over: Any = inputs if kind == "messages" else session
    config = CONFIG if kind == "messages" else None
    found = compare(Counter, Waiting, over, config=config, progress=progress)
    assert found.interrupted and found.processed[0] == found.processed[1] < 5_000
    session.stop()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_ends_the_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt = DroppedInterrupt()

    def interrupted(*of: Any) -> Iterator[tuple[int, list[Difference]]]:
        for done, found in differences_in_parts(*of):
            if done == 50:
                interrupt.press()
            yield done, found

    monkeypatch.setattr("streambench.debug.effects.differences._PART", 10)
    monkeypatch.setattr("streambench.debug.comparison.comparison.differences_in_parts", interrupted)
    found = compare(Counter, Doubling, words("ab" * 50), config=CONFIG)
    assert (found.interrupted, found.processed) == (True, (49, 49))


@pytest.mark.parametrize("kind", ["messages", "session"])
def test_an_interrupt_of_the_verdict_ends_it_with_what_was_compared(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*of: Any) -> Iterator[tuple[int, list[Difference]]]:
        for done, found in differences_in_parts(*of):
            yield done, found
            if done == 50:
                raise KeyboardInterrupt

    monkeypatch.setattr("streambench.debug.effects.differences._PART", 10)
    monkeypatch.setattr("streambench.debug.comparison.comparison.differences_in_parts", interrupted)
    inputs = words("ab" * 50)
    session, _ = session_of(inputs=inputs)
    session.step(100)
    over: Any = inputs if kind == "messages" else session
    config = CONFIG if kind == "messages" else None
    found = compare(Counter, Doubling, over, config=config)
    assert (found.interrupted, found.equal, found.processed) == (True, False, (49, 49))
    assert found.first is not None and found.first.position == 2
    assert (found.differing[-1].position, found.stores) == (48, {})
    assert {each.position for sides in found.outputs.values() for side in sides for each in side} == set(
        range(3, 50, 3)
    )
    assert comparison_lines(found, ("one", "other"))[0].startswith(
        "interrupted after 49 messages through one and other: "
    )
    same = compare(Counter, Counter, over, config=config)
    assert (same.interrupted, same.equal, same.processed) == (True, True, (49, 49))
    session.stop()


def test_a_comparison_from_a_condition_of_a_run_ends() -> None:
    found: list[Any] = []

    def compares() -> bool:
        if session.position >= 5 and not found:
            found.append(compare(Counter, Doubling, session))
        return bool(found)

    session, _ = session_of(inputs=words("ab" * 5))
    session.run(compares)
    assert session.wait(30)
    assert [each.processed for each in found] == [(5, 5)]
    session.stop()


def test_progress_that_fails_ends_a_comparison_first() -> None:
    has_failed = threading.Event()

    class Waiting(Doubling):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if self.seen == 1_000:
                has_failed.wait()

    def fail(done: int, total: int) -> None:
        has_failed.set()
        raise OSError("the display is gone")

    session, _ = session_of(inputs=words("ab" * 2_500))
    session.step(5_000)
    with pytest.raises(OSError, match="the display is gone"):
        compare(Counter, Waiting, session, progress=fail)
    assert session.snapshot_now(0) is not None  # without waiting: no thread has it
    session.stop()


class Every(Counter):
    """Sends each so many-th message; ``init`` says how many."""

    every = 3

    def init(self, context: Any) -> None:
        super().init(context)
        self.each = self.every

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen += 1
        if self.seen % self.each == 0:
            collector.send("mem.out", self.seen)


class EveryOther(Every):
    every = 2


@pytest.mark.parametrize("recorded", [False, True])
def test_both_versions_begin_with_their_own_attributes_or_those_there(tmp_path: Path, recorded: bool) -> None:
    session, _ = session_of(inputs=words("aaaaaaa"))
    session.step(4)
    session.commit()
    session.record(tmp_path / "run.recording")
    session.step(3)
    session.stop()

    def sent(a: Any, b: Any, **options: Any) -> list[list[Any]]:
        found = (
            compare(a, b, tmp_path / "run.recording", **options)
            if recorded
            else compare(a, b, session, last=3, **options)
        )
        return [[each.message for each in side] for side in found.outputs.get("mem.out", ([], []))]

    assert sent(Every, EveryOther) == [[3], [2]]
    # Both have seen four messages, and ``each``, which the job had not, of their own init.
    assert sent(Every, EveryOther, attributes=True) == [[6], [6]]
    assert sent(EveryOther, Every, attributes=True) == [[6], [6]]


def test_a_recording_is_compared_with_its_state_and_order(tmp_path: Path) -> None:
    bench = Bench(Counter, messages(20), STORE, observed=False)
    session = Session(bench.container)
    session.start()
    session.step(5)
    session.commit()
    session.record(tmp_path / "run.recording")
    session.run("caught-up")
    session.wait()
    session.stop()
    path = tmp_path / "run.recording"
    assert compare(Counter, Counter, path).equal
    found = compare(Counter, Doubling, path, attributes=True)
    assert not found.equal and found.differing
    with_state = found.outputs["mem.out"][0]
    assert [each.message for each in with_state] == [
        each.message for each in session.outputs() if each.position > 5
    ]


@pytest.fixture
def log(tmp_path: Path) -> dict[str, Any]:
    """The configuration of a log with ``log.in``: six messages in two partitions."""
    config = {**LOG, "systems.log.path": str(tmp_path / "log")}

    def write(systems: Any) -> None:
        stream = sb.SystemStream("log", "in")
        systems.create(stream, 2)
        with writing(systems, stream, 2, "test") as writer:
            writer.send(
                sb.OutgoingMessageEnvelope(stream, b'{"key": "%c"}' % b"abcabc"[at], partition=at % 2)
                for at in range(6)
            )

    with_systems(sb.Config(config), write)
    return config


def test_a_stream_or_a_range_of_it_is_read_and_left_as_it_is(log: dict[str, Any], tmp_path: Path) -> None:
    files = sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*"))
    found = compare(Counter, Doubling, "log.in", config=log)
    assert found.processed == (6, 6) and len(found.differing) == 2
    assert found.message is not None and found.message.message == {"key": "b"}
    part = compare(Counter, Doubling, "log.in.1@1..2", config=log)
    assert part.processed == (2, 2)
    assert part.message is None and part.equal
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*")) == files


def test_a_stream_needs_a_configuration_and_messages() -> None:
    with pytest.raises(ConfigError, match="Give the configuration of its system"):
        compare(Counter, Counter, "log.in")
    with pytest.raises(StreambenchError, match="no messages to compare over"):
        compare(Counter, Counter, [], config=CONFIG)
    with pytest.raises(ConfigError, match="nothing to compare with None"):
        compare(Counter, None, [1])
    with pytest.raises(ConfigError, match="which task"):
        compare({}, {}, [1])


@pytest.mark.parametrize("seed", range(100 if SOAK else 6))
def test_a_comparison_shows_what_two_real_jobs_leave(seed: int) -> None:
    chance = random.Random(seed)
    a, b = chance.sample([Quiet, Doubling, Renaming], 2)
    inputs = messages(12, seed)
    found = compare(a, b, inputs, config=CONFIG)
    ends = []
    for task in (a, b):
        session = Session(Bench(task, inputs, STORE, observed=False).container)
        session.start()
        session.run("caught-up")
        session.wait()
        ends.append((session.stores(), sorted(str(each.message) for each in session.outputs())))
        session.abandon()
    (stores, sent), (others, also_sent) = ends
    outputs = found.outputs.get("mem.out", ((), ()))
    assert [sorted(str(each.message) for each in of_one) for of_one in outputs] == [sent, also_sent]
    for task_name, of_task in stores.items():
        for key in {**of_task["n"], **others[task_name]["n"]}:
            pair = of_task["n"].get(key), others[task_name]["n"].get(key)
            shown = found.stores.get(task_name, {}).get("n", {}).get(key)
            assert shown == (pair if pair[0] != pair[1] else None)
