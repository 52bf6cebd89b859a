"""The log as a system: what a container sees of it through the plug-in contract."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streambench.config import Config
from streambench.errors import (
    ConfigError,
    FencedError,
    MessageTooLargeError,
    OffsetError,
    SerdeError,
    StreambenchError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    PartitionMetadata,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Chunk
from streambench.system.log import LogAdmin, LogConsumer, LogProducer, LogSystemFactory
from streambench.system.log.streams import LogStream
from streambench.system.systems import Systems

CLICKS = SystemStream("log", "clicks")
P0, P1 = SystemStreamPartition("log", "clicks", 0), SystemStreamPartition("log", "clicks", 1)


class Parts:
    """The parts of one log, made from a configuration."""

    def __init__(self, directory: Path, **settings: Any) -> None:
        values = {f"systems.log.{key.replace('_', '.')}": value for key, value in settings.items()}
        self.config = Config({"systems.log.samza.factory": "log", "systems.log.path": directory, **values})
        self.metrics = MetricsRegistry()
        self.admin: LogAdmin = LogSystemFactory().get_admin("log", self.config)
        self.admin.create(CLICKS, 2)

    def producer(self) -> LogProducer:
        made = LogSystemFactory().get_producer("log", self.config, self.metrics)
        made.start()
        made.register("task")
        return made

    def consumer(self, starts: dict[SystemStreamPartition, str]) -> LogConsumer:
        made = LogSystemFactory().get_consumer("log", self.config, self.metrics)
        for ssp, offset in starts.items():
            made.register(ssp, offset)
        made.start()
        return made

    def upcoming(self, partition: int = 0) -> str | None:
        return self.admin.metadata([CLICKS])[CLICKS][partition].upcoming


@pytest.fixture
def parts(tmp_path: Path) -> Iterator[Parts]:
    made = Parts(tmp_path / "log", linger_ms=1 << 40)
    yield made
    made.admin.close()


def outgoing(
    message: Any, key: Any = None, partition: int | None = 0, **more: Any
) -> OutgoingMessageEnvelope:
    return OutgoingMessageEnvelope(CLICKS, message, key, None, partition, **more)


def test_what_is_sent_comes_back_as_it_was(parts: Parts) -> None:
    producer = parts.producer()
    producer.send("task", outgoing(b"1", b"k", timestamp=5, headers={"a": b"b"}))
    producer.send("task", outgoing(None, b"k", timestamp=6))
    producer.send("task", outgoing(b"3", partition=1, timestamp=7))
    producer.flush("task")
    consumer = parts.consumer({P0: "0", P1: "0"})
    assert consumer.poll({P0: 10, P1: 10}, 0) == [
        IncomingMessageEnvelope(P0, "0", b"k", b"1", 5, {"a": b"b"}),
        IncomingMessageEnvelope(P0, "1", b"k", None, 6, None),
        IncomingMessageEnvelope(P1, "0", None, b"3", 7, None),
    ]


def test_nothing_is_written_before_the_flush_and_everything_after_it(parts: Parts) -> None:
    producer = parts.producer()
    producer.send("task", outgoing(b"1"))
    assert parts.upcoming() == "0"
    producer.flush("another source")
    assert parts.upcoming() == "1"


def test_a_full_batch_is_written_without_a_flush(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "log", linger_ms=1 << 40, batch_messages=3, batch_bytes=100)
    producer = parts.producer()
    for _ in range(4):
        producer.send("task", outgoing(b"1"))
    assert parts.upcoming(0) == "3"
    producer.send("task", outgoing(b"x" * 99, partition=1))
    assert parts.upcoming(1) == "0"
    producer.send("task", outgoing(b"x", partition=1))
    assert parts.upcoming(1) == "2"


def test_what_has_lingered_is_written_with_the_next_send(tmp_path: Path) -> None:
    producer = Parts(tmp_path / "log", linger_ms=0).producer()
    parts = Parts(tmp_path / "log")
    producer.send("task", outgoing(b"1"))
    producer.send("task", outgoing(b"2", partition=1))
    assert parts.upcoming(0) == "1"


def test_what_was_sent_after_the_last_flush_is_lost_with_a_stop(parts: Parts) -> None:
    producer = parts.producer()
    producer.send("task", outgoing(b"1"))
    producer.flush("task")
    producer.send("task", outgoing(b"2"))
    producer.stop()
    producer.stop()
    assert parts.upcoming() == "1"


def test_many_messages_to_many_partitions_keep_their_order(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "log", linger_ms=1 << 40)
    many = SystemStream("log", "many")
    parts.admin.create(many, 7)
    producer = parts.producer()
    send = producer.sender(many)
    for number in range(40_000):
        headers = {"n": b"%d" % number} if number % 1000 == 0 else None
        timestamp = number if number % 3 == 0 else None
        envelope = OutgoingMessageEnvelope(many, None, timestamp=timestamp, headers=headers)
        send("task", envelope, b"k", b"%d" % number, number % 7)
    producer.flush("task")
    ssps = [SystemStreamPartition("log", "many", partition) for partition in range(7)]
    consumer = parts.consumer(dict.fromkeys(ssps, "0"))
    seen: dict[SystemStreamPartition, list[IncomingMessageEnvelope]] = {ssp: [] for ssp in ssps}
    while not all(map(consumer.at_head, ssps)):
        for envelope in consumer.poll(dict.fromkeys(ssps, 999), 0):
            seen[envelope.ssp].append(envelope)
    for ssp in ssps:
        numbers = range(ssp.partition, 40_000, 7)
        assert [envelope.message for envelope in seen[ssp]] == [b"%d" % number for number in numbers]
        assert [envelope.offset for envelope in seen[ssp]] == [str(offset) for offset in range(len(numbers))]
        for envelope, number in zip(seen[ssp], numbers, strict=True):
            assert (envelope.headers is not None) == (number % 1000 == 0)
            assert (envelope.timestamp == number) == (number % 3 == 0)


def test_messages_with_and_without_timestamps_stay_apart_however_sent(parts: Parts) -> None:
    producer = parts.producer()
    appends = producer.appends(CLICKS)
    assert appends is not None
    appends.partitions[0]((b"k", b"0", None))
    producer.send("task", OutgoingMessageEnvelope(CLICKS, b"1", partition=0, timestamp=7))
    appends.partitions[0]((None, b"2", None))
    producer.send("task", outgoing(b"3", headers={"h": b"x"}))
    appends.partitions[0]((None, None, None))
    appends.apply_limits()
    producer.flush("task")
    read = parts.consumer({P0: "0"}).poll({P0: 10}, 0)
    assert [(envelope.message, envelope.headers) for envelope in read] == [
        (b"0", None), (b"1", None), (b"2", None), (b"3", {"h": b"x"}), (None, None)
    ]  # fmt: skip
    assert [envelope.timestamp == 7 for envelope in read] == [False, True, False, False, False]
    assert read[0].key == b"k"


def test_a_producer_opens_only_the_partitions_it_appends_to(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[int] = []
    partition = LogStream.partition
    monkeypatch.setattr(
        LogStream, "partition", lambda self, number: opened.append(number) or partition(self, number)
    )
    producer = parts.producer()
    appends = producer.appends(CLICKS)
    assert appends is not None
    appends.partitions[1]((None, b"0", None))
    appends.partitions[1]((None, b"1", None))
    appends.apply_limits()
    producer.flush("task")
    assert set(opened) == {1}
    assert parts.upcoming(1) == "2"


def test_to_a_stream_that_is_fenced_one_says_who_sends(parts: Parts) -> None:
    producer = parts.producer()
    producer.fence("job/task", [P0], 1, 1)
    assert producer.appends(CLICKS) is None


def test_what_must_not_wait_is_not_appended_in_the_way_that_may(tmp_path: Path) -> None:
    hasty = Parts(tmp_path / "log", linger_ms=0)
    producer = hasty.producer()
    assert producer.appends(CLICKS) is None
    producer.send("task", outgoing(b"1"))
    assert hasty.upcoming() == "1"


def test_columns_are_appended_behind_what_was_sent_before(parts: Parts) -> None:
    producer = parts.producer()
    producer.send("task", outgoing(b"0"))
    assert producer.send_columns(CLICKS, 0, None, [b"1", None], [8, 9]) == range(1, 3)
    producer.send("task", outgoing(b"3"))
    producer.flush("task")
    read = parts.consumer({P0: "0"}).poll({P0: 10}, 0)
    assert [envelope.message for envelope in read] == [b"0", b"1", None, b"3"]


def test_times_in_an_arrow_array_are_written_as_milliseconds(parts: Parts) -> None:
    parts.producer().send_columns(CLICKS, 0, None, [b"1"], pa.array([1704067200000999], pa.timestamp("us")))
    (envelope,) = parts.consumer({P0: "0"}).poll({P0: 10}, 0)
    assert envelope.timestamp == 1704067200000


@pytest.mark.parametrize(
    ("key", "message", "setting"),
    [("k", b"1", "key"), (b"k", {"n": 1}, "msg"), (b"k", bytearray(b"x"), "msg")],
)
def test_what_is_not_bytes_is_refused_with_the_setting_that_is_missing(
    parts: Parts, key: Any, message: Any, setting: str
) -> None:
    producer = parts.producer()
    with pytest.raises(SerdeError, match=rf"log\.clicks.*systems\.log\.samza\.{setting}\.serde"):
        producer.send("task", outgoing(message, key))
    producer.flush("task")
    assert parts.upcoming() == "0"


def test_a_message_beyond_the_limit_is_refused_and_nothing_of_it_written(tmp_path: Path) -> None:
    parts = Parts(tmp_path / "log", max_message_bytes=100)
    producer = parts.producer()
    producer.send("task", outgoing(b"x" * 60, b"k" * 40))
    with pytest.raises(
        MessageTooLargeError,
        match=r"log\.clicks\.0: a message of 101 bytes .*systems\.log\.max\.message\.bytes=100",
    ):
        producer.send("task", outgoing(b"x" * 60, b"k" * 40, headers={"h": b""}))
    with pytest.raises(MessageTooLargeError):
        producer.send_columns(CLICKS, 0, None, [b"fine", b"x" * 101])
    producer.flush("task")
    assert parts.upcoming() == "1"


def test_an_unknown_stream_or_partition_is_named(parts: Parts) -> None:
    producer = parts.producer()
    with pytest.raises(UnknownStreamError, match=r"log\.click .*did you mean log\.clicks"):
        producer.send("task", OutgoingMessageEnvelope(SystemStream("log", "click"), b"1", partition=0))
    with pytest.raises(UnknownStreamError, match=r"log\.clicks has no partition 2"):
        producer.send("task", outgoing(b"1", partition=2))
    with pytest.raises(StreamSystemError, match="which of the 2 partitions"):
        producer.send("task", outgoing(b"1", partition=None))
    with pytest.raises(UnknownStreamError, match=r"log\.clicks has no partition 7"):
        parts.consumer({SystemStreamPartition("log", "clicks", 7): "0"})
    with pytest.raises(UnknownStreamError, match=r"log\.klicks"):
        parts.admin.metadata([CLICKS, SystemStream("log", "klicks")])


def test_a_producer_that_failed_never_says_again_that_all_is_written(parts: Parts) -> None:
    producer = parts.producer()
    producer.send("task", outgoing(b"1"))
    parts.admin.delete(CLICKS)
    for _ in range(2):
        with pytest.raises(StreambenchError, match="deleted"):
            producer.flush("task")


def test_a_source_that_was_fenced_by_a_newer_start_can_no_longer_write(parts: Parts) -> None:
    old, new = parts.producer(), parts.producer()
    old.fence("job/task", [P0], 1, 1)
    old.send("job/task", outgoing(b"1"))
    old.flush("job/task")
    old.send("job/task", outgoing(b"late"))
    new.fence("job/task", [P0], 2, 1)
    with pytest.raises(FencedError, match=r"log\.clicks\.0"):
        old.flush("job/task")
    with pytest.raises(FencedError):
        parts.producer().fence("job/task", [P0], 1, 2)
    new.send("job/task", outgoing(b"2"))
    new.send("job/task", outgoing(b"not fenced here", partition=1))
    new.send("other", outgoing(b"3"))
    new.flush("job/task")
    assert sorted(envelope.message for envelope in parts.consumer({P0: "0"}).poll({P0: 10}, 0)) == [
        b"1",
        b"2",
        b"3",
    ]
    assert parts.upcoming(1) == "1"


def test_a_sender_that_was_made_before_the_fence_is_fenced_too(parts: Parts) -> None:
    producer, newer = parts.producer(), parts.producer()
    send = producer.sender(CLICKS)
    send("job/task", outgoing(None), None, b"1", 0)
    producer.fence("job/task", [P0], 1, 1)
    newer.fence("job/task", [P0], 1, 2)
    send("job/task", outgoing(None), None, b"2", 0)
    with pytest.raises(FencedError):
        producer.flush("job/task")
    assert parts.upcoming() == "1"


def test_a_chunk_spans_several_batches(parts: Parts) -> None:
    producer = parts.producer()
    producer.send_columns(CLICKS, 0, None, [b"0"], [1])
    producer.send_columns(CLICKS, 0, [b"k"], [b"1"], [2], [{"h": b"1"}])
    producer.send_columns(CLICKS, 0, None, [b"2"], [3])
    (chunk,) = parts.consumer({P0: "0"}).poll_chunks({P0: 10}, 0)
    assert chunk == Chunk(
        P0, ["0", "1", "2"], [None, b"k", None], [b"0", b"1", b"2"], [1, 2, 3], [None, {"h": b"1"}, None]
    )


@pytest.mark.parametrize("offset", ["11", "-1", "1.5", "", "oldest"])
def test_a_start_outside_the_partition_is_reported_before_the_first_poll(
    parts: Parts, offset: str
) -> None:
    parts.producer().send_columns(CLICKS, 0, None, [b"x"] * 10)
    with pytest.raises(OffsetError, match=r"log\.clicks\.0"):
        parts.consumer({P0: offset})


def test_the_admin_tells_oldest_newest_and_upcoming(parts: Parts) -> None:
    parts.producer().send_columns(CLICKS, 0, None, [b"x"] * 10)
    assert parts.admin.metadata([CLICKS]) == {
        CLICKS: {0: PartitionMetadata("0", "9", "10"), 1: PartitionMetadata(None, None, "0")}
    }
    assert parts.admin.streams() == [CLICKS]


def test_settings_of_a_stream_go_before_those_of_the_system(
    tmp_path: Path,
) -> None:
    config = Config(
        {
            "systems.log.path": tmp_path,
            "systems.log.retention.ms": "1",
            "systems.log.streams.a.b.retention.ms": "2",
            "systems.log.streams.a.b.samza.offset.default": "oldest",
            "systems.log.streams.a.b.partitions": "3",
        }
    )
    admin = LogSystemFactory().get_admin("log", config)
    for name in ("a.b", "c"):
        admin.create(SystemStream("log", name), 1)
    assert [admin.log.stream(name).settings.retention_ms for name in ("a.b", "c")] == [2, 1]


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("systems.log.streams.clicks.retension.ms", "5", "did you mean retention.ms"),
        (
            "systems.log.streams.clicks.retention.ms",
            "long",
            "systems.log.streams.clicks.retention.ms: 'long' is not a whole number",
        ),
        ("systems.log.segment.bytes", "1k", "systems.log.segment.bytes: '1k' is not a whole number"),
        (
            "systems.log.cleanup.policy",
            "shred",
            "systems.log.cleanup.policy: 'shred' is not one of delete, compact",
        ),
        (
            "systems.log.fsync",
            "sometimes",
            "systems.log.fsync: 'sometimes' is not one of flush, batch, never",
        ),
    ],
)
def test_a_wrong_setting_is_told_with_its_key(tmp_path: Path, key: str, value: str, told: str) -> None:
    config = Config({"systems.log.path": tmp_path, key: value})
    with pytest.raises(ConfigError) as raised:
        LogSystemFactory().get_admin("log", config).create(CLICKS, 1)
        LogSystemFactory().get_producer("log", config, MetricsRegistry()).send("task", outgoing(b"1"))
    assert told in str(raised.value)
    assert raised.value.key == key


def test_a_log_without_a_path_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"systems\.log\.path"):
        LogSystemFactory().get_admin("log", Config({}))


def test_an_unknown_setting_of_the_system_is_reported_with_a_suggestion(tmp_path: Path) -> None:
    config = Config(
        {"systems.log.samza.factory": "log", "systems.log.path": tmp_path, "systems.log.linger": "5"}
    )
    with pytest.raises(ConfigError, match=r"linger\.ms"):
        Systems(config).admin("log")


def test_a_growing_stream_keeps_what_it_has_and_goes_on_for_open_readers(parts: Parts) -> None:
    producer, consumer = parts.producer(), parts.consumer({P0: "0"})
    elsewhere: LogAdmin = LogSystemFactory().get_admin("log", parts.config)
    producer.send("task", OutgoingMessageEnvelope(CLICKS, b"before", partition=0))
    producer.flush("task")
    elsewhere.grow(CLICKS, 4)
    producer.send("task", OutgoingMessageEnvelope(CLICKS, b"after", partition=0))
    producer.flush("task")
    assert [each.message for each in consumer.poll({P0: 10}, 0)] == [b"before", b"after"]
    assert list(parts.admin.metadata([CLICKS])[CLICKS]) == [0, 1, 2, 3]
    assert parts.upcoming(3) == "0"
    parts.admin.grow(CLICKS, 3)
    assert list(elsewhere.metadata([CLICKS])[CLICKS]) == [0, 1, 2, 3]
    assert not parts.admin.create(CLICKS, 4)
    for each in (producer, consumer):
        each.stop()
    elsewhere.close()


def test_a_stream_that_is_made_anew_does_not_inherit_partitions(parts: Parts) -> None:
    parts.admin.grow(CLICKS, 4)
    parts.admin.delete(CLICKS)
    parts.admin.create(CLICKS, 1)
    assert list(parts.admin.metadata([CLICKS])[CLICKS]) == [0]
    with pytest.raises(UnknownStreamError):
        parts.admin.grow(SystemStream("log", "none"), 2)


def test_more_partitions_than_can_be_listed_are_refused(parts: Parts) -> None:
    with pytest.raises(StreamSystemError, match="at most 100,000 partitions, not 10,000,000,000"):
        parts.admin.create(SystemStream("log", "vast"), 10**10)
    with pytest.raises(StreamSystemError, match="at most 100,000 partitions"):
        parts.admin.grow(CLICKS, 10**10)
    assert parts.admin.streams() == [CLICKS]
