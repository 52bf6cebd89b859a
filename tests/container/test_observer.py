"""Observers of a container: what they see, that they come and go, and that a held message waits."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from streambench.checkpoint.api import Checkpoint
from streambench.container.observer import ContainerObserver, Given, SentOutput
from streambench.errors import TaskError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.store.task_store import TaskStore
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from tests.container.jobs import OUT, Bench, Choices, echo, send
from tests.container.noted_calls import STORE, Counter

IN = {"mem.in": {0: ["a", "b", "a"]}}


class Seen(ContainerObserver):
    """Notes what it sees, in short."""

    def __init__(self) -> None:
        self.events: list[Any] = []

    def message_chosen(self, envelope: IncomingMessageEnvelope) -> object:
        self.events.append(("chosen", envelope.offset))
        return False

    def callback_begun(self, task: str, callback: str, given: Given) -> None:
        self.events.append((callback, "begun"))

    def callback_ended(self, task: str, callback: str, given: Given) -> None:
        self.events.append((callback, "ended"))

    def callback_raised(self, task: str, callback: str, given: Given, error: BaseException) -> None:
        self.events.append((callback, type(error).__name__))

    def failure_ignored(self, task: str, callback: str, given: Given, error: Exception) -> None:
        self.events.append(("ignored", type(error).__name__))

    def store_written(
        self, task: str, store: TaskStore, key: bytes, before: bytes | None, after: bytes | None
    ) -> None:
        change = (store.decoded_value(key, before), store.decoded_value(key, after))
        self.events.append((f"{store.name}[{store.decoded_key(key)}]", *change))

    def output_sent(self, output: SentOutput) -> None:
        self.events.append(("sent", output.message, output.partition, output.held))

    def commit_made(self, tasks: Sequence[str], checkpoints: Mapping[str, Checkpoint]) -> None:
        self.events.append(("commit", *tasks))


def test_an_observer_sees_all_that_a_message_does_in_its_order() -> None:
    bench = Bench(Counter, IN, STORE)
    container, seen = bench.started(), Seen()
    container.observe(seen)
    container.step(3)
    container.commit()
    assert seen.events == [
        ("chosen", "0"), ("process", "begun"), ("counts[a]", None, 1), ("process", "ended"),
        ("sent", 1, 0, False),
        ("chosen", "1"), ("process", "begun"), ("counts[b]", None, 1), ("process", "ended"),
        ("sent", 1, 0, False),
        ("chosen", "2"), ("process", "begun"), ("counts[a]", 1, 2), ("process", "ended"),
        ("sent", 2, 0, False),
        ("commit", "Partition 0"),
    ]  # fmt: skip


def test_a_detached_observer_sees_nothing_and_leaves_nothing_behind() -> None:
    bench = Bench(Counter, IN, STORE, observed=False)
    container, seen = bench.started(), Seen()
    process, put = container.tasks[0].process, container.tasks[0].stores["counts"]._put
    container.observe(seen)
    assert container.tasks[0].process != process
    container.step()
    container.stop_observing(seen)
    assert container.tasks[0].process == process
    assert container.tasks[0].stores["counts"]._put == put
    count = len(seen.events)
    container.run("caught-up")
    assert len(seen.events) == count
    assert bench.outputs() == [1, 1, 2]


def test_an_observer_may_come_while_the_container_runs() -> None:
    clicks = list(map(str, range(300)))
    holder: list[Any] = []
    seen = Seen()

    def process(envelope: IncomingMessageEnvelope, collector: Any, coordinator: Any) -> None:
        send(collector, envelope.message)
        if envelope.message == "100":
            container = holder[0]
            container.post(lambda: container.observe(seen))

    bench = Bench(process, {"mem.in": {0: clicks}}, observed=False)
    holder.append(bench.started())
    bench.container.run("caught-up")
    assert [each[1] for each in seen.events if each[0] == "chosen"] == clicks[101:]
    assert [each[1] for each in seen.events if each[0] == "sent"] == clicks[101:]
    assert bench.outputs() == clicks


def test_messages_without_a_key_go_on_in_turn_when_observers_come_and_go() -> None:
    bench = Bench(echo, {"mem.in": {0: [b"%d" % n for n in range(6)]}}, observed=False)
    bench.streams.create(OUT, 3)
    container = bench.started()
    for _ in range(3):
        container.step()
        seen = Seen()
        container.observe(seen)
        container.step()
        container.stop_observing(seen)
    partitions = bench.streams.partitions[OUT]
    assert [[message for _, message in each.entries()] for each in partitions] == [
        [b"0", b"3"], [b"1", b"4"], [b"2", b"5"],
    ]  # fmt: skip


def test_outputs_of_a_batch_are_seen_one_by_one() -> None:
    class Batching(StreamTask):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            collector.send_batch(SystemStream("mem", "out"), [b"x", b"y"], keys=[b"1", b"2"])

    bench = Bench(Batching, {"mem.in": {0: ["a"]}})
    container, seen = bench.started(), Seen()
    container.observe(seen)
    container.step()
    assert [each for each in seen.events if each[0] == "sent"] == [
        ("sent", b"x", 0, False),
        ("sent", b"y", 0, False),
    ]


def test_of_an_ignored_failure_the_writes_taken_back_are_seen_too() -> None:
    class Fails(Counter):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            raise ValueError("no")

    bench = Bench(Fails, {"mem.in": {0: ["a"]}}, {**STORE, "task.ignored.exceptions": "ValueError"})
    container, seen = bench.started(), Seen()
    container.observe(seen)
    container.step()
    assert seen.events == [
        ("chosen", "0"),
        ("process", "begun"),
        ("counts[a]", None, 1),
        ("process", "ValueError"),
        ("counts[a]", 1, None),
        ("ignored", "ValueError"),
    ]


def test_a_window_is_seen_as_a_callback() -> None:
    class Windowed(StreamTask):
        def init(self, context: TaskContext) -> None: ...

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None: ...

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            collector.send(OutgoingMessageEnvelope(OUT, "w"))

    bench = Bench(Windowed, {"mem.in": {0: ["a"]}}, {"task.window.ms": 10})
    container, seen = bench.started(), Seen()
    container.observe(seen)
    bench.clock.advance(20)
    container.step()
    assert seen.events[3:] == [("window", "begun"), ("window", "ended"), ("sent", "w", 0, False)]


def test_a_failure_is_seen_before_it_is_raised() -> None:
    def fails(envelope: IncomingMessageEnvelope, collector: Any, coordinator: Any) -> None:
        raise ValueError("no")

    bench = Bench(fails, {"mem.in": {0: ["a"]}})
    container, seen = bench.started(), Seen()
    container.observe(seen)
    with pytest.raises(TaskError):
        container.step()
    assert seen.events == [("chosen", "0"), ("process", "begun"), ("process", "ValueError")]


# Holding a message


@pytest.mark.parametrize("advance", ["step", "run"])
def test_a_held_message_is_not_processed_and_is_the_next_one(advance: str) -> None:
    done: list[Any] = []
    bench = Bench(
        lambda envelope, collector, coordinator: done.append(envelope.message),
        {"mem.in": {0: ["a", "c"], 1: ["b", "d"]}},
        remember_choices=10,
    )
    container = bench.started()
    watch = Choices(lambda envelope: envelope.message in ("b", "c"))
    container.observe(watch)
    go = (lambda: container.step(10)) if advance == "step" else (lambda: container.run("caught-up"))
    assert go() == 1 and done == ["a"]
    assert container.held is not None and container.held.message == "b"
    assert [each.number for each in container.snapshot().choices] == [1, 2]
    assert container.snapshot().lag == 3
    assert go() == 1 and done == ["a", "b"]
    container.stop_observing(watch)
    assert go() == 2 and done == ["a", "b", "c", "d"]
    assert container.held is None
    assert [each.number for each in container.snapshot().choices] == [1, 2, 3, 4]
    container.stop()
    assert bench.committed() == {"mem.in.0": "1", "mem.in.1": "1"}


def test_a_held_message_counts_against_the_number_of_a_step() -> None:
    bench = Bench(echo, {"mem.in": {0: list("abcd")}})
    container = bench.started()
    container.observe(Choices(lambda envelope: envelope.message == "b"))
    assert container.step(3) == 1
    assert container.step() == 1
    assert bench.outputs() == ["a", "b"]


def test_what_is_held_when_the_container_stops_comes_again() -> None:
    bench = Bench(echo, {"mem.in": {0: list("ab")}})
    container = bench.started()
    container.observe(Choices(lambda envelope: envelope.message == "b"))
    container.run("caught-up")
    container.stop()
    assert bench.committed() == {"mem.in.0": "0"}


def test_a_batch_is_held_by_its_first_message() -> None:
    batches: list[list[Any]] = []

    class Batches(StreamTask):
        def process_batch(
            self, batch: Any, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            batches.append([each.message for each in batch])

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None: ...

    bench = Bench(Batches, {"mem.in": {0: list("abc")}})
    container = bench.started()
    container.observe(Choices(lambda envelope: envelope.message == "a"))
    assert container.run("caught-up") == 0
    assert container.run("caught-up") == 3
    assert batches == [["a", "b", "c"]]


def test_the_count_of_sends_in_a_snapshot_is_that_of_now() -> None:
    bench = Bench(echo, {"mem.in": {0: list("abc")}}, observed=False)
    container = bench.started()
    container.step(2)
    assert container.snapshot().counts["producers.sends"] == 2
    container.commit()
    container.step()
    assert container.snapshot().counts["producers.sends"] == 3


def test_an_exit_in_a_task_is_a_failure_with_its_place() -> None:
    def leaves(envelope: IncomingMessageEnvelope, collector: Any, coordinator: Any) -> None:
        sys.exit(3)

    bench = Bench(leaves, {"mem.in": {0: ["a"]}})
    with pytest.raises(
        TaskError, match=r"failed at mem.in.0@0: RuntimeError: sys.exit\(3\) was called \(.*test_observer.py:"
    ):
        bench.started().step()
    assert bench.container.state == "failed"


def test_an_observer_attached_while_a_run_checks_its_end_sees_the_rest() -> None:
    bench = Bench(echo, IN, observed=False)
    container = bench.started()
    seen: list[str] = []
    observer = Choices(lambda envelope: seen.append(envelope.offset))

    def until() -> bool:
        if container.processed == 1 and not seen:
            container.observe(observer)
        elif container.processed == 2:
            container.stop_observing(observer)
        return container.processed == 3

    container.run(until)
    assert seen == ["1"]
    container.stop()
