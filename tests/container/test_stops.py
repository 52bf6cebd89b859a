"""Stops of a container: stopped or abandoned, and how the next one goes on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from streambench.container.container import Container
from streambench.errors import (
    ContainerStateError,
    FencedError,
    StreamSystemError,
    TaskError,
)
from streambench.model import IncomingMessageEnvelope, SystemStream, SystemStreamPartition
from streambench.planning.changelog_partitions import open_generation
from streambench.planning.model import PlannedContainer
from streambench.planning.plan import plan
from streambench.system.memory import (
    MemoryAdmin,
    MemoryStreams,
)
from streambench.task import MessageCollector, TaskCoordinator
from tests.container.jobs import Bench, echo, ignore, send
from tests.container.noted_calls import (
    STORE,
    Counter,
    Failing,
    Noting,
    NotingCheckpoints,
    NotingChooser,
    happened,
)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("act", ["commit", "stop", "step"])
def test_a_task_cannot_drive_its_own_container_in_the_middle_of_a_message(act: str, guarantee: str) -> None:
    acts = [act]

    class Meddler(Counter):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            if envelope.offset == "1" and acts:
                getattr(bench.container, acts.pop())()

    config = STORE | {"stores.counts.changelog": "mem.changes", "task.processing.guarantee": guarantee}
    bench = Bench(Meddler, {"mem.a": {0: ["x", "x", "x"]}}, config)
    container = bench.started()
    with pytest.raises(
        TaskError,
        match=r"at mem\.a\.0@1: .* is in the middle of a message: a task asks .* coordinator\.commit\(\)",
    ):
        container.run("caught-up")
    again = Container(
        config=bench.config,
        task=Meddler,
        systems=bench.container.status.systems,
        checkpoints=bench.checkpoints,
    )
    again.start()
    again.run("caught-up")
    again.stop()
    (changes,) = bench.streams.partitions[SystemStream("mem", "changes")]
    assert [count for _, count in changes.entries()][-1] == b"3"


def test_a_callback_between_messages_may_commit_but_neither_stop_nor_step() -> None:
    bench = Bench(Counter, {"mem.a": {0: ["x", "y"]}}, STORE)
    container = bench.started()
    refused: list[str] = []

    def until() -> bool:
        container.commit()
        for verb in (container.stop, container.step):
            with pytest.raises(ContainerStateError, match="is running: pause"):
                verb()
            refused.append(verb.__name__)
        return True

    assert container.run(until) == 1
    assert refused == ["stop", "step"]
    assert bench.committed() == {"mem.a.0": "0"}
    container.post(container.commit)
    assert container.step() == 1
    container.stop()
    assert bench.committed() == {"mem.a.0": "1"}


# Stopping


def test_a_clean_stop_commits_then_closes() -> None:
    bench = Bench(Counter, {"mem.a": {0: ["x"], 1: ["y"]}}, STORE)
    container = bench.started()
    container.run("caught-up")
    container.stop()
    assert bench.events()[-4:] == ["commit", "commit", "close", "close"]
    assert container.state == "stopped"
    assert bench.committed() == {"mem.a.0": "0", "mem.a.1": "0"}


def test_what_a_task_does_in_its_close_is_not_lost_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    class SaysGoodbye(Counter):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            super().process(envelope, collector, coordinator)
            self.collector = collector

        def close(self) -> None:
            super().close()
            send(self.collector, "goodbye")
            self.counts.put("goodbye", 1)

    bench = Bench(SaysGoodbye, {"mem.a": {0: ["x"]}}, STORE | {"stores.counts.changelog": "mem.changes"})
    container = bench.started()
    container.run("caught-up")
    container.stop()
    assert [record.getMessage() for record in caplog.records] == [
        "SaysGoodbye-1: what tasks did in close() is lost, because the last commit comes before it "
        "(messages sent: 1, keys of stores "
        "changed: 1); do it in process(), window() or end_of_stream()"
    ]


def test_everything_is_let_go_of_in_order() -> None:
    bench = Bench(
        Counter, {"mem.a": {0: ["x"]}}, STORE | {"task.chooser.class": NotingChooser},
        factory=Noting(streams := MemoryStreams()), streams=streams, checkpoints=NotingCheckpoints(),
    )  # fmt: skip
    container = bench.started()
    container.step()
    container.commit()
    happened.clear()
    container.stop()
    assert happened == [
        "consumer stops",
        "chooser stops",
        "close",
        "producer stops",
        "checkpoints close",
        "admin closes",
    ]


def test_a_stopped_container_can_be_stopped_again() -> None:
    bench = Bench(Counter, {"mem.a": {0: ["x"]}}, STORE)
    container = bench.started()
    container.stop()
    container.stop()
    assert happened == ["close"]


def test_a_container_that_was_never_started_can_be_stopped() -> None:
    container = Bench(Counter, {"mem.a": {0: ["x"]}}, STORE).container
    container.stop()
    assert (container.state, happened) == ("stopped", [])


def test_a_commit_that_fails_at_the_stop_is_a_failure_and_all_is_closed() -> None:
    bench = Bench(
        Counter,
        {"mem.a": {0: ["x"]}},
        factory=Failing(streams := MemoryStreams()),
        streams=streams,
        config={"stores.counts.factory": "memory"},
    )
    container = bench.started()
    container.step()
    with pytest.raises(StreamSystemError, match="the disk is full"):
        container.stop()
    assert container.state == "failed"
    assert happened[-4:] == ["consumer stops", "close", "producer stops", "admin closes"]


def test_a_close_that_fails_keeps_nobody_else_from_being_closed() -> None:
    class Stubborn(Counter):
        def close(self) -> None:
            super().close()
            raise RuntimeError("I stay")

    bench = Bench(
        Stubborn,
        {"mem.a": {0: ["x"], 1: ["y"]}},
        STORE,
        factory=Noting(streams := MemoryStreams()),
        streams=streams,
    )
    container = bench.started()
    container.run("caught-up")
    with pytest.raises(TaskError, match=r"Partition 0 failed in close\(\): RuntimeError: I stay"):
        container.stop()
    assert happened.count("close") == 2
    assert happened[-1] == "admin closes"
    assert container.state == "stopped"
    assert bench.committed() == {"mem.a.0": "0", "mem.a.1": "0"}


def test_a_failure_in_closing_does_not_hide_the_failure_that_led_to_it() -> None:
    class Hopeless(Counter):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            raise ValueError("first")

        def close(self) -> None:
            raise RuntimeError("second")

    container = Bench(Hopeless, {"mem.a": {0: ["x"]}}, STORE).started()
    with pytest.raises(TaskError, match="ValueError: first"):
        container.step()
    assert "first" in container.reason


def test_after_a_failure_there_is_nothing_to_stop() -> None:
    bench = Bench(fails, {"mem.a": {0: ["x"]}})
    container = bench.started()
    with pytest.raises(TaskError):
        container.run()
    container.stop()
    assert container.state == "failed"
    assert bench.committed() == {}
    with pytest.raises(
        ContainerStateError,
        match=r"the container is failed; make a new one: .* \(Partition 0 failed at mem\.a\.0@0",
    ):
        container.step()


def fails(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    raise ValueError("no")


def test_to_abandon_a_container_is_to_let_go_without_commit_or_close() -> None:
    bench = Bench(
        Counter,
        {"mem.a": {0: ["x", "y"]}},
        STORE,
        factory=Noting(streams := MemoryStreams()),
        streams=streams,
    )
    container = bench.started()
    container.step()
    happened.clear()
    container.abandon()
    assert happened == ["consumer stops", "producer stops", "admin closes"]
    assert (container.state, container.reason) == ("failed", "abandoned")
    assert bench.committed() == {}
    container.abandon()
    container.stop()
    assert container.state == "failed"


# Starting again


def again(bench: Bench, task: Any, config: Mapping[str, Any] | None = None) -> Bench:
    """Another start of the same job, as another process would make it."""
    return Bench(
        task,
        {},
        {"task.inputs": "mem.a", **(config or {})},
        streams=bench.streams,
        checkpoints=bench.checkpoints.sibling(),
    )


def test_a_new_container_goes_on_from_the_last_commit() -> None:
    bench = Bench(echo, {"mem.a": {0: [1, 2, 3, 4]}})
    container = bench.started()
    container.step(2)
    container.commit()
    container.step()
    container.abandon()
    after = again(bench, echo)
    after.started().run("caught-up")
    assert after.places() == ["mem.a.0@2", "mem.a.0@3"]
    assert bench.outputs() == [1, 2, 3, 3, 4]


def test_state_that_was_not_committed_is_undone() -> None:
    bench = Bench(Counter, {"mem.a": {0: ["x", "x", "x"]}}, STORE)
    container = bench.started()
    container.step()
    container.commit()
    container.step()
    container.abandon()
    after = again(bench, Counter, STORE)
    after.started().run("caught-up")
    assert bench.outputs() == [1, 2, 2, 3]


def test_a_newer_start_fences_the_older_one() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1, 2]}})
    old = bench.started()
    old.step()
    new = again(bench, ignore)
    new.started()
    with pytest.raises(FencedError):
        old.commit()
    assert old.state == "failed"
    assert bench.committed() == {}
    new.container.run("caught-up")
    new.container.stop()
    assert bench.committed() == {"mem.a.0": "1"}


def test_a_stop_of_a_fenced_container_is_a_failure() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1, 2]}})
    old = bench.started()
    old.step()
    again(bench, ignore).started()
    with pytest.raises(FencedError):
        old.stop()
    assert old.state == "failed"


# Several containers of one job


def test_each_container_runs_its_own_tasks() -> None:
    first = Bench(
        echo, {"mem.a": {number: [f"m{number}"] for number in range(4)}}, {"job.container.count": 2}
    )
    metadata = {
        SystemStream("mem", "a"): MemoryAdmin(first.streams).metadata([SystemStream("mem", "a")])[
            SystemStream("mem", "a")
        ]
    }
    model = plan(first.config, "job-1", metadata)
    generation = first.checkpoints.open_generation(
        {container.number: [task.name for task in container.tasks] for container in model.containers},
        now_ms=0,
    )
    places = []
    for number in (0, 1):
        bench = Bench(
            echo,
            {},
            {"task.inputs": "mem.a"},
            streams=first.streams,
            checkpoints=first.checkpoints.sibling(),
            planned=PlannedContainer(model, number, generation.number),
        )
        container = bench.started()
        container.run("caught-up")
        container.stop()
        places.append(bench.places())
    assert places == [["mem.a.0@0", "mem.a.2@0"], ["mem.a.1@0", "mem.a.3@0"]]
    assert sorted(first.outputs()) == ["m0", "m1", "m2", "m3"]
    assert first.committed() == {f"mem.a.{number}": "0" for number in range(4)}


def test_a_first_start_is_not_misled_by_what_another_container_recorded() -> None:
    upcoming = {"job.container.count": 2, "systems.mem.samza.offset.default": "upcoming"}
    first = Bench(ignore, {"mem.a": {0: ["before"], 1: ["before"]}}, upcoming)
    model = plan(first.config, "job-1", MemoryAdmin(first.streams).metadata([SystemStream("mem", "a")]))
    generation = open_generation(first.checkpoints, model, now_ms=0)
    for number in (0, 1):
        bench = Bench(
            ignore,
            {},
            {"task.inputs": "mem.a", **upcoming},
            streams=first.streams,
            checkpoints=first.checkpoints.sibling(),
            planned=PlannedContainer(model, number, generation.number),
        )
        container = bench.started()
        assert container.run("caught-up") == 0
        container.stop()


# Ends


def end(**offsets: str) -> dict[SystemStreamPartition, str]:
    return {SystemStreamPartition("mem", "a", int(name[1:])): offset for name, offset in offsets.items()}


@pytest.mark.parametrize(
    ("ends", "expected"),
    [(("0", "0"), []), (("2", "1"), [0, 10, 1]), (("3", "0"), [0, 1, 2]), (("9", "2"), [0, 10, 1, 11, 2])],
)
def test_a_bounded_run_stops_before_its_ends_whatever_arrives(
    ends: tuple[str, str], expected: list[int]
) -> None:
    bench = Bench(echo, {"mem.a": {0: [0, 1, 2], 1: [10, 11]}}, ends=end(p0=ends[0], p1=ends[1]))
    container = bench.started()
    bench.put("mem.a.1", 12) if ends[1] == "2" else None
    container.run("caught-up")
    assert bench.outputs() == expected
    assert container.run("caught-up") == 0


def test_messages_beyond_an_end_do_not_count_as_lag_to_catch_up_with() -> None:
    bench = Bench(ignore, {"mem.a": {0: list(range(5000))}}, ends=end(p0="1500"))
    container = bench.started()
    assert container.run("caught-up") == 1500
    container.stop()
    assert bench.committed() == {"mem.a.0": "1499"}


def test_a_bootstrap_stream_that_ends_before_its_newest_opens_the_gate() -> None:
    """What arrived between planning and the start lies beyond the end, and must not keep the gate closed."""
    bench = Bench(
        echo,
        {"mem.z": {0: ["boot 1", "boot 2"]}, "mem.a": {0: ["other"]}},
        {"systems.mem.streams.z.samza.bootstrap": "true"},
        ends={SystemStreamPartition("mem", "z", 0): "1"},
    )
    assert bench.started().run("caught-up") == 2
    assert bench.outputs() == ["boot 1", "other"]
