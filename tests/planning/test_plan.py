"""From a configuration and the partitions of its inputs to a job model."""

from __future__ import annotations

import pickle
from collections.abc import Collection, Mapping, Sequence
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.checkpoint.api import Generation
from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import PartitionMetadata, SystemStream, SystemStreamPartition
from streambench.planning.groupers import Grouper, deal
from streambench.planning.model import JobModel, natural
from streambench.planning.plan import (
    Metadata,
    all_inputs,
    broadcast_partitions,
    input_streams,
    job_name,
    name_and_id,
    plan,
)


def partitions(**counts: int) -> Metadata:
    """Metadata of streams ``m.<name>`` with so many empty partitions."""
    empty = PartitionMetadata(None, None, "0")
    return {SystemStream("m", name): dict.fromkeys(range(count), empty) for name, count in counts.items()}


def planned(values: Mapping[str, Any], metadata: Metadata) -> JobModel:
    inputs = ",".join(map(str, metadata))
    return plan(Config({"task.inputs": inputs, **values}), "job-1", metadata)


def tasks(model: JobModel) -> dict[str, list[str]]:
    return {task.name: [str(ssp) for ssp in task.partitions] for task in model.tasks}


def containers(model: JobModel) -> list[list[str]]:
    return [[task.name for task in container.tasks] for container in model.containers]


# Tasks


def test_a_task_gets_the_same_partition_of_every_input() -> None:
    model = planned({}, partitions(a=3, b=2))
    assert tasks(model) == {
        "Partition 0": ["m.a.0", "m.b.0"],
        "Partition 1": ["m.a.1", "m.b.1"],
        "Partition 2": ["m.a.2"],
    }


def test_each_partition_can_be_a_task_of_its_own() -> None:
    model = planned({"job.systemstreampartition.grouper.factory": "ssp"}, partitions(a=2, b=1))
    assert tasks(model) == {"m.a.0": ["m.a.0"], "m.a.1": ["m.a.1"], "m.b.0": ["m.b.0"]}


def test_tasks_stand_in_natural_order_and_are_numbered_so() -> None:
    model = planned({}, partitions(a=12))
    assert [task.name for task in model.tasks] == [f"Partition {number}" for number in range(12)]
    assert [task.number for task in model.tasks] == list(range(12))
    assert model.changelog_partitions == 12


def test_a_changelog_keeps_its_partitions_when_an_input_grows() -> None:
    few, many = planned({}, partitions(a=9)), planned({}, partitions(a=30))
    assert {task.name: task.number for task in few.tasks}.items() <= {
        task.name: task.number for task in many.tasks
    }.items()


def test_a_model_is_plain_data() -> None:
    model = planned({"job.container.count": 2}, partitions(a=3))
    assert pickle.loads(pickle.dumps(model)) == model


@given(st.lists(st.text("Partion 0123456789", max_size=8), max_size=6))
def test_the_natural_order_is_an_order_of_any_names(names: list[str]) -> None:
    assert sorted(sorted(names, key=natural), key=natural) == sorted(names, key=natural)


# Broadcast inputs


def test_every_task_gets_a_broadcast_partition() -> None:
    model = planned({"task.broadcast.inputs": "m.a#0, m.b#1"}, partitions(a=3, b=3))
    assert tasks(model) == {
        "Partition 0": ["m.a.0", "m.b.0", "m.b.1"],
        "Partition 1": ["m.a.0", "m.a.1", "m.b.1"],
        "Partition 2": ["m.a.0", "m.a.2", "m.b.1", "m.b.2"],
    }


def test_a_broadcast_stream_need_not_be_among_the_inputs() -> None:
    config = Config({"task.inputs": "m.a", "task.broadcast.inputs": "m.rules#[0-1]"})
    assert all_inputs(config) == [SystemStream("m", "a"), SystemStream("m", "rules")]
    model = plan(config, "job-1", partitions(a=1, rules=2))
    assert tasks(model) == {"Partition 0": ["m.a.0", "m.rules.0", "m.rules.1"]}


def test_a_range_of_broadcast_partitions_is_inclusive() -> None:
    found = broadcast_partitions(Config({"task.broadcast.inputs": "m.a.b#[1-3]"}))
    assert [str(ssp) for ssp in found] == ["m.a.b.1", "m.a.b.2", "m.a.b.3"]


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        ("m.a", "is not a broadcast input"),
        ("m.a#", "is not a broadcast input"),
        ("m.a#x", "is not a broadcast input"),
        ("m.a#[1-]", "is not a broadcast input"),
        ("m.a#[3-1]", "holds no partition"),
        ("a#1", "is not a stream"),
        ("m.a#2", "m.a has no partition 2; it has 2"),
        ("m.a#[1-2]", "m.a has no partition 2; it has 2"),
    ],
)
def test_a_wrong_broadcast_input_is_an_error_that_names_the_key(entry: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        planned({"task.broadcast.inputs": entry}, partitions(a=2))
    assert caught.value.key == "task.broadcast.inputs"


def test_broadcast_inputs_alone_make_no_task() -> None:
    with pytest.raises(ConfigError, match="broadcast inputs alone make no task"):
        planned({"task.broadcast.inputs": "m.a#[0-1]"}, partitions(a=2))


# Inputs


def test_inputs_keep_their_order() -> None:
    assert [str(stream) for stream in input_streams(Config({"task.inputs": "m.b, m.a"}))] == ["m.b", "m.a"]


@pytest.mark.parametrize(
    ("inputs", "what"),
    [("m.b,m.a,m.b", "m.b is named twice"), ("m.a,,m.b", "a comma too many"), ("m.a,", "a comma too many")],
)
def test_a_name_of_an_input_that_stands_twice_or_is_missing_is_an_error(inputs: str, what: str) -> None:
    with pytest.raises(ConfigError, match=rf"task\.inputs: .*{what}"):
        input_streams(Config({"task.inputs": inputs}))


@pytest.mark.parametrize("value", ["", "clicks", "m.a,clicks"])
def test_wrong_inputs_are_an_error_that_names_the_key(value: str) -> None:
    with pytest.raises(ConfigError) as caught:
        input_streams(Config({"task.inputs": value}))
    assert caught.value.key == "task.inputs"


# Containers


def test_tasks_are_dealt_in_the_order_of_their_names_as_text() -> None:
    model = planned({"job.container.count": 2}, partitions(a=12))
    assert containers(model) == [
        [f"Partition {number}" for number in each] for each in ([0, 2, 4, 6, 8, 10], [1, 3, 5, 7, 9, 11])
    ]
    assert [container.number for container in model.containers] == [0, 1]


@given(st.integers(1, 40), st.integers(1, 40))
def test_every_task_is_in_one_container_and_sizes_differ_by_one_at_most(number: int, count: int) -> None:
    if count > number:
        with pytest.raises(
            ConfigError,
            match=rf"job\.container\.count: {count} containers for {number} tasks: give 1 to {number}",
        ):
            planned({"job.container.count": count}, partitions(a=number))
        return
    model = planned({"job.container.count": count}, partitions(a=number))
    assert sorted((task for names in containers(model) for task in names), key=natural) == [
        task.name for task in model.tasks
    ]
    sizes = [len(names) for names in containers(model)]
    assert max(sizes) - min(sizes) <= 1


def names(*numbers: int) -> list[str]:
    return [f"Partition {number}" for number in numbers]


def test_more_containers_take_from_those_that_have_too_many() -> None:
    former = {0: names(0, 2, 4, 6, 8), 1: names(1, 3, 5, 7)}
    assert deal(names(*range(9)), 4, former) == {
        0: names(0, 2, 4),
        1: names(1, 3),
        2: names(6, 8),
        3: names(5, 7),
    }


def test_what_a_container_had_that_is_gone_goes_to_those_that_are_left() -> None:
    former = {0: names(0, 4, 8), 1: names(1, 5), 2: names(2, 6), 3: names(3, 7)}
    assert deal(names(*range(9)), 2, former) == {0: names(0, 2, 4, 6, 8), 1: names(1, 3, 5, 7)}


@given(
    st.integers(2, 5),
    st.integers(2, 5),
    st.sets(st.integers(0, 19), min_size=5),
    st.sets(st.integers(0, 19), min_size=5),
)
def test_no_more_tasks_move_than_must(before: int, now: int, had: set[int], has: set[int]) -> None:
    former = deal(names(*had), before)
    dealt = deal(names(*has), now, former)
    each, more = divmod(len(has), now)
    sizes = [each + (number < more) for number in range(now)]
    assert sorted((task for tasks in dealt.values() for task in tasks), key=natural) == names(*sorted(has))
    assert [len(dealt[number]) for number in range(now)] == sizes
    for number, size in enumerate(sizes):
        stayed = set(former.get(number, ())) & set(names(*has))
        assert len(stayed & set(dealt[number])) == min(size, len(stayed))
    assert deal(names(*has), now, dealt) == dealt


def test_a_plan_follows_the_generation_before() -> None:
    before = Generation(1, {0: ["m.a.1"], 1: ["m.a.0"]}, {"m.a.0": 1, "m.a.1": 0})
    metadata = partitions(a=3)
    config = Config(
        {"task.inputs": "m.a", "job.systemstreampartition.grouper.factory": "ssp", "job.container.count": 2}
    )
    model = plan(config, "job-1", metadata, before)
    assert {task.name: task.number for task in model.tasks} == {"m.a.0": 1, "m.a.1": 0, "m.a.2": 2}
    assert containers(model) == [["m.a.1", "m.a.2"], ["m.a.0"]]
    assert model.changelog_partitions == 3


def test_there_is_at_least_one_container() -> None:
    with pytest.raises(ConfigError, match="0 is too small: give 1 or more"):
        planned({"job.container.count": 0}, partitions(a=2))


# Groupers of one's own


class ByParity(Grouper):
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {
            name: [ssp for ssp in partitions if ssp.partition % 2 == bit]
            for bit, name in enumerate(("even", "odd"))
        }


class Forgetful(Grouper):
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {"all": sorted(partitions)[1:]}


class Doubling(Grouper):
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {"one": list(partitions), "two": list(partitions)}


class Inventive(Grouper):
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {"all": [*partitions, SystemStreamPartition("m", "other", 7)]}


def test_a_grouper_of_ones_own_makes_the_tasks() -> None:
    model = planned({"job.systemstreampartition.grouper.factory": ByParity}, partitions(a=4))
    assert tasks(model) == {"even": ["m.a.0", "m.a.2"], "odd": ["m.a.1", "m.a.3"]}


@pytest.mark.parametrize(
    ("grouper", "problem"),
    [(Forgetful, "m.a.0 is in 0"), (Doubling, "m.a.0 is in 2"), (Inventive, "m.other.7 is in 1")],
)
def test_a_grouper_that_loses_or_doubles_a_partition_is_an_error(
    grouper: type[Grouper], problem: str
) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        planned({"job.systemstreampartition.grouper.factory": grouper}, partitions(a=2))
    assert caught.value.key == "job.systemstreampartition.grouper.factory"


def by_parity(config: Config) -> Grouper:
    return ByParity()


def test_a_function_may_make_the_grouper() -> None:
    model = planned({"job.systemstreampartition.grouper.factory": by_parity}, partitions(a=4))
    assert tasks(model) == {"even": ["m.a.0", "m.a.2"], "odd": ["m.a.1", "m.a.3"]}


def test_a_grouper_may_stand_in_a_file_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from streambench.planning.groupers import Grouper\n\n\n"
        "class All(Grouper):\n    def group(self, partitions):\n        return {'all': sorted(partitions)}\n"
    )
    text = (
        "task.inputs=m.a\njob.systemstreampartition.grouper.factory=mine.py:All\n"
        "task.broadcast.inputs=m.r#[0-1]\n"
    )
    (tmp_path / "job.properties").write_text(text)
    model = plan(Config.from_file(tmp_path / "job.properties"), "job-1", partitions(a=2, r=2))
    assert tasks(model) == {"all": ["m.a.0", "m.a.1", "m.r.0", "m.r.1"]}


def test_a_package_adds_a_grouper_by_an_entry_point(monkeypatch: pytest.MonkeyPatch) -> None:
    point = EntryPoint("parity", "tests.planning.test_plan:ByParity", "streambench.groupers")
    found = {point.group: [point]}
    monkeypatch.setattr("importlib.metadata.entry_points", lambda group: found.get(group, []))
    assert set(tasks(planned({"job.systemstreampartition.grouper.factory": "parity"}, partitions(a=2)))) == {
        "even",
        "odd",
    }


class Raising(Grouper):
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        raise KeyError("shard")


class Vacant(Grouper):
    def group(
        self, partitions: Collection[SystemStreamPartition]
    ) -> Mapping[str, Sequence[SystemStreamPartition]]:
        return {"all": list(partitions), "none": []}


@pytest.mark.parametrize(
    ("grouper", "problem"),
    [(Raising, "cannot group the partitions: KeyError: 'shard'"), (Vacant, "a task 'none' of 0 partitions")],
)
def test_what_goes_wrong_in_a_grouper_names_the_key(grouper: type[Grouper], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as caught:
        planned({"job.systemstreampartition.grouper.factory": grouper}, partitions(a=2))
    assert caught.value.key == "job.systemstreampartition.grouper.factory"


def test_broadcast_ranges_of_several_streams_reach_the_tasks() -> (
    None
):
    values = {
        "job.systemstreampartition.grouper.factory": "ssp", "task.inputs": "m.a,m.b",
        "task.broadcast.inputs": "m.a#0, m.rules#[1-2], m.b#1,m.rules#[2-3]",
    }  # fmt: skip
    shared = ["m.a.0", "m.b.1", "m.rules.1", "m.rules.2", "m.rules.3"]
    assert tasks(planned(values, partitions(a=2, b=2, rules=4))) == {
        each: sorted([each, *shared]) for each in ("m.a.1", "m.b.0")
    }


def test_what_is_no_grouper_is_an_error() -> None:
    with pytest.raises(ConfigError, match="is not a Grouper"):
        planned({"job.systemstreampartition.grouper.factory": "streambench.config.Config"}, partitions(a=2))


# The job's name


class Clicks:
    pass


def test_the_name_of_a_job_is_configured_or_that_of_its_file_or_task() -> None:
    config = Config.from_text("job.id=2", origin="file.properties", directory=Path("/jobs"))
    assert job_name(config.with_values({"job.name": "mine"}), Clicks) == "mine-2"
    assert name_and_id(config.with_values({"job.name": "mine"}), Clicks) == ("mine", "2")
    assert job_name(config, Clicks) == "file-2"
    assert job_name(Config(), Clicks) == "Clicks-1"
    assert job_name(Config(), lambda envelope, collector, coordinator: None) == "job-1"
    assert job_name(Config()) == "job-1"


@pytest.mark.parametrize("key", ["job.name", "job.id"])
@pytest.mark.parametrize("nothing", ["", "  "])
def test_an_empty_name_or_id_is_an_error_and_not_the_default(
    key: str, nothing: str
) -> None:
    config = Config.from_text(f"{key}={nothing}", origin="file.properties", directory=Path("/jobs"))
    with pytest.raises(
        ConfigError, match=rf"^{key} \(file\.properties:1\): is empty: give it a value, or leave it out to "
    ) as caught:
        job_name(config, Clicks)
    assert caught.value.key == key


@pytest.mark.parametrize(
    ("key", "name"), [("job.name", "../x"), ("job.name", "a/b"), ("job.name", "-x"), ("job.id", "../../x")]
)
def test_a_name_that_cannot_be_a_directory_is_an_error(key: str, name: str) -> None:
    with pytest.raises(ConfigError, match="cannot be a name") as caught:
        job_name(Config({"job.name": "x", key: name}))
    assert caught.value.key == key
