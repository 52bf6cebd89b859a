"""What a snapshot shows."""

from __future__ import annotations

import pickle
from typing import Any, NoReturn

import pytest

from streambench.chooser import Explanation, MessageChooser
from streambench.container.observe.snapshot import ContainerSnapshot, PartitionSnapshot, lag_between
from streambench.errors import ChooserError, SerdeError, StreamSystemError, TaskError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.planning.model import ContainerModel, JobModel, PlannedContainer, TaskModel
from streambench.task import MessageCollector, RequestScope, TaskCoordinator
from tests.container.jobs import Bench, echo, ignore


def shown(snapshot: ContainerSnapshot) -> dict[str, PartitionSnapshot]:
    return {str(each.ssp): each for each in snapshot.partitions}


def fails_at_bad(
    envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
) -> None:
    if envelope.message == "bad":
        raise ValueError("no")


def consistent(snapshot: ContainerSnapshot) -> None:
    """What holds of every snapshot of a container that reads partitions in memory from their beginning."""
    for each in snapshot.partitions:
        assert each.processed == int(each.position)
        assert each.lag == int(each.upcoming or 0) - int(each.position)
        assert 0 <= each.waiting <= each.lag
    assert (
        sum(each.processed for each in snapshot.partitions)
        == snapshot.processed
        == snapshot.counts["processed"]
    )
    assert [choice.number for choice in snapshot.choices] == list(
        range(1 + snapshot.processed - len(snapshot.choices), 1 + snapshot.processed)
    )


def test_a_container_that_was_not_started_shows_its_name_and_nothing_else() -> None:
    snapshot = Bench(ignore, {"mem.a": {0: ["x"]}}, {"job.name": "clicks"}).container.snapshot()
    assert (snapshot.job, snapshot.container, snapshot.state, snapshot.reason) == ("clicks-1", 0, "new", "")
    assert (snapshot.partitions, snapshot.choices, snapshot.processed, snapshot.lag) == ((), (), 0, None)


def test_a_container_without_partitions_has_nothing_left_in_any_state() -> None:
    task = TaskModel("Partition 0", (SystemStreamPartition("mem", "a", 0),), 0)
    model = JobModel("job-1", (ContainerModel(0, (task,)), ContainerModel(1, ())))
    bench = Bench(ignore, {"mem.a": {0: ["x"]}}, planned=PlannedContainer(model, 1))
    seen = [bench.container.snapshot(), bench.started().snapshot()]
    bench.container.stop()
    seen.append(bench.container.snapshot())
    assert [(each.state, each.lag) for each in seen] == [("new", 0), ("running", 0), ("stopped", 0)]


def test_a_snapshot_of_streams_that_do_not_answer_shows_what_was_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def away(partitions: object) -> NoReturn:
        raise StreamSystemError("nobody answers")

    bench = Bench(ignore, {"mem.a": {0: [1, 2, 3]}})
    container = bench.started()
    container.run("caught-up")
    monkeypatch.setattr(container.status.systems.admin("mem"), "glance", away)
    there = shown(container.snapshot())["mem.a.0"]
    assert (there.position, there.upcoming, there.lag) == ("3", "3", 0)
    container.stop()
    there = shown(container.snapshot())["mem.a.0"]
    assert (there.position, there.upcoming, there.checkpointed) == ("3", "3", "2")


def test_a_snapshot_shows_where_each_partition_stands() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1, 2, 3], 1: []}}, remember_choices=10)
    container = bench.started()
    container.step(2)
    container.commit()
    first, second = (shown(container.snapshot())[f"mem.a.{number}"] for number in (0, 1))
    assert (first.tasks, first.oldest, first.position, first.newest, first.upcoming) == (
        ("Partition 0",),
        "0",
        "2",
        "2",
        "3",
    )
    assert (first.lag, first.checkpointed, first.waiting, first.processed, first.status) == (
        1,
        "1",
        1,
        2,
        "waiting",
    )
    assert (second.oldest, second.position, second.newest, second.upcoming) == (None, "0", None, "0")
    assert (second.lag, second.checkpointed, second.waiting, second.processed, second.status) == (
        0,
        None,
        0,
        0,
        "caught up",
    )
    assert container.snapshot().checkpoints == {"Partition 0": {first.ssp: "1"}, "Partition 1": {}}


@pytest.mark.parametrize("remembered", [0, 3, 100])
def test_a_snapshot_is_consistent_after_every_step(remembered: int) -> None:
    bench = Bench(
        ignore,
        {"mem.a": {0: list(range(7)), 1: list(range(4))}, "mem.b": {1: list(range(5))}},
        remember_choices=remembered,
    )
    container = bench.started()
    consistent(container.snapshot())
    while container.step():
        consistent(container.snapshot())
    container.stop()
    consistent(container.snapshot())


def test_a_snapshot_is_consistent_between_any_two_messages_of_a_run() -> None:
    bench = Bench(ignore, {"mem.a": {0: list(range(7)), 1: list(range(4))}}, remember_choices=100)
    container = bench.started()
    posted: list[ContainerSnapshot] = []
    asked: list[ContainerSnapshot] = []

    def until() -> bool:
        asked.append(container.snapshot())
        container.post(lambda: posted.append(container.snapshot()))
        return len(asked) == 12

    container.run(until)
    for snapshot in (*asked, *posted):
        consistent(snapshot)
    assert [snapshot.processed for snapshot in asked] == [*range(1, 12), 11]


def test_the_last_choices_come_with_their_numbers_keys_and_rules() -> None:
    bench = Bench(ignore, {"mem.a": {0: [("k", 1), 2], 1: [3]}}, remember_choices=2)
    container = bench.started()
    container.step(3)
    choices = container.snapshot().choices
    assert [(choice.number, str(choice.ssp), choice.offset, choice.key) for choice in choices] == [
        (2, "mem.a.1", "0", None),
        (3, "mem.a.0", "1", None),
    ]
    assert all("round robin" in choice.rule for choice in choices)


def test_a_stepped_choice_comes_with_its_candidates_and_what_held_them() -> None:
    config = {"systems.mem.streams.boot.samza.bootstrap": "true", "systems.mem.streams.a.samza.priority": 1}
    inputs = {"mem.a": {0: ["x"], 1: ["y"]}, "mem.b": {0: ["z"]}, "mem.boot": {0: [1]}}
    container = Bench(ignore, inputs, config, remember_choices=10).started()
    assert container.snapshot().gate == "bootstrap: mem.boot still has to catch up"
    container.step(4)
    snapshot = container.snapshot()
    told = [choice.explanation.lines() for choice in snapshot.choices if choice.explanation is not None]
    gate = "bootstrap: mem.boot still has to catch up"
    assert told == [
        [f"mem.boot.0@0 ({gate})", "4 candidates", f"held back: mem.a.0@0, mem.a.1@0, mem.b.0@0 ({gate})"],
        [
            "mem.a.0@0 (priority 1 over none; round robin: it has waited longest)",
            "3 candidates, next mem.a.1@0",
            "held back: mem.b.0@0 (no priority: after priority 1)",
        ],
        [
            "mem.a.1@0 (priority 1 over none)",
            "2 candidates",
            "held back: mem.b.0@0 (no priority: after priority 1)",
        ],
        ["mem.b.0@0 (round robin: nothing else was there)", "1 candidate"],
    ]
    assert snapshot.gate == ""


def test_a_message_at_which_the_task_failed_is_explained_too() -> None:
    container = Bench(fails_at_bad, {"mem.a": {0: ["bad"], 1: [1]}}, remember_choices=10).started()
    with pytest.raises(TaskError):
        container.step(3)
    [choice] = container.snapshot().choices
    assert choice.explanation is not None
    assert choice.explanation.lines() == [
        "mem.a.0@0 (round robin: it has waited longest)",
        "2 candidates, next mem.a.1@0",
    ]


def test_a_partition_tells_when_its_turn_comes() -> None:
    container = Bench(ignore, {"mem.a": {0: [1, 2], 1: [3], 2: [4], 3: []}}, remember_choices=10).started()
    container.step()
    turns = {name: (each.status, each.turn) for name, each in shown(container.snapshot()).items()}
    assert turns == {
        "mem.a.0": ("waiting", None),
        "mem.a.1": ("waiting", 1),
        "mem.a.2": ("waiting", 2),
        "mem.a.3": ("caught up", None),
    }


class Foreign(MessageChooser):
    """Whoever came last goes first."""

    asked = 0

    def __init__(self) -> None:
        self.inside: list[IncomingMessageEnvelope] = []

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self.inside.append(envelope)

    def choose(self) -> IncomingMessageEnvelope | None:
        return self.inside.pop() if self.inside else None

    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        Foreign.asked += 1
        return super().explain(chosen)


class Tongueless(Foreign):
    def explain(self, chosen: IncomingMessageEnvelope | None) -> Explanation:
        raise ValueError("no words")


def test_a_silent_choosers_candidates_are_known_to_the_container() -> None:
    container = Bench(
        ignore, {"mem.a": {0: [1], 1: [2], 2: []}}, {"task.chooser.class": Foreign}, remember_choices=10
    ).started()
    container.step(2)
    first, second = (choice.explanation for choice in container.snapshot().choices)
    assert first is not None
    assert first.lines() == [
        "mem.a.1@0 (Foreign: whoever came last goes first)",
        "2 candidates, others mem.a.0",
    ]
    assert [str(each) for each in first.candidates] == ["mem.a.1@0", "mem.a.0"]
    assert second is not None
    assert [str(each) for each in second.candidates] == ["mem.a.0@0"]


def test_nobody_is_asked_for_reasons_unless_somebody_looks() -> None:
    bench = Bench(
        ignore,
        {"mem.a": {0: list(range(20)), 1: list(range(20))}},
        {"task.chooser.class": Foreign},
        remember_choices=3,
    )
    container = bench.started()
    Foreign.asked = 0
    container.run(20)
    assert Foreign.asked == 0
    container.step(10)
    assert Foreign.asked == 3


def test_a_chooser_that_cannot_explain_itself_stops_nothing() -> None:
    container = Bench(
        ignore, {"mem.a": {0: [1]}}, {"task.chooser.class": Tongueless}, remember_choices=3
    ).started()
    container.step()
    assert container.snapshot().choices[0].rule == "Tongueless cannot explain it: ValueError: no words"


def test_of_a_run_only_the_last_choice_has_a_rule() -> None:
    container = Bench(ignore, {"mem.a": {0: [1, 2, 3]}}, remember_choices=10).started()
    container.run("caught-up")
    assert [bool(choice.rule) for choice in container.snapshot().choices] == [False, False, True]


def test_the_status_says_who_is_held_back_and_why() -> None:
    config = {"systems.mem.streams.boot.samza.bootstrap": "true"}
    container = Bench(
        ignore, {"mem.a": {0: ["x"]}, "mem.boot": {0: [1, 2]}}, config, remember_choices=10
    ).started()
    container.step()
    statuses = {name: each.status for name, each in shown(container.snapshot()).items()}
    assert "bootstrap" in statuses["mem.a.0"]
    assert statuses["mem.boot.0"] == "waiting"


def test_a_failure_is_shown_with_the_message_at_which_it_happened() -> None:
    bench = Bench(fails_at_bad, {"mem.a": {0: [1, ("k", "bad"), 3]}}, remember_choices=10)
    container = bench.started()
    with pytest.raises(TaskError):
        container.run()
    snapshot = container.snapshot()
    assert (snapshot.state, snapshot.processed) == ("failed", 1)
    assert snapshot.reason == "Partition 0 failed at mem.a.0@1, key 'k': ValueError: no"
    assert [(choice.number, choice.offset) for choice in snapshot.choices] == [(1, "0"), (2, "1")]
    assert "round robin" in snapshot.choices[-1].rule
    partition = shown(snapshot)["mem.a.0"]
    assert (partition.position, partition.processed, partition.lag, partition.checkpointed) == (
        "1",
        1,
        2,
        None,
    )


def test_a_failure_to_send_leaves_its_message_processed_but_uncommitted() -> None:
    bench = Bench(
        echo,
        {"mem.a": {0: [1, 2]}},
        {"systems.mem.streams.out.samza.msg.serde": "string"},
        remember_choices=10,
    )
    container = bench.started()
    with pytest.raises(SerdeError):
        container.run()
    assert [choice.number for choice in container.snapshot().choices] == [1]


def test_a_stopped_container_is_shown_as_it_was() -> None:
    bench = Bench(ignore, {"mem.a": {0: [1, 2]}}, remember_choices=10)
    container = bench.started()
    container.step()
    container.stop()
    bench.put("mem.a.0", 3)
    partition = shown(container.snapshot())["mem.a.0"]
    assert (partition.position, partition.upcoming, partition.checkpointed, partition.waiting) == (
        "1",
        "2",
        "0",
        1,
    )
    assert container.snapshot().state == "stopped"


def test_the_lag_is_how_many_messages_are_left_in_all() -> None:
    container = Bench(ignore, {"mem.a": {0: [1, 2, 3], 1: [4]}}).started()
    assert container.snapshot().lag == 4
    container.step(3)
    assert container.snapshot().lag == 1


@pytest.mark.parametrize(
    ("position", "upcoming", "lag"),
    [("3", "5", 2), ("5", "5", 0), ("9", "5", 0), ("3", None, None), ("x", "5", None), ("3", "x", None)],
)
def test_a_lag_is_none_where_offsets_are_no_numbers(
    position: str, upcoming: str | None, lag: int | None
) -> None:
    assert lag_between(position, upcoming) == lag


def test_a_broadcast_partition_stands_where_the_last_of_its_tasks_stands() -> None:
    bench = Bench(
        ignore,
        {"mem.a": {0: [], 1: []}, "mem.rules": {0: list("abcd")}},
        {"task.broadcast.inputs": "mem.rules#0"},
    )
    container = bench.started()
    container.step(3)
    rules = shown(container.snapshot())["mem.rules.0"]
    assert (rules.tasks, rules.position, rules.processed) == (("Partition 0", "Partition 1"), "3", 3)


def test_the_time_is_that_of_the_containers_clock() -> None:
    bench = Bench(ignore, {"mem.a": {0: []}})
    bench.clock.advance(12_345)
    assert bench.started().snapshot().time_ms == 12_345


def test_counts_are_numbers_by_name() -> None:
    def commits(
        envelope: IncomingMessageEnvelope, collector: MessageCollector, coordinator: TaskCoordinator
    ) -> None:
        coordinator.commit(RequestScope.CURRENT_TASK)

    container = Bench(commits, {"mem.a": {0: [1, 2]}}).started()
    container.run("caught-up")
    counts = container.snapshot().counts
    assert (counts["processed"], counts["container.commit-calls"]) == (2, 2)


def test_a_snapshot_does_not_change_and_can_be_sent_elsewhere() -> None:
    container = Bench(ignore, {"mem.a": {0: [1, 2]}}, remember_choices=5).started()
    container.step()
    snapshot = container.snapshot()
    copy: Any = pickle.loads(pickle.dumps(snapshot))
    container.step()
    assert copy == snapshot
    assert snapshot.processed == 1
    with pytest.raises(AttributeError):
        snapshot.processed = 5  # type: ignore[misc]


def test_of_a_step_over_many_partitions_the_last_choices_are_explained() -> None:
    bench = Bench(ignore, {"mem.a": {number: [1] for number in range(1000)}}, remember_choices=100)
    container = bench.started()
    container.step(50)
    assert [bool(choice.rule) for choice in container.snapshot().choices] == [False] * 30 + [True] * 20


class Stumbling(Foreign):
    def choose(self) -> IncomingMessageEnvelope | None:
        return max(self.inside, key=lambda envelope: envelope.message["no such"])


@pytest.mark.parametrize(
    "config", [{}, {"systems.mem.streams.a.samza.priority": 1, "task.consumer.batch.size": 2}]
)
def test_a_chooser_that_raises_is_named_with_the_place(config: dict[str, Any]) -> None:
    inputs = {"mem.a": {0: [{"n": 1}], 1: [{"n": 2}]}, "mem.b": {0: [{"n": 3}]}}
    container = Bench(
        ignore, inputs, {"task.chooser.class": Stumbling, **config}, remember_choices=3
    ).started()
    says = r"the chooser failed in Stumbling\.choose \(test_snapshot\.py:\d+\): KeyError: 'no such'"
    with pytest.raises(ChooserError, match=says) as caught:
        container.step()
    assert isinstance(caught.value.__cause__, KeyError)
    assert (container.state, container.reason) == ("failed", str(caught.value))
