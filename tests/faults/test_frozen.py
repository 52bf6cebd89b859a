"""A process that freezes while it holds a lock is replaced, and whatever it does later changes nothing."""

from __future__ import annotations

import itertools
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from streambench.errors import FencedError
from streambench.locks import LeasedLock
from streambench.system.log import open_log
from streambench.system.log.streams import Log
from tests.frozen import Frozen
from tests.surroundings import only_soak

LEASE_MS = 100


def opened(directory: Path) -> Log:
    return open_log(directory, lock_lease_ms=LEASE_MS, segment_bytes=4000)


def messages(directory: Path) -> list[tuple[int, bytes]]:
    with opened(directory) as log:
        batches = log.partition("s", 0).read(0)
    return [
        pair
        for batch in batches
        for pair in zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True)
    ]


def append_one(directory: Path) -> None:
    with opened(directory) as log:
        log.partition("s", 0).append(None, [b"late"])
        log.partition("s", 0).flush()


def append_behind_one(directory: Path) -> None:
    # The file is open already when the second one is written.
    with opened(directory) as log:
        log.partition("s", 0).append(None, [b"before"])
        log.partition("s", 0).append(None, [b"late"])


def append_once(directory: Path) -> None:
    with opened(directory) as log:
        log.partition("s", 0).append(None, [b"late"], producer="p", generation=1, sequence=7)


def roll(directory: Path) -> None:
    with opened(directory) as log:
        log.partition("s", 0).append(None, [b"before" * 600], producer="p", generation=1, sequence=6)
        log.partition("s", 0).append(None, [b"late"], producer="p", generation=1, sequence=7)


WORKS = [append_one, append_behind_one, append_once, roll]
USED = only_soak("the same is tried on a new log")


@pytest.mark.parametrize("work", WORKS, ids=lambda work: work.__name__)
@pytest.mark.parametrize("is_new", [True, pytest.param(False, marks=USED)], ids=["new", "used"])
def test_a_frozen_writer_changes_nothing_at_any_step(
    tmp_path: Path, work: Callable[[Path], None], is_new: bool, progress: Callable[[], None]
) -> None:
    outcomes = set()
    for at in itertools.count(1):
        directory = tmp_path / str(at)
        with opened(directory) as log:
            log.create("s")
            if not is_new:
                log.partition("s", 0).append(None, [b"first"])
        progress()
        frozen = Frozen(at, lambda where=directory: work(where))  # type: ignore[misc]
        with opened(directory) as log:
            partition = log.partition("s", 0)
            partition.append(None, [b"mine"], producer="q", generation=1, sequence=1)
            before = messages(directory)
            outcome = frozen.thaw()
            partition.append(None, [b"mine too"])
            # Written by a former holder, too: it is in both logs' view what it was.
            assert partition.append(None, [b"mine"], producer="q", generation=1, sequence=1) is None
        after = messages(directory)
        assert outcome in ("done", "LockLostError")
        assert after[: len(before)] == before, f"step {at}"
        values = [value for _, value in after]
        assert [offset for offset, _ in after] == list(range(len(after)))
        assert values.count(b"mine") == values.count(b"mine too") == 1
        assert values.count(b"late") <= 1
        if outcome == "done":
            assert values.count(b"late") == 1
        outcomes.add(outcome)
        if not frozen.has_frozen:
            break
    assert outcomes == {"done", "LockLostError"}


def test_a_fence_raised_by_a_frozen_process_does_not_lower_that_of_another(
    tmp_path: Path, progress: Callable[[], None]
) -> None:
    for at in itertools.count(1):
        directory = tmp_path / str(at)
        with opened(directory) as log:
            log.create("s")
            log.partition("s", 0).append(None, [b"first"])

        def fence(where: Path = directory) -> None:
            with opened(where) as log:
                log.partition("s", 0).fence("p", 2, 0)

        progress()
        frozen = Frozen(at, fence)
        with opened(directory) as log:
            log.partition("s", 0).fence("p", 3, 0)
            assert frozen.thaw() in ("done", "LockLostError", "FencedError")
            with pytest.raises(FencedError):
                log.partition("s", 0).append(None, [b"x"], producer="p", generation=2)
        if not frozen.has_frozen:
            break


def test_one_that_freezes_while_it_takes_over_is_replaced_in_its_turn(tmp_path: Path) -> None:
    for at in itertools.count(1):
        directory = tmp_path / str(at)
        with opened(directory) as log:
            log.create("s")
            log.partition("s", 0).append(None, [b"first"])
        lock = LeasedLock(directory / "s" / "0" / ".lock", "test", 60)
        assert lock.try_acquire()
        second = Frozen(at, lambda where=directory: append_one(where))  # type: ignore[misc]
        with opened(directory) as log:
            log.partition("s", 0).append(None, [b"mine"])
            before = messages(directory)
            outcome = second.thaw()
            assert outcome in ("done", "LockLostError")
            log.partition("s", 0).append(None, [b"mine too"])
        after = messages(directory)
        assert after[: len(before)] == before, f"step {at}"
        values = [value for _, value in after]
        assert values.count(b"mine") == values.count(b"mine too") == 1
        assert values.count(b"late") == 1 if outcome == "done" else values.count(b"late") <= 1
        assert lock.is_lost
        lock.release()
        if not second.has_frozen:
            break


def test_a_wait_says_for_what_process(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streambench.locks._REPORT_AFTER_S", 0.05)
    holder = LeasedLock(tmp_path / ".lock", "log.s.0", 60)
    holder.acquire()
    with caplog.at_level(logging.WARNING):
        LeasedLock(tmp_path / ".lock", "log.s.0", 1.5).acquire()

    waiting, replaced = caplog.messages
    assert waiting.startswith(f"log.s.0: waiting for process {os.getpid()} on {socket.gethostname()} (")
    assert str(tmp_path / ".lock") in waiting
    assert "no sign of life for 1.5 s" in waiting
    assert "is replaced here" in replaced
    with pytest.raises(Exception, match=r"was replaced by process \d+"):
        holder.check()


def test_a_holder_that_shows_signs_of_life_is_not_replaced(tmp_path: Path) -> None:
    holder, other = LeasedLock(tmp_path / ".lock", "x", 60), LeasedLock(tmp_path / ".lock", "x", 0.02)
    holder.acquire()
    for _ in range(200):
        holder.beat()
        assert not other.try_acquire()
    while not other.try_acquire():
        pass
    assert holder.is_lost
