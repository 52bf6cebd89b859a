"""Metrics at former positions of a session."""

from __future__ import annotations

import math
import threading
import weakref
from functools import partial
from typing import Any

import pytest

import streambench as sb
from streambench.debug.history.position_metrics import Metrics, listed
from streambench.debug.view.position_figures import figures_of
from streambench.metrics.registry import Histogram, Reading
from tests.debug.control.test_time_travel import Counter, session_of


class Measuring(Counter):
    """Has metrics of all kinds, read from where it keeps its memory, and from where it does not."""

    def init(self, context: sb.TaskContext) -> None:
        super().init(context)
        metrics = context.metrics
        metrics.gauge("of self", source=lambda: len(self.keys))
        metrics.gauge("of a method", source=self.count)
        metrics.gauge("of a builtin", source=partial(len, self.keys))
        metrics.gauge("of math", source=lambda: math.floor(max(self.seen, 0)))
        metrics.gauge("of a store", source=lambda: sum(1 for _ in self.store.all()))
        metrics.gauge("of a global", source=lambda: sum(OUTSIDE))
        self.last = metrics.gauge("last")
        self.sizes = metrics.histogram("sizes")
        self.took = metrics.timer("took")

    def count(self) -> int:
        return self.seen

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        OUTSIDE.append(1)
        with self.took.time():
            super().process(envelope, collector, coordinator)
        self.last.set(self.total)
        self.sizes.update(self.seen)


OUTSIDE: list[int] = []
STATS = {"a": 0}
OTHER = Counter()


def outside(name: str) -> int:
    return STATS[name]


def largest(values: dict[str, int]) -> int:
    return max(values.values(), default=0)


class Shared(Counter):
    """Has gauges that read more than what is copied, each in another way."""

    of_class = 0

    def init(self, context: sb.TaskContext) -> None:
        super().init(context)
        gauge, kind, number = context.metrics.gauge, type(self), 0
        gauge("default", source=lambda name="a": STATS[name])  # type: ignore[misc]
        gauge("partial", source=partial(outside, "a"))
        gauge("of a dict", source=partial(STATS.get, "a", 0))
        gauge("both", source=lambda: self.seen + STATS["a"])
        gauge("class method", source=self.of_all)
        gauge("class", source=lambda: kind.of_class)
        gauge("class attribute", source=lambda: self.of_class)
        gauge("deep", source=lambda: sum(self.each(name) for name in ["a"]))
        gauge("nonlocal", source=lambda: number)
        gauge("function", source=lambda: self.function())
        gauge("shared", source=lambda: self.box["n"])
        gauge("given later")
        gauge("given again", source=lambda: self.seen)
        gauge("reference", source=lambda: self.reference().seen)
        self.reference = weakref.ref(OTHER)
        self.function = lambda: STATS["a"]
        self.box: dict[str, Any] = {"lock": threading.Lock(), "n": 0, "counter": self.number}
        self.also_box = [context.metrics.counter("boxed"), threading.Lock()]
        gauge("helper", source=lambda: largest(self.keys) + self.doubled)

        def count() -> None:
            nonlocal number
            number += 1

        self.count = count

    @classmethod
    def of_all(cls) -> int:
        return cls.of_class

    @property
    def doubled(self) -> int:
        return 2 * self.seen

    def each(self, name: str) -> int:
        return outside(name)

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        super().process(envelope, collector, coordinator)
        STATS["a"] += 1
        Shared.of_class += 1
        self.box["n"] += 1
        self.also_box[0].inc()
        self.count()
        if self.seen == 2:
            for name in ("late", "given later", "given again"):
                self.context.metrics.gauge(name, source=lambda: STATS["a"])


def test_metrics_that_a_copy_may_not_have_are_not_shown_in_the_past(
    caplog: pytest.LogCaptureFixture,
) -> None:
    session, _ = session_of(Shared, {"mem.in": {0: [{"key": "a"}] * 6}})
    session.step(5)
    session.goto(3)
    metrics = session.metrics()
    own = {name.removeprefix("Partition 0.Shared."): value for name, value in metrics.items()}
    refused = {
        "default", "partial", "of a dict", "both", "class method", "class", "class attribute", "deep",
        "nonlocal", "function", "shared", "late", "seen", "boxed", "given later", "given again", "reference",
    }  # fmt: skip
    not_kept = {name.removeprefix("Partition 0.Shared.") for name in metrics.not_kept}
    assert not own.keys() & refused and refused <= not_kept
    assert (own["keys"], own["helper"]) == (1, 3 + 2 * 3)
    assert "box (TypeError" in caplog.text and "metrics" not in caplog.text


def test_metrics_in_the_past_are_those_of_the_position() -> None:
    session, _ = session_of(Measuring, config={"task.window.ms": 10})
    seen = {0: session.metrics()}
    while session.step():
        seen[session.position] = session.metrics()
    assert not session.metrics().not_kept
    for position in (7, 3, session.latest - 1, 0):
        session.goto(position)
        metrics = session.metrics()
        assert dict(metrics).items() <= dict(seen[position]).items()
        assert metrics.position == metrics["container.processed"] == position
        own = {name.removeprefix("Partition 0.Measuring.") for name in metrics if ".Measuring." in name}
        assert {"seen", "of self", "of a method", "of a builtin", "of math", "of a store", "last"} <= own
        assert "sizes.p99" in own
        not_kept = {name.removeprefix("Partition 0.Measuring.") for name in metrics.not_kept}
        assert {"of a global", "took", "took.p99", "stores.n-puts", "producers.sends"} <= not_kept
        assert "took.count" in own and not own & not_kept
    with pytest.raises(KeyError, match="not kept in the past"):
        session.metrics()["producers.sends"]


def test_windows_are_counted_up_to_a_position() -> None:
    session, bench = session_of(config={"task.window.ms": 10})
    seen = {}
    for _ in range(4):
        session.step(2)
        seen[session.position] = session.metrics()["container.window-calls"]
        bench.clock.advance(10)
    for position, count in seen.items():
        session.goto(position)
        assert session.metrics()["container.window-calls"] == count
    assert count == 3


def test_metrics_of_a_task_without_its_own_are_shown_without_running_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ran: list[str] = []

    class Plain(sb.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            ran.append(envelope.offset)

    session, _ = session_of(Plain)
    session.step(9)
    session.goto(4)
    assert session.metrics()["container.processed"] == 4
    assert len(ran) == 9


def test_an_adopted_branch_brings_its_metrics_along() -> None:
    class Twice(Measuring):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            self.number.inc()
            super().process(envelope, collector, coordinator)

    keys = {"mem.in": {0: [{"key": "a"}] * 6}}
    config = {"task.processing.guarantee": "exactly-once", "task.commit.ms": -1}
    session, _ = session_of(Measuring, keys, config)
    session.step(5)
    session.goto(3)
    session.swap(Twice)
    assert session.step() == 1
    assert session.metrics()["Partition 0.Measuring.seen"] == 3 + 2
    session.adopt()
    assert session.metrics()["Partition 0.Measuring.seen"] == 3 + 2 * 2
    session.step()
    metrics = session.metrics()
    assert (metrics["Partition 0.Measuring.seen"], metrics["Partition 0.Measuring.of self"]) == (3 + 2 * 3, 1)
    assert metrics["Partition 0.Measuring.of a store"] == 1
    session.back()
    assert session.metrics()["Partition 0.Measuring.seen"] == 3 + 2 * 2
    assert session.metrics()["Partition 0.Measuring.of a method"] == 5


def test_gauges_are_read_from_the_new_code_after_a_swap() -> None:
    class Other(Measuring):
        def count(self) -> int:
            return -self.seen

    session, _ = session_of(Measuring, {"mem.in": {0: [{"key": "a"}] * 6}})
    session.step(2)
    session.swap(Other)
    session.step(2)
    seen = session.metrics()
    assert (seen["Partition 0.Measuring.of a method"], seen["Partition 0.Measuring.of self"]) == (-4, 1)
    session.step()
    session.back()
    assert session.metrics()["Partition 0.Measuring.of a method"] == -4


def test_gauges_stay_as_they_were_where_the_new_code_is_refused() -> None:
    class Broken(Measuring):
        def init(self, context: sb.TaskContext) -> None:
            super().init(context)
            self.last.set(-1)
            context.metrics.counter("new")
            raise ValueError("no")

        def count(self) -> int:
            return -99

    session, _ = session_of(Measuring, {"mem.in": {0: [{"key": "a"}] * 6}})
    session.step(2)
    before = session.metrics()
    with pytest.raises(sb.TaskError, match="no"):
        session.swap(Broken, init=True)
    assert dict(session.metrics()).keys() == dict(before).keys()
    session.step()
    metrics = {name.rpartition(".")[2]: value for name, value in session.metrics().items()}
    assert (metrics["of a method"], metrics["of self"], metrics["last"]) == (3, 1, 0 + 1 + 2)


def test_a_panel_reads_no_histograms_and_calls_gauges_of_the_task_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    reads: list[int] = []

    class Noting(Measuring):
        def init(self, context: sb.TaskContext) -> None:
            super().init(context)
            context.metrics.gauge("noted", source=lambda: reads.append(self.seen) or self.seen)
            context.metrics.counter("after", "other")

    def spread(*_: object) -> None:
        raise AssertionError("a histogram was read")

    session, _ = session_of(Noting, {"mem.in": {0: [{"key": "a"}] * 6}})
    session.step(5)
    with monkeypatch.context() as patched:
        patched.setattr(Histogram, "spread", spread)
        assert figures_of(session).gauges["Noting.of self"] == 1
        assert reads == [5]
        session.goto(2)
        figures = figures_of(session)
        assert figures.to_run == 2 and "Noting.seen" in figures.left_out
        session.bring_memory()
        figures = figures_of(session)
        assert (figures.to_run, figures.gauges["Noting.last"]) == (0, 1)
        assert figures.counts is not None and figures.counts["Noting.seen"] == 2
    assert reads == [5]


def test_figures_of_histograms_and_timers_are_left_out_of_lists_alone() -> None:
    took = [f"T.took{figure}" for figure in ("", ".p50", ".p99", ".max")]
    assert listed(["T.cache", "T.cache.hits", *took]) == "T.cache, T.cache.hits, T.took"
    metrics = Metrics(0, {"": [Reading("t", "a", "counter", 1)]}, ["t.a", "t.b"])
    assert metrics.not_kept == ("t.b",)
    metrics.not_kept = None  # type: ignore[assignment]  # it is not searched for each name
    assert dict(metrics) == {"container.processed": 0, "t.a": 1}
