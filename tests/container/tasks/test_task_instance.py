"""One task of a container: the object that is made for it, its callbacks and its offsets."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from streambench.container.tasks.task_instance import TaskInstance
from streambench.errors import ConfigError, TaskError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import SystemStreamPartition
from streambench.task import StreamTask
from streambench.testing import run_job
from tests.container.jobs import Bench, ignore


def test_a_process_function_that_is_abstract_is_no_task() -> None:
    class Half(StreamTask):
        pass

    with pytest.raises(ConfigError, match="Half is abstract: it lacks process"):
        Bench(Half, {"mem.a": {0: []}})


def test_a_task_that_cannot_be_made_is_an_error() -> None:
    class Demanding(StreamTask):
        def __init__(self, url: str) -> None:
            pass

        process = staticmethod(ignore)  # type: ignore[assignment]

    with pytest.raises(
        ConfigError, match=r"task\.class: cannot make a Demanding \(test_task_instance\.py:\d+\): .*'url'"
    ):
        Bench(Demanding, {"mem.a": {0: []}}).started()


def takes_one(envelope: Any) -> None:
    """Forgets the collector."""


class TakesTwo:
    def process(self, envelope: Any, collector: Any) -> None:
        """Forgets the coordinator."""


class TakesARunOnly(TakesTwo):
    def process_batch(self, batch: Any) -> None:
        """Forgets both."""


class WindowTakesNone(TakesTwo):
    process = staticmethod(ignore)  # type: ignore[assignment]

    def window(self) -> None:
        """Forgets both."""


@pytest.mark.parametrize(
    ("task", "function", "called_as"),
    [
        (takes_one, takes_one, "process(envelope, collector, coordinator)"),
        (TakesTwo, TakesTwo.process, "process(self, envelope, collector, coordinator)"),
        (TakesARunOnly, TakesARunOnly.process_batch, "process_batch(self, batch, collector, coordinator)"),
        (WindowTakesNone, WindowTakesNone.window, "window(self, collector, coordinator)"),
    ],
)
def test_a_function_with_other_parameters_is_named_before_the_start(
    task: Any, function: Callable[..., None], called_as: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        Bench(task, {"mem.a": {0: []}})
    text = str(caught.value)
    assert text.startswith(
        f"{function.__qualname__} (test_task_instance.py:{function.__code__.co_firstlineno}) takes ("
    )
    assert f"is called as {called_as}" in text


async def awaits(envelope: Any, collector: Any, coordinator: Any) -> None:
    """Nobody would await it."""


class Yields:
    def process(self, envelope: Any, collector: Any, coordinator: Any) -> Iterator[Any]:
        yield envelope


class AwaitsInWindow:
    process = staticmethod(ignore)

    async def window(self, collector: Any, coordinator: Any) -> None:
        """Nobody would await it."""


@pytest.mark.parametrize(
    ("task", "function", "what"),
    [
        (awaits, awaits, "is async: the container calls process() and awaits nothing"),
        (Yields, Yields.process, "is a generator, since it has a yield: the container only calls process()"),
        (AwaitsInWindow, AwaitsInWindow.window, "is async: the container calls window() and awaits nothing"),
    ],
)
def test_a_function_whose_body_a_call_would_not_run_is_refused(
    task: Any, function: Callable[..., Any], what: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        run_job(task, None, {"mem.a": {0: ["x"]}})
    place = f"{function.__qualname__} (test_task_instance.py:{function.__code__.co_firstlineno})"
    assert str(caught.value).startswith(f"{place} {what}, so its code would never run")


def test_whatever_can_be_called_with_three_arguments_is_a_process_function() -> None:
    got: list[Any] = []

    def named(log: list[Any], envelope: Any, collector: Any, coordinator: Any, *, mark: int = 0) -> None:
        log.append(envelope.message)

    @functools.wraps(takes_one)
    def wrapper(*arguments: Any) -> None:
        got.append(arguments[0].message)

    class Both(TakesTwo):
        def process_batch(self, batch: Any, *handles: Any) -> None:
            got.extend(batch.messages())

    for task in (functools.partial(named, got), wrapper, Both):
        run_job(task, None, {"mem.a": {0: [1]}})
    assert got == [1, 1, 1]


A, B = SystemStreamPartition("mem", "a", 0), SystemStreamPartition("mem", "b", 0)


class Notes(StreamTask):
    """Notes the messages of one object; fails at "fail"."""

    def __init__(self) -> None:
        self.seen: list[Any] = []

    def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
        self.seen.append(envelope.message)
        if envelope.message == "fail":
            raise ValueError(envelope.message)


def only_task(bench: Bench) -> TaskInstance:
    """The task of a container, which is started for it."""
    (task,) = bench.started().status.tasks
    return task


def test_offsets_and_starts_divide_the_partitions_by_what_was_processed() -> None:
    bench = Bench(Notes, {"mem.a": {0: ["x", "y"]}, "mem.b": {0: []}})
    task = only_task(bench)
    assert (task.offsets(), task.starts()) == ({}, {A: "0", B: "0"})
    bench.container.step(2)
    assert (task.offsets(), task.starts()) == ({A: "1"}, {B: "0"})


def test_a_partition_that_is_to_start_again_has_no_offset_any_more() -> None:
    bench = Bench(Notes, {"mem.a": {0: ["x"]}, "mem.b": {0: ["y"]}})
    task = only_task(bench)
    bench.container.run("caught-up")
    task.start_at(B, "7")
    assert (task.offsets(), task.starts()) == ({A: "0"}, {B: "7"})


def test_code_that_is_exchanged_gets_the_next_message_of_every_partition() -> None:
    bench = Bench(Notes, {"mem.a": {0: ["a1", "a2"]}, "mem.b": {0: ["b1", "b2"]}})
    task = only_task(bench)
    bench.container.step(2)
    first, second = task.task, Notes()
    task.bind(second)
    bench.container.step(2)
    assert (first.seen, second.seen) == (["a1", "b1"], ["a2", "b2"])


def test_without_an_observer_or_a_listener_the_loop_calls_the_task_itself() -> None:
    task = only_task(Bench(Notes, {"mem.a": {0: []}}, observed=False))
    assert [each.process for each in task.subscriptions] == [task.task.process]
    assert task.process == task.task.process


def test_only_the_next_message_of_a_partition_is_timed() -> None:
    bench, timer = Bench(Notes, {"mem.a": {0: list("xyz")}}), MetricsRegistry().timer("t")
    task = only_task(bench)
    (subscription,) = task.subscriptions
    subscription.time_next(timer)
    assert bench.container.step(2) == 2
    assert timer.count == 1
    assert subscription.process is task.process


def test_a_message_that_fails_is_timed_and_the_next_one_is_not() -> None:
    config = {"task.ignored.exceptions": "ValueError"}
    bench, timer = Bench(Notes, {"mem.a": {0: ["fail", "x"]}}, config), MetricsRegistry().timer("t")
    task = only_task(bench)
    task.subscriptions[0].time_next(timer)
    assert bench.container.step(2) == 2
    assert timer.count == 1
    assert task.task.seen == ["fail", "x"]


def test_the_error_of_a_task_has_its_place_and_the_exception_as_its_cause() -> None:
    bench = Bench(Notes, {"mem.a": {0: [("k", "fail")]}})
    task = only_task(bench)
    with pytest.raises(TaskError, match=r"Partition 0 failed at mem\.a\.0@0, key 'k': ValueError") as caught:
        bench.container.run("caught-up")
    error = caught.value
    assert (error.task, error.ssp, error.offset, error.key) == (task.name, A, "0", "k")
    assert isinstance(error.__cause__, ValueError)
    assert (task.offsets(), task.starts()) == ({}, {A: "0"})
