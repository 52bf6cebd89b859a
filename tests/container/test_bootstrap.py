"""Bootstrap streams of a real log: whatever became of their messages, the gate opens, and never too early."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.job.run import run
from streambench.model import IncomingMessageEnvelope
from streambench.system.log import Log, Partition, open_log
from streambench.task import MessageCollector, TaskCoordinator

seen: list[str] = []
LONG_AFTER = 1 << 50


def note(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    seen.append(f"{envelope.ssp.stream}.{envelope.ssp.partition}@{envelope.offset}")


@pytest.fixture(autouse=True)
def nothing_seen_yet() -> None:
    seen.clear()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Log]:
    with open_log(tmp_path / "streams") as opened:
        opened.create("boot", 2, **{"cleanup.policy": "compact", "delete.retention.ms": 0})
        opened.create("other", 2)
        for number in range(2):
            opened.partition("other", number).append([None] * 3, [b"x"] * 3)
        yield opened


def settings(log: Log, **more: str) -> Config:
    return Config(
        {
            "job.name": "boot",
            "task.inputs": "log.boot,log.other",
            "systems.log.samza.factory": "log",
            "systems.log.path": str(log.path),
            "systems.log.samza.offset.default": "oldest",
            "systems.log.streams.boot.samza.bootstrap": "true",
            **more,
        }
    )


def put(partition: Partition, *entries: tuple[str, str | None]) -> None:
    """Each message in a segment of its own, all of them sealed."""
    for key, value in entries:
        partition.append([key.encode()], [None if value is None else value.encode()], [0])
        partition.roll()


def caught_up(log: Log, **more: str) -> list[str]:
    container = Container.from_config(settings(log, **more), note)
    container.start()
    container.run("caught-up")
    container.stop()
    return seen


def first_other() -> int:
    return next(at for at, place in enumerate(seen) if place.startswith("other"))


def test_compacted_offsets_and_an_empty_partition_do_not_hang_it(log: Log) -> None:
    boot = log.partition("boot", 0)
    put(boot, ("a", "1"), ("b", "1"), ("a", "2"), ("b", None))
    boot.clean(LONG_AFTER)
    assert [str(row["offset"]) for batch in boot.read(boot.bounds()[0]) for row in batch.to_pylist()] == [
        "2"
    ], "the newest is gone"
    assert caught_up(log)[0] == "boot.0@2"
    assert len(seen) == 1 + 6


def test_a_partition_of_which_nothing_is_left_does_not_hang_it(log: Log) -> None:
    boot = log.partition("boot", 0)
    put(boot, ("a", "1"), ("a", None))
    boot.clean(LONG_AFTER)
    assert len(caught_up(log)) == 6


def test_the_newest_message_may_go_while_it_is_being_read(log: Log) -> None:
    boot = log.partition("boot", 1)
    put(boot, *((f"k{number}", "1") for number in range(6)))
    container = Container.from_config(settings(log, **{"systems.log.samza.fetch.threshold": "1"}), note)
    container.start()
    container.step()
    put(boot, *((f"k{number}", None) for number in range(6)))
    boot.clean(LONG_AFTER)
    container.run("caught-up")
    container.stop()
    assert seen[0] == "boot.1@0"
    assert sum(place.startswith("other") for place in seen) == 6
    assert all(place.startswith("boot") for place in seen[: first_other()])


def test_partitions_of_another_container_do_not_hang_it(log: Log) -> None:
    for number in range(2):
        put(log.partition("boot", number), ("a", "1"), ("b", "1"))
    result = run(settings(log, **{"job.container.count": "2"}), task=note, container=0)
    assert result.messages == 2 + 3
    assert seen == ["boot.0@0", "boot.0@1", "other.0@0", "other.0@1", "other.0@2"]


def test_what_retention_has_taken_does_not_hang_it(log: Log) -> None:
    log.create("kept", 1, **{"retention.ms": 1000})
    kept = log.partition("kept", 0)
    put(kept, *((f"k{number}", "1") for number in range(5)))
    kept.clean(LONG_AFTER)
    more = {"task.inputs": "log.kept,log.other", "systems.log.streams.kept.samza.bootstrap": "true"}
    container = Container.from_config(settings(log, **more), note)
    container.start()
    assert container.snapshot().gate == ""
    container.run("caught-up")
    container.stop()
    assert len(seen) == 6


def test_after_a_checkpoint_only_what_is_new_holds_the_gate(log: Log) -> None:
    boot = log.partition("boot", 0)
    put(boot, ("a", "1"), ("b", "1"))
    caught_up(log)
    put(boot, ("c", "1"))
    log.partition("other", 0).append([None], [b"y"])
    seen.clear()
    assert caught_up(log) == ["boot.0@2", "other.0@3"]


def test_a_closed_gate_is_shown_and_told_once(log: Log, caplog: pytest.LogCaptureFixture) -> None:
    put(log.partition("boot", 0), ("a", "1"), ("b", "1"))
    container = Container.from_config(settings(log), note)
    with caplog.at_level(logging.INFO, logger="streambench.chooser"):
        container.start()
        gate = "bootstrap: log.boot still has to catch up"
        assert container.snapshot().gate == gate
        container.step()
        assert container.snapshot().gate == gate
        assert [choice.rule for choice in container.snapshot().choices] == [gate]
        container.run("caught-up")
    container.stop()
    assert container.snapshot().gate == ""
    assert caplog.messages == [
        f"{gate} before any other input is processed",
        "bootstrap: all streams have caught up",
    ]
