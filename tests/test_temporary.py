"""Temporary directories: each is there as long as its process, and none for long after it was killed."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streambench.temporary import TemporaryDirectory

PROGRAM = """
import sys
from streambench.temporary import TemporaryDirectory
made = TemporaryDirectory("kind-", sys.argv[1])
(made.path / "file").write_text("left")
print(made.path, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def another(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a directory there; it prints the path."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, tmp_path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield process
        process.kill()


def its_directory(process: subprocess.Popen[str]) -> Path:
    assert process.stdout is not None
    return Path(process.stdout.readline().strip())


def test_a_directory_is_removed_with_its_content(tmp_path: Path) -> None:
    made = TemporaryDirectory("kind-", tmp_path)
    (made.path / "inner").mkdir()
    made.remove()
    made.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_goes_with_the_next_directory(
    tmp_path: Path, another: subprocess.Popen[str]
) -> None:
    left = its_directory(another)
    another.send_signal(signal.SIGKILL)
    another.wait()
    assert (left / "file").exists()
    made = TemporaryDirectory("kind-", tmp_path)
    assert list(tmp_path.iterdir()) == [made.path]


def test_directories_of_processes_that_live_stay(tmp_path: Path, another: subprocess.Popen[str]) -> None:
    other, own = its_directory(another), TemporaryDirectory("kind-", tmp_path)
    made = TemporaryDirectory("kind-", tmp_path)
    assert set(tmp_path.iterdir()) == {other, own.path, made.path}
    assert (other / "file").exists()


def test_directories_of_another_kind_stay(tmp_path: Path) -> None:
    (tmp_path / "other-1").mkdir()
    made = TemporaryDirectory("kind-", tmp_path)
    assert set(tmp_path.iterdir()) == {tmp_path / "other-1", made.path}
