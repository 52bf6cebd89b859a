"""Shrinking a failing recording."""

from __future__ import annotations

import logging
import random
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.debug import open as open_recording
from streambench.debug import shrink
from streambench.debug.comparison.message_source import recording_of
from streambench.debug.control.session import Session
from streambench.errors import StreambenchError, TaskError
from streambench.recording.recording import Recording
from tests.container.jobs import Bench
from tests.debug.dropped_interrupt import DroppedInterrupt

CONFIG = sb.Config({"systems.memory.samza.factory": "memory"})


class Needs(sb.StreamTask):
    """Fails at the end, where it has seen all it needs before."""

    needed: frozenset[int] = frozenset({3, 41, 58})

    def init(self, context: sb.TaskContext) -> None:
        self.seen: set[int] = set()

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen.add(envelope.message)
        if envelope.message == -1:
            raise KeyError("the other failure")
        if self.needed <= self.seen and envelope.message == 90:
            raise ValueError("seen all")


class Mended(Needs):
    needed = frozenset({-2})


def numbers(count: int = 100, *more: int) -> Recording:
    return recording_of([*range(count), *more], CONFIG, Needs)


def found(recording: Recording) -> list[int]:
    return [each.message for each in recording]


def test_only_the_messages_that_are_needed_stay() -> None:
    assert found(shrink(numbers())) == [3, 41, 58, 90]


def test_the_failure_stays_the_same_one() -> None:
    recording = recording_of([*range(91), -1], CONFIG, Needs)
    assert found(shrink(recording)) == [3, 41, 58, 90]
    early = recording_of([-1, *range(91)], CONFIG, Needs)
    assert found(shrink(early)) == [-1]


def test_another_condition_may_say_what_fails() -> None:
    def has_two_tens(recording: Recording) -> bool:
        return sum(message % 10 == 0 for message in found(recording)) >= 2

    small = found(shrink(numbers(), has_two_tens))
    assert len(small) == 2 and all(each % 10 == 0 for each in small)


def test_a_recording_that_does_not_fail_is_refused() -> None:
    with pytest.raises(StreambenchError, match="does not fail when it is run again"):
        shrink(numbers(), task=Mended)


def test_progress_says_how_many_are_left_and_were_tried() -> None:
    shown: list[tuple[int, int]] = []
    shrink(numbers(), progress=lambda left, tried: shown.append((left, tried)))
    left, tried = zip(*shown, strict=True)
    assert list(tried) == list(range(1, len(shown) + 1))
    assert left[0] == 100 and left[-1] == 4
    assert list(left) == sorted(left, reverse=True)


def test_an_interrupt_keeps_the_smallest_so_far(caplog: pytest.LogCaptureFixture) -> None:
    def press(left: int, tried: int) -> None:
        if left < 30:
            raise KeyboardInterrupt

    with caplog.at_level(logging.WARNING):
        small = shrink(numbers(), progress=press)
    assert 4 < len(small) < 30
    assert {3, 41, 58, 90} <= set(found(small))
    assert f"so far has {len(small)} messages" in caplog.text


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_that_python_drops_keeps_the_smallest_so_far() -> None:
    interrupt = DroppedInterrupt()
    small = shrink(numbers(), progress=lambda left, tried: interrupt.press() if left < 30 else None)
    assert 4 < len(small) < 30


@pytest.mark.parametrize("seed", range(8))
def test_of_what_is_left_no_message_can_be_left_out(seed: int) -> None:
    chance = random.Random(seed)
    groups = [chance.sample(range(60), chance.randrange(1, 5)) for _ in range(3)]

    def fails(recording: Recording) -> bool:
        there = found(recording)
        return any(set(group) <= set(there) for group in groups)

    small = shrink(numbers(60), fails)
    assert fails(small)
    assert not any(
        fails(small.only([at for at in range(len(small)) if at != left])) for left in range(len(small))
    )


def test_a_shrunk_recording_of_a_job_is_saved_and_opened_at_the_failure(tmp_path: Path) -> None:
    bench = Bench(Needs, {"mem.in": {0: list(range(100)), 1: [7] * 5}}, {}, observed=False)
    session = Session(bench.container)
    session.record(tmp_path / "long.recording")
    session.start()
    session.run("caught-up")
    with pytest.raises(TaskError, match="seen all"):
        session.wait()
    small = shrink(tmp_path / "long.recording")
    assert found(small) == [3, 41, 58, 90]
    small.save(tmp_path / "small.recording")
    opened = open_recording(tmp_path / "small.recording")
    assert opened.position == 3
    assert opened.message is not None and opened.message.message == 90
    with pytest.raises(TaskError, match="seen all"):
        opened.step()


class AtSeven(sb.StreamTask):
    """Fails where its sum is seven."""

    def init(self, context: sb.TaskContext) -> None:
        self.total = 0

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.total += envelope.message
        if self.total == 7:
            raise ValueError(f"seven at offset {envelope.offset}")


def test_a_shrunk_recording_names_the_message_at_which_it_fails(tmp_path: Path) -> None:
    bench = Bench(AtSeven, {"mem.in": {0: [5, 7, -5]}}, {}, observed=False)
    session = Session(bench.container)
    session.record(tmp_path / "long.recording")
    session.start()
    with pytest.raises(TaskError, match="seven at offset 2"):
        session.step(5)
    small = shrink(tmp_path / "long.recording")
    assert found(small) == [7]
    shrunk = Recording.read(small.save(tmp_path / "small.recording"))
    assert shrunk.failure is not None
    assert (shrunk.failure.position, shrunk.failure.offset) == (0, "1")
    assert "seven at offset 1" in shrunk.failure.text
    opened = open_recording(shrunk)
    assert (opened.position, opened.state) == (0, "paused")
    assert opened.message is not None and opened.message.message == 7


def test_a_part_of_a_recording_without_its_failing_message_has_no_failure(tmp_path: Path) -> None:
    bench = Bench(AtSeven, {"mem.in": {0: [5, 7, -5]}}, {}, observed=False)
    session = Session(bench.container)
    session.record(tmp_path / "r")
    session.start()
    with pytest.raises(TaskError):
        session.step(5)
    recording = Recording.read(tmp_path / "r")
    assert recording.only([0, 1]).failure is None
    opened = open_recording(recording.only([0, 1]))
    assert (opened.position, opened.state) == (2, "paused")
    last = recording.only([0, 2]).failure
    assert last is not None and (last.position, last.offset) == (1, "2")


def test_an_interrupt_leaves_a_recording_that_ends_at_its_failure() -> None:
    def press(left: int, tried: int) -> None:
        if left < 30:
            raise KeyboardInterrupt

    small = shrink(numbers(100, *range(5)), progress=press)
    assert small.failure is not None and small.failure.position == len(small) - 1
    assert found(small)[-1] == 90
