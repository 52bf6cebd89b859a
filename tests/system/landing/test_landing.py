"""Streams of systems that keep nothing, landed in a log and read from there."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.container.container import Container
from streambench.errors import ConfigError, StreamSystemError, UnknownStreamError
from streambench.locks import not_for_children
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.landing import receiver_of
from streambench.system.landing.stream_locks import StreamLocks
from streambench.system.log import open_log
from streambench.system.systems import Systems
from streambench.task import MessageCollector, TaskCoordinator
from tests.system import queued
from tests.system.queued import Queued, broker

ORDERS = SystemStream("q", "orders")


@pytest.fixture(autouse=True)
def empty_broker() -> Iterator[None]:
    broker.clear()
    broker.create("orders", 2)
    yield
    broker.clear()


def settings(directory: Path, **more: Any) -> dict[str, Any]:
    return {
        "job.name": "landing",
        "task.inputs": "q.orders",
        "task.commit.ms": -1,
        "systems.q.samza.landing": "log",
        "systems.q.samza.factory": "tests.system.queued.QueueSystem",
        "systems.log.samza.factory": "log",
        "systems.log.path": directory / "log",
        **{key.replace("__", "."): value for key, value in more.items()},
    }


class Job:
    """A container that notes what it processes; one after the other, as one job."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.config = Config(settings(directory, **more))
        self.processed: list[Any] = []
        self.offsets: list[str] = []

    def started(self) -> Container:
        def note(
            envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            self.processed.append(envelope.message)
            self.offsets.append(f"{envelope.ssp}@{envelope.offset}")

        container = Container(self.config, note)
        container.start()
        return container

    def run(self, until: Any = "caught-up") -> list[Any]:
        """What a run processes."""
        before = len(self.processed)
        container = self.started()
        container.run(until)
        container.stop()
        return self.processed[before:]


def test_what_is_received_is_acknowledged_when_landed_and_read_from_a_log(tmp_path: Path) -> None:
    broker.put("orders", b"1", b"2", b"3")
    broker.put("orders", b"4", partition=1)
    job = Job(tmp_path)
    container = job.started()
    container.run("caught-up")
    # Nothing is committed, and yet all of it is safe.
    assert broker.acknowledged == {("orders", 0): [b"1", b"2", b"3"], ("orders", 1): [b"4"]}
    assert sorted(job.offsets) == ["q.orders.0@0", "q.orders.0@1", "q.orders.0@2", "q.orders.1@0"]
    container.abandon()
    assert sorted(job.run()) == [b"1", b"2", b"3", b"4"]
    assert job.run() == []


def test_it_is_an_ordinary_stream_of_the_log_too(tmp_path: Path) -> None:
    broker.put_all(
        "orders", 1, [Queued(b"k", b"m", 1_700_000_000_000, {"h": b"v"}), Queued(None, None, None, None)]
    )
    Job(tmp_path).run()
    with open_log(tmp_path / "log") as log:
        assert "q.orders" in log.streams()
        (batch,) = log.partition("q.orders", 1).read(0)
        first, second = batch.to_pylist()
    assert (first["key"], first["value"], first["timestamp"], dict(first["headers"])) == (
        b"k",
        b"m",
        1_700_000_000_000,
        {"h": b"v"},
    )
    # What came without a time has that of its arrival.
    assert (second["key"], second["value"]) == (None, None)
    assert second["timestamp"] > 1_700_000_000_000


def test_it_can_be_exactly_once_and_replayed(tmp_path: Path) -> None:
    out = SystemStream("log", "out")

    def echo(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(out, envelope.message))

    broker.put("orders", b"1", b"2", b"3")
    config = Config(settings(tmp_path, task__processing__guarantee="exactly-once"))
    systems = Systems(config)
    systems.create(out, 1)
    crashing = Container(config, echo)
    crashing.start()
    crashing.run("caught-up")
    crashing.abandon()
    for _ in range(2):
        container = Container(config, echo)
        container.start()
        container.run("caught-up")
        container.stop()
    consumer = systems.consumer("log", container.metrics)
    ssp = SystemStreamPartition("log", "out", 0)
    consumer.register(ssp, "0")
    consumer.start()
    assert [each.message for each in consumer.poll({ssp: 100}, 0)] == [b"1", b"2", b"3"]
    consumer.stop()
    systems.close()


def test_a_batch_reads_what_was_landed_and_receives_nothing(tmp_path: Path) -> None:
    broker.put("orders", b"1", b"2")
    container = Job(tmp_path).started()
    container.run("caught-up")
    container.abandon()
    broker.put("orders", b"3")
    only_reading = Job(tmp_path, **{"systems.q.samza.landing.receive": "false"})
    assert only_reading.run() == [b"1", b"2"]
    assert broker.left("orders") == [b"3"]


def test_nothing_is_there_before_anything_is_landed(tmp_path: Path) -> None:
    systems = Systems(Config(settings(tmp_path)))
    empty = PartitionMetadata(None, None, "0")
    assert systems.metadata([ORDERS]) == {ORDERS: {0: empty, 1: empty}}
    assert not (tmp_path / "log").exists()
    with pytest.raises(UnknownStreamError, match="nothing of q.orders has been landed yet"):
        systems.admin("q").grow(ORDERS, 3)
    systems.close()


def test_a_look_into_it_receives_nothing(tmp_path: Path) -> None:
    broker.put("orders", b"1")
    job = Job(tmp_path)
    job.run()
    broker.put("orders", b"2")
    systems = Systems(job.config)
    ssp = SystemStreamPartition("q", "orders", 0)
    consumer = systems.consumer("q", MetricsRegistry())
    consumer.register(ssp, "0")
    consumer.start()
    assert [each.message for each in consumer.poll({ssp: 10}, 0)] == [b"1"]
    assert consumer.at_head(ssp)
    consumer.stop()
    systems.close()
    assert broker.left("orders") == [b"2"]


def test_what_is_sent_to_the_system_goes_out(tmp_path: Path) -> None:
    broker.create("answers", 1)

    def answer(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(SystemStream("q", "answers"), envelope.message))

    broker.put("orders", b"1")
    container = Container(Config(settings(tmp_path)), answer)
    container.start()
    container.run("caught-up")
    container.stop()
    assert broker.left("answers") == [b"1"]


def test_it_may_have_other_partitions_than_its_source(tmp_path: Path) -> None:
    keyed = [Queued(b"k%d" % (number % 5), b"%d" % number, None, None) for number in range(50)]
    broker.put_all("orders", 0, keyed)
    broker.put("orders", *(b"x%d" % number for number in range(6)), partition=1)
    job = Job(tmp_path, systems__q__streams__orders__partitions=3)
    job.run()
    with open_log(tmp_path / "log") as log:
        found = [
            [row for batch in log.partition("q.orders", number).read(0) for row in batch.to_pylist()]
            for number in range(3)
        ]
    for number in range(5):
        key = b"k%d" % number
        places = [[row["value"] for row in rows if row["key"] == key] for rows in found]
        assert sorted(map(len, places)) == [0, 0, 10], "a key has one partition"
        assert sum(places, []) == [b"%d" % each for each in range(number, 50, 5)]
    assert [sum(row["key"] is None for row in rows) for rows in found] == [2, 2, 2]
    assert len(job.processed) == 56


def test_a_source_that_grows_is_followed(tmp_path: Path) -> None:
    broker.put("orders", b"1")
    job = Job(tmp_path)
    job.run()
    broker.create("orders", 4)
    broker.put("orders", b"2", partition=3)
    job.run()
    # What the job reads is decided at its start, what is received is not.
    assert broker.acknowledged["orders", 3] == [b"2"]
    job.run()
    assert job.processed == [b"1", b"2"]


SMALL = {"systems.log.max.message.bytes": "1000"}


def rows(log: Path, stream: str, partition: int = 0) -> list[dict[str, Any]]:
    """What is in a partition of a log."""
    with open_log(log) as opened:
        return [row for batch in opened.partition(stream, partition).read(0) for row in batch.to_pylist()]


def test_a_message_too_large_for_the_log_stops_nobody_and_leaves_a_trace(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    broker.put_all(
        "orders",
        0,
        [
            Queued(None, b"1", None, None),
            Queued(b"k", b"x" * 2000, 7, {"h": b"v"}),
            Queued(None, b"2", None, None),
        ],
    )
    broker.put("orders", b"y" * 3000, partition=1)
    job = Job(tmp_path, **SMALL)
    assert job.run() == [b"1", b"2"]
    assert broker.acknowledged["orders", 0] == [b"1", b"x" * 2000, b"2"]
    letters = sorted(
        rows(tmp_path / "log", "q.orders.dead-letters"),
        key=lambda row: dict(row["headers"])["dead-letter.source"],
    )
    headers = dict(letters[0]["headers"])
    assert (headers["dead-letter.source"], headers["dead-letter.offset"]) == (b"q.orders.0", b"1")
    assert (headers["dead-letter.size"], headers["dead-letter.timestamp"]) == (b"2001", b"7")
    assert b"larger than systems.log.max.message.bytes=1000" in headers["dead-letter.reason"]
    assert dict(letters[1]["headers"])["dead-letter.size"] == b"3000"
    (told,) = [record.message for record in caplog.records if "cannot be landed" in record.message]
    assert "it goes to log.q.orders.dead-letters" in told


def test_it_goes_whole_to_a_dead_letter_stream_that_takes_it(tmp_path: Path) -> None:
    more = {
        "systems.big.samza.factory": "log",
        "systems.big.path": str(tmp_path / "big"),
        "task.dead.letter.stream": "big.letters",
    }
    broker.put_all(
        "orders", 0, [Queued(b"k", b"x" * 2000, None, {"h": b"v"}), Queued(None, b"2", None, None)]
    )
    assert Job(tmp_path, **SMALL, **more, **{"job.default.system": "log"}).run() == [b"2"]
    (letter,) = rows(tmp_path / "big", "letters")
    assert (letter["key"], letter["value"], dict(letter["headers"])["h"]) == (b"k", b"x" * 2000, b"v")


def test_it_is_dropped_and_counted_where_the_job_says_so(tmp_path: Path) -> None:
    broker.put("orders", b"x" * 2000, b"2")
    job = Job(tmp_path, **SMALL, **{"task.drop.deserialization.errors": "true"})
    container = job.started()
    container.run("caught-up")
    assert job.processed == [b"2"]
    assert container.metrics.counter("q-messages-refused", "landing").count == 1
    assert container.metrics.counter("q-messages-landed", "landing").count == 1
    container.stop()
    with open_log(tmp_path / "log") as log:
        assert "q.orders.dead-letters" not in log.streams()


def test_it_stops_a_strict_receiver_and_is_not_acknowledged(tmp_path: Path) -> None:
    broker.put("orders", b"1", b"x" * 2000)
    with pytest.raises(
        StreamSystemError,
        match=r"q\.orders cannot be landed in log: .*message of 2000 bytes.*max\.message\.bytes=1000",
    ):
        Job(tmp_path, **SMALL, **{"systems.q.samza.landing.strict": "true"}).run(2)
    assert broker.acknowledged["orders", 0] == []
    assert len(broker.left("orders")) == 2


def test_a_time_that_no_log_can_hold_becomes_a_header(tmp_path: Path) -> None:
    broker.put_all(
        "orders", 0, [Queued(None, b"1", 1 << 63, None), Queued(None, b"2", -(1 << 70), {"h": b"v"})]
    )
    assert Job(tmp_path).run() == [b"1", b"2"]
    first, second = rows(tmp_path / "log", "q.orders")
    assert dict(first["headers"]) == {"timestamp": b"9223372036854775808"}
    assert dict(second["headers"]) == {"h": b"v", "timestamp": b"-1180591620717411303424"}


def test_limits_that_let_in_what_cannot_be_landed_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    told = "systems.t.max.message.bytes=1048576 is more than systems.log.max.message.bytes=1000"
    tcp = {
        "systems.t.samza.factory": "tcp",
        "systems.t.samza.landing": "log",
        "systems.t.streams.s.listen": "127.0.0.1:0",
    }
    for limit in ("1000", "1048576"):
        caplog.clear()
        config = Config(settings(tmp_path, **tcp, **{"systems.log.max.message.bytes": limit}))
        systems = Systems(config)
        receiver_of(systems, config, "t", MetricsRegistry(), [SystemStream("t", "s")], "")
        systems.close()
        assert (told in caplog.text) == (limit == "1000")


def test_a_forked_child_does_not_keep_a_stream_from_those_who_take_over(tmp_path: Path) -> None:
    waits, goes = os.pipe()
    ready, is_ready = os.pipe()
    parent = os.fork()
    if not parent:
        taken = StreamLocks(tmp_path, "q", ["orders"], "first")
        assert taken.take()
        listening = not_for_children(socket.create_server(("127.0.0.1", 0)))
        port = b"%d" % listening.getsockname()[1]
        if not os.fork():
            os.write(is_ready, port)
            os.close(goes)
            os.read(waits, 1)
            os._exit(0)
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(parent, 0)
    try:
        port = int(os.read(ready, 10))
        assert StreamLocks(tmp_path, "q", ["orders"], "second").take()
        socket.create_server(("127.0.0.1", port)).close()
    finally:
        for each in (waits, goes, ready, is_ready):
            os.close(each)


def test_a_source_that_fails_stops_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError("the line is dead")

    monkeypatch.setattr(queued.QueueConsumer, "poll", fail)
    with pytest.raises(
        StreamSystemError, match=r"q\.orders cannot be landed in log: OSError: the line is dead"
    ):
        Job(tmp_path).run(1)


def test_only_log_need_be_said(tmp_path: Path) -> None:
    text = (
        "task.inputs=q.orders\nsystems.q.samza.factory=tests.system.queued.QueueSystem\n"
        "systems.q.samza.landing=log\n"
        "task.processing.guarantee=exactly-once\njob.name=short\n"
    )
    (tmp_path / "job.properties").write_text(text)
    job = Job(tmp_path)
    job.config = Config.from_file(tmp_path / "job.properties")
    broker.put("orders", b"1")
    assert job.run() == [b"1"]
    assert (tmp_path / "landed" / "q.orders").is_dir()


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        (
            {"systems.q.samza.landing": "logg"},
            r"systems\.q\.samza\.landing: there is no system 'logg'; did you mean log\?",
        ),
        ({"systems.q.samza.landing": "mem"}, r"systems\.q\.samza\.landing: 'mem' is no log system"),
        (
            {"systems.log.samza.landing": "log"},
            r"systems\.q\.samza\.landing: 'log' is landed itself: name a log system that is not",
        ),
        ({"systems.q.samza.landing": "q"}, r"systems\.q\.samza\.landing: 'q' is landed itself"),
        (
            {"task.inputs": "mem.x", "systems.mem.samza.landing": "log"},
            r"systems\.mem\.samza\.landing: 'mem' keeps its messages itself",
        ),
        (
            {"systems.log.fsync": "never"},
            r"systems\.log\.fsync: 'never' forces nothing to the disk.*systems\.q\.samza\.landing",
        ),
        (
            {"systems.q.samza.landing.linger.ms": "-1"},
            r"systems\.q\.samza\.landing\.linger\.ms: -1 is too small",
        ),
        (
            {"systems.q.samza.landing.recieve": "true"},
            r"systems\.q\.samza\.landing\.recieve: is not a known key; did you mean .*receive",
        ),
    ],
)
def test_what_cannot_be_landed_is_told_with_its_key(
    tmp_path: Path, changed: dict[str, str], told: str
) -> None:
    config = Config({**settings(tmp_path), "systems.mem.samza.factory": "memory", **changed})
    with pytest.raises(ConfigError, match=told):
        Container(config, print).start()


def test_it_is_deleted_where_it_is_kept(tmp_path: Path) -> None:
    systems = Systems(Config(settings(tmp_path)))
    with pytest.raises(StreamSystemError, match=r"q\.orders is landed in log\.q\.orders: delete that stream"):
        systems.admin("q").delete(ORDERS)
    systems.close()
