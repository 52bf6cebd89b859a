"""What happens when inputs come to their end."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

import streambench as sb
from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.errors import TaskError
from streambench.metrics.registry import MetricsRegistry
from streambench.system.capabilities import Ending
from streambench.system.memory import (
    MemoryAdmin,
    MemoryConsumer,
    MemoryProducer,
    MemoryStreams,
    MemorySystemFactory,
)
from streambench.system.systems import Systems
from streambench.testing import JobRun, run_job

OUT = sb.SystemStream("mem", "out")
BOUNDED = {"systems.mem.streams.in.samza.bounded": "true"}


class Sums(sb.StreamTask):
    """Sends one figure, when there is nothing more to add."""

    def init(self, context: sb.TaskContext) -> None:
        self.name, self.total = context.task_name, 0

    def process(
        self,
        envelope: sb.IncomingMessageEnvelope,
        collector: sb.MessageCollector,
        coordinator: sb.TaskCoordinator,
    ) -> None:
        self.total += envelope.message

    def end_of_stream(self, collector: sb.MessageCollector, coordinator: sb.TaskCoordinator) -> None:
        collector.send(sb.OutgoingMessageEnvelope(OUT, self.total, key=self.name))


def ended(job: JobRun) -> list[str]:
    return [call.task for call in job.calls if call.event == "end_of_stream"]


def run(task: Any, config: Mapping[str, Any], inputs: Any, **more: Any) -> JobRun:
    return run_job(task, {**BOUNDED, **config}, inputs, **more)


def test_a_task_hears_once_that_all_partitions_ended_and_may_still_send() -> (
    None
):
    job = run(Sums, {}, {"mem.in": {0: [1, 2, 3], 1: [4]}})
    assert sorted(job.outputs["mem.out"][0]) == [("Partition 0", 6), ("Partition 1", 4)]
    assert sorted(ended(job)) == ["Partition 0", "Partition 1"]
    for task in ("Partition 0", "Partition 1"):
        calls = [call.event for call in job.calls if call.task == task]
        assert (
            calls[calls.index("end_of_stream") :]
            == ["end_of_stream", "send", "commit"][: len(calls) - calls.index("end_of_stream")]
        )
    assert job.checkpoints == {"Partition 0": {"mem.in.0": "2"}, "Partition 1": {"mem.in.1": "0"}}


def test_a_task_is_not_told_as_long_as_one_of_its_inputs_may_go_on() -> None:
    assert ended(run(Sums, {}, {"mem.in": {0: [1]}, "mem.other": {0: [1], 1: [1]}})) == []
    job = run(Sums, {}, {"mem.in": {0: [1], 2: [1]}, "mem.other": {0: [1], 1: [1]}})
    assert ended(job) == ["Partition 2"]


def test_to_have_caught_up_is_not_the_end_of_a_stream() -> None:
    assert ended(run_job(Sums, None, {"mem.in": {0: [1]}})) == []


def test_an_empty_stream_is_at_its_end_at_once() -> None:
    job = run(Sums, {}, {"mem.in": {1: [1]}})
    assert job.outputs["mem.out"][0] == [("Partition 0", 0), ("Partition 1", 1)]


def test_what_comes_after_the_start_is_no_part_of_a_bounded_stream() -> None:
    class Feeds(Sums):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            super().process(envelope, collector, coordinator)
            collector.send(sb.OutgoingMessageEnvelope(envelope.ssp.system_stream, 100, partition=0))

    first = run(Feeds, {}, {"mem.in": {0: [1, 2]}})
    second = run(Sums, {}, {}, previous=first)
    assert first.outputs["mem.out"][0] == [("Partition 0", 3)]
    assert second.outputs["mem.out"][0] == [("Partition 0", 3), ("Partition 0", 200)]


def test_a_broadcast_partition_ends_for_every_task() -> None:
    config = {
        "task.inputs": "mem.in",
        "task.broadcast.inputs": "mem.rules#0",
        "systems.mem.streams.rules.samza.bounded": "true",
    }
    job = run(Sums, config, {"mem.in": {0: [1], 1: [2]}, "mem.rules": {0: [10, 10]}})
    assert sorted(job.outputs["mem.out"][0]) == [("Partition 0", 21), ("Partition 1", 22)]


def test_what_end_of_stream_raises_stops_the_container_without_a_commit() -> None:
    class Fails(Sums):
        def end_of_stream(self, collector: Any, coordinator: Any) -> None:
            super().end_of_stream(collector, coordinator)
            raise ValueError("no total")

    with pytest.raises(TaskError, match=r"Partition 0 failed in end_of_stream\(\): .*no total") as caught:
        run(Fails, {}, {"mem.in": {0: [1]}})
    assert caught.value.job_run.outputs == {}
    assert caught.value.job_run.checkpoints == {}
    ignored = run(Fails, {"task.ignored.exceptions": "ValueError"}, {"mem.in": {0: [1]}})
    assert ignored.outputs == {}
    assert ignored.checkpoints == {"Partition 0": {"mem.in.0": "0"}}


def test_a_container_runs_no_longer_than_its_inputs() -> None:
    streams = MemoryStreams()
    container = a_container(streams, {0: [1, 2]}, **BOUNDED)
    assert container.run() == 2
    assert container.at_end
    assert container.state == "running"
    assert container.run() == 0
    container.stop()


def test_the_end_of_its_inputs_counts_as_a_tasks_consent_to_a_shutdown() -> None:
    class Stops(sb.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            if envelope.ssp.stream == "other":
                coordinator.shutdown()

    streams = MemoryStreams()
    streams.create(sb.SystemStream("mem", "other"), 2)
    send(streams, "other", 1, "x")
    container = a_container(
        streams, {0: [1], 2: [1]}, Stops, **BOUNDED, **{"task.inputs": "mem.in,mem.other"}
    )
    # Partition 2 is at its end, Partition 1 has asked; Partition 0 has not.
    container.run("caught-up")
    assert not container.shut_down
    send(streams, "other", 0, "x")
    container.run()
    assert container.shut_down
    container.stop()


class EndingConsumer(MemoryConsumer):
    """A reader on a thread of its own that knows where its streams end: at the message None."""

    polled_by_loop: ClassVar[bool] = False

    def at_end(self, ssp: sb.SystemStreamPartition) -> bool:
        return (
            self.at_head(ssp)
            and len(self._partitions[ssp]) > 0
            and self._partitions[ssp].entries()[-1][1] is None
        )


class EndingFactory(MemorySystemFactory):
    def get_consumer(self, system: str, config: sb.Config, metrics: MetricsRegistry) -> MemoryConsumer:
        return EndingConsumer(self._streams(system))


def send(streams: MemoryStreams, stream: str, partition: int, *messages: Any) -> None:
    for message in messages:
        MemoryProducer(streams).send(
            "test", sb.OutgoingMessageEnvelope(sb.SystemStream("mem", stream), message, partition=partition)
        )


def a_container(
    streams: MemoryStreams,
    inputs: Mapping[int, list[Any]],
    task: Any = Sums,
    factory: Any = MemorySystemFactory,
    **settings: Any,
) -> sb.Container:
    MemoryAdmin(streams).create(sb.SystemStream("mem", "in"), 1 + max(inputs))
    for partition, messages in inputs.items():
        send(streams, "in", partition, *messages)
    config = sb.Config(
        {
            "task.inputs": "mem.in",
            "systems.mem.samza.offset.default": "oldest",
            "job.name": "ends",
            **settings,
        }
    )
    container = sb.Container(
        config, task, systems=Systems(config, factory(streams)), checkpoints=MemoryCheckpointManager()
    )
    container.start()
    return container


def test_a_consumer_tells_where_its_partitions_end() -> None:
    seen: list[Any] = []

    class Notes(sb.StreamTask):
        def process(self, envelope: Any, collector: Any, coordinator: Any) -> None:
            seen.append(envelope.message)

        def end_of_stream(self, collector: Any, coordinator: Any) -> None:
            seen.append("end")

    streams = MemoryStreams()
    container = a_container(streams, {0: [1, 2]}, Notes, EndingFactory)
    container.run("caught-up")
    assert seen == [1, 2]
    send(streams, "in", 0, 3, None)
    container.run()
    assert seen == [1, 2, 3, None, "end"]
    container.stop()


def test_no_consumer_says_that_a_partition_has_ended_unless_it_can_know() -> None:
    assert not isinstance(MemoryConsumer(MemoryStreams()), Ending)


@pytest.mark.parametrize(("follow", "ends"), [("false", True), ("true", False)])
def test_a_file_ends_unless_it_is_followed(tmp_path: Path, follow: str, ends: bool) -> None:
    (tmp_path / "in.jsonl").write_text("1\n2\n3\n")
    config = {
        "systems.files.samza.factory": "file",
        "systems.files.path": tmp_path,
        "systems.files.follow": follow,
        "systems.files.samza.offset.default": "oldest",
        "systems.files.samza.msg.serde": "json",
        "task.inputs": "files.in",
    }
    job = run_job(Sums, config)
    assert (ended(job) == ["Partition 0"]) is ends
    assert len(job.processed) == 3


@given(st.dictionaries(st.integers(0, 5), st.lists(st.integers(0, 9), max_size=4), min_size=1), st.booleans())
def test_every_task_gets_all_of_its_messages_before_its_end(
    inputs: dict[int, list[int]], by_ssp: bool
) -> None:
    config = {"job.systemstreampartition.grouper.factory": "ssp" if by_ssp else "partition"}
    job = run(Sums, config, {"mem.in": inputs})
    totals = {task.rpartition("." if by_ssp else " ")[2]: total for task, total in job.outputs["mem.out"][0]}
    assert totals == {str(number): sum(inputs.get(number, ())) for number in range(1 + max(inputs))}
    assert len(ended(job)) == len(totals)
