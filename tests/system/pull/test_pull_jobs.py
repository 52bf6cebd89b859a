"""Jobs on simple plug-ins: where they begin, what they wait for, and what they refuse."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import ConfigError, OffsetError, StreambenchError
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.planning.checkpoint_managers import checkpoint_manager
from streambench.spark.plan import make_plan
from streambench.system.log import open_log
from streambench.system.pull import StreamMessage
from streambench.task import MessageCollector, TaskCoordinator
from tests.system import listed
from tests.system.pull.noting import Noting, seen


def put(kind: type[listed.Opaque], stream: str, messages: Iterable[bytes], partitions: int = 1) -> None:
    partition = listed.streams.setdefault(stream, [[] for _ in range(partitions)])[0]
    for message in messages:
        partition.append(StreamMessage(message, kind().offset(len(partition))))


def config(directory: Path, kind: type[listed.Opaque], inputs: str, **more: Any) -> Config:
    settings = {
        "job.name": "pulled",
        "task.inputs": inputs,
        "systems.sys.samza.factory": f"tests.system.listed.{kind.__name__}",
        "systems.log.samza.factory": "log",
        "systems.log.path": directory / "log",
        **more,
    }
    return Config(settings)


def caught_up(settings: Config, task: Any = Noting) -> list[tuple[str, bytes]]:
    container = Container.from_config(settings, task)
    container.start()
    try:
        container.run("caught-up")
    finally:
        container.stop()
    return seen


def numbered(*numbers: int) -> list[bytes]:
    return [b"%d" % number for number in numbers]


def test_without_a_known_end_reading_begins_at_the_oldest_and_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(listed.Opaque, "a", numbered(1, 2))
    with caplog.at_level(logging.WARNING):
        assert caught_up(config(tmp_path, listed.Opaque, "sys.a")) == [("a", b"1"), ("a", b"2")]
    assert (
        "sys.a does not know where it ends; it is read from its beginning (samza.offset.default=upcoming)"
        in caplog.text
    )


@pytest.mark.parametrize("kind", [listed.Opaque, listed.Numbered, listed.Compared])
def test_what_comes_between_first_start_and_first_commit_is_not_skipped(
    tmp_path: Path, kind: type[listed.Opaque]
) -> None:
    put(kind, "a", [])
    settings = config(tmp_path, kind, "sys.a")
    started = Container.from_config(settings, Noting)
    started.start()
    started.abandon()
    put(kind, "a", numbered(1, 2))
    assert caught_up(settings) == [("a", b"1"), ("a", b"2")]


@pytest.mark.parametrize("kind", [listed.Numbered, listed.Compared])
def test_a_known_end_is_where_every_restart_before_a_commit_begins(
    tmp_path: Path, kind: type[listed.Opaque]
) -> None:
    put(kind, "a", numbered(1))
    settings = config(tmp_path, kind, "sys.a")
    started = Container.from_config(settings, Noting)
    started.start()
    started.abandon()
    put(kind, "a", numbered(2, 3))
    assert caught_up(settings) == [("a", b"2"), ("a", b"3")]


@pytest.mark.parametrize("kind", [listed.Opaque, listed.Bounded, listed.Numbered, listed.Compared])
def test_a_bootstrap_stream_is_read_to_its_end_first(tmp_path: Path, kind: type[listed.Opaque]) -> None:
    put(kind, "a", numbered(*range(20)))
    put(kind, "b", numbered(*range(300)))
    settings = config(
        tmp_path,
        kind,
        "sys.a,sys.b",
        **{"systems.sys.samza.offset.default": "oldest", "systems.sys.streams.b.samza.bootstrap": "true"},
    )
    caught_up(settings)
    assert [stream for stream, _ in seen] == ["b"] * 300 + ["a"] * 20


@pytest.mark.parametrize(("kind", "fails"), [(listed.Opaque, True), (listed.Numbered, False)])
def test_tasks_that_share_a_partition_need_an_order_of_where_they_begin(
    tmp_path: Path, kind: type[listed.Opaque], fails: bool
) -> None:
    put(kind, "a", numbered(1, 2, 3))
    more = {"task.broadcast.inputs": "sys.a#0", "systems.sys.samza.offset.default": "oldest"}
    settings = config(tmp_path, kind, "sys.b", **more)
    put(kind, "b", [], partitions=2)
    caught_up(settings)
    put(kind, "a", numbered(4))
    checkpoints_apart(settings)
    if fails:
        with pytest.raises(
            OffsetError, match=r"sys\.a\.0: its tasks begin at .* does not know which comes first"
        ):
            caught_up(settings)
    else:
        assert caught_up(settings).count(("a", b"4")) == 2


def checkpoints_apart(settings: Config) -> None:
    """Put one task back to the first message of the partition that it shares."""
    ssp = SystemStreamPartition("sys", "a", 0)
    manager = checkpoint_manager(settings, "pulled-1")
    last = manager.read_last()["Partition 0"]
    first = listed.streams["a"][0][0].offset_id
    manager.rewind(
        {"Partition 0": replace(last, offsets={**last.offsets, ssp: first}, generation=0)}, now_ms=0
    )
    manager.close()


def test_what_needs_a_known_end_is_refused_where_there_is_none(tmp_path: Path) -> None:
    put(listed.Opaque, "a", numbered(1))
    with pytest.raises(ConfigError, match=r"samza\.bounded: sys\.a\.0 cannot be bounded"):
        caught_up(config(tmp_path, listed.Opaque, "sys.a", **{"systems.sys.streams.a.samza.bounded": "true"}))
    with pytest.raises(
        ConfigError, match=r"sys\.a\.0: this kind of system does not know how far its streams go"
    ):
        make_plan(config(tmp_path, listed.Opaque, "sys.a"), Noting)


@pytest.mark.parametrize("kind", [listed.Numbered, listed.Compared])
def test_a_bounded_stream_ends_where_it_ended_at_the_start(tmp_path: Path, kind: type[listed.Opaque]) -> None:
    put(kind, "a", numbered(1, 2))

    class Adding(Noting):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            put(kind, "a", [b"later"])

    more = {"systems.sys.samza.offset.default": "oldest", "systems.sys.streams.a.samza.bounded": "true"}
    assert caught_up(config(tmp_path, kind, "sys.a", **more), Adding) == [("a", b"1"), ("a", b"2")]


def test_outputs_that_do_not_commit_with_the_rest_are_refused_exactly_once(
    tmp_path: Path,
) -> None:
    put(listed.Opaque, "a", numbered(1))
    put(listed.Opaque, "out", [])

    def copy(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(SystemStream("sys", "out"), envelope.message))

    settings = config(tmp_path, listed.Opaque, "sys.a", **{"task.processing.guarantee": "exactly-once"})
    with pytest.raises(StreambenchError, match="exactly-once"):
        caught_up(settings, copy)
    assert listed.streams["out"] == [[]]


def test_an_error_of_the_plug_in_stops_the_job_and_names_the_partition(
    tmp_path: Path,
) -> None:
    put(listed.Opaque, "a", numbered(1, 2))
    settings = config(tmp_path, listed.Opaque, "sys.a", **{"systems.sys.samza.offset.default": "oldest"})
    listed.streams["a"][0].append(StreamMessage(b"broken", "oldest"))
    with pytest.raises(StreambenchError, match=r"sys\.a\.0: 'oldest' cannot be the offset_id"):
        caught_up(settings)
    seen.clear()
    listed.streams["a"][0].pop()
    assert caught_up(settings) == [("a", b"1"), ("a", b"2")]


@pytest.mark.parametrize("kind", [listed.Opaque, listed.Numbered, listed.Compared])
def test_what_is_read_is_written_to_a_log_exactly_once(tmp_path: Path, kind: type[listed.Opaque]) -> None:
    put(kind, "a", numbered(*range(100)))
    more = {
        "task.processing.guarantee": "exactly-once",
        "systems.sys.samza.offset.default": "oldest",
        "task.commit.ms": 5,
    }

    def copy(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(SystemStream("log", "out"), envelope.message))

    settings = config(tmp_path, kind, "sys.a", **more)
    for so_many in (1, 30, 40):
        crashing = Container.from_config(settings, copy)
        crashing.start()
        crashing.run(so_many)
        crashing.abandon()
    caught_up(settings, copy)
    with open_log(tmp_path / "log") as log:
        batches = log.partition("out", 0).read(0)
        assert [value for batch in batches for value in batch["value"].to_pylist()] == numbered(*range(100))
