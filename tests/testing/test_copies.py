"""Without serdes a job in memory behaves as with them: what one side changes, the other side never sees."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import pytest

from streambench import Config, Container, OutgoingMessageEnvelope, SerdeError, SystemStream
from streambench.metrics.registry import MetricsRegistry
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.system import reader
from streambench.system.memory import MemorySystemFactory, memory_streams
from streambench.task import MessageCollector, StreamTask, TaskContext, TaskCoordinator
from streambench.testing import JobRun, run_job

OUT, BETWEEN = SystemStream("mem", "out"), SystemStream("mem", "between")
JSON = {"systems.mem.samza.msg.serde": "json", "systems.mem.samza.key.serde": "json"}
GUARANTEES = ["at-least-once", "exactly-once"]


class Careless(StreamTask):
    """Changes whatever it has in hand: what it got, what it sent, what it keeps."""

    def init(self, context: TaskContext) -> None:
        self.sent: dict[str, Any] = {"n": 0, "list": []}
        self.store = context.store("kept") if "kept" in context.config.names_below("stores.") else None

    def process(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        self.sent["n"] += 1
        self.sent["list"].append(envelope.message["n"])
        collector.send(OutgoingMessageEnvelope(OUT, self.sent, key=self.sent["list"], partition=0))
        if envelope.ssp.stream == "in":
            collector.send(OutgoingMessageEnvelope(BETWEEN, envelope.message, partition=0))
        envelope.message["n"] = -1
        envelope.message.setdefault("seen", []).append(str(envelope.ssp))
        if self.store is not None:
            self.store.put("last", self.sent)


def inputs(count: int = 3) -> dict[str, dict[int, list[Any]]]:
    return {"mem.in": {0: [{"n": number} for number in range(count)]}, "mem.between": {0: []}}


def ran(serdes: dict[str, str], given: Any = None, *, previous: JobRun | None = None, **more: str) -> JobRun:
    return run_job(
        Careless,
        {"task.inputs": "mem.in,mem.between", **serdes, **more},
        given or inputs(),
        previous=previous,
    )


def test_a_dict_that_is_changed_and_sent_again_arrives_as_it_was() -> None:
    class Counting(StreamTask):
        def __init__(self) -> None:
            self.state = {"n": 0}

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            self.state["n"] += 1
            collector.send(OutgoingMessageEnvelope(OUT, self.state))

    assert [message["n"] for _, message in run_job(Counting, None, inputs()).outputs["mem.out"][0]] == [
        1,
        2,
        3,
    ]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_objects_go_the_way_that_json_goes(guarantee: str) -> None:
    more = {
        "task.processing.guarantee": guarantee,
        "stores.kept.factory": "memory",
        "stores.kept.changelog": "mem.kept",
    }
    first, second = ran(JSON, **more), ran({}, **more)
    assert (first.outputs, first.processed) == (second.outputs, second.processed)
    first, second = ran(JSON, previous=first, **more), ran({}, previous=second, **more)
    assert (first.outputs, first.processed) == (second.outputs, second.processed)


def test_a_broadcast_partition_is_shared_by_tasks_as_with_a_serde() -> None:
    given = {"mem.in": {0: [{"n": 1}], 1: [{"n": 2}]}, "mem.all": {0: [{"n": 3}]}, "mem.between": {0: []}}
    more = {"task.inputs": "mem.in", "task.broadcast.inputs": "mem.all#0"}
    assert ran(JSON, given, **more).processed == ran({}, given, **more).processed


def test_the_inputs_of_the_caller_stay_as_they_were() -> None:
    given = inputs()
    ran({}, given)
    assert given == inputs()


def test_processed_holds_messages_as_they_came() -> None:
    assert [row[3] for row in ran({}).processed if row[0] == "mem.in.0"] == [{"n": 0}, {"n": 1}, {"n": 2}]


def test_what_is_changed_in_outputs_does_not_reach_the_next_run() -> None:
    first = ran({})
    first.outputs["mem.out"][0][0][1]["n"] = "changed"
    again = ran({}, previous=first)
    assert again.outputs["mem.out"][0][0][1]["n"] == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_headers_are_copied_too(guarantee: str) -> None:
    headers = {"a": b"1"}

    def task(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        headers["a"] += b"1"
        collector.send(OutgoingMessageEnvelope(OUT, 1, headers=headers))

    run = run_job(task, {"task.processing.guarantee": guarantee}, inputs())
    found = run._streams.of(OUT)[0].chunk(SystemStreamPartition("mem", "out", 0), 0, 10)
    assert found.headers == [{"a": b"11"}, {"a": b"111"}, {"a": b"1111"}]


def test_a_container_on_memory_hands_on_copies() -> None:
    streams = memory_streams("copied")
    streams.create(SystemStream("copied", "in"), 1)
    streams.create(SystemStream("copied", "out"), 1)
    message = {"n": 1}
    streams.of(SystemStream("copied", "in"))[0].append(
        OutgoingMessageEnvelope(SystemStream("copied", "in"), message), None, message
    )
    message["n"] = 2
    held = []

    def task(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        held.append(envelope.message)
        collector.send(OutgoingMessageEnvelope(SystemStream("copied", "out"), envelope.message))

    config = Config({
        "job.name": "copies", "task.inputs": "copied.in", "systems.copied.samza.factory": "memory",
        "systems.copied.samza.offset.default": "oldest",
    })  # fmt: skip
    container = Container.from_config(config, task)
    container.start()
    container.run("caught-up")
    container.stop()
    held[0]["n"] = 3
    consumer = MemorySystemFactory().get_consumer("copied", config, MetricsRegistry())
    ssp = SystemStreamPartition("copied", "out", 0)
    assert [each.message for each in reader.read_to_head(consumer, {ssp: "0"})[ssp]] == [{"n": 1}]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_cannot_be_copied_is_refused_with_its_place(guarantee: str) -> None:
    def task(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, threading.Lock()))

    with pytest.raises(
        SerdeError,
        match=r"mem\.out cannot be sent .*a lock cannot be copied: .*; .*set a serde.*mem\.in\.0@0",
    ):
        run_job(task, {"task.processing.guarantee": guarantee}, inputs())
    with pytest.raises(SerdeError, match=r"mem\.in: a lock cannot be copied"):
        run_job(task, None, {"mem.in": {0: [threading.Lock()]}})


def test_values_that_cannot_change_are_not_copied() -> None:
    message, large = deque([1]), "x" * 1000
    run = run_job(
        lambda envelope, collector, coordinator: None, None, {"mem.in": {0: [message, large, b"bytes"]}}
    )
    rows = [row[3] for row in run.processed]
    assert rows == [message, large, b"bytes"]
    assert rows[0] is not message
    assert rows[1] is large
