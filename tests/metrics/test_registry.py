"""Counters, gauges and timers."""

from __future__ import annotations

import pytest

from streambench.metrics.registry import MetricsRegistry


def test_a_metric_is_the_same_object_whenever_it_is_asked_for() -> None:
    registry = MetricsRegistry()
    registry.counter("seen").inc()
    registry.counter("seen").inc(2)
    assert registry.snapshot() == {"user.seen": 3}


def test_groups_keep_equal_names_apart() -> None:
    registry = MetricsRegistry()
    registry.counter("polls", "kafka").inc()
    registry.counter("polls", "log").inc(5)
    assert registry.snapshot() == {"kafka.polls": 1, "log.polls": 5}


def test_a_gauge_shows_what_was_set_last() -> None:
    gauge = MetricsRegistry().gauge("size")
    assert gauge.read() == 0
    gauge.set(7)
    gauge.set(2.5)
    assert gauge.read() == 2.5


def test_a_gauge_with_a_source_is_read_when_somebody_asks() -> None:
    registry, waiting = MetricsRegistry(), ["a"]
    registry.gauge("waiting", source=lambda: len(waiting))
    waiting.append("b")
    assert registry.snapshot() == {"user.waiting": 2}


def test_a_new_source_takes_the_place_of_the_old_one() -> None:
    registry = MetricsRegistry()
    first = registry.gauge("waiting", source=lambda: 1)
    second = registry.gauge("waiting", source=lambda: 2)
    assert first is second
    assert first.read() == 2


def test_a_timer_shows_the_mean() -> None:
    timer = MetricsRegistry().timer("process-ns")
    assert timer.read() == 0
    timer.update(100)
    timer.update(300)
    assert (timer.count, timer.total, timer.read()) == (2, 400, 200)


def test_a_name_is_of_one_kind() -> None:
    registry = MetricsRegistry()
    registry.counter("seen")
    with pytest.raises(TypeError, match=r"the metric user\.seen is a Counter, not a Gauge"):
        registry.gauge("seen")
    with pytest.raises(TypeError, match=r"the metric user\.seen is a Counter, not a Gauge"):
        registry.gauge("seen", source=lambda: 1)
    with pytest.raises(TypeError, match=r"the metric user\.seen is a Counter, not a Timer"):
        registry.timer("seen")
    assert registry.counter("seen").count == 0
