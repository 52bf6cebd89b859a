"""The effects of messages, as a session shows them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streambench.debug import open as open_recording
from streambench.debug.control.session import Session
from streambench.debug.effects.effect_lines import effect_lines, summary_lines
from streambench.debug.effects.events import Change, Output
from streambench.debug.history.history import History
from streambench.model import SystemStreamPartition
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from tests.container.jobs import OUT, Bench, echo, send
from tests.container.noted_calls import STORE, Counter

IN = {"mem.in": {0: ["a", "b", "a"]}}
SSP = SystemStreamPartition("mem", "in", 0)
JSON = {"systems.mem.samza.msg.serde": "json"}


def session_of(task: Any, inputs: Any = IN, config: Any = None, **options: Any) -> Session:
    bench = Bench(task, inputs, config, observed=False, remember_choices=10)
    session = Session(bench.container, **options)
    session.start()
    return session


def test_a_step_shows_what_changed_and_what_was_sent() -> None:
    session = session_of(Counter, config=STORE)
    session.step(3)
    last = session.last
    assert last.changes == (Change(3, SSP, "2", 1, 2, "Partition 0", "counts", "a"),)
    assert last.outputs == (Output(3, "mem.out", 0, None, 2, False, "Partition 0"),)
    assert session.position == last.position == 3
    assert session.message is not None and session.message.offset == "2"
    assert session.stores() == {"Partition 0": {"counts": {"a": 2, "b": 1}}}


def test_effects_of_many_messages_ask_once_for_what_they_share(monkeypatch: pytest.MonkeyPatch) -> None:
    session = session_of(Counter, {"mem.in": {0: ["a", "b"] * 500}}, STORE)
    session.step(1_000)
    one_by_one = [session.changes_at(at)[0] for at in range(11, 1_001)]
    asked: list[Any] = []
    found, streams = History.message_ref, session.container.status.systems.metadata
    monkeypatch.setattr(History, "message_ref", lambda self, at: asked.append(at) or found(self, at))
    monkeypatch.setattr(
        session.container.status.systems, "metadata", lambda names: asked.append(names) or streams(names)
    )
    effects = session.effects(10)
    assert [each.changes[0] for each in effects] == one_by_one
    assert [each.outputs[0].partition for each in effects] == [0] * 990
    assert len(asked) < 10


def test_outputs_are_those_after_a_position() -> None:
    session = session_of(Counter, config=STORE)
    session.run("caught-up")
    session.wait()
    assert [each.message for each in session.outputs()] == [1, 1, 2]
    assert [(each.position, each.message) for each in session.outputs(since=2)] == [(3, 2)]


@pytest.mark.parametrize("messages", [pa.array([b'{"n": 1}', b"null"]), [{"n": 1}, None]])
def test_messages_of_a_batch_are_shown_as_values(messages: Any) -> None:
    def process(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send_batch(OUT, messages, keys=pa.array(["k", None]))

    session = session_of(process, {"mem.in": {0: [b"1"]}}, JSON)
    session.step()
    shown = [(each.key, each.message) for each in session.last.outputs]
    assert shown == [("k", {"n": 1}), (None, None)]


@pytest.mark.parametrize("config", [{}, JSON], ids=["row by row", "by column"])
def test_a_message_without_a_key_after_a_batch_shows_its_partition(config: Any) -> None:
    def process(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send_batch(OUT, ["x", "y", "z"], keys=pa.array([None, "k", None]))
        send(collector, int(envelope.offset))

    bench = Bench(process, {"mem.in": {0: [b"1"] * 4}}, config, observed=False)
    bench.streams.create(OUT, 4)
    session = Session(bench.container)
    session.start()
    session.step(4)
    entries = [[message for _, message in each.entries()] for each in bench.streams.partitions[OUT]]
    singles = [each for each in session.outputs() if isinstance(each.message, int)]
    found = [[at for at, of in enumerate(entries) if str(each.message) in map(text, of)] for each in singles]
    assert [[each.partition] for each in singles] == found
    session.stop()


STRINGS = {**JSON, "systems.mem.samza.key.serde": "string"}
PLACED: dict[str, tuple[Any, dict[str, Any]]] = {
    "objects": ({}, {"keys": ["a", 5, {"b": 1}, "d", None]}),
    "encoded": (STRINGS, {"keys": ["a", "b", "ü", "d", None]}),
    "text": (STRINGS, {"keys": pa.array(["a", "b", "ü", "d", None])}),
    "bytes": (JSON, {"keys": pa.array([b"a", b"b", b"c", b"d", None])}),
    "integers": ({**JSON, "systems.mem.samza.key.serde": "long"}, {"keys": pa.array([1, 2, 3, 4, None])}),
    "partitions": (STRINGS, {"partitions": [3, None, 0, 2, None], "keys": ["a", "b", "c", "d", None]}),
    "partition keys": (JSON, {"partition_keys": ["a", 5, b"c", "d", None]}),
    "one partition": (JSON, {"partitions": 2}),
}


@pytest.mark.parametrize(("config", "columns"), PLACED.values(), ids=PLACED)
def test_messages_of_a_batch_show_the_partition_of_their_key(config: Any, columns: dict[str, Any]) -> None:
    def process(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send_batch(OUT, [0, 1, 2, 3, 4], **columns)

    bench = Bench(process, {"mem.in": {0: [b"1"]}}, config, observed=False)
    bench.streams.create(OUT, 4)
    session = Session(bench.container)
    session.start()
    session.step()
    entries = [[text(message) for _, message in each.entries()] for each in bench.streams.partitions[OUT]]
    found = {int(message): at for at, of in enumerate(entries) for message in of}
    shown = {each.message: (each.partition, each.is_placed) for each in session.last.outputs}
    last = {4: (2, True) if columns == {"partitions": 2} else (None, False)}
    assert shown == {row: (found[row], True) for row in range(5)} | last
    session.stop()


def test_a_batch_shows_the_only_partition_of_its_stream() -> None:
    def process(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        collector.send_batch(OUT, ["x", "y"])

    session = session_of(process)
    session.step()
    assert [(each.destination, each.is_placed) for each in session.last.outputs] == [("mem.out.0", False)] * 2


def text(message: Any) -> str:
    return message.decode() if isinstance(message, bytes) else str(message)


def test_outputs_are_held_until_the_commit_where_the_system_holds_them(tmp_path: Path) -> None:
    config = {
        "task.inputs": "log.in", "systems.log.samza.factory": "log", "systems.log.path": str(tmp_path),
        "systems.log.samza.offset.default": "oldest", "task.processing.guarantee": "exactly-once",
    }  # fmt: skip
    from streambench.container.container import Container
    from streambench.system.log import open_log

    with open_log(tmp_path) as streams:
        from streambench.model import SystemStream

        streams.create(SystemStream("log", "in").stream, 1)
        streams.partition("in", 0).append(None, [b"x", b"y"])
    container = Container(config, lambda e, c, k: c.send("log.out", e.message))
    session = Session(container)
    session.start()
    session.step(2)
    assert [each.held for each in session.outputs()] == [True, True]
    session.commit()
    assert [(each.message, each.held) for each in session.outputs()] == [(b"x", False), (b"y", False)]
    assert session.last.committed == ("Partition 0",)
    session.stop()


def test_held_outputs_before_the_history_are_listed() -> None:
    exactly_once = {"task.processing.guarantee": "exactly-once", "task.commit.ms": -1}
    texts = {"mem.in": {0: ["x" * 2_000 + str(number) for number in range(2_000)]}}
    session = session_of(lambda e, c, k: c.send("mem.out", e.offset), texts, exactly_once, history=1)
    session.step(2_000)
    assert session.oldest > 0
    outputs = session.outputs()
    assert [each.position for each in outputs] == list(range(1, 2_001))
    assert all(each.held for each in outputs)
    assert [each.position for each in session.outputs(since=1)] == list(range(2, 2_001))
    session.commit()
    outputs = session.outputs()
    assert [each.position for each in outputs] == list(range(session.oldest + 1, 2_001))
    assert not any(each.held for each in outputs)
    session.stop()


def test_a_key_that_has_its_former_value_again_did_not_change() -> None:
    class Restless(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.store = context.store("counts")

        def process(self, envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            self.store.put("k", 1)
            self.store.delete("k")
            self.store.put("x", 1)

    session = session_of(Restless, config=STORE)
    session.step()
    assert [each.key for each in session.last.changes] == ["x"]
    session.step()
    assert session.last.changes == ()


def test_an_output_is_as_it_was_when_it_was_sent() -> None:
    sent: list[dict[str, int]] = []

    def process(envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        sent.append({"n": 1})
        send(collector, sent[-1])

    session = session_of(process)
    session.step()
    sent[0]["n"] = 99
    assert [each.message for each in session.outputs()] == [{"n": 1}]


def test_windows_are_effects_and_so_are_their_outputs() -> None:
    class Windowed(StreamTask):
        def process(self, envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            raise ValueError("no")

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            send(collector, "w")

    config = {"task.window.ms": 10, "task.ignored.exceptions": "ValueError"}
    bench = Bench(Windowed, IN, config, observed=False)
    session = Session(bench.container)
    session.start()
    bench.clock.advance(20)
    session.step()
    assert session.last.windows == ("Partition 0",)
    assert [each.message for each in session.last.outputs] == ["w"]


def test_outputs_of_a_window_right_behind_a_message_are_those_of_it() -> None:
    class Windowed:
        def process(self, envelope: Any, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            send(collector, envelope.offset)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            send(collector, "w")

    bench = Bench(Windowed, {"mem.in": {0: list("abcdef")}}, {"task.window.ms": 10}, observed=False)
    session = Session(bench.container)
    session.start()
    bench.clock.advance(20)
    session.step()
    assert [(each.message, each.callback) for each in session.last.outputs] == [("0", None), ("w", "window")]
    assert [line.strip() for line in effect_lines(session.last)] == [
        "-> mem.out  0", "-> mem.out  w  window() of Partition 0", "window() of Partition 0",
    ]  # fmt: skip
    assert session.cause(session.last.outputs[1]).callback == "window"
    bench.clock.advance(20)
    session.run("caught-up")
    session.wait()
    sent = [(each.position, each.message, each.callback) for each in session.outputs()]
    windows = [(position, callback) for position, message, callback in sent if message == "w"]
    assert [each for each in sent if each[2] is None] == [(at + 1, str(at), None) for at in range(6)]
    assert len(windows) == 2 and {callback for _, callback in windows} == {"window"}
    session.goto(0)
    session.swap(Windowed)
    session.goto(6)
    assert [(each.position, each.message, each.callback) for each in session.outputs()] == sent


@pytest.mark.parametrize("partitions", [1, 3])
def test_stepped_and_free_runs_send_to_the_same_partitions(partitions: int) -> None:
    def outputs(steps: bool) -> list[list[Any]]:
        bench = Bench(echo, {"mem.in": {0: list(range(10))}}, observed=False)
        from tests.container.jobs import OUT

        bench.streams.create(OUT, partitions)
        session = Session(bench.container, history=False)
        session.start()
        if steps:
            session.step(3)
            session.run(2)
            session.wait()
            session.step(2)
        session.run("caught-up")
        session.wait()
        return [[message for _, message in each.entries()] for each in bench.streams.partitions[OUT]]

    assert outputs(steps=True) == outputs(steps=False)


def test_an_output_that_is_not_sent_says_why(tmp_path: Path) -> None:
    def texts(session: Session) -> list[str]:
        return [line.rpartition("  ")[2] for line in summary_lines(session.effects(session.position - 1))]

    session = session_of(echo)
    session.record(tmp_path / "echo.recording")
    session.step(3)
    session.goto(1)
    session.swap(echo)
    session.step()
    assert texts(session)[-1].endswith("held until the branch is adopted")
    session.go_live()
    session.stop()
    replay = open_recording(tmp_path / "echo.recording", echo, at_end=False)
    replay.step(2)
    replay.commit()
    assert texts(replay)[0].endswith("not sent, in a replay")
    replay.stop()


def test_long_keys_that_begin_alike_are_several_keys() -> None:
    keys = ["long" * 50 + end for end in "abc"]
    session = session_of(Counter, {"mem.in": {0: keys}}, STORE)
    session.step(3)
    assert "counts: 3 keys changed: " in summary_lines(session.effects(0))[0]
