"""Who sent a message to a system that keeps nothing may forget it once it is safe, and not before."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import ConfigError, OffsetError, StreamSystemError, TaskError
from streambench.model import IncomingMessageEnvelope
from streambench.task import MessageCollector, RequestScope, TaskContext, TaskCoordinator
from streambench.testing import ManualClock
from tests.container.jobs import ignore
from tests.system import queued
from tests.system.queued import broker


@pytest.fixture(autouse=True)
def empty_broker() -> Iterator[None]:
    broker.clear()
    broker.create("a", 2)
    yield
    broker.clear()


def job(directory: Path, **more: Any) -> dict[str, Any]:
    return {
        "job.name": "acknowledging",
        "task.inputs": "q.a",
        "task.commit.ms": -1,
        "task.checkpoint.system": "file",
        "task.checkpoint.path": directory / "checkpoints",
        "systems.q.samza.factory": "tests.system.queued.QueueSystem",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


def started(directory: Path, task: Any = ignore, clock: Any = None, **more: Any) -> Container:
    container = Container(Config(job(directory, **more)), task, clock=clock)
    container.start()
    return container


def acknowledged(partition: int = 0) -> list[Any]:
    return broker.acknowledged["a", partition]


def test_acknowledgement_waits_for_the_commit_and_covers_all_processed(tmp_path: Path) -> None:
    broker.put("a", b"1", b"2", b"3")
    container = started(tmp_path)
    container.run(2)
    assert acknowledged() == []
    container.commit()
    assert acknowledged() == [b"1", b"2"]
    container.run(1)
    container.stop()
    assert acknowledged() == [b"1", b"2", b"3"]


def test_what_was_delivered_and_not_committed_comes_again(tmp_path: Path) -> None:
    broker.put("a", b"1", b"2", b"3")
    container = started(tmp_path)
    container.run(1)
    container.commit()
    container.run(1)
    container.abandon()
    assert broker.left("a") == [b"2", b"3"]


def test_a_commit_that_fails_acknowledges_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker.put("a", b"1")
    container = started(tmp_path)
    container.run(1)

    def fail(*_: Any) -> None:
        raise StreamSystemError("the disk is full")

    monkeypatch.setattr(container.runtime.checkpoints, "write", fail)
    with pytest.raises(StreamSystemError, match="disk is full"):
        container.commit()
    assert acknowledged() == []
    assert broker.left("a") == [b"1"]


def test_a_failing_task_leaves_its_message_to_be_sent_again(tmp_path: Path) -> None:
    def fail(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise ValueError("no")

    broker.put("a", b"1")
    container = started(tmp_path, fail)
    with pytest.raises(TaskError):
        container.run(1)
    assert (acknowledged(), broker.left("a")) == ([], [b"1"])


def test_an_ignored_failure_counts_as_processed(tmp_path: Path) -> None:
    def fail(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise ValueError("no")

    broker.put("a", b"1")
    container = started(tmp_path, fail, task__ignored__exceptions="*")
    container.run(1)
    container.stop()
    assert acknowledged() == [b"1"]


def committing_when_asked(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    if envelope.message == b"mine":
        coordinator.commit(RequestScope.CURRENT_TASK)


def test_a_commit_of_one_task_acknowledges_only_what_is_its_own(tmp_path: Path) -> None:
    broker.put("a", b"1", partition=0)
    broker.put("a", b"2", b"mine", partition=1)
    container = started(tmp_path, committing_when_asked)
    container.run(3)
    assert (acknowledged(0), acknowledged(1)) == ([], [b"2", b"mine"])
    container.abandon()


def test_a_broadcast_message_is_acknowledged_once_all_tasks_committed_it(tmp_path: Path) -> None:
    class First:
        """Commits by itself, where it has partition 0."""

        def init(self, context: TaskContext) -> None:
            self.is_first = context.task_name == "Partition 0"

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            if self.is_first:
                coordinator.commit(RequestScope.CURRENT_TASK)

    broker.create("all", 1)
    broker.put("all", b"x", b"y")
    container = started(tmp_path, First, task__broadcast__inputs="q.all#0")
    container.run(2)
    assert broker.acknowledged["all", 0] == []
    container.commit()
    assert broker.acknowledged["all", 0] == [b"x", b"y"]
    container.stop()


def test_a_start_goes_on_with_what_comes_whatever_a_checkpoint_says(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Any] = []

    def note(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.append((envelope.offset, envelope.message))

    with caplog.at_level(logging.WARNING):
        for messages in ([b"1", b"2", b"3"], [b"4"], [b"5", b"6"]):
            broker.put("a", *messages)
            container = started(tmp_path, note)
            container.run("caught-up")
            container.stop()
    assert seen == [("0", b"1"), ("1", b"2"), ("2", b"3"), ("0", b"4"), ("0", b"5"), ("1", b"6")]
    assert not caplog.records
    assert acknowledged() == [b"1", b"2", b"3", b"4", b"5", b"6"]


def test_a_partition_that_is_new_is_taken_as_it_comes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    started(tmp_path).stop()
    broker.create("a", 3)
    with caplog.at_level(logging.WARNING):
        started(tmp_path).stop()
    assert not caplog.records


def test_nobody_can_say_how_many_messages_are_left(tmp_path: Path) -> None:
    broker.put("a", b"1", b"2")
    container = started(tmp_path)
    container.run(1)
    snapshot = container.snapshot()
    assert snapshot.lag is None
    first = snapshot.partitions[0]
    assert (first.position, first.upcoming, first.lag) == ("1", None, None)
    container.stop()


def test_exactly_once_wants_landing(tmp_path: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"^task\.processing\.guarantee: .*systems\.q\.samza\.landing=LOGSYSTEM"
    ) as raised:
        started(
            tmp_path,
            task__processing__guarantee="exactly-once",
            task__checkpoint__system="log",
            systems__log__samza__factory="log",
            systems__log__path=tmp_path / "log",
        )
    assert raised.value.key == "task.processing.guarantee"


def test_such_an_input_has_no_end(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"q\.a\.0 cannot be bounded"):
        started(tmp_path, systems__q__streams__a__samza__bounded="true")


def test_no_task_can_begin_anywhere_else(tmp_path: Path) -> None:
    class Starting:
        def init(self, context: TaskContext) -> None:
            context.set_starting_offset(context.partitions[0], "5")

        process = staticmethod(ignore)

    with pytest.raises(
        OffsetError, match=r"q\.a\.0: Partition 0 cannot begin at 5.*systems\.q\.samza\.landing"
    ):
        started(tmp_path, Starting)


def test_where_senders_wait_commits_come_in_time(tmp_path: Path) -> None:
    clock, times = ManualClock(), []

    def advance(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(60)
        times.append(len(acknowledged()))

    broker.within_ms = 100
    broker.put("a", *[b"x"] * 6)
    container = started(tmp_path, advance, clock, task__commit__ms=60_000)
    container.run(6)
    # Committed after every second message, which is when 100 ms are over.
    assert times == [0, 0, 2, 2, 4, 4]
    container.stop()


@pytest.mark.parametrize(
    ("configured", "within", "expected"), [(50, 100, [0, 1, 2]), (-1, 100, [0, 0, 0]), (200, None, [0, 0, 0])]
)
def test_the_configuration_may_ask_for_more_commits_or_for_none_at_all(
    tmp_path: Path, configured: int, within: int | None, expected: list[int]
) -> None:
    clock, times = ManualClock(), []

    def advance(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        clock.advance(60)
        times.append(len(acknowledged()))

    broker.within_ms = within
    broker.put("a", *[b"x"] * 3)
    container = started(tmp_path, advance, clock, task__commit__ms=configured)
    container.run(3)
    assert times == expected
    container.stop()


def test_a_run_to_the_head_acknowledges_all_of_it(tmp_path: Path) -> None:
    broker.put("a", b"1", b"2")
    broker.put("a", b"3", partition=1)
    container = started(tmp_path)
    assert container.run("caught-up") == 3
    container.stop()
    assert (acknowledged(0), acknowledged(1)) == ([b"1", b"2"], [b"3"])


def test_an_acknowledgement_that_fails_ends_the_container(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Any, offsets: Any) -> None:
        raise StreamSystemError("the broker is gone")

    monkeypatch.setattr(queued.QueueConsumer, "acknowledge", fail)
    broker.put("a", b"1")
    container = started(tmp_path)
    container.run(1)
    with pytest.raises(StreamSystemError, match="broker is gone"):
        container.commit()
    assert container.state == "failed"
