"""Failures of a task that are ignored: told with their places, taken back, kept as dead letters."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench.batch import MessageBatch
from streambench.container.outputs.dead_letters import ErrorCounts, IgnoredFailure
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStream
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, ignore, send

STORE = {"stores.kept.factory": "memory", "stores.kept.changelog": "mem.changes"}
IGNORE = {"task.ignored.exceptions": "*"}
LETTERS = IGNORE | {
    "task.dead.letter.stream": "mem.dead",
    "task.ignored.exceptions.dead.letter": "true",
    "systems.mem.samza.msg.serde": "json",
}
STORES = {
    "memory": {"stores.kept.factory": "memory"},
    "cached": {
        "stores.kept.factory": "memory",
        "stores.kept.object.cache.size": 2,
        "stores.kept.write.batch.size": 1,
    },
    "rocksdb": {"stores.kept.factory": "rocksdb"},
    "uncached": {"stores.kept.factory": "rocksdb", "stores.kept.object.cache.size": 0},
    "expiring": {"stores.kept.factory": "memory", "stores.kept.ttl.ms": 1000},
    "timed": {"stores.kept.factory": "memory", "metrics.timer.enabled": "true"},
}


class Keeps(StreamTask):
    """Does to its store what a message says: [[key, value], ...], None deletes; and fails at ``fail``."""

    def init(self, context: TaskContext) -> None:
        self.store = context.store("kept")

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        self.does(envelope.message)
        send(collector, envelope.message)

    def does(self, steps: Any) -> None:
        for key, value in steps:
            if key == "fail":
                raise ValueError(value)
            if value is None:
                self.store.delete(key)
            else:
                self.store.put(key, value)


class KeepsRuns(Keeps):
    def process_batch(
        self, batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        for envelope in batch:
            self.process(envelope, collector, coordinator)


def entries(bench: Bench) -> dict[str, Any]:
    return dict(bench.container.tasks[0].stores["kept"].all())


@pytest.fixture(params=STORES)
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[dict[str, Any]]:
    yield IGNORE | {
        "stores.kept.changelog": "mem.changes",
        "job.logged.store.base.dir": str(tmp_path),
        **STORES[request.param],
    }


def test_what_a_failed_message_wrote_is_taken_back(stores: dict[str, Any]) -> None:
    messages = [
        [["a", 1], ["b", 2]],
        [["a", 9], ["a", 8], ["b", None], ["c", 3], ["c", None], ["d", 4], ["fail", "x"]],
        [["e", 5], ["b", 3]],
        [["fail", "nothing was written"]],
        [["e", None], ["fail", "y"]],
    ]
    bench = Bench(Keeps, {"mem.a": {0: messages}}, stores)
    bench.started().run("caught-up")
    assert entries(bench) == {"a": 1, "b": 3, "e": 5}
    assert bench.outputs() == [messages[0], messages[2]]
    bench.container.commit()
    assert entries(bench) == {"a": 1, "b": 3, "e": 5}
    bench.container.stop()
    changes = bench.streams.partitions[SystemStream("mem", "changes")][0].entries()
    assert sorted((key, json.loads(value)) for key, value in changes) == [(b"a", 1), (b"b", 3), (b"e", 5)]


def test_what_was_committed_before_stays_in_the_changelog(stores: dict[str, Any]) -> None:
    bench = Bench(Keeps, {"mem.a": {0: [[["a", 1]], [["a", 2], ["fail", "x"]]]}}, stores)
    container = bench.started()
    container.step()
    container.commit()
    container.step()
    container.stop()
    again = Bench(
        Keeps, {}, dict(bench.config), streams=bench.streams, checkpoints=bench.checkpoints, clock=bench.clock
    )
    again.started()
    assert entries(again) == {"a": 1}
    again.container.stop()


def test_a_failed_run_of_messages_is_taken_back_whole(stores: dict[str, Any]) -> None:
    messages = [[["a", 1]], [["b", 2], ["fail", "x"]], [["c", 3]]]
    bench = Bench(KeepsRuns, {"mem.a": {0: messages}}, stores)
    bench.started().run("caught-up")
    assert (entries(bench), bench.outputs()) == ({}, [])
    assert bench.container.error_counts.kinds[0].offset == "0..2"
    bench.container.stop()


def test_a_failed_window_takes_back_its_own_writes_only(stores: dict[str, Any]) -> None:
    clock = ManualClock()

    class Windowed(Keeps):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            clock.advance(100)

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            self.does([["a", 100], ["w", 1], ["fail", "in the window"]])

        def end_of_stream(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            self.does([["a", 200], ["fail", "at the end"]])

    config = stores | {"task.window.ms": 100, "systems.mem.streams.a.samza.bounded": "true"}
    bench = Bench(Windowed, {"mem.a": {0: [[["a", 1]], [["b", 2]]]}}, config, clock=clock)
    bench.started().run("caught-up")
    assert entries(bench) == {"a": 1, "b": 2}
    assert "in window()" in bench.container.error_counts.details()[0]
    assert bench.container.error_counts.ignored == 3
    bench.container.stop()


def test_a_taken_back_entry_keeps_its_age() -> None:
    clock = ManualClock(10_000)
    messages = [[["a", 1]], [["a", 2], ["fail", "x"]]]
    bench = Bench(Keeps, {"mem.a": {0: messages}}, IGNORE | STORE | {"stores.kept.ttl.ms": 1000}, clock=clock)
    container = bench.started()
    container.step()
    clock.advance(900)
    container.step()
    assert entries(bench) == {"a": 1}
    clock.advance(100)
    assert entries(bench) == {}
    container.stop()


def test_a_store_notes_nothing_where_nothing_is_ignored() -> None:
    bench = Bench(Keeps, {"mem.a": {0: []}}, STORE, observed=False)
    store = bench.started().tasks[0].stores["kept"]
    assert store._put == store.engine.put
    bench.container.stop()


# What is told


def test_each_class_is_told_with_its_first_place_and_its_count(caplog: pytest.LogCaptureFixture) -> None:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        {"v": lambda: int("no number"), "k": lambda: {}["no key"], "": lambda: None}[envelope.message]()

    bench = Bench(process, {"mem.a": {0: ["", ("who", "v"), "k", "v", "v"]}}, IGNORE)
    with caplog.at_level(logging.WARNING):
        bench.started().run("caught-up")
    passed_over = bench.container.error_counts
    assert str(passed_over) == "4 failures ignored (3 ValueError, 1 KeyError)"
    first, second = passed_over.details()
    assert first.startswith(
        "ignored 3 ValueError, the first: Partition 0 failed at mem.a.0@1, key 'who' (test_ignored.py:"
    )
    assert first.endswith("ValueError: invalid literal for int() with base 10: 'no number'")
    assert second.startswith("ignored 1 KeyError: Partition 0 failed at mem.a.0@2 (test_ignored.py:")
    assert len([record for record in caplog.records if "task.ignored.exceptions" in record.getMessage()]) == 2
    assert bench.container.snapshot().error_counts == passed_over
    bench.container.stop()


def test_counts_of_several_containers_are_added_up_by_class() -> None:
    one = ErrorCounts(
        ignored=2,
        kinds=(IgnoredFailure("ValueError", 2, "Partition 0", "process", None, None, None, "", "x"),),
    )
    other = ErrorCounts(
        ignored=3,
        kinds=(
            IgnoredFailure("ValueError", 1, "Partition 1", "process", None, None, None, "", "y"),
            IgnoredFailure("KeyError", 2, "Partition 1", "process", None, None, None, "", "z"),
        ),
    )
    assert [(each.kind, each.count, each.task) for each in (one + other).kinds] == [
        ("ValueError", 3, "Partition 0"), ("KeyError", 2, "Partition 1"),
    ]  # fmt: skip


# Dead letters


def told_in(bench: Bench) -> list[dict[str, str]]:
    """The headers of the dead letters."""
    extras = bench.streams.partition(SystemStream("mem", "dead"), 0).fields[2::3]
    return [{name: value.decode() for name, value in headers.items()} for _, headers in extras]


def test_a_dead_letter_of_a_failure_holds_the_traceback() -> None:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        int("no number")

    bench = Bench(process, {"mem.a": {0: [b"1"]}}, LETTERS | {"task.processing.guarantee": "exactly-once"})
    container = bench.started()
    container.step()
    assert not bench.streams.partitions[SystemStream("mem", "dead")][0].entries()
    container.stop()
    (told,) = told_in(bench)
    trace = told.pop("dead-letter.traceback")
    assert (
        trace.startswith("Traceback") and 'int("no number")' in trace and "streambench/container" not in trace
    )
    assert told == {
        "dead-letter.direction": "task",
        "dead-letter.reason": "ValueError: invalid literal for int() with base 10: 'no number'",
        "dead-letter.exception": "ValueError",
        "dead-letter.source": "mem.a.0",
        "dead-letter.offset": "0",
        "dead-letter.task": "Partition 0",
    }


@pytest.mark.parametrize("at_once", [1, 3, 1000])
def test_messages_of_ignored_failures_are_kept_as_they_were(at_once: int) -> None:
    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message["n"] % 3 == 1:
            raise ValueError("one")
        send(collector, envelope.message)

    raw = [b'{"n" : %d}' % number for number in range(50)]
    config = LETTERS | {"systems.mem.samza.fetch.threshold": at_once}
    run = run_job(process, config, {"mem.a": {0: raw[:25], 1: raw[25:]}})
    assert sorted(message["n"] for _, message in run.outputs["mem.out"][0]) == [
        number for number in range(50) if number % 3 != 1
    ]
    streams = run._streams.of(SystemStream("mem", "dead"))
    kept = [message for partition in streams for _, message in partition.entries()]
    assert sorted(kept) == sorted(raw[number] for number in range(50) if number % 3 == 1)
    assert run.metrics["container.dead-letters"] == len(kept)


def test_a_failed_run_is_kept_message_by_message() -> None:
    class Fails(StreamTask):
        def process_batch(
            self, batch: MessageBatch, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            raise ValueError(len(batch))

    run = run_job(Fails, LETTERS, {"mem.a": {0: [b"[ 1]", b"[ 2]"]}})
    assert [message for _, message in run._streams.of(SystemStream("mem", "dead"))[0].entries()] == [
        b"[ 1]",
        b"[ 2]",
    ]


def test_without_a_dead_letter_stream_nothing_can_be_kept() -> None:
    with pytest.raises(
        ConfigError, match=r"task\.ignored\.exceptions\.dead\.letter.*task\.dead\.letter\.stream"
    ):
        run_job(ignore, IGNORE | {"task.ignored.exceptions.dead.letter": "true"}, {"mem.a": {0: [1]}})
