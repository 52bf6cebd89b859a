"""Exchanging the code of a session's task, live and in the past, and adopting what it did there."""

from __future__ import annotations

import random
import threading
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.debug.control.session import Session
from streambench.errors import ConfigError, ContainerStateError, SerdeError, TaskError
from tests.debug.control.test_time_travel import Counter, messages, session_of, shown

EXACTLY_ONCE = {"task.processing.guarantee": "exactly-once", "task.checkpoint.system": "mem"}
JSON = {"systems.mem.streams.json.samza.msg.serde": "json"}


class Doubling(Counter):
    """Counts each message of the key b twice."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if envelope.message["key"] == "b":
            self.store.put("b", (self.store.get("b") or 0) + 1)
        super().process(envelope, collector, coordinator)


class Failing(Counter):
    """Fails at its fourth message."""

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        if self.seen == 3:
            raise ValueError("the fourth")
        super().process(envelope, collector, coordinator)


def words(text: str) -> dict[str, Any]:
    return {"mem.in": {0: [{"key": key} for key in text]}}


def stored(session: Session) -> dict[str, int]:
    ((_, stores),) = session.stores().items()
    return stores["n"]


def test_swapped_code_goes_on_with_state_and_attributes() -> None:
    session, _ = session_of(inputs=words("abab"))
    session.step(2)
    swap = session.swap(Doubling)
    assert (swap.position, swap.replayed, swap.changed) == (2, 0, ())
    session.step(2)
    assert stored(session) == {"a": 2, "b": 3}
    assert session.attributes()[session.container.tasks[0].name]["seen"] == 4
    session.stop()


def test_a_swap_with_init_makes_attributes_anew_and_undo_brings_them_back() -> None:
    session, _ = session_of(inputs=words("ababab"))
    session.step(2)
    session.swap(Doubling, init=True)
    session.step(2)
    assert session.attributes()[session.container.tasks[0].name]["seen"] == 2
    assert session.undo()
    assert session.attributes()[session.container.tasks[0].name]["seen"] == 2
    assert type(session.container.tasks[0].task) is Counter
    session.step(2)
    assert stored(session) == {"a": 3, "b": 4}
    assert not session.undo()
    session.stop()


def test_code_that_cannot_be_used_is_refused_and_changes_nothing() -> None:
    class Wrong:
        def process(self, envelope: Any) -> None: ...

    class Broken(Counter):
        def init(self, context: sb.TaskContext) -> None:
            raise ValueError("no")

    session, _ = session_of(inputs=words("ab"))
    session.step(1)
    with pytest.raises(ConfigError, match="process"):
        session.swap(Wrong)
    with pytest.raises(TaskError, match="no"):
        session.swap(Broken, init=True)
    assert type(session.container.tasks[0].task) is Counter
    session.step(1)
    assert stored(session) == {"a": 1, "b": 1}
    session.stop()


class WithoutWindow(sb.StreamTask):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None: ...


def test_code_without_a_window_replaces_code_with_one() -> None:
    session, bench = session_of(inputs=words("abcd"), config={"task.window.ms": 10})
    session.step(1)
    session.swap(WithoutWindow)
    bench.clock.advance(20)
    assert session.step(2) == 2
    session.undo()
    bench.clock.advance(20)
    session.step(1)
    assert stored(session)["windows"] == 1
    session.stop()


def test_a_window_that_the_code_of_before_had_not_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    session, _ = session_of(WithoutWindow, words("ab"))
    session.step(1)
    session.swap(Counter, init=True)
    assert any("window() of the new code" in each for each in caplog.messages)
    session.step(1)
    session.stop()


def test_a_window_of_an_adopted_branch_is_announced(caplog: pytest.LogCaptureFixture) -> None:
    session, _ = session_of(WithoutWindow, words("aba"), EXACTLY_ONCE)
    session.step(3)
    session.goto(1)
    session.swap(Counter, init=True)
    session.adopt()
    assert len([each for each in caplog.messages if "window() of the new code" in each]) == 1
    session.stop()


def test_outputs_that_an_adopted_branch_replaces_are_not_counted_as_sent() -> None:
    session, bench = session_of(inputs=words("bbbbbb"), config=EXACTLY_ONCE)
    session.step(6)
    session.goto(2)
    session.swap(Doubling)
    session.adopt()
    assert session.snapshot().counts["producers.sends"] == 2
    session.stop()
    assert len(bench.outputs()) == 2


def test_replay_says_what_the_new_code_does_differently() -> None:
    session, _ = session_of(inputs=words("abcab"))
    session.step(5)
    swap = session.swap(Doubling, replay=4)
    assert (swap.replayed, swap.alike) == (4, 2)
    assert [str(each) for each in swap.changed] == ["2: n[b] 1 -> 2", "5: n[b] 2 -> 4"]
    assert swap.first is not None and (swap.first.offset, swap.first.what) == ("1", "state")
    session.stop()


def test_replay_ends_at_a_failure_of_the_new_code() -> None:
    session, _ = session_of(inputs=words("aaaaa"))
    session.step(5)
    swap = session.swap(Failing, replay=500)
    assert (swap.replayed, swap.alike) == (4, 3)
    assert swap.first is not None and swap.first.what == "error"
    assert "the fourth" in str(swap.first)
    session.stop()


def test_positions_before_a_swap_have_the_code_of_then() -> None:
    session, _ = session_of(inputs=words("bbbb"))
    session.step(2)
    session.swap(Doubling)
    session.step(2)
    seen = {}
    for position in (1, 3, 2, 4, 0):
        session.goto(position)
        seen[position] = stored(session).get("b", 0)
    assert seen == {0: 0, 1: 1, 2: 2, 3: 4, 4: 6}
    session.stop()


def test_a_branch_holds_its_outputs_back_and_is_dropped_by_going_live() -> None:
    session, bench = session_of(inputs=words("bbbbbb"), config={"task.commit.ms": -1})
    session.step(6)
    before, outputs = shown(session), bench.outputs()
    session.goto(2)
    session.swap(Doubling)
    assert session.branched
    assert session.step(3) == 3
    assert (session.position, stored(session)) == (5, {"b": 8})
    assert [(each.position, each.held) for each in session.outputs()] == [(3, True)]
    assert session.step(9) == 1
    assert session.step() == 0
    assert not session.live
    assert bench.outputs() == outputs
    session.go_live()
    assert shown(session) == before
    session.stop()


def test_a_branch_that_fails_stands_before_its_message() -> None:
    session, _ = session_of(inputs=words("abcde"))
    session.step(5)
    session.goto(1)
    session.swap(Failing)
    with pytest.raises(TaskError, match="the fourth"):
        session.step(4)
    assert (session.position, session.state) == (3, "paused")
    assert stored(session) == {"a": 1, "b": 1, "c": 1}
    session.swap(Counter)
    assert session.step(2) == 2
    session.go_live()
    session.stop()


def test_undo_in_a_branch_takes_its_code_back() -> None:
    session, _ = session_of(inputs=words("bbbb"))
    session.step(4)
    session.goto(2)
    session.swap(Doubling)
    session.step(1)
    assert stored(session) == {"b": 4}
    assert session.undo()
    assert (stored(session), session.branched) == ({"b": 3}, False)
    session.go_live()
    session.stop()


def test_an_adopted_branch_is_the_truth() -> None:
    session, bench = session_of(inputs=words("bbbbbb"), config=EXACTLY_ONCE)
    session.step(5)
    session.goto(2)
    session.swap(Doubling)
    assert session.adopt() == 5
    assert session.live and stored(session) == {"b": 8}
    session.run("caught-up")
    session.wait()
    session.stop()
    assert bench.outputs() == [{"key": "b", "seen": 3}, {"key": "b", "seen": 6}]
    assert bench.committed() == {"mem.in.0": "5"}


def test_adopting_keeps_the_history_up_to_and_of_the_branch() -> None:
    session, _ = session_of(inputs=words("bbbbbb"), config=EXACTLY_ONCE)
    session.step(5)
    session.goto(2)
    session.swap(Doubling)
    session.step()
    session.swap(Counter)
    session.adopt()
    assert [(each.position, each.before, each.after) for each in session.changes("n", "b")] == [
        (1, None, 1), (2, 1, 2), (3, 2, 3), (3, 3, 4), (4, 4, 5), (5, 5, 6),
    ]  # fmt: skip
    assert [each.after for each in session.last.changes] == [6]
    session.step()
    found = []
    for position in range(7):
        session.goto(position)
        number = session.attributes()[session.container.tasks[0].name]["seen"]
        found.append((session.position, stored(session).get("b"), number))
    assert found == [(0, None, 0), (1, 1, 1), (2, 2, 2), (3, 4, 3), (4, 5, 4), (5, 6, 5), (6, 7, 6)]
    session.goto(3)
    session.swap(Doubling)
    session.adopt()
    assert stored(session) == {"b": 10}
    session.stop()


@pytest.mark.parametrize("seed", range(4))
def test_an_adopted_branch_is_as_if_the_code_had_been_exchanged_then(seed: int) -> None:
    chance = random.Random(seed)
    inputs = messages(12, seed)

    class Quiet(Counter):
        commits_after = 1_000

    class QuietDoubling(Doubling):
        commits_after = 1_000

    session, bench = session_of(Quiet, inputs, EXACTLY_ONCE)
    other, plain = session_of(Quiet, inputs, EXACTLY_ONCE)
    count = session.step(100)
    other.step(at := chance.randrange(count + 1))
    other.swap(QuietDoubling)
    other.step(100)
    session.goto(at)
    session.swap(QuietDoubling)
    if not session.live:
        session.step(chance.randrange(5))
        session.adopt()
    assert session.stores() == other.stores()
    assert session.offsets() == other.offsets()
    mine, its = shown(session)[1], shown(other)[1]
    assert mine == its
    session.stop()
    other.stop()
    assert bench.outputs() == plain.outputs()


def test_a_branch_is_not_adopted_where_outputs_are_out() -> None:
    session, _ = session_of(inputs=words("bbbb"))
    session.step(4)
    session.goto(1)
    session.swap(Doubling)
    with pytest.raises(ContainerStateError, match=r"out already: 1, the first to mem.out at 3"):
        session.adopt()
    assert session.branched
    session.go_live()
    session.stop()


def test_a_branch_from_before_the_commit_is_not_adopted() -> None:
    session, _ = session_of(inputs=words("bb"))
    session.step(2)
    session.commit()
    session.goto(1)
    session.swap(Doubling)
    with pytest.raises(ContainerStateError, match="before the commit at 2"):
        session.adopt()
    session.stop()


def test_what_is_adopted_survives_a_stop_on_disk(tmp_path: Path) -> None:
    config = {
        "job.name": "job",
        "task.inputs": "log.in",
        "task.commit.ms": -1,
        "systems.log.samza.factory": "log",
        "systems.log.path": tmp_path,
        "systems.log.samza.offset.default": "oldest",
        "stores.n.factory": "rocksdb",
        "stores.n.key.serde": "string",
        "stores.n.msg.serde": "json",
    }
    from streambench.container.outputs.direct_writer import writing
    from streambench.system.systems import Systems

    stream = sb.SystemStream("log", "in")
    systems = Systems(sb.Config(config))
    systems.create(stream, 1)
    with writing(systems, stream, 1, "test") as writer:
        writer.send(sb.OutgoingMessageEnvelope(stream, b"x") for _ in range(6))
    systems.close()

    class Adding(sb.StreamTask):
        by = 1

        def init(self, context: sb.TaskContext) -> None:
            self.store = context.store("n")

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.store.put("n", (self.store.get("n") or 0) + self.by)

    class Tens(Adding):
        by = 10

    session = Session(sb.Container(sb.Config(config), Adding))
    session.start()
    session.step(5)
    session.goto(2)
    session.swap(Tens)
    session.adopt()
    session.commit()
    session.abandon()
    again = Session(sb.Container(sb.Config(config), Tens))
    again.start()
    assert stored(again) == {"n": 32}
    again.step()
    assert stored(again) == {"n": 42}
    again.stop()


class Numbering(sb.StreamTask):
    """Sends a number with each message, and one with each window."""

    def init(self, context: sb.TaskContext) -> None:
        self.number = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.number += 1
        collector.send("mem.out", self.number)

    def window(self, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", "window")


class NumberingAgain(Numbering):
    pass


def test_adopting_keeps_outputs_of_windows_behind_the_commit() -> None:
    config = {**EXACTLY_ONCE, "task.window.ms": 100, "task.commit.ms": -1}
    session, bench = session_of(Numbering, words("a"), config)
    session.step()
    session.commit()
    bench.clock.advance(200)
    session.run("caught-up")
    session.wait()
    assert [each.held for each in session.outputs()] == [False, True]
    bench.put("mem.in.0", {"key": "b"}, {"key": "c"})
    session.step(2)
    session.back()
    session.swap(NumberingAgain)
    session.adopt()
    session.stop()
    assert bench.outputs() == [1, "window", 2, 3]


@pytest.mark.usefixtures("one_block")
def test_adopting_keeps_outputs_of_positions_that_were_dropped() -> None:
    session, bench = session_of(Numbering, words("a" * 12), {**EXACTLY_ONCE, "task.commit.ms": -1})
    session.step(10)
    history = session.history
    assert history is not None
    history.limit = 1
    history.cut()
    session.step(2)
    assert history.oldest == 10
    session.back()
    session.swap(NumberingAgain)
    session.adopt()
    session.stop()
    assert bench.outputs() == [*range(1, 13)]


def test_adopted_batches_of_outputs_are_sent_message_by_message() -> None:
    class Sending(sb.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            collector.send_batch(sb.SystemStream("mem", "out"), [1, 2])

    class SendingAgain(Sending):
        pass

    session, bench = session_of(Sending, words("aa"), {**EXACTLY_ONCE, "task.commit.ms": -1})
    session.step(2)
    session.back()
    session.swap(SendingAgain)
    session.adopt()
    session.stop()
    assert bench.outputs() == [1, 2, 1, 2]


class Unsendable(Numbering):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        collector.send("mem.out", threading.Lock())


class Wrong(Numbering):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        collector.send("mem.json", {1, 2})
        collector.send("mem.json", {"seen": 1})


class Encoded(Numbering):
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        collector.send("mem.json", b"[1]")


# The system itself refuses a lock.
@pytest.mark.parametrize("task", [Unsendable, Wrong, Encoded])
def test_adopting_what_cannot_be_sent_fails_with_nothing_changed(task: type[Numbering]) -> None:
    config = {**EXACTLY_ONCE, **JSON, "task.commit.ms": -1}
    session, bench = session_of(Numbering, words("aaa"), config)
    session.step(3)
    session.back()
    session.swap(task)
    with pytest.raises(SerdeError, match="cannot be sent"):
        session.adopt()
    assert session.state == "paused"
    assert (session.position, [each.message for each in session.outputs()]) == (2, [1, 2])
    session.go_live()
    session.container.abandon()
    session.stop()
    assert bench.outputs() == []
    assert bench.committed() == {}


def test_dead_letters_of_what_is_adopted_are_sent() -> None:
    config = {**EXACTLY_ONCE, "task.commit.ms": -1, "task.dead.letter.stream": "mem.dead"}
    session, bench = session_of(Unsendable, words("aaa"), config)
    session.step(3)
    session.back()
    session.swap(Unsendable)
    session.step()
    session.swap(Numbering)
    session.adopt()
    bench.put("mem.in.0", {"key": "b"})
    session.step()
    shown = [(each.position, each.stream) for each in session.outputs()]
    alone = [(1, "mem.out"), (1, "mem.dead"), (2, "mem.out"), (2, "mem.dead"), (3, "mem.out")]
    assert shown == [*alone, (3, "mem.dead"), (4, "mem.out")]
    assert [[each.stream for each in of.outputs] for of in session.effects(2)] == [
        ["mem.out", "mem.dead"], ["mem.out"],
    ]  # fmt: skip
    session.stop()
    assert bench.outputs() == [1, 2, 3, 4]
    dead = bench.streams.partition(sb.SystemStream("mem", "dead"), 0)
    assert len(dead) == 3


@pytest.mark.parametrize("guarantee", [{}, EXACTLY_ONCE])
@pytest.mark.parametrize(
    ("fate", "dead"),
    [
        ({"task.dead.letter.stream": "mem.dead"}, ["mem.dead"]),
        ({"task.drop.serialization.errors": "true"}, []),
    ],
)
def test_an_output_that_is_refused_is_its_dead_letter_or_nothing(
    guarantee: dict[str, Any], fate: dict[str, Any], dead: list[str]
) -> None:
    config = {**JSON, "task.commit.ms": -1}
    session, _ = session_of(Wrong, words("aa"), {**config, **fate, **guarantee})
    session.step(2)
    sent = ["mem.out", "mem.json", *dead] * 2
    assert [each.stream for each in session.outputs()] == sent
    assert session.swap(Wrong, replay=2).changed == ()
    crash = session.crash()
    assert (crash.outputs_new, crash.outputs_lost) == ((), ())
    twice = [] if guarantee else sent
    assert sorted(each.stream for each in crash.outputs_twice) == sorted(twice)
    for step in session.crash_everywhere().unsafe:
        assert step.twice == {stream: step.position for stream in sent}
    assert session.crash_everywhere().safe == (2 if guarantee else 0)
    session.stop()


def test_undo_after_adopting_brings_back_the_code_of_before() -> None:
    session, _ = session_of(inputs=words("aa"))
    session.step()
    session.swap(Doubling)
    session.step()
    session.goto(1)
    session.swap(Failing)
    session.adopt()
    assert session.container.factory is Failing
    assert session.undo() and session.container.factory is Doubling
    assert session.undo() and session.container.factory is Counter
    session.stop()


def test_a_branch_that_fails_on_its_way_forward_stays_where_it_was() -> None:
    session, _ = session_of(inputs=words("bbbbbb"))
    session.step(6)
    session.goto(1)
    session.swap(Failing)
    with pytest.raises(TaskError, match="the fourth"):
        session.forward(5)
    assert session.position == 1 and stored(session) == {"b": 1}
    session.stop()


def test_a_swap_whose_init_fails_takes_its_writes_to_stores_back() -> None:
    class Writing(Counter):
        def init(self, context: sb.TaskContext) -> None:
            context.store("n").put("x", 99)
            raise ValueError("no")

    session, _ = session_of(inputs=words("aa"))
    session.step()
    with pytest.raises(TaskError, match="no"):
        session.swap(Writing, init=True)
    assert stored(session) == {"a": 1}
    session.stop()


class Silent(sb.StreamTask):
    """Counts, and sends nothing."""

    def init(self, context: sb.TaskContext) -> None:
        self.number = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.number += 1


def test_an_adopted_branch_may_send_to_a_stream_that_is_new() -> None:
    session, bench = session_of(Silent, words("aaaa"))
    session.step(3)
    session.goto(1)
    session.swap(Numbering)
    session.adopt()
    assert bench.outputs() == [2, 3]
    session.step()
    session.stop()
    assert bench.outputs() == [2, 3, 4]


def test_a_branch_that_asks_for_the_end_is_not_adopted() -> None:
    class Ending(Silent):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            if self.number == 3:
                coordinator.shutdown(sb.RequestScope.ALL_TASKS_IN_CONTAINER)

    session, _ = session_of(Silent, words("aaaaaa"))
    session.step(6)
    session.goto(1)
    session.swap(Ending)
    assert session.step(5) == 2
    with pytest.raises(ContainerStateError, match="the branch ends at 3"):
        session.adopt()
    session.go_live()
    assert session.attributes() == {"Partition 0": {"number": 6}}
    session.stop()
