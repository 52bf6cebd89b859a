"""The directory of captures."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streambench.errors import TaskError
from streambench.recording.captures import name_capture, save_capture


def test_containers_that_fail_at_once_write_a_file_each(tmp_path: Path) -> None:
    def save(number: int) -> Path:
        return save_capture(tmp_path, 0, lambda path: path.write_text(str(number)) and None)

    with ThreadPoolExecutor(8) as pool:
        paths = list(pool.map(save, range(8)))
    assert sorted(path.name for path in paths) == sorted(f"{number}-c0.capture" for number in range(1, 9))
    assert {path.read_text() for path in paths} == {str(number) for number in range(8)}
    assert sorted(tmp_path.iterdir()) == sorted(paths)


def test_a_capture_that_fails_leaves_nothing(tmp_path: Path) -> None:
    def broken(path: Path) -> None:
        path.write_text("half")
        raise OSError("full")

    with pytest.raises(OSError, match="full"):
        save_capture(tmp_path, 0, broken)
    assert list(tmp_path.iterdir()) == []


def test_the_capture_stands_in_the_text_of_the_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    error = TaskError("it failed", task="t")
    name_capture(error, tmp_path / "captures" / "1-c0.capture")
    assert str(error) == "it failed; captured: streambench replay captures/1-c0.capture"


def test_a_path_with_a_blank_is_quoted_in_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    error = TaskError("it failed", task="t")
    name_capture(error, tmp_path / "my streams" / "1-c0.capture")
    assert str(error).endswith("streambench replay 'my streams/1-c0.capture'")
