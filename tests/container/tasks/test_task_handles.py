"""Handles of tasks: their thread, their life, and what they show."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from streambench.container.container import Container
from streambench.errors import (
    StoreError,
    WrongThreadError,
)
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.system.memory import (
    memory_streams,
)
from streambench.task import (
    KeyValueStore,
    MessageCollector,
    RequestScope,
    TaskContext,
    TaskCoordinator,
)
from tests.container.jobs import Bench, send
from tests.container.noted_calls import STORE, Counter


def in_another_thread(what: Any) -> BaseException | None:
    """What ``what`` raises on a thread of its own."""
    raised: list[BaseException] = []

    def call() -> None:
        try:
            what()
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=call, name="elsewhere")
    thread.start()
    thread.join()
    return raised[0] if raised else None


def test_collector_coordinator_and_stores_belong_to_the_thread_of_the_loop() -> None:
    errors: dict[str, BaseException | None] = {}

    class Sharing(Counter):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            errors["the collector"] = in_another_thread(lambda: send(collector, "x"))
            errors["the coordinator"] = in_another_thread(
                lambda: coordinator.commit(RequestScope.CURRENT_TASK)
            )
            errors["store"] = in_another_thread(lambda: self.counts.put("x", 1))

    bench = Bench(Sharing, {"mem.a": {0: ["x"]}}, STORE)
    bench.started().step()
    for what, error in errors.items():
        assert isinstance(error, WrongThreadError), what
        assert f"{what} " in str(error)
        assert "elsewhere" in str(error)
    assert bench.outputs() == []


def test_a_stores_iterator_and_an_offset_belong_to_the_thread_metrics_not() -> None:
    errors: dict[str, BaseException | None] = {}

    class Sharing(Counter):
        def init(self, context: TaskContext) -> None:
            super().init(context)
            self.counts.put("a", 1)
            entries, few = self.counts.all(), self.counts.range("a", "b")
            errors["all"] = in_another_thread(lambda: next(entries))
            errors["range"] = in_another_thread(lambda: next(few))
            errors["offset"] = in_another_thread(
                lambda: context.set_starting_offset(context.partitions[0], "0")
            )
            assert in_another_thread(lambda: context.metrics.counter("seen").inc()) is None

    bench = Bench(Sharing, {"mem.a": {0: ["x"]}}, STORE)
    container = bench.started()
    assert all(isinstance(error, WrongThreadError) for error in errors.values()), errors
    assert len(errors) == 3
    assert container.tasks[0].metrics.counter("seen").count == 1


def test_the_loop_may_be_driven_from_one_thread_after_the_other() -> None:
    bench = Bench(Counter, {"mem.a": {0: ["x", "y"]}}, STORE)
    container = bench.started()
    assert in_another_thread(container.step) is None
    container.step()
    assert in_another_thread(container.stop) is None
    assert bench.outputs() == [1, 1]


def test_a_store_is_closed_with_its_container() -> None:
    kept: list[KeyValueStore] = []

    class Keeping(Counter):
        def init(self, context: TaskContext) -> None:
            super().init(context)
            kept.append(self.counts)

    container = Bench(Keeping, {"mem.a": {0: ["x"]}}, STORE).started()
    container.stop()
    with pytest.raises(StoreError, match="closed"):
        kept[0].get("x")


# The handles of a task


def test_the_context_tells_a_task_its_place() -> None:
    seen: list[Any] = []

    class Curious(Counter):
        def init(self, context: TaskContext) -> None:
            seen.append(
                (
                    context.task_name,
                    [str(ssp) for ssp in context.partitions],
                    context.config.integer("my.number"),
                )
            )
            with pytest.raises(StoreError, match=r"there is no store 'cuonts': .* \(there are: counts\)"):
                context.store("cuonts")

    Bench(Curious, {"mem.a": {0: [], 1: []}, "mem.b": {0: []}}, STORE | {"my.number": 7}).started()
    assert seen == [("Partition 0", ["mem.a.0", "mem.b.0"], 7), ("Partition 1", ["mem.a.1"], 7)]


def test_the_handles_stay_the_same_objects_for_the_life_of_a_task() -> None:
    seen: set[tuple[int, int]] = set()

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.add((id(collector), id(coordinator)))

    container = Bench(process, {"mem.a": {0: [1, 2, 3]}}).started()
    container.step()
    container.commit()
    container.step(2)
    assert len(seen) == 1


def test_the_memory_system_of_the_process_is_used_where_no_other_is_given() -> None:
    streams = memory_streams("test-container")
    streams.partitions.clear()
    streams.create(SystemStream("test-container", "a"), 1)
    streams.of(SystemStream("test-container", "a"))[0].append(
        OutgoingMessageEnvelope(SystemStream("test-container", "a"), "x"), None, "x"
    )
    seen: list[Any] = []
    config = {
        "task.inputs": "test-container.a",
        "systems.test-container.samza.factory": "memory",
        "job.name": "test-container",
        "systems.test-container.samza.offset.default": "oldest",
    }
    container = Container.from_config(
        config, lambda envelope, collector, coordinator: seen.append(envelope.message)
    )
    container.start()
    assert container.step() == 1
    container.stop()
    assert seen == ["x"]
    streams.partitions.clear()
