"""Going back in the history of a session, and forward again."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.container.observer import ContainerObserver
from streambench.container.outputs.direct_writer import writing
from streambench.debug.control.session import Session
from streambench.debug.past.past import Past
from streambench.debug.stopping.conditions import ConditionError
from streambench.errors import ContainerStateError
from streambench.model import SystemStreamPartition
from streambench.testing import ManualClock
from tests.container.jobs import Bench, send
from tests.container.stateful import with_systems

STORE = {"stores.n.factory": "memory", "stores.n.msg.serde": "json", "stores.n.key.serde": "string"}


class Counter(sb.StreamTask):
    """Counts by key: in a store, in attributes, and in what it sends. It changes the messages it gets."""

    commits_after = 7

    def init(self, context: sb.TaskContext) -> None:
        self.context = context
        self.store = context.store("n")
        self.seen = self.total = 0
        self.keys: dict[str, int] = {}
        self.also = self.keys
        self.number = context.metrics.counter("seen")
        context.metrics.gauge("keys", source=lambda keys=self.keys: len(keys))  # type: ignore[misc]
        context.user.windows = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen += 1
        self.number.inc()
        key = envelope.message["key"]
        envelope.message["key"] = "changed"
        self.total += self.store.get(key) or 0
        self.also[key] = self.also.get(key, 0) + 1
        if key == "gone":
            for each, _ in list(self.store.all()):
                self.store.delete(each)
        else:
            self.store.put(key, (self.store.get(key) or 0) + 1)
        if self.seen % 3 == 0:
            collector.send("mem.out", {"key": key, "seen": self.seen}, key=key)
        if self.seen % self.commits_after == 0:
            coordinator.commit()

    def window(self, collector: Any, coordinator: Any) -> None:
        self.context.user.windows += 1
        self.store.put("windows", self.context.user.windows)
        collector.send("mem.out", {"window": self.context.user.windows}, key="w")


def messages(count: int, seed: int = 0) -> dict[str, dict[int, list[Any]]]:
    chance = random.Random(seed)
    names = ["a", "b", "c", "d", "gone"]
    return {
        "mem.in": {
            number: [{"key": chance.choice(names)} for _ in range(chance.randrange(count))]
            for number in range(3)
        }
    }


def session_of(
    task: Any = Counter, inputs: Any = None, config: dict[str, Any] | None = None, **options: Any
) -> tuple[Session, Bench]:
    given = messages(20) if inputs is None else inputs
    bench = Bench(task, given, {**STORE, **(config or {})}, observed=False, remember_choices=10)
    session = Session(bench.container, **options)
    session.start()
    return session, bench


def shown(session: Session) -> tuple[Any, ...]:
    """Everything that a position shows."""
    attributes = session.attributes()
    for of_task in attributes.values():
        of_task["number"] = of_task["number"].count
    outputs = [
        (each.position, each.stream, each.partition, each.key, each.message, each.callback)
        for each in session.outputs()
    ]
    return session.stores(), attributes, session.offsets(), outputs


def shown_with_metrics(session: Session) -> tuple[Any, ...]:
    """The same with metrics, which a replay counts from its begin on."""
    return *shown(session), kept_metrics(session)


def kept_metrics(session: Session) -> dict[str, float]:
    """The metrics that a position in the past has, also where the session is at the newest one."""
    tasks = session.offsets()
    of_container = re.compile(r"container\.(process(ed|-envelopes|-calls)|skipped-.*)|.*-messages-chosen")
    return {
        name: value
        for name, value in session.metrics().items()
        if of_container.fullmatch(name) or (name.split(".")[0] in tasks and "commit-calls" not in name)
    }


def walk(session: Session, seen: dict[int, Any], seed: int, steps: int = 30) -> None:
    """Go to and fro, and compare each position with how it was."""
    chance = random.Random(seed)
    for _ in range(steps):
        move = chance.choice(["back", "forward", "goto", "step", "live"])
        before = session.position
        if move == "back":
            n = chance.randrange(1, 5)
            assert session.back(n) == max(0, before - n)
        elif move == "forward":
            session.forward(chance.randrange(1, 5))
        elif move == "goto":
            assert session.goto(target := chance.randrange(session.latest + 1)) == target
        elif move == "step" and not session.live:
            assert session.step(1) == 1
            assert session.position == before + 1
        elif move == "live":
            session.go_live()
        assert session.live == (session.position == session.latest)
        assert shown(session) == seen[session.position]


@pytest.mark.parametrize("seed", range(6))
def test_a_position_shows_what_it_showed_when_it_was_new(seed: int) -> None:
    chance = random.Random(seed)
    config = {
        "task.window.ms": 10,
        "task.processing.guarantee": chance.choice(["at-least-once", "exactly-once"]),
        "task.consumer.batch.size": chance.choice([1, 3]),
        "task.checkpoint.system": "mem",
    }
    session, bench = session_of(inputs=messages(25, seed), config=config)
    seen = {0: shown(session)}
    while session.step(1):
        if chance.random() < 0.3:
            bench.clock.advance(chance.randrange(20))
        seen[session.position] = shown(session)
    seen[session.position] = shown(session)  # a window may have been due without a message
    committed = bench.committed()
    walk(session, seen, seed)
    assert bench.committed() == committed
    session.go_live()
    session.stop()


@pytest.mark.parametrize("seed", range(3))
def test_a_run_at_full_speed_can_be_gone_back_in(seed: int) -> None:
    inputs = messages(400, seed)
    stepped, _ = session_of(inputs=inputs)
    seen = {0: shown(stepped)}
    while stepped.step(1):
        seen[stepped.position] = shown(stepped)
    session, _ = session_of(inputs=inputs)
    session.run("caught-up")
    session.wait()
    assert session.position == stepped.position
    walk(session, seen, seed, steps=15)
    session.stop()
    stepped.stop()


def test_what_is_processed_after_the_past_is_as_if_it_had_not_been() -> None:
    session, bench = session_of()
    session.step(10)
    session.back(7)
    session.go_live()
    session.run("caught-up")
    session.wait()
    session.stop()
    plain, other = session_of(history=0)
    plain.run("caught-up")
    plain.wait()
    plain.stop()
    assert bench.outputs() == other.outputs()
    assert bench.committed() == other.committed()


def test_a_session_without_a_history_says_so() -> None:
    session, _ = session_of(history=0)
    session.step(2)
    with pytest.raises(ContainerStateError, match="history=0"):
        session.back()
    session.stop()


def test_it_goes_to_a_message_by_its_partition_and_offset() -> None:
    session, _ = session_of(inputs={"mem.in": {0: [{"key": "a"}] * 4, 1: [{"key": "b"}] * 4}})
    session.step(8)
    assert session.goto(SystemStreamPartition("mem", "in", 1), "2") == 6
    message = session.message
    assert message is not None and (message.ssp.partition, message.offset) == (1, "2")
    assert session.goto("mem.in.0@0") == 1
    with pytest.raises(ContainerStateError, match=r"mem.in.0@9 is not in the history"):
        session.goto("mem.in.0@9")
    session.stop()


def test_it_goes_back_until_a_condition_held() -> None:
    session, _ = session_of(inputs={"mem.in": {0: [{"key": key} for key in "abcabcabc"]}})
    session.step(9)
    assert session.back_until("store['a'] == 2") == 6
    assert session.back_until(lambda moment: moment.store.get("b") is None) == 1
    assert session.back_until("store['a'] == 7") == 1
    assert session.go_live() == 9 and session.back_until("before == 1 and key == 'b'") == 5
    assert session.back_until("output.message['seen'] < 5") == 3
    assert session.back_until("after == 1") == 2
    assert session.forward_until("before == 2") == 7
    with pytest.raises(ConditionError, match="no position in the past has an error"):
        session.back_until("error")
    with pytest.raises(ConditionError, match="unknown name 'stor'"):
        session.back_until("stor['a']")
    session.stop()


def test_watches_and_steps_until_look_at_the_position_in_the_past() -> None:
    session, _ = session_of(inputs={"mem.in": {0: [{"key": key} for key in "abcabcabc"]}})
    session.step(9)
    session.watch("seen", "self.seen")
    session.watch("a", "store.get('a')")
    session.goto(2)
    assert session.watches() == {"seen": 2, "a": 1}
    assert session.step(9, until="message['key'] == 'a'") == 1
    assert (session.position, session.watches()) == (3, {"seen": 3, "a": 1})
    session.go_live()
    assert session.watches() == {"seen": 9, "a": 3}
    session.stop()


def test_changes_of_a_key_name_the_messages() -> None:
    session, _ = session_of(inputs={"mem.in": {0: [{"key": key} for key in "abab"]}})
    session.step(4)
    assert [(each.position, each.offset, each.before, each.after) for each in session.changes("n", "b")] == [
        (2, "1", None, 1),
        (4, "3", 1, 2),
    ]
    session.back()
    assert [each.position for each in session.changes("n", "b")] == [2]
    session.stop()


def test_the_cause_of_an_output_is_its_message_with_its_changes() -> None:
    session, _ = session_of(inputs={"mem.in": {0: [{"key": key} for key in "abc"]}})
    session.step(3)
    (output,) = session.outputs()
    cause = session.cause(output)
    assert (cause.position, cause.offset, cause.message) == (3, "2", {"key": "c"})
    assert [(each.store, each.key, each.before, each.after) for each in cause.changes] == [
        ("n", "c", None, 1)
    ]
    session.stop()


def test_the_cause_of_an_output_of_a_window_is_no_message() -> None:
    session, bench = session_of(inputs={"mem.in": {0: [{"key": "a"}]}}, config={"task.window.ms": "10"})
    session.step()
    bench.clock.advance(50)
    session.run("caught-up")
    session.wait()
    output = session.outputs()[-1]
    assert (output.message, output.position) == ({"window": 1}, 1)
    cause = session.cause(output)
    assert (cause.position, cause.ssp, cause.offset, cause.message) == (1, None, None, None)
    assert (cause.callback, cause.task) == ("window", "Partition 0")
    assert [each.key for each in cause.changes] == ["a", "windows"]
    session.goto(0)
    session.swap(Counter)
    session.step()
    (output,) = session.outputs()
    assert (output.message, session.cause(output).offset) == ({"window": 1}, None)
    session.go_live()
    session.stop()


class Ending(Counter):
    def end_of_stream(self, collector: Any, coordinator: Any) -> None:
        collector.send("mem.out", "the end")


def test_outputs_name_the_callback_that_sent_them_behind_a_message() -> None:
    inputs = {"mem.in": {0: [{"key": "a"}]}}
    bounded = {"systems.mem.streams.in.samza.bounded": "true"}
    config = {**bounded, "task.window.ms": "10", "task.window.at.end": "true", "task.commit.ms": -1}
    session, bench = session_of(Ending, inputs, config)
    session.step()
    bench.clock.advance(50)
    session.run("caught-up")
    session.wait()
    callbacks = [(each.message, each.callback) for each in session.outputs()]
    assert ({"window": 1}, "window") in callbacks and ("the end", "end_of_stream") in callbacks
    session.goto(0)
    session.swap(Ending)
    session.goto(1)
    branch = [(each.message, each.callback) for each in session.outputs()]
    assert branch == callbacks
    session.stop()


def test_two_positions_differ_by_what_happened_between_them() -> None:
    session, _ = session_of(inputs={"mem.in": {0: [{"key": key} for key in "abcd"]}})
    session.step(4)
    diff = session.diff(2, 4)
    task = session.container.tasks[0].name
    assert diff.stores == {task: {"n": {"c": (None, 1), "d": (None, 1)}}}
    assert diff.attributes[task]["seen"] == (2, 4)
    assert [each.position for each in diff.outputs] == [3]
    assert session.live
    session.stop()


def test_in_the_past_nothing_of_the_container_can_be_moved() -> None:
    session, _ = session_of()
    session.step(5)
    session.back()
    with pytest.raises(ContainerStateError, match="go_live"):
        session.commit()
    with pytest.raises(ContainerStateError, match="go_live"):
        session.run()
    session.stop()
    assert session.state == "stopped"


def test_attributes_that_cannot_be_copied_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    class Holding(Counter):
        def init(self, context: sb.TaskContext) -> None:
            super().init(context)
            self.lines: Iterator[int] = (each for each in range(3))

    session, _ = session_of(Holding, {"mem.in": {0: [{"key": "a"}] * 3, 1: [{"key": "b"}]}})
    session.step(2)
    assert session.history is not None
    assert list(session.history.uncopied()) == ["lines"]
    session.back()
    session.go_live()
    session.back()
    named = [each for each in caplog.messages if "cannot be copied: lines (" in each]
    assert len(named) == 1 and named[0].count("lines") == 1
    session.stop()


def test_the_history_is_bounded_and_says_how_far_it_reaches() -> None:
    texts = [{"key": "x" * 2_000 + str(number)} for number in range(2_000)]
    session, _ = session_of(inputs={"mem.in": {0: texts}}, history=1)
    while session.step(50):
        assert session.history is not None and session.history.size < 2_000_000
    assert session.history is not None and session.history.oldest > 0
    session.goto(session.history.oldest)
    with pytest.raises(ContainerStateError, match="1 MB hold no more"):
        session.goto(0)
    session.stop()


def test_entries_that_expire_are_those_of_the_position(tmp_path: Path) -> None:
    session, bench = session_of(
        inputs={"mem.in": {0: [{"key": key} for key in "abc"]}}, config={"stores.n.ttl.ms": 100}
    )
    seen = []
    while session.step(1):
        seen.append(session.stores())
        bench.clock.advance(60)
    session.goto(2)
    assert session.stores() == seen[1]
    session.goto(1)
    assert session.stores() == seen[0]
    session.stop()


def test_stores_on_disk_are_shown_as_they_were(tmp_path: Path) -> None:
    config = sb.Config(
        {
            "job.name": "job",
            "task.inputs": "log.in",
            "systems.log.samza.factory": "log",
            "systems.log.path": tmp_path,
            "systems.log.samza.key.serde": "string",
            "systems.log.samza.msg.serde": "json",
            "systems.log.samza.offset.default": "oldest",
            **STORE,
            "stores.n.factory": "rocksdb",
        }
    )

    def fill(systems: Any) -> None:
        stream = sb.SystemStream("log", "in")
        systems.create(stream, 2)
        with writing(systems, stream, 2, "test") as writer:
            writer.send(
                sb.OutgoingMessageEnvelope(stream, b'{"key": "%d"}' % (number % 5), partition=number % 2)
                for number in range(40)
            )

    with_systems(config, fill)

    class Quiet(Counter):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            key = envelope.message["key"]
            self.store.put(key, (self.store.get(key) or 0) + 1)

    session = Session(sb.Container(config, Quiet))
    session.start()
    seen = {0: session.stores()}
    while session.step(1):
        seen[session.position] = session.stores()
        if session.position == 20:
            session.commit()
    for position in (39, 20, 21, 0, 40):
        session.goto(position)
        assert session.stores() == seen[position]
    session.abandon()
    again = Session(sb.Container(config, Quiet))
    again.start()
    assert again.stores() == seen[20]
    again.stop()


def test_a_task_of_functions_is_brought_back() -> None:
    def process(envelope: Any, collector: Any, coordinator: Any, context: Any) -> None:
        context.user.count = getattr(context.user, "count", 0) + 1
        send(collector, context.user.count)

    session, _ = session_of(process, {"mem.in": {0: list(range(5))}})
    session.step(5)
    session.goto(2)
    assert session.attributes() == {session.container.tasks[0].name: {"context.user.count": 2}}
    assert session.step(1) == 1
    assert [each.message for each in session.outputs()] == [1, 2, 3]
    session.stop()


def test_any_object_in_the_context_is_brought_back() -> None:
    class Keeps(sb.StreamTask):
        def init(self, context: sb.TaskContext) -> None:
            self.context: Any = context
            self.context.user = {"n": 0}

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.context.user["n"] += 1
            send(collector, self.context.user["n"])

    session, _ = session_of(Keeps, {"mem.in": {0: list(range(5))}})
    session.step(5)
    session.goto(2)
    assert session.attributes() == {session.container.tasks[0].name: {"context.user": {"n": 2}}}
    assert session.step(1) == 1
    assert [each.message for each in session.outputs()] == [1, 2, 3]
    session.go_live()
    assert session.container.tasks[0].context.user == {"n": 5}


def test_an_interrupt_of_an_observed_step_leaves_no_half_message() -> None:
    class Counts(sb.StreamTask):
        is_interrupted = False

        def init(self, context: sb.TaskContext) -> None:
            self.begun = self.done = 0

        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.begun += 1
            if Counts.is_interrupted:
                raise KeyboardInterrupt
            self.done += 1

    session, _ = session_of(Counts, {"mem.in": {0: list(range(5))}})
    session.step(5)
    assert session.history is not None
    past = Past(session.history)
    past.go_to(1)
    past.run_again()
    Counts.is_interrupted = True
    with pytest.raises(KeyboardInterrupt):
        past.step_observed(ContainerObserver())
    Counts.is_interrupted = False
    assert past.position == 1
    past.go_to(2)
    (task,) = past.tasks
    assert (task.task.begun, task.task.done) == (2, 2)


class RestlessClock(ManualClock):
    """Goes on by a millisecond with each reading."""

    def now_ms(self) -> int:
        self.advance(1)
        return super().now_ms()


class Remembering(sb.StreamTask):
    """Notes which entries it finds, looking several times within a message and a window."""

    def init(self, context: sb.TaskContext) -> None:
        self.stores = context.store("n"), context.store("m")
        self.found: list[Any] = []

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        key = envelope.message["key"]
        for store in self.stores:
            store.put(key, envelope.offset)
        self.look()

    def window(self, collector: Any, coordinator: Any) -> None:
        self.look()

    def look(self) -> None:
        seen = [[(store.get(key), dict(store.all())) for key in "abc"] for store in self.stores]
        self.found.append(seen)
        assert seen == [[(store.get(key), dict(store.all())) for key in "abc"] for store in self.stores]


def test_entries_expire_in_the_past_at_the_message_at_which_they_did() -> None:
    inputs = {"mem.in": {0: [{"key": key} for key in "abcabacbbacabcabca"]}}
    stores = {f"stores.{name}.ttl.ms": 7 for name in "nm"}
    config = {**STORE, **{each.replace(".n.", ".m."): value for each, value in STORE.items()}, **stores}
    bench = Bench(
        Remembering, inputs, {**config, "task.window.ms": 5}, clock=RestlessClock(), observed=False
    )
    session = Session(bench.container)
    session.start()
    seen = {}
    while session.step():
        seen[session.position] = session.attributes()["Partition 0"]["found"]
    assert max(map(len, seen.values())) > len(seen)
    for position in (5, 17, 9, 1, 12, 16, 3):
        session.goto(position)
        assert session.attributes()["Partition 0"]["found"] == seen[position]
    session.stop()


@pytest.mark.usefixtures("one_block")  # but for those that it cuts
def test_copies_of_attributes_count_to_the_memory_of_the_history() -> None:
    class Buffering(Counter):
        def init(self, context: sb.TaskContext) -> None:
            super().init(context)
            self.buffer = bytearray(3 << 20)

    inputs = {"mem.in": {0: [{"key": "a"}] * 40}}
    session, _ = session_of(Buffering, inputs, history=8)
    history = session.history
    assert history is not None
    assert history.size > 3 << 20
    while session.step():
        history.cut()
        assert history.size <= 8 << 20
    assert session.latest > history.oldest > 35
    assert session.back() == 39
    session.stop()
