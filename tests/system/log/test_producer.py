"""The producer of the log: batches, limits, columns, and fences."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from streambench.errors import (
    FencedError,
    MessageTooLargeError,
    SerdeError,
    StreambenchError,
)
from streambench.model import (
    OutgoingMessageEnvelope,
)
from streambench.system.log.staging import STAGED
from streambench.system.log.streams import LogStream
from tests.system.log.parts import CLICKS, P0, Parts, outgoing


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
    with pytest.raises(MessageTooLargeError, match="a message of 101 bytes"):
        producer.send_columns(CLICKS, 0, None, [b"1", b"12"], headers=[None, {"name": b"x" * 95}])
    row = {"key": b"k", "message": b"1", "timestamp": None, "headers": [("name", b"x" * 95)]}
    with pytest.raises(MessageTooLargeError, match="a message of 101 bytes"):
        producer.sender_of_columns(CLICKS)("task", 0, pa.RecordBatch.from_pylist([row], schema=STAGED))
    producer.flush("task")
    assert parts.upcoming() == "1"


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
