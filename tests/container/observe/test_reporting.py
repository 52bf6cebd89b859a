"""Metrics of a container, and when its reporters are told of them."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from streambench.container.observe.snapshot import ContainerSnapshot
from streambench.errors import TaskError
from streambench.metrics.registry import flat
from streambench.metrics.reporter import MetricsReport, MetricsReporter, ReporterContext
from streambench.task import StreamTask
from streambench.testing import ManualClock, run_job
from tests.container.jobs import Bench, echo, ignore

HERE = "tests.container.observe.test_reporting"

made: list[Keeps] = []


@pytest.fixture(autouse=True)
def nothing_made_yet() -> Iterator[None]:
    yield
    made.clear()


class Keeps(MetricsReporter):
    """Keeps the events of its life and the reports."""

    def __init__(self, context: ReporterContext) -> None:
        self.events: list[str] = []
        self.reports: list[MetricsReport] = []
        made.append(self)

    def start(self) -> None:
        self.events.append("start")

    def report(self, report: MetricsReport) -> None:
        self.events.append("report")
        self.reports.append(report)

    def stop(self) -> None:
        self.events.append("stop")

    def values(self, source: str = "samza-container-0", at: int = -1) -> dict[str, float]:
        return flat(self.reports[at].sources[source])

    def processed(self) -> list[float]:
        return [self.values(at=at)["container.process-envelopes"] for at in range(len(self.reports))]


class Fails(Keeps):
    def report(self, report: MetricsReport) -> None:
        super().report(report)
        raise OSError("nobody listens")


class SlowToKeep(Keeps):
    """Takes 100 ms for a report."""

    clock = ManualClock()

    def report(self, report: MetricsReport) -> None:
        super().report(report)
        self.clock.advance(100)


class FailsToStart(Keeps):
    def start(self) -> None:
        raise OSError("no such place")


class FailsToStop(Keeps):
    def stop(self) -> None:
        super().stop()
        raise OSError("it hangs")


def keeping(*kinds: str, interval: float = 1.0) -> dict[str, Any]:
    """The configuration of reporters of this file: of which classes."""
    names = [f"r{number}" for number in range(len(kinds))]
    settings: dict[str, Any] = {"metrics.reporters": names}
    for name, kind in zip(names, kinds, strict=True):
        settings |= {
            f"metrics.reporter.{name}.class": f"{HERE}.{kind}",
            f"metrics.reporter.{name}.interval": interval,
        }
    return settings


def advancing(ms: int) -> tuple[ManualClock, type[StreamTask]]:
    """A clock, and a task that lets it go on by so much with each message."""
    clock = ManualClock()

    class Slow(StreamTask):
        def process(self, envelope, collector, coordinator):
            clock.advance(ms)

    return clock, Slow


# When.


def test_a_reporter_is_told_each_interval_and_at_the_end() -> None:
    clock, slow = advancing(400)
    run_job(slow, keeping("Keeps"), {"mem.a": {0: list(range(8))}}, clock=clock)
    (keeps,) = made
    assert keeps.events == ["start", "report", "report", "report", "stop"]
    assert keeps.processed() == [3, 6, 8]
    assert [report.time_ms for report in keeps.reports] == [1200, 2400, 3200]


def test_reporters_have_intervals_of_their_own() -> None:
    clock, slow = advancing(100)
    settings = keeping("Keeps", "Keeps") | {"metrics.reporter.r1.interval": "0.3"}
    run_job(slow, settings, {"mem.a": {0: list(range(20))}}, clock=clock)
    assert made[0].processed() == [10, 20, 20]
    assert made[1].processed() == [3, 6, 9, 12, 15, 18, 20]


def test_an_idle_container_reports_too() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}}, keeping("Keeps"))
    container = bench.started()
    (keeps,) = made
    passes = iter(range(1000))

    def until() -> bool:
        bench.clock.advance(300)
        return next(passes) > 9 or len(keeps.reports) == 2

    container.run(until)
    assert len(keeps.reports) == 2
    container.stop()


def test_what_is_told_between_two_messages_is_true_of_this_moment() -> None:
    clock, slow = advancing(400)
    bench = Bench(slow, {"mem.a": {0: list(range(5))}}, keeping("Keeps"), clock=clock)
    container = bench.started()
    container.step(4)
    values = made[0].values()
    container.stop()
    assert values["container.process-envelopes"] == values["consumers.mem-a-0-messages-chosen"] == 3
    assert values["consumers.unprocessed-messages"] == values["consumers.mem-a-0-buffered-message-count"] == 2
    assert (
        values["consumers.mem-a-0-messages-behind-high-watermark"]
        == values["consumers.total-messages-behind-high-watermark"]
        == 2
    )
    assert values["container.container-running"] == 1


def test_a_slow_reporter_is_told_less_often_than_it_wants() -> None:
    """The loop stands still meanwhile: reports get at most a twentieth of the time."""
    clock, slow = advancing(100)
    SlowToKeep.clock = clock
    run_job(slow, keeping("SlowToKeep", interval=0.1), {"mem.a": {0: list(range(45))}}, clock=clock)
    times = [report.time_ms for report in made[0].reports]
    assert times[0] == 100
    assert all(later - before >= 2000 for before, later in zip(times, times[1:-1], strict=False))
    assert len(times) == 4


def test_a_failure_is_reported_before_the_end() -> None:
    def fails(envelope, collector, coordinator):
        raise ValueError

    with pytest.raises(TaskError):
        run_job(fails, keeping("Keeps"), {"mem.a": {0: [1]}})
    assert made[0].events == ["start", "report", "stop"]
    assert made[0].values()["container.container-running"] == 0


def test_a_crash_reports_nothing_but_stops_reporters() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1]}}, keeping("Keeps"))
    bench.started().abandon()
    assert made[0].events == ["start", "stop"]


def test_a_container_that_was_never_started_makes_no_reporters() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1]}}, keeping("Keeps"))
    bench.container.stop()
    assert made == []


# Failures.


def test_a_reporter_that_raises_is_logged_once_counted_and_harmless(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock, slow = advancing(1000)
    run = run_job(slow, keeping("Fails", "Keeps"), {"mem.a": {0: list(range(5))}}, clock=clock)
    assert len(run.processed) == 5
    assert len(made[1].reports) == len(made[0].reports) == 6
    assert run.metrics["container.report-exceptions"] == 6
    (told,) = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    assert (
        told
        == "the metrics reporter r0 failed (the job continues; later failures are only counted): OSError: "
           "nobody listens"
    )


def test_a_reporter_that_cannot_start_fails_the_start_before_any_claim() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1]}}, keeping("Keeps", "FailsToStart"))
    with pytest.raises(OSError, match="no such place"):
        bench.container.start()
    assert bench.container.state == "failed"
    assert made[0].events[-1] == "stop"
    assert bench.checkpoints.last_generation() is None


def test_all_reporters_are_stopped_even_if_one_fails_at_it() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1]}}, keeping("FailsToStop", "Keeps"))
    container = bench.started()
    container.run("caught-up")
    with pytest.raises(OSError, match="it hangs"):
        container.stop()
    assert [each.events[-1] for each in made] == ["stop", "stop"]
    assert bench.committed() == {"mem.a.0": "0"}


# What.


class Metered(StreamTask):
    """Keeps metrics of its own."""

    def init(self, context):
        self.seen = context.metrics.counter("seen")
        context.metrics.gauge("double", source=lambda: 2 * self.seen.count)
        self.sizes = context.metrics.histogram("sizes", "mine")

    def process(self, envelope, collector, coordinator):
        self.seen.inc()
        self.sizes.update(envelope.message)


def test_the_metrics_of_a_task_are_in_the_group_of_its_class() -> None:
    run = run_job(Metered, keeping("Keeps"), {"mem.a": {0: [1, 5], 1: [7]}})
    told = made[0].values("TaskName-Partition 0")
    assert (told["Metered.seen"], told["Metered.double"], told["mine.sizes"], told["mine.sizes.max"]) == (
        2,
        4,
        3,
        5,
    )
    assert {name: value for name, value in run.metrics.items() if name.startswith("Partition 1.Metered")} == {
        "Partition 1.Metered.seen": 1,
        "Partition 1.Metered.double": 2,
    }


def test_a_snapshot_adds_up_what_the_tasks_count() -> None:
    bench = Bench(Metered, {"mem.a": {0: [1, 5], 1: [7]}})
    container = bench.started()
    container.run("caught-up")
    snapshot: ContainerSnapshot = container.snapshot()
    container.stop()
    assert snapshot.counts["Metered.seen"] == 3
    assert all(float(value).is_integer() for value in snapshot.counts.values())


def test_tasks_count_what_they_are_given() -> None:
    run = run_job(echo, {"task.commit.ms": "0"}, {"mem.a": {0: [1, 2, 3], 1: [4]}})
    assert (run.metrics["Partition 0.task.process-calls"], run.metrics["Partition 1.task.process-calls"]) == (
        3,
        1,
    )
    assert run.metrics["Partition 0.task.mem-a-0-offset"] == 2
    assert run.metrics["offsets.mem-a-1-checkpointed-offset"] == 0
    assert run.metrics["Partition 0.task.commit-calls"] == 1
    assert run.metrics["producers.sends"] == 4


def test_a_broadcast_message_is_one_message_and_a_call_per_task() -> None:
    config = {"task.inputs": "mem.a", "task.broadcast.inputs": "mem.b#0"}
    run = run_job(ignore, config, {"mem.a": {0: [1], 1: [2]}, "mem.b": {0: ["x", "y"]}})
    assert run.metrics["container.process-envelopes"] == run.metrics["container.processed"] == 4
    assert run.metrics["container.process-calls"] == 6
    assert (
        run.metrics["Partition 1.task.process-calls"]
        == run.metrics["Partition 1.task.messages-actually-processed"]
        == 3
    )


class InBatches(StreamTask):
    def process_batch(self, batch, collector, coordinator):
        pass


@pytest.mark.parametrize(("task", "longest"), [(ignore, 1), (InBatches, 1), (InBatches, 2), (InBatches, 9)])
def test_messages_before_the_beginning_of_a_task_are_skipped_and_counted(task: Any, longest: int) -> None:
    config = {"task.inputs": "mem.a", "task.broadcast.inputs": "mem.b#0", "task.batch.messages": longest}
    inputs = {"mem.a": {0: [1], 1: [2]}, "mem.b": {0: ["x", "y", "z"]}}
    run = run_job(task, config, inputs, checkpoints={"Partition 1": {"mem.b.0": "1"}})
    assert run.metrics["container.skipped-envelopes"] == 2
    assert (
        run.metrics["Partition 1.task.messages-actually-processed"]
        == run.metrics["Partition 1.task.process-calls"] - 2
        == 2
    )


def test_the_chooser_tells_who_waits_at_which_priority() -> None:
    settings = {"systems.mem.streams.a.samza.priority": "7", **keeping("Keeps")}
    clock, slow = advancing(1000)
    bench = Bench(slow, {"mem.a": {0: [1, 2], 1: [1]}, "mem.b": {0: [1]}}, settings, clock=clock)
    container = bench.started()
    container.step(2)
    values = made[0].values()
    container.stop()
    waiting = {name: value for name, value in values.items() if name.endswith("buffered-messages")}
    assert waiting == {
        "chooser.buffered-messages": 2,
        "chooser.priority-7-buffered-messages": 1,
        "chooser.priority-none-buffered-messages": 1,
    }
    assert (values["chooser.held-partitions"], values["consumers.ssps-needed-by-chooser"]) == (1, 1)


def test_streams_without_a_priority_are_one_level_however_that_is_said() -> None:
    settings = {
        "systems.mem.streams.a.samza.priority": "7",
        "systems.mem.streams.c.samza.priority": "-5",
        **keeping("Keeps"),
    }
    clock, slow = advancing(1000)
    container = Bench(
        slow, {"mem.a": {0: [1, 2]}, "mem.b": {0: [1]}, "mem.c": {0: [1]}}, settings, clock=clock
    ).started()
    container.step(2)
    readings = [
        each
        for each in made[0].reports[-1].sources["samza-container-0"]
        if each.name == "priority-none-buffered-messages"
    ]
    container.stop()
    assert [each.value for each in readings] == [2]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_what_goes_to_changelogs_counts_as_sent(guarantee: str) -> None:
    class Counts(StreamTask):
        def init(self, context):
            self.store = context.store("s")

        def process(self, envelope, collector, coordinator):
            self.store.put(envelope.message, 1)
            echo(envelope, collector, coordinator)

    config = {
        "stores.s.factory": "memory",
        "stores.s.changelog": "mem.s",
        "task.processing.guarantee": guarantee,
    }
    assert run_job(Counts, config, {"mem.a": {0: ["x", "y", "z"]}}).metrics["producers.sends"] == 6


def test_bootstrap_streams_tell_how_far_they_are() -> None:
    settings = {"systems.mem.streams.b.samza.bootstrap": "true", **keeping("Keeps")}
    clock, slow = advancing(1000)
    run_job(slow, settings, {"mem.a": {0: [1, 2]}, "mem.b": {0: [1], 1: [1, 2]}}, clock=clock)
    told = [
        (
            made[0].values(at=at).get("chooser.lagging-batch-streams"),
            made[0].values(at=at).get("chooser.mem-b-lagging-partitions"),
        )
        for at in range(4)
    ]
    assert told == [(1, 1), (1, 1), (0, 0), (0, 0)]


# Timers.


@pytest.mark.parametrize(("wanted", "timed"), [("true", 5), ("false", 0)])
def test_every_call_is_timed_or_none(wanted: str, timed: int) -> None:
    settings = {"metrics.timer.enabled": wanted, "stores.s.factory": "memory"}

    class Stores(StreamTask):
        def init(self, context):
            self.store = context.store("s")

        def process(self, envelope, collector, coordinator):
            self.store.put(envelope.message, 1)
            assert self.store.get(envelope.message) == 1

    run = run_job(Stores, settings, {"mem.a": {0: ["1", "2"], 1: ["3", "4", "5"]}})
    metrics = {
        name: value for name, value in run.metrics.items() if value and name.endswith(("-ns.count", "s"))
    }
    assert metrics.get("container.process-ns.count", 0) == timed
    assert metrics.get("container.choose-ns.count", 0) == (
        timed + run.metrics["container.process-null-envelopes"] if timed else 0
    )
    assert metrics.get("stores.s-get-ns.count", 0) == metrics.get("stores.s-put-ns.count", 0) == timed


def test_a_sample_of_calls_is_timed_without_being_asked_for() -> None:
    """One call after each look at the clock's timers, 50 ms apart."""
    clock, slow = advancing(20)
    run = run_job(slow, None, {"mem.a": {0: list(range(30))}, "mem.b": {0: []}}, clock=clock)
    assert len(run.processed) == 30
    assert 5 <= run.metrics["container.process-ns.count"] <= 15


def test_every_run_of_a_task_that_takes_batches_is_timed() -> None:
    class Runs(StreamTask):
        def process_batch(self, batch, collector, coordinator):
            runs.append(len(batch))

    runs: list[int] = []
    run = run_job(Runs, {"task.batch.messages": "4"}, {"mem.a": {0: list(range(10))}})
    assert sum(runs) == 10
    assert run.metrics["container.process-ns.count"] == len(runs) < 10


def test_a_sampled_call_that_raises_is_timed_and_raises() -> None:
    clock = ManualClock()

    def fails_late(envelope, collector, coordinator):
        clock.advance(60)
        if envelope.message == "bad":
            raise ValueError("late")

    config = {"task.ignored.exceptions": "ValueError"}
    run = run_job(fails_late, config, {"mem.a": {0: ["a", "bad", "b", "bad"]}}, clock=clock)
    assert run.metrics["container.process-ns.count"] == 3
    assert run.metrics["container.exception-ignored-ValueError"] == 2


def test_a_sampled_call_leaves_the_code_as_it_was_swapped() -> None:
    clock = ManualClock()
    seen: list[str] = []

    class Old(StreamTask):
        def process(self, envelope, collector, coordinator):
            clock.advance(60)
            seen.append(f"old {envelope.message}")

    class New(StreamTask):
        def process(self, envelope, collector, coordinator):
            seen.append(f"new {envelope.message}")

    bench = Bench(Old, {"mem.a": {0: [1, 2, 3]}}, clock=clock)
    container = bench.started()
    container.step(1)
    container.tasks[0].bind(New())
    container.step(2)
    container.stop()
    assert seen == ["old 1", "new 2", "new 3"]


def test_reports_change_nothing_of_a_run() -> None:
    inputs: Mapping[str, Any] = {"mem.a": {0: list(range(20)), 1: list(range(7))}, "mem.b": {0: ["x"]}}
    clock, slow = advancing(70)
    plain = run_job(slow, {"task.commit.ms": 500}, inputs, clock=clock)
    clock, slow = advancing(70)
    told = run_job(slow, {"task.commit.ms": 500, **keeping("Keeps", interval=0.1)}, inputs, clock=clock)
    assert (told.processed, told.calls, told.outputs, told.checkpoints) == (
        plain.processed, plain.calls, plain.outputs, plain.checkpoints,
    )  # fmt: skip
    assert len(made[0].reports) > 10
