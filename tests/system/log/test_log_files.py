"""What lies in the files: readable without streambench, whole after every crash, and checked when it is read.
"""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import CorruptDataError
from streambench.system.log import Partition, open_log
from streambench.system.log.frame import Frame, walk
from streambench.system.log.segment import segments, start_of


def new_partition(directory: Path, **settings: object) -> Partition:
    log = open_log(directory, **settings)
    log.create("clicks")
    return log.partition("clicks", 0)


def values_from(partition: Partition, offset: int = 0) -> list[bytes | None]:
    return [value for batch in partition.read(offset) for value in batch["value"].to_pylist()]


def offsets_of(partition: Partition) -> list[int]:
    return [
        offset for batch in partition.read(partition.bounds()[0]) for offset in batch["offset"].to_pylist()
    ]


def only_segment(directory: Path) -> Path:
    return directory / "clicks" / "0" / f"{0:020d}.arrow"


def frames_of(directory: Path) -> list[Frame]:
    (segment,) = segments(directory / "clicks" / "0")
    with open(segment.path, "rb") as file:
        start = start_of(segment, file.fileno())
        return [
            frame
            for frame in walk(file.fileno(), start, os.fstat(file.fileno()).st_size)
            if isinstance(frame, Frame)
        ]


def damage(path: Path, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)
        file.seek(position)
        file.write(bytes([byte[0] ^ 0x40]))


def two_batches(directory: Path) -> None:
    partition = new_partition(directory)
    partition.append([b"a", None], [b"1", None], [5, 6], [None, {"trace": b"x"}])
    partition.append([b"b"], [b"3"], [7])
    partition.flush()


def test_pyarrow_reads_a_segment_as_it_is(tmp_path: Path) -> None:
    two_batches(tmp_path)
    with pa.ipc.open_stream(only_segment(tmp_path)) as reader:
        table = reader.read_all()
    assert table.to_pydict() == {
        "offset": [0, 1, 2],
        "timestamp": [5, 6, 7],
        "key": [b"a", None, b"b"],
        "value": [b"1", None, b"3"],
        "headers": [None, [("trace", b"x")], None],
    }
    assert table.schema.metadata[b"stream"] == b"clicks"


def test_polars_reads_a_segment_as_it_is(tmp_path: Path) -> None:
    two_batches(tmp_path)
    frame = polars.read_ipc_stream(only_segment(tmp_path))
    assert frame.select("offset", "key", "value").rows() == [
        (0, b"a", b"1"),
        (1, None, None),
        (2, b"b", b"3"),
    ]


def test_a_sealed_segment_is_a_complete_arrow_stream(tmp_path: Path) -> None:
    partition = new_partition(tmp_path)
    partition.append(None, [b"1"])
    partition.roll()
    assert only_segment(tmp_path).read_bytes().endswith(b"\xff\xff\xff\xff\0\0\0\0")
    with pa.ipc.open_stream(only_segment(tmp_path)) as reader:
        assert reader.read_all()["value"].to_pylist() == [b"1"]


def test_the_metadata_of_a_batch_tells_its_producer_place_and_checksum(tmp_path: Path) -> None:
    partition = new_partition(tmp_path)
    partition.append(None, [b"1", b"2"], [5, 4], producer="job-1", generation=2, epoch=3, sequence=9)
    with pa.ipc.open_stream(only_segment(tmp_path)) as reader:
        _, about = reader.read_next_batch_with_custom_metadata()
    found = {key.decode(): value.decode() for key, value in about.items()}
    assert len(found.pop("crc32c")) == len(found.pop("metadata.crc32c")) == 8
    assert found == {
        "base.offset": "0", "last.offset": "1", "count": "2", "timestamp": "5",
        "producer": "job-1", "generation": "2", "epoch": "3", "sequence": "9",
    }  # fmt: skip


@given(st.data())
def test_the_log_opens_after_a_cut_at_any_byte_of_its_last_batch(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    batches = data.draw(
        st.lists(st.lists(st.none() | st.binary(max_size=30), min_size=1, max_size=5), min_size=1, max_size=4)
    )
    partition = new_partition(directory)
    for batch in batches:
        partition.append(None, batch)
    last = frames_of(directory)[-1]
    os.truncate(only_segment(directory), data.draw(st.integers(last.position, last.end - 1)))
    kept = [value for batch in batches[:-1] for value in batch]

    reader = open_log(directory).partition("clicks", 0)
    size = only_segment(directory).stat().st_size
    assert reader.bounds() == (0, len(kept))
    assert values_from(reader) == kept
    assert only_segment(directory).stat().st_size == size, "a reader cuts nothing"

    writer = open_log(directory).partition("clicks", 0)
    assert writer.append(None, [b"after"]) == range(len(kept), len(kept) + 1)
    assert values_from(reader) == [*kept, b"after"]
    assert offsets_of(reader) == list(range(len(kept) + 1))
    shutil.rmtree(directory)


@given(st.data())
def test_the_log_opens_when_the_end_of_its_last_batch_is_zeros(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    partition = new_partition(directory)
    partition.append(None, [b"kept"])
    partition.append(None, [b"x" * 50])
    last = frames_of(directory)[-1]
    size = only_segment(directory).stat().st_size
    os.truncate(
        only_segment(directory),
        data.draw(st.sampled_from([last.position, last.position + last.metadata_size])),
    )
    os.truncate(only_segment(directory), size)
    writer = open_log(directory).partition("clicks", 0)
    assert writer.append(None, [b"after"]) == range(1, 2)
    assert values_from(writer) == [b"kept", b"after"]
    shutil.rmtree(directory)


def test_a_reader_that_saw_a_torn_end_goes_on_when_a_writer_repaired_it(tmp_path: Path) -> None:
    partition = new_partition(tmp_path)
    partition.append(None, [b"1"])
    partition.append(None, [b"2"])
    last = frames_of(tmp_path)[-1]
    os.truncate(only_segment(tmp_path), last.end - 1)
    cursor = open_log(tmp_path).partition("clicks", 0).cursor(0)
    assert [batch.num_rows for batch in cursor.read(10)] == [1]
    assert cursor.at_head and cursor.read(10) == []
    open_log(tmp_path).partition("clicks", 0).append(None, [b"3"])
    assert [batch["value"].to_pylist() for batch in cursor.read(10)] == [[b"3"]]


def test_a_batch_finished_while_a_reader_sees_its_torn_end_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is in the middle of a batch; before the reader has looked for the next segment, it is done
    with it and has gone on to that."""
    partition = new_partition(tmp_path)
    partition.append(None, [b"1"])
    partition.append(None, [b"2" * 500])
    first, whole = frames_of(tmp_path)[0], only_segment(tmp_path).read_bytes()
    os.truncate(only_segment(tmp_path), first.end + (len(whole) - first.end) // 2)

    def finished(directory: Path) -> object:
        monkeypatch.undo()
        with only_segment(tmp_path).open("r+b") as file:
            file.write(whole)
        writer = open_log(tmp_path).partition("clicks", 0)
        writer.roll()
        writer.append(None, [b"3"])
        return segments(directory)

    cursor = open_log(tmp_path).partition("clicks", 0).cursor(0)
    assert [batch["value"].to_pylist() for batch in cursor.read(1)] == [[b"1"]]
    monkeypatch.setattr("streambench.system.log.cursor.segments", finished)
    assert [batch["value"].to_pylist() for batch in cursor.read(10)] == [[b"2" * 500], [b"3"]]


@given(st.data())
def test_damage_in_the_middle_is_told_with_the_file_and_the_place(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    directory = tmp_path_factory.mktemp("log")
    partition = new_partition(directory)
    for number in range(3):
        partition.append(None, [b"value %d" % number] * 3)
    frame = frames_of(directory)[1]
    damage(only_segment(directory), data.draw(st.integers(frame.position, frame.end - 1)))
    cursor = open_log(directory).partition("clicks", 0)
    with pytest.raises(CorruptDataError, match=rf"{only_segment(directory)}, byte {frame.position}: "):
        # A damaged length may reach beyond the end of the file: then only a writer can tell that it is no
        # torn end.
        values_from(cursor)
        open_log(directory).partition("clicks", 0).append(None, [b"more"])
    shutil.rmtree(directory)


def test_a_file_that_is_no_segment_is_told(tmp_path: Path) -> None:
    two_batches(tmp_path)
    only_segment(tmp_path).write_bytes(b"something else entirely")
    with pytest.raises(CorruptDataError, match="not a segment"):
        values_from(open_log(tmp_path).partition("clicks", 0))


@pytest.mark.parametrize("content", [None, b"", b"\x07", b"\xff" * 4096, bytes(160)])
def test_the_index_is_only_a_hint(tmp_path: Path, content: bytes | None) -> None:
    partition = new_partition(tmp_path)
    for number in range(40):
        partition.append(None, [b"%d" % number, b"x" * 40_000])
    index = only_segment(tmp_path).with_suffix(".index")
    assert index.stat().st_size >= 32, "or this tests nothing"
    if content is None:
        index.unlink()
    else:
        index.write_bytes(content)
    reopened = open_log(tmp_path).partition("clicks", 0)
    assert reopened.bounds() == (0, 80)
    assert values_from(reopened, 70)[0] == b"35"
    assert reopened.append(None, [b"more"]) == range(80, 81)
    assert values_from(reopened, 80) == [b"more"]


def test_a_read_in_the_middle_passes_over_what_comes_before_by_the_index(tmp_path: Path) -> None:
    partition = new_partition(tmp_path)
    for _ in range(40):
        partition.append(None, [b"x" * 40_000])
    damage(only_segment(tmp_path), frames_of(tmp_path)[2].position + 4)
    assert len(values_from(open_log(tmp_path).partition("clicks", 0), 35)) == 5


def test_a_stream_json_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    two_batches(tmp_path)
    file = tmp_path / "clicks" / "stream.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "format": 2}))
    with pytest.raises(CorruptDataError, match="format 2"):
        open_log(tmp_path).stream("clicks")


@pytest.mark.parametrize("name", ["stream.json", "partitions.json"])
def test_a_damaged_description_of_a_stream_says_what_to_write_into_it(tmp_path: Path, name: str) -> None:
    two_batches(tmp_path)
    open_log(tmp_path).grow("clicks", 3)
    before = values_from(open_log(tmp_path).partition("clicks", 0))
    file = tmp_path / "clicks" / name
    file.write_text("{")
    with pytest.raises(
        CorruptDataError,
        match=rf'{name}: .* \(.*\); bring the file back .* write {{"partitions": N}} into it',
    ):
        open_log(tmp_path).stream("clicks")
    file.write_text('{"partitions": 3}')
    assert open_log(tmp_path).stream("clicks").partitions == 3
    assert values_from(open_log(tmp_path).partition("clicks", 0)) == before
