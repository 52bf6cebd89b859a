"""The file of a recording."""

from __future__ import annotations

from pathlib import Path

from streambench.recording.file import RecordingWriter, Row, read_rows


def test_a_file_that_is_cut_ends_with_its_last_whole_block(tmp_path: Path) -> None:
    writer = RecordingWriter(tmp_path / "r", {})
    rows = [Row("message", number, message=b"x" * 100) for number in range(300)]
    writer.write(rows)
    with open(tmp_path / "r", "ab") as file:
        file.write(b"a part of a block")
    writer.cut([Row("note", 300), Row("end", 300)])
    assert list(read_rows(tmp_path / "r")) == [*rows, Row("note", 300), Row("end", 300)]
