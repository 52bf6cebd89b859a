"""What a container does while there is nothing to do: nearly nothing."""

from __future__ import annotations

import time
from typing import Any

import pytest

from streambench.container.container import Container
from tests.container.jobs import Bench, ignore, windowed


class Bed:
    """Where the event loop sleeps: it notes for how long, takes no time about it, and wakes the loop for good
    after so many times."""

    def __init__(self, container: Container, times: int) -> None:
        self.slept: list[float] = []
        self._container = container
        self._times = times
        container.status.consumers.wake = self  # type: ignore[assignment]

    def wait(self, seconds: float) -> None:
        self.slept.append(seconds)
        if len(self.slept) == self._times:
            self._container.pause()

    def set(self) -> None: ...

    def clear(self) -> None: ...


def polls_of(container: Container, monkeypatch: pytest.MonkeyPatch, seconds: float) -> list[int]:
    """The numbers of partitions asked for in each poll from now on; each takes so many seconds of a clock
    that stands still otherwise."""
    polls: list[int] = []
    now = [1_000.0]
    poll = container.status.consumers.poll

    def noted(system: str, wanted: Any) -> Any:
        polls.append(len(wanted))
        now[0] += seconds
        return poll(system, wanted)

    monkeypatch.setattr(container.status.consumers, "poll", noted)
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    return polls


def test_an_idle_loop_sleeps_between_two_looks_at_its_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    container = Bench(ignore, {"mem.a": {3: []}}).started()
    bed, polls = Bed(container, 100), polls_of(container, monkeypatch, 0.0)
    container.run()
    assert bed.slept == [0.01] * 100
    assert len(polls) <= 2 * 100 + 2


def test_looking_at_very_many_partitions_takes_a_small_part_of_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container = Bench(ignore, {"mem.a": {99: []}}).started()
    bed, polls = Bed(container, 100), polls_of(container, monkeypatch, 0.004)
    container.run()
    # Only the first time, when something may be on its way, it is soon back.
    assert bed.slept[1:] == [pytest.approx(2 * 0.004 * 19)] * 99
    assert len(polls) <= 2 * 100 + 2


def test_no_sleep_is_noticeable_or_lasts_beyond_the_next_window(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    container = Bench(ignore, {"mem.a": {0: []}}).started()
    bed, _ = Bed(container, 10), polls_of(container, monkeypatch, 60.0)
    container.run()
    assert max(bed.slept) == 0.2
    windows = Bench(
        windowed(lambda collector, coordinator: None), {"mem.a": {0: []}}, {"task.window.ms": 70}
    ).started()
    bed, _ = Bed(windows, 10), polls_of(windows, monkeypatch, 60.0)
    windows.run()
    assert max(bed.slept) == 0.07
