"""Tasks are shared out evenly, each to exactly one member, and move as little as possible."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from streambench.planning.sticky_assignor import sticky_assignment

MEMBERS = st.lists(st.sampled_from("abcdefgh"), min_size=1, unique=True)
TASKS = st.integers(0, 12).map(lambda count: [f"Partition {number}" for number in range(count)])


def stayed(former: dict[str, list[str]], dealt: dict[str, list[str]]) -> int:
    return sum(len(set(tasks) & set(former.get(member, ()))) for member, tasks in dealt.items())


@given(TASKS, st.lists(MEMBERS, min_size=1, max_size=6))
def test_whatever_joins_or_leaves_each_task_has_one_member_and_equal_loads(
    tasks: list[str], groups: list[list[str]]
) -> None:
    former: dict[str, list[str]] = {}
    for members in groups:
        dealt = sticky_assignment(tasks, members, former)
        assert list(dealt) == members
        assert sorted(itertools.chain(*dealt.values())) == sorted(tasks)
        sizes = [len(each) for each in dealt.values()]
        assert max(sizes) - min(sizes) <= 1
        # Nothing moves but what has to: no even distribution would let more of them stay.
        each, more = divmod(len(tasks), len(members))
        had = sorted((len(former.get(member, ())) for member in members), reverse=True)
        assert stayed(former, dealt) == sum(min(count, each + (at < more)) for at, count in enumerate(had))
        former = dealt


@given(TASKS, MEMBERS)
def test_where_nothing_changes_nothing_moves(tasks: list[str], members: list[str]) -> None:
    dealt = sticky_assignment(tasks, members, {})
    assert sticky_assignment(tasks, members, dealt) == dealt


def test_new_tasks_go_to_those_that_have_too_few() -> None:
    former = {"a": ["Partition 0", "Partition 1"], "b": ["Partition 2"]}
    assert sticky_assignment([f"Partition {number}" for number in range(4)], ["a", "b"], former) == {
        "a": ["Partition 0", "Partition 1"], "b": ["Partition 2", "Partition 3"],
    }  # fmt: skip
