"""``run_job``: every promise it makes."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streambench.clock import SystemClock
from streambench.config import Config
from streambench.errors import ConfigError, SerdeError, StreambenchError, TaskError, UnknownStreamError
from streambench.model import IncomingMessageEnvelope, OutgoingMessageEnvelope, SystemStream
from streambench.task import (
    MessageCollector,
    RequestScope,
    StreamTask,
    TaskContext,
    TaskCoordinator,
    TaskLifecycleListener,
)
from streambench.testing import Call, JobRun, ManualClock, run_job
from tests.container.jobs import echo, ignore
from tests.testing.jobs import (
    COUNTS,
    JSON,
    OUT,
    Counter,
    Whole,
    events,
    fails_at_bad,
    messages,
    places,
)

# What was processed


def test_processed_is_in_the_order_of_processing_with_keys_and_messages() -> None:
    run = run_job(ignore, None, {"mem.a": {0: [("k", 1), 2], 1: [3]}})
    assert run.processed == [("mem.a.0", "0", "k", 1), ("mem.a.1", "0", None, 3), ("mem.a.0", "1", None, 2)]


def test_inputs_are_offered_in_the_order_of_system_stream_and_partition() -> None:
    run = run_job(ignore, None, {"z.a": {0: ["4"]}, "b.z": {0: ["3"]}, "b.a": {10: ["2"], 9: ["1"]}})
    assert [message for *_, message in run.processed] == ["1", "2", "3", "4"]


def test_only_a_pair_is_a_key_and_a_message() -> None:
    run = run_job(ignore, None, {"mem.a": {0: [("k", "m"), ("a", "b", "c"), ["k", "m"], None, ("k", None)]}})
    assert [(key, message) for _, _, key, message in run.processed] == [
        ("k", "m"), (None, ("a", "b", "c")), (None, ["k", "m"]), (None, None), ("k", None),
    ]  # fmt: skip


def test_a_stream_has_as_many_partitions_as_the_highest_number_plus_one() -> None:
    run = run_job(Whole, None, {"mem.a": {2: ["x"]}})
    assert [call.task for call in events(run, "init")] == ["Partition 0", "Partition 1", "Partition 2"]


def test_a_message_that_the_task_sends_to_its_own_input_is_processed_too() -> None:
    def halve(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message > 1:
            collector.send(OutgoingMessageEnvelope(SystemStream("mem", "a"), envelope.message // 2))

    run = run_job(halve, None, {"mem.a": {0: [8]}})
    assert [message for *_, message in run.processed] == [8, 4, 2, 1]
    assert run.outputs == {}
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "3"}}


def test_without_inputs_in_the_configuration_all_that_are_given_are_inputs() -> None:
    assert places(run_job(ignore, None, {"mem.a": {0: ["x"]}, "mem.b": {0: ["y"]}})) == [
        "mem.a.0@0",
        "mem.b.0@0",
    ]


def test_only_the_configured_inputs_are_read_where_there_are_any() -> None:
    assert places(run_job(ignore, {"task.inputs": "mem.b"}, {"mem.a": {0: ["x"]}, "mem.b": {0: ["y"]}})) == [
        "mem.b.0@0"
    ]


def test_a_broadcast_message_is_processed_by_every_task_but_chosen_once() -> None:
    config = {"task.broadcast.inputs": "mem.rules#0"}
    run = run_job(ignore, config, {"mem.a": {0: ["x"], 1: ["y"]}, "mem.rules": {0: ["r"]}})
    assert sorted(places(run)) == ["mem.a.0@0", "mem.a.1@0", "mem.rules.0@0", "mem.rules.0@0"]
    assert run.metrics["container.processed"] == 3
    assert all(offsets["mem.rules.0"] == "0" for offsets in run.checkpoints.values())


def test_max_messages_counts_a_broadcast_message_once() -> None:
    inputs = {"mem.a": {0: ["x"] * 3, 1: ["y"] * 3}, "mem.rules": {0: ["r"] * 3}}
    run = run_job(ignore, {"task.broadcast.inputs": "mem.rules#0"}, inputs, max_messages=3)
    assert places(run) == ["mem.a.0@0", "mem.a.1@0", "mem.rules.0@0", "mem.rules.0@0"]


def test_other_partitions_of_a_broadcast_stream_are_read_by_their_tasks() -> None:
    run = run_job(
        ignore, {"task.broadcast.inputs": "mem.a#0"}, {"mem.a": {0: ["all"], 1: ["one"], 2: ["two"]}}
    )
    assert sorted(message for *_, message in run.processed) == ["all", "all", "one", "two"]


# Outputs


def test_outputs_are_what_was_sent_by_stream_and_partition() -> None:
    run = run_job(echo, {"systems.mem.streams.out.partitions": 2}, {"mem.a": {0: [("k", 1), ("k", 2)]}})
    assert list(run.outputs) == ["mem.out"]
    assert list(run.outputs["mem.out"]) == [0, 1]
    assert sorted(map(len, run.outputs["mem.out"].values())) == [0, 2]
    assert messages(run) == [1, 2]


def test_an_output_without_keys_takes_turns_over_the_partitions() -> None:
    run = run_job(echo, {"systems.mem.streams.out.partitions": 3}, {"mem.a": {0: [0, 1, 2, 3, 4]}})
    assert run.outputs["mem.out"] == {0: [(None, 0), (None, 3)], 1: [(None, 1), (None, 4)], 2: [(None, 2)]}


def test_an_output_stream_that_is_not_configured_has_one_partition() -> None:
    assert run_job(echo, None, {"mem.a": {0: [("k", 1)], 5: [2]}}).outputs == {
        "mem.out": {0: [("k", 1), (None, 2)]}
    }


def test_a_changelog_is_an_output_as_its_store_has_it() -> None:
    run = run_job(Counter, COUNTS, {"mem.a": {0: [("x", 0), ("y", 0), ("x", 0)]}})
    assert run.outputs["mem.counts-changelog"] == {0: [("x", 2), ("y", 1)]}


def test_a_system_may_have_any_name_and_needs_no_definition() -> None:
    def across(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        collector.send(OutgoingMessageEnvelope(SystemStream("elsewhere", "copy"), envelope.message))

    run = run_job(across, {"systems.kafka.bootstrap.servers": "nowhere:9092"}, {"kafka.a": {0: ["x"]}})
    assert run.outputs == {"elsewhere.copy": {0: [(None, "x")]}}


# Serdes


def test_serdes_are_applied_on_the_way_in_and_out() -> None:
    seen = []

    def task(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        seen.append((envelope.key, envelope.message))
        collector.send(OutgoingMessageEnvelope(OUT, {"n": envelope.message["n"] + 1}, key="k"))

    run = run_job(task, JSON, {"mem.a": {0: [("a", {"n": 1})]}})
    assert seen == [("a", {"n": 1})]
    assert run.processed == [("mem.a.0", "0", "a", {"n": 1})]
    assert run.outputs == {"mem.out": {0: [("k", {"n": 2})]}}


def test_bytes_go_in_as_they_are_and_meet_the_serde_on_the_way_to_the_task() -> None:
    run = run_job(ignore, JSON, {"mem.a": {0: [b'{"n": 1}', (b"key", b"[2]")]}})
    assert [(key, message) for _, _, key, message in run.processed] == [(None, {"n": 1}), ("key", [2])]


def test_bytes_that_cannot_be_decoded_fail_at_their_own_turn() -> None:
    with pytest.raises(SerdeError, match=r"mem\.a\.0@1, key b'k': cannot decode this message") as caught:
        run_job(ignore, JSON, {"mem.a": {0: [1, (b"k", b"{broken"), 3], 1: [4, 5]}})
    assert places(caught.value.job_run) == ["mem.a.0@0", "mem.a.1@0"]  # type: ignore[attr-defined]


def test_an_input_its_serde_cannot_encode_is_reported_as_the_tests_mistake() -> None:
    with pytest.raises(ConfigError, match="an input message cannot be encoded with JsonSerde"):
        run_job(ignore, JSON, {"mem.a": {0: [object()]}})


@pytest.mark.parametrize(
    ("inputs", "what"),
    [
        ([1], r"inputs are given as .*, and not as \[1\]"),
        ({SystemStream("mem", "a"): {0: [1]}}, "is not the name of a stream"),
        (
            {"mem.a": [("k", 1)]},
            r"inputs\['mem\.a'\] lacks the partitions: \[\('k', 1\)\]; inputs are given as {'log\.in': {0: ",
        ),
        ({"mem.a": {"0": [1]}}, r"inputs\['mem\.a'\]: '0' is no partition"),
        ({"mem.a": {-1: [1]}}, r"inputs\['mem\.a'\]: -1 is no partition"),
        ({"mem.a": {0: "text"}}, r"inputs\['mem\.a'\]\[0\] is no list of messages: 'text'"),
        ({"mem.a": {0: 5}}, r"inputs\['mem\.a'\]\[0\] is no list of messages: 5"),
    ],
)
def test_inputs_not_by_stream_and_partition_are_shown_as_they_look(
    inputs: Any, what: str
) -> None:
    with pytest.raises(ConfigError, match=what):
        run_job(ignore, None, inputs)


def test_without_serdes_what_cannot_change_stays_the_object_it_is() -> None:
    thing = object()
    run = run_job(echo, None, {"mem.a": {0: [thing]}})
    assert run.processed[0][3] is thing
    assert messages(run)[0] is thing


# Checkpoints and metrics


def test_checkpoints_hold_the_last_offset_of_each_partition_by_task() -> None:
    run = run_job(ignore, None, {"mem.a": {0: [1, 2], 1: [3]}, "mem.b": {0: [4]}})
    assert run.checkpoints == {
        "Partition 0": {"mem.a.0": "1", "mem.b.0": "0"},
        "Partition 1": {"mem.a.1": "0"},
    }


def test_a_task_that_processed_nothing_has_no_checkpoint() -> None:
    assert run_job(ignore, None, {"mem.a": {0: [1], 1: []}}).checkpoints == {"Partition 0": {"mem.a.0": "0"}}


def test_checkpoint_streams_are_not_among_the_outputs() -> None:
    run = run_job(
        echo, {"task.checkpoint.system": "mem", "systems.mem.samza.factory": "memory"}, {"mem.a": {0: [1]}}
    )
    assert list(run.outputs) == ["mem.out"]


def test_metrics_are_numbers_by_name_and_hold_those_of_the_tasks() -> None:
    class Metered(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.seen = context.metrics.counter("seen")

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            self.seen.inc()

    run = run_job(Metered, None, {"mem.a": {0: [1, 2], 1: [3]}})
    assert all(isinstance(value, (int, float)) for value in run.metrics.values())
    assert run.metrics["container.processed"] == 3
    assert (run.metrics["Partition 0.Metered.seen"], run.metrics["Partition 1.Metered.seen"]) == (2, 1)


# Calls


def test_calls_are_the_events_in_their_order() -> None:
    run = run_job(Whole, None, {"mem.a": {0: ["x"]}})
    assert run.calls == [
        Call("init", "Partition 0", None),
        Call("process", "Partition 0", "mem.a.0@0"),
        Call("send", "Partition 0", "mem.out"),
        Call("commit", "Partition 0", None),
        Call("close", "Partition 0", None),
    ]


def test_callbacks_that_a_task_does_not_have_are_not_called() -> None:
    assert {
        call.event
        for call in run_job(ignore, {"task.window.ms": 1}, {"mem.a": {0: ["x"]}}, clock=Ticking()).calls
    } == {
        "process",
        "commit",
    }


def test_tasks_come_in_natural_order() -> None:
    run = run_job(Whole, None, {"mem.a": {number: ["x"] for number in range(12)}})
    for event in ("init", "process", "commit", "close"):
        assert [call.task for call in events(run, event)] == [f"Partition {number}" for number in range(12)]


class Listener(TaskLifecycleListener):
    pass


def test_hooks_are_called_once_per_task_however_many_listeners_there_are() -> None:
    config = {"task.lifecycle.listeners": "a,b"} | {
        f"task.lifecycle.listener.{name}.class": Listener for name in "ab"
    }
    run = run_job(Whole, config, {"mem.a": {0: ["x"]}})
    assert [(call.event, call.detail) for call in run.calls] == [
        ("before_init", None),
        ("init", None),
        ("after_init", None),
        ("before_process", "mem.a.0@0"),
        ("process", "mem.a.0@0"),
        ("after_process", "mem.a.0@0"),
        ("send", "mem.out"),
        ("commit", None),
        ("before_close", None),
        ("close", None),
        ("after_close", None),
    ]


def test_a_commit_is_an_event_of_each_task_that_had_something_to_commit() -> None:
    def commits(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        coordinator.commit(RequestScope.ALL_TASKS_IN_CONTAINER)

    run = run_job(commits, None, {"mem.a": {0: ["x"], 1: ["y"]}})
    assert [call[:2] for call in run.calls] == [
        ("process", "Partition 0"),
        ("commit", "Partition 0"),
        ("process", "Partition 1"),
        ("commit", "Partition 1"),
    ]


def test_a_failing_message_has_a_process_event_but_is_not_processed() -> None:
    with pytest.raises(TaskError) as caught:
        run_job(fails_at_bad, None, {"mem.a": {0: ["good", "bad", "later"]}})
    run = caught.value.job_run  # type: ignore[attr-defined]
    assert [call.detail for call in events(run, "process")] == ["mem.a.0@0", "mem.a.0@1"]
    assert places(run) == ["mem.a.0@0"]


# The clock


class Ticking(ManualClock):
    """A clock that goes on by ten milliseconds whenever it is read."""

    def monotonic_ns(self) -> int:
        self.advance(10)
        return super().monotonic_ns()


def test_without_a_clock_time_stands_still() -> None:
    run = run_job(Whole, {"task.window.ms": 1, "task.commit.ms": 1}, {"mem.a": {0: ["x"] * 50}})
    assert events(run, "window") == []
    assert len(events(run, "commit")) == 1


def test_a_task_can_let_time_pass() -> None:
    clock = ManualClock(start_ms=1_000)

    class Windowed(Whole):
        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            clock.advance(40)

    run = run_job(Windowed, {"task.window.ms": 100}, {"mem.a": {0: ["x"] * 6}}, clock=clock)
    assert [call.event for call in events(run, "process", "window")] == ["process"] * 3 + ["window"] + [
        "process"
    ] * 3 + ["window"]


def test_a_real_clock_will_do() -> None:
    assert len(run_job(ignore, None, {"mem.a": {0: [1]}}, clock=SystemClock()).processed) == 1


# The configuration


def test_a_configuration_may_be_text_a_mapping_or_a_config() -> None:
    for config in (
        "task.inputs=mem.b",
        {"task.inputs": "mem.b"},
        Config({"task.inputs": "mem.b"}),
        {"task.inputs": ["mem.b"]},
    ):
        assert places(run_job(ignore, config, {"mem.a": {0: ["x"]}, "mem.b": {0: ["y"]}})) == ["mem.b.0@0"]


def test_values_of_other_types_are_turned_to_text() -> None:
    config = {
        "task.consumer.batch.size": 2,
        "systems.mem.streams.b.samza.bootstrap": True,
        "task.class": None,
    }
    run = run_job(ignore, config, {"mem.a": {0: ["x", "y"]}, "mem.b": {0: ["z"]}})
    assert places(run) == ["mem.b.0@0", "mem.a.0@0", "mem.a.0@1"]


def test_the_task_may_be_named_in_the_configuration() -> None:
    assert messages(run_job(None, {"task.class": Whole}, {"mem.a": {0: ["x"]}})) == ["x"]


def test_in_memory_streams_are_read_from_the_oldest_unless_configured() -> None:
    inputs = {"mem.a": {0: [1, 2, 3]}}
    assert len(run_job(ignore, None, inputs).processed) == 3
    assert places(run_job(ignore, {"systems.mem.streams.a.samza.offset.default": "newest"}, inputs)) == [
        "mem.a.0@2"
    ]
    assert places(run_job(ignore, {"systems.mem.samza.offset.default": "upcoming"}, inputs)) == []


def test_a_job_runs_in_one_container_whatever_the_configuration_says() -> None:
    assert (
        len(run_job(ignore, {"job.container.count": 3}, {"mem.a": {0: [1], 1: [2], 2: [3]}}).processed) == 3
    )


@pytest.mark.parametrize("wrong", [object(), 7, "task", type("NoTask", (), {}), Whole()])
def test_what_is_no_task_is_an_error(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=r"process\(envelope, collector, coordinator\)"):
        run_job(wrong, None, {"mem.a": {0: [1]}})


def test_one_object_is_made_per_task_and_none_besides() -> None:
    made = []

    class Made(Whole):
        def __init__(self) -> None:
            made.append(self)

    run_job(Made, None, {"mem.a": {0: [1], 1: [2]}})
    assert len(made) == 2


def test_a_job_without_inputs_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"task\.inputs"):
        run_job(ignore)


def test_an_input_that_is_nowhere_is_an_error() -> None:
    with pytest.raises(UnknownStreamError, match=r"there is no stream mem\.b"):
        run_job(ignore, {"task.inputs": "mem.a,mem.b"}, {"mem.a": {0: [1]}})


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"did you mean task\.window\.ms"):
        run_job(ignore, {"task.windo.ms": 5}, {"mem.a": {0: [1]}})


# Stopping early


@pytest.mark.parametrize("count", range(6))
def test_max_messages_ends_cleanly_after_so_many(count: int) -> None:
    run = run_job(echo, None, {"mem.a": {0: [1, 2, 3, 4]}}, max_messages=count)
    done = min(count, 4)
    assert len(run.processed) == done
    assert run.checkpoints == ({"Partition 0": {"mem.a.0": str(done - 1)}} if done else {})
    assert len(messages(run) if run.outputs else []) == done


def test_a_task_can_end_the_run() -> None:
    def stop_at_two(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        if envelope.message == 2:
            coordinator.shutdown(RequestScope.ALL_TASKS_IN_CONTAINER)

    run = run_job(stop_at_two, None, {"mem.a": {0: [1, 2, 3]}})
    assert [message for *_, message in run.processed] == [1, 2]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "1"}}


# Failures


def test_a_failure_raises_what_the_container_raised_with_the_run_so_far() -> None:
    with pytest.raises(
        TaskError, match=r"Partition 0 failed at mem\.a\.0@1, key 'k': ValueError: that is bad"
    ) as caught:
        run_job(fails_at_bad, None, {"mem.a": {0: ["good", ("k", "bad")]}})
    error = caught.value
    assert (error.task, str(error.ssp), error.offset, error.key) == ("Partition 0", "mem.a.0", "1", "k")
    assert isinstance(error.__cause__, ValueError)
    run = error.job_run  # type: ignore[attr-defined]
    assert isinstance(run, JobRun)
    assert messages(run) == ["good"]
    assert run.checkpoints == {}
    assert run.metrics["container.processed"] == 1


def test_a_job_that_does_not_even_start_has_its_run_too() -> None:
    class Refuses(Whole):
        def init(self, context: TaskContext) -> None:
            raise RuntimeError("not today")

    with pytest.raises(TaskError, match=r"Partition 0 failed in init\(\): RuntimeError: not today") as caught:
        run_job(Refuses, None, {"mem.a": {0: [1]}})
    assert caught.value.job_run.processed == []  # type: ignore[attr-defined]


def test_a_message_at_which_an_ignored_exception_was_raised_is_processed() -> None:
    run = run_job(
        fails_at_bad, {"task.ignored.exceptions": "ValueError"}, {"mem.a": {0: ["good", "bad", "later"]}}
    )
    assert [message for *_, message in run.processed] == ["good", "bad", "later"]
    assert messages(run) == ["good", "later"]
    assert run.checkpoints == {"Partition 0": {"mem.a.0": "2"}}


class FailsAfterwards(TaskLifecycleListener):
    def after_process(self, envelope: IncomingMessageEnvelope, context: TaskContext) -> None:
        if envelope.message == "bad":
            raise ValueError("afterwards")


def test_a_message_at_which_a_listener_fails_afterwards_is_not_processed() -> None:
    config = {"task.lifecycle.listeners": "late", "task.lifecycle.listener.late.class": FailsAfterwards}
    with pytest.raises(TaskError) as caught:
        run_job(ignore, config, {"mem.a": {0: ["good", "bad"]}})
    assert places(caught.value.job_run) == ["mem.a.0@0"]  # type: ignore[attr-defined]


def test_what_one_task_did_with_a_broadcast_stays_when_the_next_fails() -> None:
    class SecondFails(StreamTask):
        def init(self, context: TaskContext) -> None:
            self.fails = context.task_name == "Partition 1"

        def process(
            self, envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
        ) -> None:
            if self.fails:
                raise ValueError("no")

    config = {"task.broadcast.inputs": "mem.rules#0"}
    with pytest.raises(TaskError) as caught:
        run_job(SecondFails, config, {"mem.rules": {0: ["r"]}, "mem.a": {0: [], 1: []}})
    assert places(caught.value.job_run) == ["mem.rules.0@0"]  # type: ignore[attr-defined]


def test_all_errors_are_ours() -> None:
    with pytest.raises(StreambenchError):
        run_job(fails_at_bad, None, {"mem.a": {0: ["bad"]}})


# Repeatability


@pytest.fixture(params=[1, 2, 3])
def seed(request: pytest.FixtureRequest) -> Iterator[int]:
    yield request.param


def test_equal_inputs_give_equal_runs(seed: int) -> None:
    def once() -> JobRun:
        inputs = {
            f"mem.{name}": {number: [f"{name}{number}{at}" for at in range(seed * 3)] for number in range(3)}
            for name in "abc"
        }
        return run_job(
            Whole,
            {"systems.mem.streams.b.samza.priority": 1, "task.consumer.batch.size": seed},
            inputs,
            clock=ManualClock(seed),
        )

    first, second = once(), once()
    assert (first.processed, first.calls, first.outputs, first.checkpoints) == (
        second.processed, second.calls, second.outputs, second.checkpoints,
    )  # fmt: skip


@pytest.mark.parametrize("kind", [str, Path])
def test_the_configuration_may_stand_in_a_properties_file(kind: Any, tmp_path: Path) -> None:
    (tmp_path / "job.properties").write_text("job.name=filed\n")
    seen: list[str] = []

    def process(envelope: Any, collector: Any, coordinator: Any) -> None:
        seen.append(envelope.message)

    job = run_job(process, kind(tmp_path / "job.properties"), {"mem.a": {0: ["x"]}})
    assert (seen, job.checkpoints) == (["x"], {"Partition 0": {"mem.a.0": "0"}})


def test_a_name_that_is_set_to_nothing_is_an_error_as_it_is_in_earnest() -> None:
    with pytest.raises(ConfigError, match=r"^job\.name: is empty"):
        run_job(lambda *_: None, {"job.name": ""}, {"mem.a": {0: ["x"]}})


def test_a_failing_task_shows_the_users_frames_alone() -> None:
    def fails(envelope: Any, collector: Any, coordinator: Any) -> None:
        raise ValueError("no")

    with pytest.raises(TaskError) as found:
        run_job(fails, {}, {"log.in": {0: ["x"]}})
    cause = found.value.__cause__
    assert cause is not None
    assert [frame.name for frame in traceback.extract_tb(cause.__traceback__)] == ["fails"]
    assert len(traceback.extract_tb(found.value.__traceback__)) == 2  # this test, and run_job
