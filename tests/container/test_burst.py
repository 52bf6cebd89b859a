"""Choices made many at once are those that are made one by one."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.checkpoint.memory import MemoryCheckpointManager
from streambench.config import Config
from streambench.container.burst import BurstPlanner
from streambench.container.container import Container
from streambench.container.inputs.partition_buffer import PartitionBuffer
from streambench.container.observer import ContainerObserver
from streambench.errors import SerdeError, StreambenchError, TaskError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Sender
from streambench.system.memory import MemoryProducer, MemoryStreams, MemorySystemFactory, Partition
from streambench.system.systems import Systems
from streambench.task import MessageCollector, RequestScope, StreamTask, TaskCoordinator
from streambench.testing import ManualClock
from tests.container.jobs import ignore

IN, OUT = SystemStream("mem", "in"), SystemStream("mem", "out")

ACTIONS = st.one_of(
    st.sampled_from([b"", b"send", b"send", b"send", b"send twice", b"send here", b"late send"]),
    st.sampled_from([b"commit", b"commit all", b"pause", b"late", b"ignored"]),
    st.sampled_from([b"fail", b"nonsense", b"interrupt", b"shutdown"]),
)
PARTITIONS = st.lists(
    st.one_of(st.lists(ACTIONS, max_size=12), st.lists(st.just(b"send"), max_size=80)), min_size=1, max_size=6
)
CONFIGS = st.fixed_dictionaries(
    {},
    optional={
        "systems.mem.samza.fetch.threshold": st.integers(1, 40),
        "task.window.ms": st.just("20"),
        "task.commit.ms": st.just("30"),
        "task.shutdown.ms": st.just("1000"),
        "job.systemstreampartition.grouper.factory": st.sampled_from(["partition", "ssp"]),
        "metrics.timer.enabled": st.sampled_from(["false", "sampled"]),
        "task.drop.serialization.errors": st.just("true"),
    },
)


@dataclass
class Job:
    """A job whose messages say what becomes of them, with choices made one by one or in bursts."""

    partitions: list[list[bytes]]
    config: Mapping[str, Any]
    one_by_one: bool
    calls: list[tuple[str, ...]] = field(default_factory=list)
    stops: list[object] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.clock = ManualClock()
        self.streams = MemoryStreams()
        self.streams.create(OUT, 3)
        self.streams.create(IN, len(self.partitions))
        for number, messages in enumerate(self.partitions):
            for message in messages:
                self.streams.of(IN)[number].append(OutgoingMessageEnvelope(IN, message), None, message)
        config = Config({
            "job.name": "bursts", "task.inputs": str(IN), "systems.mem.samza.offset.default": "oldest",
            "systems.mem.samza.factory": "memory", "task.ignored.exceptions": "ValueError", **self.config,
        })  # fmt: skip
        self.checkpoints = MemoryCheckpointManager()
        self.container = Container(
            config,
            self._task(),
            systems=Systems(config, MemorySystemFactory(self.streams)),
            checkpoints=self.checkpoints,
            clock=self.clock,
            remember_choices=7,
        )

    def _task(self) -> type[StreamTask]:
        job = self

        class Acting(StreamTask):
            def process(
                self,
                envelope: IncomingMessageEnvelope,
                collector: MessageCollector,
                coordinator: TaskCoordinator,
            ) -> None:
                job.act(envelope, collector, coordinator)

            def window(self, collector: MessageCollector, coordinator: TaskCoordinator) -> None:
                job.window()
                collector.send(OutgoingMessageEnvelope(OUT, b"window"))

        return Acting

    def window(self) -> None:
        self.calls.append(("window", str(self.clock.now_ms())))

    def act(
        self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        self.calls.append((str(envelope.ssp), envelope.offset))
        message = f"{envelope.ssp}@{envelope.offset}".encode()
        match envelope.message:
            case b"send":
                collector.send(OutgoingMessageEnvelope(OUT, message))
            case b"late send":
                self.clock.advance(7)
                collector.send(OutgoingMessageEnvelope(OUT, message))
            case b"send twice":
                collector.send(OutgoingMessageEnvelope(OUT, message, key=b"key"))
                collector.send(OutgoingMessageEnvelope(OUT, message, headers={"a": b"b"}))
            case b"send here":
                collector.send(OutgoingMessageEnvelope(IN, b"", partition=envelope.ssp.partition))
            case b"nonsense":
                collector.send(OutgoingMessageEnvelope(OUT, message, partition=99))
            case b"commit":
                coordinator.commit()
            case b"commit all":
                coordinator.commit(RequestScope.ALL_TASKS_IN_CONTAINER)
            case b"shutdown":
                coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)
            case b"pause":
                self.container.pause()
            case b"late":
                self.clock.advance(7)
            case b"ignored":
                collector.send(OutgoingMessageEnvelope(OUT, b"of a failure"))
                raise ValueError("to be ignored")
            case b"fail":
                collector.send(OutgoingMessageEnvelope(OUT, b"of a failure"))
                raise KeyError("not to be ignored")
            case b"interrupt":
                raise KeyboardInterrupt

    def run(self) -> None:
        """Run to the end, and note how things stand whenever a run returns."""
        self.container.start()
        if self.one_by_one:
            self.container.observe(ContainerObserver())
        before = -1
        try:
            while self.container.processed > before and not self.container.shut_down:
                before = self.container.processed
                self.container.run("caught-up")
                self.note()
        except (StreambenchError, KeyboardInterrupt) as error:
            self.stops.append((type(error), str(error)))
        self.note()
        self.container.stop()

    def note(self) -> None:
        snapshot = self.container.snapshot()
        choices = [(choice.number, choice.ssp, choice.offset) for choice in snapshot.choices]
        self.stops.append(
            (
                snapshot.partitions,
                choices,
                snapshot.checkpoints,
                snapshot.processed,
                snapshot.counts,
                snapshot.error_counts,
            )
        )

    def outputs(self) -> list[list[tuple[Any, Any]]]:
        return [partition.entries() for partition in self.streams.of(OUT)]


@given(PARTITIONS, CONFIGS)
def test_a_job_does_the_same_with_single_choices_and_with_bursts(
    partitions: list[list[bytes]], config: dict[str, Any]
) -> None:
    if not config.get("task.drop.serialization.errors"):
        # An output that cannot be sent ends the run a few messages later.
        partitions = [
            [b"fail" if message == b"nonsense" else message for message in messages]
            for messages in partitions
        ]
    bursts, single = Job(partitions, config, one_by_one=False), Job(partitions, config, one_by_one=True)
    bursts.run()
    single.run()
    assert bursts.calls == single.calls
    assert bursts.outputs() == single.outputs()
    assert bursts.stops == single.stops


def envelope(ssp: SystemStreamPartition, number: int) -> IncomingMessageEnvelope:
    return IncomingMessageEnvelope(ssp, str(number), None, None)


Waiting = list[tuple[str, ...]]


def waiting(
    queue: deque[IncomingMessageEnvelope], partitions: Mapping[SystemStreamPartition, PartitionBuffer]
) -> tuple[list[str], list[list[str]]]:
    return [f"{each.ssp}@{each.offset}" for each in queue], [
        [each.offset for each in partition.decoded] for partition in partitions.values()
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=7), st.data())
def test_wherever_bursts_stop_all_is_as_after_as_many_single_choices(
    counts: list[int], data: st.DataObject
) -> None:
    ssps = [SystemStreamPartition("mem", "in", number) for number in range(len(counts))]
    job = Job([[] for _ in counts], {}, one_by_one=False)
    job.container.start()
    subscriptions = {each.ssp: each for task in job.container.tasks for each in task.subscriptions}

    def filled() -> tuple[deque[IncomingMessageEnvelope], dict[SystemStreamPartition, PartitionBuffer]]:
        partitions = {ssp: PartitionBuffer(ssp, "0", 100) for ssp in ssps}
        for ssp, count in zip(ssps, counts, strict=True):
            partitions[ssp].sole_subscription = subscriptions[ssp]
            partitions[ssp].decoded.extend(envelope(ssp, number) for number in range(1, count + 1))
        return deque(envelope(ssp, 0) for ssp in ssps), partitions

    queue, partitions = filled()
    planner = BurstPlanner(partitions)
    planner.size = data.draw(st.integers(1, 40))
    if not planner.plan(queue):
        assert waiting(queue, partitions) == waiting(*filled())
        return
    burst = planner.take_planned()
    reached = data.draw(st.integers(0, burst.left))
    taken = [next(burst.calls)[0] for _ in range(reached)]
    unfinished = data.draw(st.integers(0, 1)) if taken else 0
    burst.stop(taken[-1] if taken else None, unfinished)
    assert burst.chosen(3) == taken[-3:]
    assert burst.done == reached - unfinished
    processed = dict.fromkeys(ssps) | {each.ssp: each.offset for each in taken[: burst.done]}
    assert {ssp: subscription.offset for ssp, subscription in subscriptions.items()} == processed
    expected, simple = filled()
    served = None
    for each in taken:
        if served is not None:
            expected.append(served.decoded.popleft())
        assert expected.popleft() == each
        served = simple[each.ssp]
    assert waiting(queue, partitions) == waiting(expected, simple)
    assert (burst.served and burst.served.ssp) == (served and served.ssp)


def test_an_unsendable_output_is_placed_at_the_message_it_was_made_from() -> None:
    job = Job([[b"send"] * 20, [b"send"] * 7 + [b"nonsense"] + [b"send"] * 12], {}, one_by_one=False)
    job.container.start()
    with pytest.raises(SerdeError, match=r"partition 99 is out of range.*while processing mem\.in\.1@7"):
        job.container.run("caught-up")
    assert len(job.calls) > 16
    assert sum(map(len, job.outputs())) == 15


def test_what_was_sent_before_a_failure_is_sent() -> None:
    job = Job([[b"send"] * 9 + [b"fail"] + [b"send"] * 40], {}, one_by_one=False)
    job.container.start()
    with pytest.raises(TaskError, match=r"mem\.in\.0@9"):
        job.container.run("caught-up")
    assert sum(map(len, job.outputs())) == 9
    assert job.container.processed == 9


def test_what_is_sent_waits_at_most_a_millisecond_or_one_message() -> None:
    job = Job([[b"send", b"late", b""] * 20], {}, one_by_one=False)
    seen = []
    act = job.act

    def looking(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.append((envelope.message, sum(map(len, job.outputs()))))
        act(envelope, collector, coordinator)

    job.act = looking  # type: ignore[method-assign]
    job.container.start()
    job.container.run("caught-up")
    assert [count for message, count in seen if message == b""] == list(range(1, 21))


Process = Callable[[IncomingMessageEnvelope, MessageCollector, TaskCoordinator], None]


class Encoding(MemorySystemFactory):
    """A system that encodes messages when they are sent, as those behind a network do."""

    def get_producer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryProducer:
        class Producer(MemoryProducer):
            def sender(self, stream: SystemStream) -> Sender:
                send = super().sender(stream)

                def encoding(
                    source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
                ) -> None:
                    encoded = orjson.dumps([str(message), str(dict(envelope.headers or {}))])
                    send(source, OutgoingMessageEnvelope(stream, encoded), key, encoded, partition)

                return encoding

        return Producer(self._streams(system))


def job_of(
    task: Any,
    messages: list[bytes],
    config: Mapping[str, Any],
    factory: type[MemorySystemFactory] = MemorySystemFactory,
    clock: ManualClock | None = None,
) -> tuple[Container, Partition]:
    """A container for one partition of these messages, started, and what comes out."""
    streams = MemoryStreams()
    streams.create(IN, 1)
    streams.create(OUT, 1)
    for message in messages:
        streams.of(IN)[0].fields.extend((None, message, None))
    complete = Config(
        {
            "job.name": "one",
            "task.inputs": str(IN),
            "systems.mem.samza.offset.default": "oldest",
            "systems.mem.samza.factory": "memory",
            **config,
        }
    )
    container = Container(
        complete,
        task,
        systems=Systems(complete, factory(streams)),
        checkpoints=MemoryCheckpointManager(),
        clock=clock or ManualClock(),
    )
    container.start()
    return container, streams.of(OUT)[0]


def with_serde(send: Callable[[dict[str, int]], OutgoingMessageEnvelope]) -> Process:
    row: dict[str, int] = {"n": 0}

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        row["n"] += 1
        collector.send(send(row))

    return process


def in_headers(row: dict[str, int], headers: dict[str, bytes] = {}) -> OutgoingMessageEnvelope:  # noqa: B006
    """The row in headers that all messages share."""
    headers["n"] = b"%d" % row["n"]
    return OutgoingMessageEnvelope(OUT, b"", headers=headers)


@pytest.mark.parametrize(
    ("send", "config"),
    [
        pytest.param(
            lambda row: OutgoingMessageEnvelope(OUT, row),
            {"systems.mem.streams.out.samza.msg.serde": "json"},
            id="serde",
        ),
        pytest.param(lambda row: OutgoingMessageEnvelope(OUT, row), {}, id="producer"),
        pytest.param(in_headers, {}, id="headers"),
    ],
)
def test_what_its_task_goes_on_to_change_is_encoded_before(
    send: Callable[[dict[str, int]], OutgoingMessageEnvelope], config: dict[str, str]
) -> None:
    container, out = job_of(with_serde(send), [b"1"] * 50, config, Encoding)
    container.run("caught-up")
    container.stop()
    assert [int(re.findall(rb"n[^0-9]*([0-9]+)", message)[0]) for _, message in out.entries()] == list(
        range(1, 51)
    )


def test_nothing_of_an_iteration_whose_window_fails_is_sent() -> None:
    job = Job([[b"late send"] * 10], {"task.window.ms": "20"}, one_by_one=False)

    def window() -> None:
        raise KeyError("window")

    job.window = window  # type: ignore[method-assign]
    job.container.start()
    with pytest.raises(TaskError, match=r"in window\(\)"):
        job.container.run("caught-up")
    assert (len(job.calls), sum(map(len, job.outputs()))) == (3, 2)


def test_a_commit_of_exactly_once_is_not_much_larger_than_its_limit() -> None:
    def forward(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, envelope.message))

    config = {
        "task.processing.guarantee": "exactly-once",
        "task.commit.max.output.mb": "1",
        "task.commit.ms": "-1",
    }
    container, _ = job_of(forward, [bytes(1 << 20)] * 64, config)
    container.run("caught-up")
    assert container.metrics.counter("commit-calls", "container").count >= 32


def test_what_is_sent_on_as_it_came_is_kept_once() -> None:
    def forward(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(OUT, envelope.message))

    messages = [bytes([number]) * 1000 for number in range(100)]
    container, out = job_of(forward, messages, {})
    container.run("caught-up")
    assert all(mine is theirs for mine, (_, theirs) in zip(messages, out.entries(), strict=True))


@pytest.mark.parametrize("reading", range(1, 9))
def test_an_interrupted_clock_leaves_each_message_processed_or_waiting(
    reading: int,
) -> None:
    class Breaking(ManualClock):
        left = -1

        def monotonic_ns(self) -> int:
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
            return super().monotonic_ns()

    clock = Breaking()
    container, _ = job_of(ignore, [b""] * 40, {}, clock=clock)
    clock.left = reading
    with pytest.raises(KeyboardInterrupt):
        container.run("caught-up")
    (picture,) = container.snapshot().partitions
    assert picture.processed + picture.waiting in (39, 40)
    assert (picture.processed, picture.lag) == (int(picture.position), 40 - picture.processed)
