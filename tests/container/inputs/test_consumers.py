"""Systems that are read by a thread of their own: back-pressure, order, failures."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import pytest

from streambench.config import Config
from streambench.errors import SerdeError, StreambenchError, StreamSystemError, TaskError
from streambench.metrics.registry import MetricsRegistry
from streambench.model import (
    IncomingMessageEnvelope,
    OutgoingMessageEnvelope,
    SystemStream,
    SystemStreamPartition,
)
from streambench.system.api import Chunk, SystemConsumer
from streambench.system.memory import MemoryConsumer, MemoryStreams, MemorySystemFactory
from streambench.task import MessageCollector, TaskCoordinator
from tests.container.jobs import Bench, Process, ignore

_PATIENCE_S = 60
"""How long a test waits for what must come; only a failing test waits so long."""


class Slow(MemoryConsumer):
    """Reads memory as one reads a network: on a thread of the container's, with what goes wrong there."""

    polled_by_loop: ClassVar[bool] = False

    def __init__(self, streams: MemoryStreams, system: Network) -> None:
        super().__init__(streams)
        self._system = system

    def start(self) -> None:
        self._system.note("start")
        self._system.fail("start")

    def stop(self) -> None:
        self._system.note("stop")
        self._system.fail("stop")

    def poll(
        self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int
    ) -> list[IncomingMessageEnvelope]:
        self._system.fail("poll")
        self._system.open.wait(_PATIENCE_S)
        found = [
            envelope
            for chunk in MemoryConsumer.poll_chunks(self, wanted, 0)
            for envelope in chunk.envelopes()
        ]
        by_turns = sorted(found, key=lambda envelope: int(envelope.offset))
        with self._system.changed:
            self._system.delivered.update(str(envelope.ssp) for envelope in found)
            self._system.changed.notify_all()
        if not found:
            self._system.idle(wanted)
        return by_turns

    def poll_chunks(self, wanted: Mapping[SystemStreamPartition, int], timeout_ms: int) -> list[Chunk]:
        return SystemConsumer.poll_chunks(self, wanted, timeout_ms)


class Network(MemorySystemFactory):
    """The factory, and what a test may look at and set.

    ``failures``: what start, stop and poll raise. ``open``: closed (cleared), nothing arrives. ``delivered``:
    how many messages of each partition the consumer has handed over.
    """

    def __init__(self, streams: MemoryStreams, **failures: Exception) -> None:
        super().__init__(streams)
        self.failures: dict[str, Exception] = dict(failures)
        self.open = threading.Event()
        self.open.set()
        self.changed = threading.Condition()
        self.delivered: Counter[str] = Counter()
        self.noted: list[tuple[str, str]] = []

    def get_consumer(self, system: str, config: Config, metrics: MetricsRegistry) -> MemoryConsumer:
        return Slow(self._streams(system), self)

    def note(self, what: str) -> None:
        self.noted.append((what, threading.current_thread().name))

    def fail(self, where: str) -> None:
        if where in self.failures:
            raise self.failures[where]

    def idle(self, wanted: Mapping[SystemStreamPartition, int]) -> None:
        """Wait a moment, as for a network: until the test opens or closes something, at most for a poll's
        time."""
        with self.changed:
            self.changed.wait(0.01)

    def wait_for(self, partition: str, count: int) -> None:
        """Until so many messages of a partition were handed over."""
        with self.changed:
            assert self.changed.wait_for(lambda: self.delivered[partition] >= count, _PATIENCE_S)


def network(
    task: Any,
    inputs: Mapping[str, Mapping[int, Any]],
    config: Mapping[str, Any] | None = None,
    **failures: Exception,
) -> tuple[Bench, Network]:
    streams = MemoryStreams()
    system = Network(streams, **failures)
    return Bench(task, inputs, config, factory=system, streams=streams), system


def reader_threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("reader of")]


@pytest.fixture(autouse=True)
def no_reader_is_left_behind() -> Any:
    yield
    assert reader_threads() == []


def run_and_stop(bench: Bench) -> None:
    container = bench.started()
    container.run("caught-up")
    container.stop()


def test_everything_is_read_in_order_and_committed() -> None:
    inputs = {"mem.a": {number: [f"{number}:{at}" for at in range(700)] for number in range(3)}}
    bench, _ = network(ignore, inputs)
    run_and_stop(bench)
    places = bench.places()
    assert len(places) == 2100
    for number in range(3):
        assert [place for place in places if place.startswith(f"mem.a.{number}@")] == [
            f"mem.a.{number}@{at}" for at in range(700)
        ]
    assert bench.committed() == {f"mem.a.{number}": "699" for number in range(3)}


def test_a_consumer_lives_on_one_thread_that_is_not_the_loops() -> None:
    bench, system = network(ignore, {"mem.a": {0: ["x"]}})
    container = bench.started()
    assert reader_threads() == ["reader of mem"]
    container.stop()
    assert system.noted == [("start", "reader of mem"), ("stop", "reader of mem")]


def test_messages_that_arrive_later_are_processed_too() -> None:
    bench, system = network(ignore, {"mem.a": {0: ["x"]}})
    container = bench.started()
    container.run("caught-up")
    bench.put("mem.a.0", "y", "z")
    container.run(2)
    assert bench.places() == ["mem.a.0@0", "mem.a.0@1", "mem.a.0@2"]
    container.stop()


def test_a_step_waits_for_the_first_answer_of_the_system() -> None:
    bench, system = network(ignore, {"mem.a": {0: ["x"]}}, {"task.max.idle.ms": 1})
    system.open.clear()
    container = bench.started()
    container.post(system.open.set)
    assert container.step() == 1
    assert container.step() == 0
    container.stop()


def countdown(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    if envelope.message:
        collector.send(OutgoingMessageEnvelope(SystemStream("mem", "a"), envelope.message - 1))


def test_what_a_job_sends_to_itself_is_processed_before_it_has_caught_up() -> None:
    bench, _ = network(countdown, {"mem.a": {0: [20]}})
    run_and_stop(bench)
    assert bench.places() == [f"mem.a.0@{at}" for at in range(21)]


def test_a_step_finds_what_was_sent_just_before_it() -> None:
    bench, _ = network(ignore, {"mem.a": {0: []}})
    container = bench.started()
    assert container.run("caught-up") == 0
    for number in range(20):
        bench.put("mem.a.0", f"{number}")
        assert container.step() == 1
    assert container.step() == 0
    container.stop()


def test_a_run_comes_to_its_end_though_messages_trickle_in() -> None:
    most = 500

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if int(envelope.offset) < most:
            bench.put("mem.a.0", "one more, from somebody else")

    bench, _ = network(process, {"mem.a": {0: ["first"]}})
    run_and_stop(bench)
    assert len(bench.places()) < most


def checking(bound: int, system: Callable[[], Network], *, full: str) -> Process:
    """A task that waits, at its first message, until the reader has gone as far as it may, and checks at each
    message that it went no further."""
    done: Counter[str] = Counter()

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        ssp = str(envelope.ssp)
        if not done:
            system().wait_for(full, bound)
        assert system().delivered[ssp] - done[ssp] <= bound, f"{ssp} has more than {bound} messages waiting"
        done[ssp] += 1

    return process


@pytest.mark.parametrize("bound", [1, 2, 3, 10, 64])
def test_no_more_messages_of_a_partition_wait_than_its_system_allows(bound: int) -> None:
    bench, system = network(
        checking(bound, lambda: system, full="mem.a.0"),
        {"mem.a": {0: list(range(300)), 1: list(range(200))}},
        {"systems.mem.samza.fetch.threshold": bound},
    )
    run_and_stop(bench)
    assert len(bench.places()) == 500


def test_a_partition_that_is_held_back_does_not_block_the_others() -> None:
    config = {"systems.mem.samza.fetch.threshold": 8, "systems.mem.streams.boot.samza.bootstrap": "true"}
    bench, system = network(
        checking(8, lambda: system, full="mem.a.0"),
        {"mem.a": {0: list(range(100))}, "mem.boot": {0: list(range(500))}},
        config,
    )
    run_and_stop(bench)
    assert bench.places() == [f"mem.boot.0@{at}" for at in range(500)] + [
        f"mem.a.0@{at}" for at in range(100)
    ]


def test_each_system_has_its_own_bound() -> None:
    streams = MemoryStreams()
    system = Network(streams)
    bounds = {"one": 4, "two": 16}
    done: Counter[str] = Counter()

    def process(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if not done:
            for name, bound in bounds.items():
                system.wait_for(f"{name}.a.0", bound)
        assert system.delivered[str(envelope.ssp)] - done[str(envelope.ssp)] <= bounds[envelope.ssp.system]
        done[str(envelope.ssp)] += 1

    config: dict[str, Any] = {
        f"systems.{name}.samza.fetch.threshold": bound for name, bound in bounds.items()
    }
    config |= {f"systems.{name}.samza.offset.default": "oldest" for name in bounds}
    bench = Bench(
        process,
        {f"{name}.a": {0: list(range(100))} for name in bounds},
        config,
        factory=system,
        streams=streams,
    )
    run_and_stop(bench)
    assert sum(done.values()) == 200


def test_reading_of_a_partition_stops_at_its_end() -> None:
    streams = MemoryStreams()
    system = Network(streams)
    bench = Bench(
        ignore,
        {"mem.a": {0: list(range(100)), 1: list(range(100))}},
        {"systems.mem.samza.fetch.threshold": 8},
        factory=system,
        streams=streams,
        ends={SystemStreamPartition("mem", "a", 0): "10", SystemStreamPartition("mem", "a", 1): "100"},
    )
    run_and_stop(bench)
    assert Counter(place.split("@")[0] for place in bench.places()) == {"mem.a.0": 10, "mem.a.1": 100}
    assert system.delivered["mem.a.0"] <= 10 + 8


# What goes wrong


def test_a_system_that_does_not_start_fails_the_start() -> None:
    bench, system = network(ignore, {"mem.a": {0: ["x"]}}, start=StreamSystemError("no route to host"))
    with pytest.raises(StreamSystemError, match="no route to host"):
        bench.started()
    assert bench.container.state == "failed"
    assert [what for what, _ in system.noted] == ["start", "stop"]


def test_a_poll_that_fails_fails_the_container_wherever_it_is() -> None:
    bench, system = network(ignore, {"mem.a": {0: ["x"]}})
    container = bench.started()
    container.run("caught-up")
    system.failures["poll"] = StreamSystemError("the connection is gone")
    with pytest.raises(StreamSystemError, match="the connection is gone"):
        container.run()
    assert (container.state, container.reason) == ("failed", "the connection is gone")
    assert bench.committed() == {}


def test_a_failure_of_the_task_ends_the_reader() -> None:
    def fails(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        raise ValueError("no")

    bench, system = network(fails, {"mem.a": {0: list(range(100))}}, {"systems.mem.samza.fetch.threshold": 4})
    with pytest.raises(TaskError):
        bench.started().run()
    assert [what for what, _ in system.noted] == ["start", "stop"]


def test_a_system_that_does_not_stop_well_is_reported_after_all_else() -> None:
    bench, _ = network(ignore, {"mem.a": {0: ["x"]}}, stop=StreamSystemError("cannot say goodbye"))
    container = bench.started()
    container.run("caught-up")
    with pytest.raises(StreamSystemError, match="cannot say goodbye"):
        container.stop()
    assert container.state == "stopped"
    assert bench.committed() == {"mem.a.0": "0"}


def test_a_reader_that_does_not_stop_in_time_is_reported() -> None:
    bench, system = network(ignore, {"mem.a": {0: ["x"]}}, {"task.shutdown.ms": 1})
    system.open.clear()
    container = bench.started()
    try:
        with pytest.raises(
            StreambenchError, match=r"the reader of mem did not stop within 1 ms \(task\.shutdown\.ms\)"
        ):
            container.stop()
    finally:
        system.open.set()
        for thread in threading.enumerate():
            if thread.name == "reader of mem":
                thread.join(_PATIENCE_S)


def test_an_abandoned_container_leaves_no_reader() -> None:
    bench, _ = network(ignore, {"mem.a": {0: list(range(100))}}, {"systems.mem.samza.fetch.threshold": 4})
    container = bench.started()
    container.step(3)
    container.abandon()
    assert bench.committed() == {}


JSON = {"systems.mem.samza.msg.serde": "json"}


def test_a_message_that_cannot_be_decoded_fails_at_its_own_turn() -> None:
    bench, _ = network(ignore, {"mem.a": {0: [b"1", b"2", b"{", b"4"]}}, JSON)
    container = bench.started()
    with pytest.raises(SerdeError, match=r"mem\.a\.0@2"):
        container.run("caught-up")
    assert bench.places() == ["mem.a.0@0", "mem.a.0@1"]


def test_messages_that_cannot_be_decoded_do_not_use_up_the_room() -> None:
    config = JSON | {"task.drop.deserialization.errors": "true", "systems.mem.samza.fetch.threshold": 4}
    bench, _ = network(ignore, {"mem.a": {0: [b"{" if at % 3 else b"1" for at in range(100)]}}, config)
    run_and_stop(bench)
    assert bench.places() == [f"mem.a.0@{at}" for at in range(0, 100, 3)]
    assert bench.committed() == {"mem.a.0": "99"}
