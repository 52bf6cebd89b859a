"""Histograms and timers: the distribution of the last values, in a fixed amount of memory."""

from __future__ import annotations

import math
import sys
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.metrics.registry import WINDOW, Distribution, Histogram, MetricsRegistry, Timer

values = st.lists(st.integers(0, 10**12), max_size=300)


def test_an_empty_one_shows_zeros() -> None:
    assert Histogram().spread() == Distribution(0, 0, 0, 0, 0)
    assert Histogram().spread().mean == 0


@given(values)
def test_percentiles_are_those_of_the_sorted_values_by_nearest_rank(updates: list[int]) -> None:
    histogram = Histogram()
    for value in updates:
        histogram.update(value)
    spread = histogram.spread()
    assert (spread.count, spread.total) == (len(updates), sum(updates))
    for told, share in ((spread.p50, 0.5), (spread.p99, 0.99), (spread.max, 1.0)):
        if updates:
            assert told in updates
            assert sum(value <= told for value in updates) >= share * len(updates)
            assert sum(value < told for value in updates) < share * len(updates)


@given(values, st.integers(1, 50), st.integers(0, 10**12))
def test_values_before_the_window_leave_the_percentiles_but_not_the_mean(
    before: list[int], rounds: int, last: int
) -> None:
    histogram = Histogram()
    for value in [*before, *[last] * (WINDOW + rounds)]:
        histogram.update(value)
    spread = histogram.spread()
    assert (spread.p50, spread.p99, spread.max) == (last, last, last)
    total = sum(before) + last * (WINDOW + rounds)
    assert spread.count == len(before) + WINDOW + rounds
    assert math.isclose(spread.mean, total / spread.count, rel_tol=1e-9)


@given(st.integers(0, 3 * WINDOW), st.randoms(use_true_random=False))
def test_the_window_holds_exactly_the_last_values(count: int, random) -> None:
    updates = [random.randrange(10**6) for _ in range(count)]
    histogram = Histogram()
    for value in updates:
        histogram.update(value)
    last = sorted(updates[-WINDOW:])
    spread = histogram.spread()
    expected = (
        (last[math.ceil(0.5 * len(last)) - 1], last[math.ceil(0.99 * len(last)) - 1], last[-1])
        if last
        else (0, 0, 0)
    )
    assert (spread.p50, spread.p99, spread.max) == expected


def test_memory_does_not_grow_with_updates() -> None:
    histogram = Histogram()
    before = sys.getsizeof(histogram._ring)
    for value in range(5 * WINDOW):
        histogram.update(value)
    assert sys.getsizeof(histogram._ring) == before


def test_a_timer_times_what_happens_inside_also_if_it_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([100, 150, 1000, 1007])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(readings))
    timer = Timer()
    with timer.time():
        pass
    with pytest.raises(KeyError), timer.time():
        raise KeyError
    assert (timer.count, timer.total, timer.spread().max) == (2, 57, 50)


def test_a_histogram_is_no_timer() -> None:
    registry = MetricsRegistry()
    registry.histogram("sizes").update(3)
    with pytest.raises(TypeError, match=r"the metric user\.sizes is a Histogram, not a Timer"):
        registry.timer("sizes")
    registry.timer("took-ns")
    with pytest.raises(TypeError, match=r"is a Timer, not a Histogram"):
        registry.histogram("took-ns")


def test_the_flat_names_of_a_timer_are_its_mean_and_its_distribution() -> None:
    registry = MetricsRegistry("group")
    for value in (1, 2, 9):
        registry.timer("t").update(value)
    assert registry.snapshot() == {
        "group.t": 4,
        "group.t.count": 3,
        "group.t.p50": 2,
        "group.t.p99": 9,
        "group.t.max": 9,
    }


def test_a_gauge_whose_source_raises_is_not_a_number() -> None:
    registry = MetricsRegistry()
    registry.gauge("broken", source=lambda: 1 / 0)
    registry.counter("seen").inc()
    shown = registry.snapshot()
    assert math.isnan(shown.pop("user.broken"))
    assert shown == {"user.seen": 1}
