"""The file of a recording."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from streambench.errors import StreambenchError
from streambench.locks import Held, is_locked
from streambench.recording.file import RecordingWriter, Row, check_target, read_header, read_rows
from tests.garbage import await_collected


def test_a_file_that_is_cut_ends_with_its_last_whole_block(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", {})
    rows = [Row("message", number, message=b"x" * 100) for number in range(300)]
    writer.write(rows)
    with open(tmp_path / "r", "ab") as file:
        file.write(b"a part of a block")
    writer.cut([Row("note", 300), Row("end", 300)])
    assert list(read_rows(tmp_path / "r")) == [*rows, Row("note", 300), Row("end", 300)]


def test_a_block_that_is_damaged_and_not_torn_is_an_error(tmp_path: Path) -> None:
    with RecordingWriter(tmp_path / "r", {}) as writer:
        begin = writer.size
        writer.write([Row("message", number, message=b"x" * 100) for number in range(300)])
    data = bytearray((tmp_path / "r").read_bytes())
    at = data.index(b"\x28\xb5\x2f\xfd", begin)  # where a compressed column begins
    data[at] ^= 255
    (tmp_path / "r").write_bytes(data)
    with pytest.raises(StreambenchError, match=r"r is damaged: its block at byte [\d,]+ cannot be read"):
        list(read_rows(tmp_path / "r"))


def test_more_than_a_column_holds_is_written_in_several_blocks(tmp_path: Path) -> None:
    value = bytes(1 << 20)
    rows = [Row("store", 0, "task", "n", key=b"%d" % number, message=value) for number in range(2_100)]
    with RecordingWriter(tmp_path / "r", {}) as writer:
        writer.write(rows)
    with pa.ipc.open_stream(tmp_path / "r") as stream:
        sizes = [each.num_rows for each in stream]
    assert (sizes[0], sum(sizes)) == (63, 2_100)


def test_blocks_count_keys_and_headers_and_end_with_the_last_rows(tmp_path: Path) -> None:
    large = bytes(40 << 20)
    rows = [
        Row("message", 1, key=large),
        Row("message", 2, headers={"h": large}),
        Row("message", 3, message=large),
        Row("window", 3),
    ]
    with RecordingWriter(tmp_path / "r", {}) as writer:
        writer.write(rows)
        assert writer.messages == 3
    with pa.ipc.open_stream(tmp_path / "r") as stream:
        assert [each.column("kind").to_pylist() for each in stream] == [
            ["message"], ["message"], ["message", "window"],
        ]  # fmt: skip
    assert list(read_rows(tmp_path / "r")) == rows


def test_a_recording_is_written_without_pandas(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from streambench.recording.file import RecordingWriter, Row\n"
        f"with RecordingWriter(Path({str(tmp_path / 'r')!r}), {{}}) as writer:\n"
        "    writer.write([Row('message', n, 't', key=b'k', timestamp=n or None) for n in range(300)])\n"
        "sys.exit('pandas' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
    assert [row.timestamp for row in read_rows(tmp_path / "r")] == [None, *range(1, 300)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_file_that_is_being_recorded_to_is_refused_until_it_ends(tmp_path: Path) -> None:
    path = tmp_path / "r"
    first = RecordingWriter(path, {})
    first.write([Row("message", 1)])
    with pytest.raises(BlockingIOError, match="another recording is being written to it; end that one"):
        RecordingWriter(path, {})
    with pytest.raises(StreambenchError, match=r"r: another recording is being written to it; end that"):
        check_target(path)
    first.close()
    assert list(read_rows(path)) == [Row("message", 1)]
    check_target(path)
    RecordingWriter(path, {}).cut([Row("end", 0)])
    assert list(read_rows(path)) == [Row("end", 0)]
    RecordingWriter(path, {}).close()
    RecordingWriter(path, {})  # dropped without an end, as by a notebook
    await_collected(lambda: not is_locked(path))
    check_target(path)


def test_a_look_at_the_lock_of_a_file_does_not_refuse_a_recording(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking = Held.locked(tmp_path / "r", is_shared=True)  # as is_locked() has it for a moment
    monkeypatch.setattr(time, "sleep", lambda _: looking.release())
    RecordingWriter(tmp_path / "r", {}).close()
    assert list(read_rows(tmp_path / "r")) == []


def test_an_adopted_branch_makes_a_file_one_that_older_readers_refuse(tmp_path: Path) -> None:
    rows = [Row("message", 1, message=b"x"), Row("adopt", 1)]
    with RecordingWriter(tmp_path / "r", {"job": '{"version":1'}) as writer:
        writer.write(rows[:1])
        assert read_header(tmp_path / "r")["version"] == 1
        writer.write(rows[1:])
        writer.write(rows)
    assert read_header(tmp_path / "r") == {"version": 2, "job": '{"version":1'}
    assert list(read_rows(tmp_path / "r")) == [*rows, *rows]
