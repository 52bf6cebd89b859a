"""Files that are put in place in one step."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench.fsync import write_durably


def test_an_error_names_the_file_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "late.zip"
    with pytest.raises(OSError, match="late.zip") as raised:
        write_durably(path, b"")
    assert raised.value.filename == str(path)


def test_a_directory_in_the_place_of_a_file_is_named_itself(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError) as raised:
        write_durably(tmp_path, b"")
    assert raised.value.filename == str(tmp_path)
    assert not list(tmp_path.parent.glob(f".{tmp_path.name}.*"))
