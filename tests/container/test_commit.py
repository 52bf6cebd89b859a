"""Commits: their contents, their order, and their failures."""

from __future__ import annotations

import pytest

from streambench.errors import (
    StreamSystemError,
)
from streambench.model import IncomingMessageEnvelope, SystemStream
from streambench.system.memory import (
    MemoryStreams,
)
from streambench.task import MessageCollector, TaskContext, TaskCoordinator
from tests.container.jobs import Bench, echo, ignore
from tests.container.noted_calls import (
    STORE,
    Counter,
    Failing,
    Noting,
    NotingCheckpoints,
    happened,
)


def test_a_commit_makes_outputs_then_changelogs_then_checkpoint_durable() -> None:
    bench = Bench(
        Counter,
        {"mem.a": {0: ["x"]}},
        STORE,
        factory=Noting(streams := MemoryStreams()),
        streams=streams,
        checkpoints=NotingCheckpoints(),
    )
    container = bench.started()
    container.step()
    happened.clear()
    container.commit()
    assert happened == ["flush", "send counts-changelog", "flush", "checkpoint Partition 0"]


def test_a_commit_without_anything_new_writes_nothing() -> None:
    bench = Bench(ignore, {"mem.a": {0: ["x"]}}, checkpoints=NotingCheckpoints())
    container = bench.started()
    container.step()
    container.commit()
    happened.clear()
    container.commit()
    container.stop()
    assert happened == ["checkpoints close"]


def test_a_change_of_state_alone_is_something_to_commit() -> None:
    def window(collector: MessageCollector, coordinator: TaskCoordinator) -> None:
        pass

    class Initial(Counter):
        def init(self, context: TaskContext) -> None:
            super().init(context)
            self.context = context

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            pass

        def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
            self.counts.put("windows", 1)

    bench = Bench(Initial, {"mem.a": {0: []}}, STORE | {"task.window.ms": 100})
    container = bench.started()
    bench.clock.advance(100)
    container.step()
    container.commit()
    assert [
        key
        for partition in bench.streams.of(SystemStream("mem", "counts-changelog"))
        for key, _ in partition.entries()
    ] == [b"windows"]


def test_the_checkpoints_of_all_tasks_are_one_write() -> None:
    bench = Bench(ignore, {"mem.a": {0: ["x"], 1: ["y"]}}, checkpoints=NotingCheckpoints())
    container = bench.started()
    container.run("caught-up")
    happened.clear()
    container.commit()
    assert happened == ["checkpoint Partition 0, Partition 1"]


def test_where_a_task_begins_is_durable_before_it_reads() -> None:
    bench = Bench(ignore, {"mem.a": {0: ["x"]}}, {"systems.mem.samza.offset.default": "upcoming"})
    bench.started().abandon()
    bench.put("mem.a.0", "y")
    again = Bench(ignore, {}, {"task.inputs": "mem.a", "systems.mem.samza.offset.default": "upcoming"},
                  streams=bench.streams, checkpoints=bench.checkpoints.sibling())  # fmt: skip
    again.started().run("caught-up")
    assert again.places() == ["mem.a.0@1"]


def test_a_flush_that_fails_fails_the_container_without_a_checkpoint() -> None:
    bench = Bench(echo, {"mem.a": {0: ["x"]}}, factory=Failing(streams := MemoryStreams()), streams=streams)
    container = bench.started()
    container.step()
    with pytest.raises(StreamSystemError, match="the disk is full"):
        container.commit()
    assert (container.state, container.reason) == ("failed", "the disk is full")
    assert bench.committed() == {}
