"""A process that uses the journal is killed between any two steps; the process that starts next reads what
was before, or what comes after.

The record log reaches the disk through the module ``os`` alone. Here it is given another one, whose n-th call
that changes or makes durable anything kills the process: that call, and every one after it, raises, so that
nothing is cleaned up.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streambench.checkpoint import record_log
from streambench.checkpoint.api import Checkpoint
from streambench.checkpoint.journal import JournalCheckpointManager
from streambench.errors import FencedError
from tests.checkpoint.samples import at

Step = Callable[[JournalCheckpointManager], object]
KEEP = 2


class Killed(BaseException):
    """The process is gone. No ``except Exception`` holds it up."""


class DyingOs:
    """``os``, until its n-th call of one of the functions below: it does not happen, or happens and no one is
    told (``done``).

    A write that is cut short by the death leaves half of its data.
    """

    deadly = ("open", "write", "fsync", "link", "rename", "unlink", "mkdir")

    def __init__(self, at: int, *, done: bool, disk: Any = os) -> None:
        self.calls = 0
        self._disk = disk
        self._at = at
        self._done = done

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._disk, name)
        return self._guarded(name, real) if name in self.deadly else real

    def _guarded(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            self.calls += 1
            if self.calls < self._at:
                return real(*arguments)
            if self.calls == self._at:
                if self._done:
                    made = real(*arguments)
                    if name == "open":
                        os.close(made)
                elif name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise Killed

        return call


class VolatileDisk:
    """``os``, with a disk that keeps what was synced, and nothing else, when ``lose_power`` is called.

    A file's data is kept by a sync of the file; that a name is there, or gone, by a sync of the directory
    that it is in.
    """

    def __init__(self) -> None:
        self._open: dict[int, Path] = {}
        self._unsynced_data: set[int] = set()
        self._unsynced_names: list[tuple[Path, str, Callable[[Path], object]]] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        handle = os.open(path, flags, mode)
        self._open[handle] = Path(path)
        if flags & os.O_CREAT:
            self._changed(path, os.unlink)
        return handle

    def write(self, handle: int, data: bytes) -> int:
        self._unsynced_data.add(os.fstat(handle).st_ino)
        return os.write(handle, data)

    def fsync(self, handle: int) -> None:
        self._unsynced_data.discard(os.fstat(handle).st_ino)
        self._unsynced_names = [each for each in self._unsynced_names if each[0] != self._open[handle]]

    def link(self, source: Path, target: Path) -> None:
        os.link(source, target)
        self._changed(target, os.unlink)

    def rename(self, source: Path, target: Path) -> None:
        os.rename(source, target)
        moved = {source: target}
        self._unsynced_names = [
            (moved.get(parent, parent), name, undo) for parent, name, undo in self._unsynced_names
        ]
        self._changed(target, lambda path: shutil.rmtree(path))

    def unlink(self, path: Path) -> None:
        file = path.stat()
        data = b"" if file.st_ino in self._unsynced_data else path.read_bytes()
        os.unlink(path)
        if file.st_nlink == 1:
            self._unsynced_data.discard(file.st_ino)  # the next file may get this number
        self._changed(path, lambda back: back.write_bytes(data))

    def mkdir(self, path: Path) -> None:
        os.mkdir(path)
        self._changed(path, lambda path: shutil.rmtree(path))

    def lose_power(self, directory: Path) -> None:
        for parent, name, undo in reversed(self._unsynced_names):
            with suppress(FileNotFoundError):
                undo(parent / name)
        for path in directory.rglob("*"):
            if path.is_file() and path.stat().st_ino in self._unsynced_data:
                path.write_bytes(b"")

    def _changed(self, path: Path, undo: Callable[[Path], object]) -> None:
        self._unsynced_names.append((path.parent, path.name, undo))


def manager(directory: Path) -> JournalCheckpointManager:
    return JournalCheckpointManager(directory, "job-1", keep=KEEP)


def run(
    directory: Path, step: Step, monkeypatch: pytest.MonkeyPatch, dying: DyingOs, prepare: Step | None = None
) -> bool:
    """Whether the step came to its end before the process died."""
    mine = manager(directory)
    if prepare is not None:
        prepare(mine)
    with monkeypatch.context() as patched:
        patched.setattr(record_log, "os", dying)
        patched.setattr(
            shutil,
            "rmtree",
            lambda path, ignore_errors: [os.unlink(each) for each in Path(path).rglob("*.json")],
        )
        try:
            step(mine)
        except Killed:
            return False
    mine.close()
    return True


def nothing(directory: Path) -> None:
    """A job that has never been started."""


def started_once(directory: Path) -> None:
    mine = manager(directory)
    mine.open_generation({0: ["a"], 1: ["b"]}, now_ms=1)
    mine.claim(1, 0, now_ms=1)
    mine.write({"a": at(1)})
    mine.close()


def well_used(directory: Path) -> None:
    """So many starts and commits that each further one forgets an old one."""
    for start in range(4):
        mine = manager(directory)
        generation = mine.open_generation({0: ["a"], 1: ["b"]}, now_ms=1).number
        for offset in range(4):
            for container, task in enumerate("ab"):
                mine.claim(generation, container, now_ms=1)
                mine.write({task: at(10 * start + offset)})
        mine.close()


def open_next(mine: JournalCheckpointManager) -> None:
    mine.open_generation({0: ["a", "b"]}, now_ms=2)


def claim(mine: JournalCheckpointManager) -> None:
    last = mine.last_generation()
    assert last is not None
    mine.claim(last.number, 0, now_ms=2)


def write(mine: JournalCheckpointManager) -> None:
    mine.write({"a": at(99)})


def rewind(mine: JournalCheckpointManager) -> None:
    mine.rewind({"a": at(50)}, now_ms=2)


def go_on(directory: Path, expected: list[dict[str, Checkpoint]]) -> None:
    """What the next start does, and finds."""
    mine = manager(directory)
    found = mine.read_last()
    assert found in expected
    generation = mine.open_generation({0: ["a", "b"]}, now_ms=3)
    mine.claim(generation.number, 0, now_ms=3)
    assert mine.read_last() == found
    mine.write({"a": at(1000)})
    assert manager(directory).read_last() == {**found, "a": at(1000)}
    assert mine.history()["a"][-1] == at(1000)
    mine.open_generation({0: ["a", "b"]}, now_ms=4)
    mine.close()
    assert not [path for path in directory.rglob("*") if path.name.endswith(".tmp")], (
        "what the dead left half done is cleaned up"
    )


every_step = pytest.mark.parametrize(
    ("job", "step", "prepare"),
    [
        pytest.param(nothing, open_next, None, id="the first start"),
        pytest.param(nothing, rewind, None, id="a rewind before the first start"),
        pytest.param(started_once, open_next, None, id="the second start"),
        pytest.param(well_used, open_next, None, id="a later start"),
        pytest.param(started_once, rewind, None, id="a rewind"),
        pytest.param(well_used, rewind, None, id="a later rewind"),
        pytest.param(started_once, claim, None, id="a claim"),
        pytest.param(well_used, claim, None, id="a later claim"),
        pytest.param(
            lambda directory: manager(directory).open_generation({0: ["a"]}, now_ms=1),
            claim,
            None,
            id="the first claim",
        ),
        pytest.param(started_once, write, claim, id="a commit"),
        pytest.param(well_used, write, claim, id="a commit that makes an old one go"),
    ],
)


@pytest.mark.parametrize("power", ["stays", "is lost"])
@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@every_step
def test_a_process_that_dies_at_any_step_leaves_what_was_or_what_was_to_be(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    job: Callable[[Path], object],
    step: Step,
    prepare: Step | None,
    done: bool,
    power: str,
) -> None:
    template = tmp_path / "template"
    job(template)
    expected = [manager(template).read_last()]
    after = tmp_path / "after"
    if template.exists():
        shutil.copytree(template, after)
    assert run(after, step, monkeypatch, DyingOs(10**9, done=done), prepare)
    expected.append(manager(after).read_last())

    died_at = 0
    finished = False
    while not finished:
        died_at += 1
        directory = tmp_path / "job-1"
        if template.exists():
            shutil.copytree(template, directory)
        disk = VolatileDisk()
        finished = run(directory, step, monkeypatch, DyingOs(died_at, done=done, disk=disk), prepare)
        if power == "is lost":
            disk.lose_power(directory)
        go_on(directory, expected[1:] if finished else expected)
        shutil.rmtree(directory)
    assert died_at > 5, "the step was interrupted in every place that it has"


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
@pytest.mark.parametrize("dying", [open_next, claim])
def test_what_builds_on_unsynced_records_of_a_dead_process_is_made_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dying: Step, done: bool
) -> None:
    directory = tmp_path / "job-1"
    finished = False
    died_at = 0
    while not finished:
        died_at += 1
        started_once(directory)
        disk = VolatileDisk()
        finished = run(directory, dying, monkeypatch, DyingOs(died_at, done=done, disk=disk))

        def go_on_at_once(mine: JournalCheckpointManager) -> None:
            try:
                claim(mine)
            except FencedError:
                open_next(mine)
                claim(mine)
            write(mine)

        assert run(directory, go_on_at_once, monkeypatch, DyingOs(10**9, done=done, disk=disk))
        disk.lose_power(directory)
        go_on(directory, [{"a": at(99)}])
        shutil.rmtree(directory)


@pytest.mark.parametrize("done", [False, True], ids=["before", "after"])
def test_a_reported_commit_is_not_lost_when_the_next_start_dies_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: bool
) -> None:
    """One start after the other dies, each a step later than the one before it, on what all the former ones
    have left."""
    directory = tmp_path / "job-1"
    started_once(directory)
    finished = False
    died_at = 0
    while not finished:
        died_at += 1
        finished = run(directory, open_next, monkeypatch, DyingOs(died_at, done=done))
        assert manager(directory).read_last() == {"a": at(1)}
    go_on(directory, [{"a": at(1)}])
