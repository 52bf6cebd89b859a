"""Dealing tasks to containers by the messages that they have to read."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from streambench.planning.plan import deal_by_load

loads_of = st.dictionaries(st.integers(0, 40).map("Partition {}".format), st.integers(0, 10_000), min_size=6)


def sums(loads: dict[str, int], dealt: dict[int, list[str]]) -> list[int]:
    return [sum(loads[task] for task in tasks) for tasks in dealt.values()]


def test_one_heavy_task_has_a_container_of_its_own() -> None:
    loads = {"Partition 0": 900, **{f"Partition {number}": 100 for number in range(1, 10)}}
    dealt = deal_by_load(loads, 2)
    assert dealt[0] == ["Partition 0"]
    assert sums(loads, dealt) == [900, 900]


def test_without_a_message_each_container_has_equally_many_tasks() -> None:
    dealt = deal_by_load({f"Partition {number}": 0 for number in range(8)}, 3)
    assert sorted(len(tasks) for tasks in dealt.values()) == [2, 3, 3]


def test_a_task_stays_where_it_was_while_the_shares_are_alike() -> None:
    former = {0: ["Partition 0", "Partition 1"], 1: ["Partition 2", "Partition 3"]}
    loads = {"Partition 0": 100, "Partition 1": 90, "Partition 2": 110, "Partition 3": 95}
    assert deal_by_load(loads, 2, former) == former


def test_as_few_tasks_move_as_make_the_shares_alike() -> None:
    former = {0: ["Partition 0", "Partition 1", "Partition 2"], 1: ["Partition 3"]}
    loads = {"Partition 0": 100, "Partition 1": 100, "Partition 2": 100, "Partition 3": 100}
    assert deal_by_load(loads, 2, former) == {
        0: ["Partition 1", "Partition 2"],
        1: ["Partition 0", "Partition 3"],
    }


def test_new_tasks_and_those_of_a_lost_container_go_to_the_emptiest() -> None:
    former = {0: ["Partition 0"], 1: ["Partition 1"], 2: ["Partition 2"]}
    loads = {"Partition 0": 300, "Partition 1": 100, "Partition 2": 150, "Partition 3": 50}
    assert deal_by_load(loads, 2, former) == {
        0: ["Partition 0"],
        1: ["Partition 1", "Partition 2", "Partition 3"],
    }


@given(loads_of, st.integers(1, 6), st.integers(1, 6))
def test_each_task_is_in_one_container_and_none_is_empty(
    loads: dict[str, int], before: int, now: int
) -> None:
    former = deal_by_load(loads, before)
    for dealt in (former, deal_by_load(loads, now, former)):
        assert sorted(task for tasks in dealt.values() for task in tasks) == sorted(loads)
        assert all(dealt.values())


@given(loads_of, loads_of, st.integers(1, 6))
def test_no_container_has_twice_its_share_or_more(
    before: dict[str, int], loads: dict[str, int], containers: int
) -> None:
    former = deal_by_load(before, containers)
    dealt = deal_by_load(loads, containers, former)
    share = max(sum(loads.values()) / containers, max(loads.values()))
    assert max(sums(loads, dealt)) <= 2 * share
    assert deal_by_load(loads, containers, dealt) == dealt
