"""Tasks of plain functions: the context that they are given, and what they keep in it."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

import streambench as sb
from streambench.container.tasks.functions import TaskOfFunctions
from streambench.testing import JobRun, ManualClock, run_job

TWO_PARTITIONS = {"mem.in": {0: [("a", 1), ("b", 1), ("a", 1)], 1: [("c", 1)]}}
STORE = {"stores.counts.factory": "memory", "stores.counts.changelog": "mem.counts"}


def task_of(**functions: Any) -> type:
    return type("Cell", (TaskOfFunctions,), {name: staticmethod(each) for name, each in functions.items()})


def count_in_store(envelope: Any, collector: Any, coordinator: Any, context: sb.TaskContext) -> None:
    counts = context.store("counts")
    counts.put(envelope.key, (counts.get(envelope.key) or 0) + 1)
    collector.send("mem.out", counts.get(envelope.key), key=envelope.key)


def sent(job: JobRun) -> list[Any]:
    return sorted(job.outputs["mem.out"][0])


def test_a_function_counts_in_the_store_of_its_own_task() -> None:
    job = run_job(count_in_store, STORE, TWO_PARTITIONS)
    assert sent(job) == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
    assert {number: dict(rows).keys() for number, rows in job.outputs["mem.counts"].items()} == {
        0: {"a", "b"},
        1: {"c"},
    }
    again = run_job(count_in_store, STORE, TWO_PARTITIONS, previous=job)
    assert sent(again)[-2:] == [("c", 1), ("c", 2)]


def test_what_init_leaves_in_the_context_is_that_of_one_task() -> None:
    def init(context: sb.TaskContext) -> None:
        context.user.seen = []

    def process(envelope: Any, collector: Any, coordinator: Any, context: sb.TaskContext) -> None:
        context.user.seen.append(envelope.key)
        clock.advance(1)

    def window(collector: Any, coordinator: Any, context: sb.TaskContext) -> None:
        collector.send("mem.out", list(context.user.seen), key=context.task_name)

    def close(context: sb.TaskContext) -> None:
        closed.append((context.task_name, context.user.seen))

    closed: list[Any] = []
    clock = ManualClock()
    functions = {"init": init, "process": process, "window": window, "close": close}
    job = run_job(task_of(**functions), {"task.window.ms": 1}, TWO_PARTITIONS, clock=clock)
    assert closed == [("Partition 0", ["a", "b", "a"]), ("Partition 1", ["c"])]
    assert {tuple(seen) for key, seen in sent(job) if key == "Partition 1"} == {(), ("c",)}


@pytest.mark.parametrize(
    "process",
    [
        lambda envelope, collector, coordinator, ctx: collector.send("mem.out", ctx.task_name),
        lambda envelope, collector, coordinator, *, context: collector.send("mem.out", context.task_name),
        lambda envelope, collector, coordinator, factor=2, context=None: collector.send(
            "mem.out", context.task_name * (factor // 2)
        ),
    ],
)
def test_a_function_takes_the_context_by_its_place_or_by_its_name(process: Any) -> None:
    assert sent(run_job(process, None, {"mem.in": {0: [1]}})) == [(None, "Partition 0")]


def test_a_function_of_a_file_takes_the_context(tmp_path: Path) -> None:
    (tmp_path / "tally.py").write_text(
        "def tally(envelope, collector, coordinator, context):\n    collector.send('mem.out', "
        "context.task_name)\n"
    )
    config = sb.Config.from_text("task.class=tally.py:tally\n", directory=tmp_path)
    assert sent(run_job(None, config, {"mem.in": {0: [1]}})) == [(None, "Partition 0")]


def test_a_parameter_with_a_default_is_no_context() -> None:
    def process(envelope: Any, collector: Any, coordinator: Any, factor: int = 2) -> None:
        collector.send("mem.out", envelope.message * factor)

    assert sent(run_job(process, None, {"mem.in": {0: [4]}})) == [(None, 8)]


def test_functions_that_take_no_context_are_called_as_they_are() -> None:
    def process(envelope: Any, collector: Any, coordinator: Any) -> None: ...

    context: Any = object()
    assert task_of(process=process)(context).process is process


def test_all_callbacks_may_take_the_context() -> None:
    def process_batch(batch: Any, collector: Any, coordinator: Any, context: sb.TaskContext) -> None:
        context.user.seen = getattr(context.user, "seen", 0) + len(batch)

    def end_of_stream(collector: Any, coordinator: Any, context: sb.TaskContext) -> None:
        collector.send("mem.out", context.user.seen)

    bounded = {"systems.mem.streams.in.samza.bounded": True}
    job = run_job(task_of(process_batch=process_batch, end_of_stream=end_of_stream), bounded, TWO_PARTITIONS)
    assert sent(job) == [(None, 1), (None, 3)]


def test_an_error_names_the_function_that_raised_it() -> None:
    def process(envelope: Any, collector: Any, coordinator: Any, context: sb.TaskContext) -> None:
        collector.send("mem.out", 1, partition=7)

    with pytest.raises(sb.StreambenchError, match=r"send no. 1 of .*process, defined at .*test_functions.py"):
        run_job(process, None, {"mem.in": {0: [1]}})


@pytest.mark.parametrize(
    ("process", "says"),
    [
        (
            lambda envelope, collector, context: None,
            "its 'context' would be given the coordinator; the context comes last",
        ),
        (
            lambda envelope, collector: None,
            r"or with the task's context behind: process\(envelope, collector, coordinator, context\)",
        ),
        (lambda envelope, collector, coordinator, context, more: None, "takes .*more"),
    ],
)
def test_a_function_with_other_parameters_is_refused_at_once(process: Any, says: str) -> None:
    with pytest.raises(sb.ConfigError, match=says):
        run_job(process, None, {"mem.in": {0: [1]}})


def test_a_static_method_that_yields_is_refused() -> None:
    def process(envelope: Any, collector: Any, coordinator: Any) -> Any:
        yield collector.send("mem.out", 1)

    with pytest.raises(sb.ConfigError, match="is a generator"):
        run_job(task_of(process=process), None, {"mem.in": {0: [1]}})


def _init_with_globals(context: sb.TaskContext) -> None:
    global _shared
    _shared = context.task_name


def _process(envelope: Any, collector: Any, coordinator: Any) -> None: ...


@pytest.mark.parametrize(("partitions", "warnings"), [(2, 1), (1, 0)])
def test_a_global_that_several_tasks_assign_is_told(
    partitions: int, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    inputs: Any = {"mem.in": {number: [1] for number in range(partitions)}}
    with caplog.at_level(logging.WARNING):
        run_job(task_of(init=_init_with_globals, process=_process), None, inputs)
    told = [each.getMessage() for each in caplog.records if "the global _shared" in each.getMessage()]
    assert len(told) == warnings
    assert all("context.user._shared" in each for each in told)
