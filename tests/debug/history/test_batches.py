"""The history of tasks with ``process_batch``: it has the batches of the run, and moves by whole ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.debug.control.session import Session
from streambench.debug.history.batches import Batches
from streambench.errors import TaskError
from streambench.recording.recording import Recording
from tests.container.jobs import Bench
from tests.debug.control.test_time_travel import STORE, session_of, shown
from tests.debug.test_random_walks import fill, on_disk

INPUTS = {"mem.in": {0: [{"key": key} for key in "abaabba"], 1: [{"key": key} for key in "cdc"]}}
CONFIG = {"task.batch.messages": 3}
ENDS = [3, 6, 9, 10]


class Counting(sb.StreamTask):
    """Counts by key in a store, keeps the sizes of its batches, and sends one output for each."""

    def init(self, context: sb.TaskContext) -> None:
        self.store, self.sizes = context.store("n"), list[int]()
        self.number = context.metrics.counter("seen")

    def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
        self.sizes.append(len(batch))
        for envelope in batch:
            key = envelope.message["key"]
            self.store.put(key, (self.store.get(key) or 0) + 1)
        collector.send("mem.out", [batch.first_offset, batch.last_offset])


class Failing(Counting):
    """Fails at the third message of the first partition, when all of its batch is counted."""

    def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
        super().process_batch(batch, collector, coordinator)
        if batch.ssp.partition == 0 and int(batch.first_offset) <= 4 <= int(batch.last_offset):
            raise ValueError("bad luck")


def ran(task: Any = Counting, config: dict[str, Any] = CONFIG, **options: Any) -> tuple[Session, Bench]:
    session, bench = session_of(task, INPUTS, config, **options)
    session.run("caught-up")
    session.wait()
    return session, bench


def test_a_history_changes_nothing_about_the_batches() -> None:
    (plain, _), (session, _) = ran(history=0), ran()
    assert session.attributes()["Partition 0"]["sizes"] == [3, 3, 1]
    assert [task.task.sizes for task in session.container.tasks] == [
        task.task.sizes for task in plain.container.tasks
    ]
    plain.stop()
    session.stop()


def test_each_end_of_a_batch_shows_what_it_showed_when_it_was_new() -> None:
    session, _ = session_of(Counting, INPUTS, CONFIG)
    seen = {0: shown(session)}
    while session.step(3):
        seen[session.position] = shown(session)
    assert list(seen) == [0, *ENDS]
    for position in (9, 0, 6, 3, 10):
        assert session.goto(position) == position
        assert shown(session) == seen[position]
    session.stop()


def test_moves_inside_of_a_batch_lead_to_its_edges() -> None:
    session, _ = ran()
    assert [session.goto(position) for position in range(11)] == [0, 3, 3, 3, 6, 6, 6, 9, 9, 9, 10]
    assert [session.back(), session.back(), session.back(), session.back()] == [9, 6, 3, 0]
    assert [session.forward(), session.forward(), session.forward(4), session.live] == [3, 6, 10, True]
    session.goto(5)
    assert (session.step(), session.position) == (3, 9)
    assert session.goto("mem.in.0@1") == 3
    session.go_live()
    assert session.back_until("store.get('a') == 2") == 3
    session.goto(9)
    assert session.diff(1, 8).before == 3
    session.stop()


def test_effects_of_a_batch_are_those_of_its_last_message() -> None:
    session, _ = ran()
    assert [each.position for each in session.outputs()] == ENDS
    found = [(each.position, each.offset, each.after) for each in session.changes("n", "a")]
    assert found == [(3, "2", 1), (3, "2", 2), (9, "5", 3), (10, "6", 4)]
    session.goto(6)
    assert session.last_message is not None and session.last_message.offset == "2"
    assert session.batch == 3
    assert [each.message for each in session.last.outputs] == [["0", "2"]]
    session.stop()


def test_a_step_hands_over_at_most_as_many_messages_as_were_asked_for() -> None:
    session, _ = session_of(Counting, INPUTS, CONFIG)
    assert [session.step(), session.step(2), session.step(4)] == [1, 2, 4]
    assert session.attributes()["Partition 0"]["sizes"] == [1, 3]
    session.stop()


def test_a_condition_on_messages_stops_in_the_past_before_their_batch() -> None:
    session, _ = ran()
    session.goto(0)
    session.break_on("message['key'] == 'd'")
    assert session.step(10) == 3
    assert session.stopped_at is not None and session.position == 3
    session.stop()


@pytest.mark.parametrize("condition", ["message['key'] == 'd'", "position > 100"])
def test_a_disabled_breakpoint_cuts_no_batches(condition: str) -> None:
    session, _ = session_of(Counting, INPUTS, CONFIG)
    made = session.break_on(condition)
    session.enable(made.id, False)
    session.run("caught-up")
    session.wait()
    assert [task.task.sizes for task in session.container.tasks] == [[3, 3, 1], [3]]
    session.stop()


def test_a_condition_on_positions_has_batches_of_one_message() -> None:
    session, _ = session_of(Counting, INPUTS, CONFIG)
    made = session.break_on("position == 2")
    session.run("caught-up")
    session.wait()
    assert (session.position, session.attributes()["Partition 0"]["sizes"]) == (2, [1])
    session.enable(made.id, False)
    session.run("caught-up")
    session.wait()
    assert session.attributes()["Partition 0"]["sizes"] == [1, 3, 3]
    session.stop()


def test_a_batch_that_failed_comes_again_as_a_whole() -> None:
    session, bench = session_of(Failing, INPUTS, CONFIG)
    with pytest.raises(TaskError, match="a run of 3 messages"):
        session.run("caught-up")
        session.wait()
    assert (session.position, session.can_resume) == (6, True)
    assert session.stores()["Partition 0"] == {"n": {"a": 2, "b": 1}}
    session.back()
    session.go_live()
    session.swap(Counting)
    assert session.step() == 3
    session.run("caught-up")
    session.wait()
    plain, other = ran(history=0)
    assert [task.task.sizes for task in session.container.tasks] == [
        task.task.sizes for task in plain.container.tasks
    ]
    session.stop()
    plain.stop()
    assert (bench.outputs(), bench.committed()) == (other.outputs(), other.committed())


def test_a_capture_holds_the_whole_batch_that_failed(tmp_path: Path) -> None:
    session, _ = session_of(Failing, INPUTS, {**CONFIG, "task.capture.path": tmp_path})
    with pytest.raises(TaskError, match="a run of 3 messages"):
        session.run("caught-up")
        session.wait()
    session.stop()
    [capture] = (each for each in tmp_path.rglob("*") if each.is_file())
    recording = Recording.read(capture)
    assert [each.offset for each in recording.messages[6:]] == ["3", "4", "5"]


def test_a_branch_of_other_code_gets_the_same_batches() -> None:
    class Sizes(Counting):
        def process_batch(self, batch: Any, collector: Any, coordinator: Any) -> None:
            collector.send("mem.out", len(batch))

    session, bench = ran(config={**CONFIG, "task.processing.guarantee": "exactly-once"})
    session.goto(3)
    swap = session.swap(Sizes, replay=2)
    assert (swap.replayed, len(swap.changed)) == (3, 1)
    session.step(10)
    assert [each.message for each in session.outputs(since=3)] == [3, 3, 1]
    session.adopt()
    session.stop()
    assert bench.outputs()[1:] == [3, 3, 1]


def test_a_crash_between_batches_brings_whole_batches_again() -> None:
    session, _ = ran()
    session.goto(6)
    crash = session.crash()
    assert (len(crash.again), [each.position for each in crash.outputs_twice]) == (6, [3, 6])
    assert crash.differs == {}
    report = session.crash_everywhere()
    assert [each.position for each in report.unsafe] == ENDS
    session.stop()


def test_batches_beside_single_messages_have_edges() -> None:
    batches = Batches([(5, 3), (9, 2)])
    assert [batches.edges(position) for position in range(1, 11)] == [
        (0, 1), (1, 2), (2, 5), (2, 5), (2, 5), (5, 6), (6, 7), (7, 9), (7, 9), (9, 10),
    ]  # fmt: skip
    assert (len(batches), batches.longest, batches.count(4), batches.count(6)) == (2, 3, 3, 1)


def test_ten_thousand_messages_in_one_batch_are_one_step_back() -> None:
    inputs = {"mem.in": {0: [{"key": str(number % 7)} for number in range(12_000)]}}
    session, _ = session_of(Counting, inputs, {**STORE, "task.batch.messages": 10_000})
    session.run("caught-up")
    session.wait()
    sizes = session.attributes()["Partition 0"]["sizes"]
    assert sum(sizes) == 12_000 and max(sizes) > 1_000
    assert session.back() == 12_000 - sizes[-1]
    assert session.attributes()["Partition 0"]["sizes"] == sizes[:-1]
    session.stop()


def test_batches_of_a_log_are_repeated_as_they_were_read(tmp_path: Path) -> None:
    config = on_disk(tmp_path).with_values({"task.batch.messages": 4})
    fill(config)
    session = Session(sb.Container(config, Counting))
    session.start()
    session.run("caught-up")
    session.wait()
    assert session.attributes()["Partition 0"]["sizes"] == [4, 4, 2]
    seen = session.stores()
    assert [session.back() for _ in range(6)] == [18, 16, 12, 8, 4, 0]
    assert session.stores() == {"Partition 0": {"n": {}}, "Partition 1": {"n": {}}}
    assert session.forward(20) == 20 and session.stores() == seen
    session.goto(8)
    assert session.crash().differs == {}
    session.stop()


def test_dead_letters_of_a_batch_belong_to_it() -> None:
    config = {
        "task.dead.letter.stream": "mem.dead",
        "systems.mem.streams.dead.samza.msg.serde": "",
        "systems.mem.samza.msg.serde": "json",
        "task.batch.messages": 2,
    }
    inputs = {"mem.in": {0: [b'{"key":"a"}', b"{", b'{"key":"b"}', b'{"key":"c"}', b'{"key":"a"}', b"["]}}
    session, _ = session_of(Counting, inputs, config)
    seen = {0: shown(session)}
    while session.step(2):
        seen[session.position] = shown(session)
    dead = [(each.position, each.message) for each in session.outputs() if each.stream == "mem.dead"]
    assert dead == [(2, b"{"), (6, b"[")]
    for position in (4, 2, 0, 6):
        session.goto(position)
        assert shown(session) == seen[position]
    session.stop()
