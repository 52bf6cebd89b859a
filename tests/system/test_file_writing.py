"""Files as streams that are written to."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import pytest

from streambench.errors import (
    SerdeError,
    StreambenchError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.model import OutgoingMessageEnvelope, PartitionMetadata, SystemStreamPartition
from streambench.system.api import SystemProducer
from tests.system.files import STREAM, Files, written


def send(producer: SystemProducer, *messages: Any, partition: int = 0) -> None:
    for message in messages:
        producer.send("Partition 0", OutgoingMessageEnvelope(STREAM, message, partition=partition))


def test_what_was_sent_is_there_after_the_flush(tmp_path: Path) -> None:
    files = Files(tmp_path)
    assert files.admin().create(STREAM, 1)
    producer = files.producer()
    send(producer, b'{"a":1}', b"2")
    producer.sender(STREAM)("Partition 0", OutgoingMessageEnvelope(STREAM, None), None, b"3", 0)
    producer.flush("Partition 0")
    assert (tmp_path / "flights.jsonl").read_bytes() == b'{"a":1}\n2\n3\n'
    send(producer, b"4")
    producer.stop()
    producer.stop()
    assert files.messages() == [b'{"a":1}', b"2", b"3"]


def test_partitions_are_files_of_a_directory(tmp_path: Path) -> None:
    files = Files(tmp_path / "new", format="text")
    assert files.admin().create(STREAM, 3)
    producer = files.producer()
    send(producer, b"x", partition=2)
    producer.flush("Partition 0")
    assert [path.name for path in sorted((tmp_path / "new" / "flights").iterdir())] == [
        "0.txt",
        "1.txt",
        "2.txt",
    ]
    assert files.messages(ssp=SystemStreamPartition("files", "flights", 2)) == [b"x"]


@pytest.mark.parametrize("partitions", [1, 2])
def test_a_stream_is_created_once(tmp_path: Path, partitions: int) -> None:
    files = Files(tmp_path)
    assert files.admin().create(STREAM, partitions) is True
    assert files.admin().create(STREAM, partitions) is False
    with pytest.raises(StreamExistsError, match=rf"with {partitions} partitions and not 5"):
        files.admin().create(STREAM, 5)
    assert files.metadata() == dict.fromkeys(range(partitions), PartitionMetadata(None, None, "0"))


def test_many_messages_are_written_before_the_flush_and_whole(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.jsonl", b"")
    producer = Files(tmp_path).producer()
    send(producer, *[b"1" * 999] * 2000)
    data = path.read_bytes()
    assert 0 < len(data) < 2_000_000
    assert data.endswith(b"\n")


@pytest.mark.parametrize(
    ("ending", "before", "after"),
    [
        (".jsonl", b'1\n{"a"', b"1\nnew\n"),
        (".jsonl", b"1\n2", b"1\n2\nnew\n"),
        (".txt", b"1\n2", b"1\n2\nnew\n"),
        (".jsonl", b"[", b"new\n"),
    ],
)
def test_a_line_torn_by_a_crash_is_mended_before_anything_is_appended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, ending: str, before: bytes, after: bytes
) -> None:
    path = written(tmp_path / f"flights{ending}", before)
    producer = Files(tmp_path).producer()
    with caplog.at_level(logging.WARNING):
        send(producer, b"new")
        producer.flush("Partition 0")
    assert path.read_bytes() == after
    assert ("was not complete and is cut off" in caplog.text) == (b"{" in before or b"[" in before)


def test_a_write_that_fails_leaves_no_half_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n")
    producer = Files(tmp_path).producer()
    send(producer, b"2", b"3")
    real, calls = os.write, iter([True, False])

    def failing(handle: int, data: Any) -> int:
        if next(calls):
            return real(handle, bytes(data)[:3])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("streambench.system.file.producer.os.write", failing)
    with pytest.raises(StreamSystemError, match=r"cannot write .*flights\.jsonl: No space left on device"):
        producer.flush("Partition 0")
    assert path.read_bytes() == b"1\n"


@pytest.mark.parametrize(
    ("message", "what"),
    [
        ({"a": 1}, r"systems\.files\.samza\.msg\.serde=json"),
        (None, "tombstone"),
        (b"a\nb", "newline"),
        (b"", "empty"),
    ],
)
def test_what_is_no_line_is_refused(tmp_path: Path, message: Any, what: str) -> None:
    written(tmp_path / "flights.jsonl", b"")
    with pytest.raises(SerdeError, match=what):
        send(Files(tmp_path).producer(), message)


@pytest.mark.parametrize(
    ("name", "what"), [("flights.csv", "CSV files"), ("flights.jsonl.gz", "compressed files")]
)
def test_an_error_says_which_files_can_be_written_and_csv_cannot(
    tmp_path: Path, name: str, what: str
) -> None:
    written(tmp_path / name, b"")
    with pytest.raises(StreamSystemError, match=f"{what} can only be read.*JSON lines"):
        send(Files(tmp_path).producer(), b"1")
    with pytest.raises(StreamSystemError, match=f"{what} can only be read"):
        Files(tmp_path / "new" / name).admin().create(STREAM, 1)


def test_sending_to_a_stream_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnknownStreamError, match=r"files\.flights"):
        send(Files(tmp_path).producer(), b"1")


def test_a_file_stays_when_its_stream_is_to_be_deleted(tmp_path: Path) -> None:
    path = written(tmp_path / "flights.jsonl", b"1\n")
    with pytest.raises(StreambenchError, match="cannot delete"):
        Files(tmp_path).admin().delete(STREAM)
    assert path.exists()
