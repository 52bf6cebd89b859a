"""What holds for every checkpoint manager: it runs against each kind."""

from __future__ import annotations

import pytest

from streambench.checkpoint.api import Checkpoint, CheckpointManager, Generation
from streambench.errors import CheckpointError, ConfigError, FencedError
from tests.checkpoint.conftest import Another
from tests.checkpoint.samples import CLICKS, VIEWS, at


def started(manager: CheckpointManager, *tasks: str) -> CheckpointManager:
    """The manager, holding the one container of a new generation."""
    generation = manager.open_generation({0: tasks or ("a", "b")}, now_ms=0)
    manager.claim(generation.number, 0, now_ms=0)
    return manager


def test_a_job_that_was_never_started_has_nothing(manager: CheckpointManager) -> None:
    assert manager.last_generation() is None
    assert manager.read_last() == {}
    assert manager.history() == {}


def test_everything_in_a_checkpoint_is_read_as_it_was_written(another: Another) -> None:
    checkpoint = Checkpoint(
        {CLICKS: "17"}, {VIEWS: "0"}, {"counts": "204"}, 3, 9, 1_700_000_000_000, {VIEWS: "made on monday"}
    )
    started(another()).write({"a": checkpoint})
    assert another().read_last() == {"a": checkpoint}


def test_a_task_that_is_not_written_keeps_its_checkpoint(another: Another) -> None:
    manager = started(another())
    manager.write({"a": at(1), "b": at(5)})
    manager.write({"a": at(2)})
    assert another().read_last() == {"a": at(2), "b": at(5)}


def test_generations_are_numbered_and_keep_their_assignment(another: Another) -> None:
    first = another().open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    second = another().open_generation({0: ["a", "b"]}, now_ms=0)
    assert first == Generation(1, {0: ("a",), 1: ("b",)})
    assert second == another().last_generation() == Generation(2, {0: ("a", "b")})


def test_places_are_added_and_never_lost(another: Another) -> None:
    another().open_generation({0: ["a", "b"]}, places={"a": 0, "b": 1}, now_ms=0)
    another().open_generation({0: ["b", "c"]}, places={"b": 1, "c": 2}, now_ms=0)
    another().rewind({"b": at(1)}, now_ms=0)
    last = another().last_generation()
    assert last is not None and last.places == {"a": 0, "b": 1, "c": 2}


def test_a_generation_knows_the_partitions_checkpointed_before_its_opening(another: Another) -> None:
    started(another()).write({"a": Checkpoint({CLICKS: "1"})})
    first = another().last_generation()
    started(another()).write({"b": Checkpoint({}, {VIEWS: "0"})})
    second = another().last_generation()
    third = another().open_generation({0: ["a", "b"]}, now_ms=0)
    assert [each.known for each in (first, second, third) if each is not None] == [
        set(),
        {CLICKS},
        {CLICKS, VIEWS},
    ]


def test_a_container_inherits_its_commits_and_former_ones_of_others(another: Another) -> None:
    started(another()).write({"a": Checkpoint({CLICKS: "1"}), "b": Checkpoint({VIEWS: "1"})})
    number = another().open_generation({0: ["a"], 1: ["b"]}, now_ms=0).number
    first, second = another(), another()
    second.claim(number, 1, now_ms=0)
    first.claim(number, 0, now_ms=0)
    first.write({"a": Checkpoint({CLICKS: "2"})})
    first.claim(number, 0, now_ms=0)
    inherited = first.inherited()
    assert inherited.last == {"a": Checkpoint({CLICKS: "2"}), "b": Checkpoint({VIEWS: "1"})}
    assert inherited.known == {CLICKS, VIEWS}


@pytest.mark.parametrize("places", [{"a": 1}, {"c": 1}])
def test_a_start_planned_without_knowing_of_the_last_one_is_refused(
    another: Another, places: dict[str, int]
) -> None:
    manager = another()
    generation = manager.open_generation({0: ["a", "b"]}, places={"a": 0, "b": 1}, now_ms=0)
    manager.claim(generation.number, 0, now_ms=0)
    with pytest.raises(FencedError, match="another start of the job gave tasks their places.*start again"):
        another().open_generation({0: list(places)}, places=places, now_ms=0)
    manager.write({"a": at(1)})
    assert another().last_generation() == generation


def test_checkpoints_of_a_backfill_are_no_others(another: Another, starts_until_forgotten: int) -> None:
    for _ in range(starts_until_forgotten):
        another().open_generation({0: ["a"]}, now_ms=0, backfill="b of job-1")
    last = another().rewind({"a": at(1)}, now_ms=0)
    assert last.backfill == "b of job-1"
    holder = another()
    holder.claim(last.number, 0, now_ms=0)
    with pytest.raises(ConfigError, match="^job.name: .* is the backfill b of job-1: .* another job.name"):
        another().open_generation({0: ["a"]}, now_ms=0)
    with pytest.raises(ConfigError, match="c of a-1 would be .* which is the backfill b of job-1 already"):
        another().open_generation({0: ["a"]}, now_ms=0, backfill="c of a-1")
    holder.write({"a": at(2)})
    assert another().last_generation() == last


def test_checkpoints_without_the_mark_of_a_backfill_may_get_it(another: Another) -> None:
    another().open_generation({0: ["a"]}, now_ms=0)
    assert another().open_generation({0: ["a"]}, now_ms=0, backfill="b of job-1").number == 2


def test_a_task_cannot_be_in_two_containers(manager: CheckpointManager) -> None:
    with pytest.raises(CheckpointError, match="'a' is assigned twice"):
        manager.open_generation({0: ["a"], 1: ["a"]}, now_ms=0)
    assert manager.last_generation() is None


def test_a_write_without_a_claim_is_refused(manager: CheckpointManager) -> None:
    manager.open_generation({0: ["a"]}, now_ms=0)
    with pytest.raises(CheckpointError, match="claim one before"):
        manager.write({"a": at(1)})


def test_a_container_writes_only_for_its_own_tasks(another: Another) -> None:
    manager = another()
    manager.open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    manager.claim(1, 0, now_ms=0)
    with pytest.raises(CheckpointError, match="container 0 does not have the task 'b'"):
        manager.write({"a": at(1), "b": at(1)})
    assert another().read_last() == {}
    manager.write({"a": at(1)})
    assert another().read_last() == {"a": at(1)}


@pytest.mark.parametrize(
    ("generation", "container", "reason"),
    [(0, 0, "never opened"), (2, 0, "never opened"), (1, 3, "no container 3; it has 0, 1")],
)
def test_only_what_was_planned_can_be_claimed(
    manager: CheckpointManager, generation: int, container: int, reason: str
) -> None:
    manager.open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    with pytest.raises(CheckpointError, match=reason):
        manager.claim(generation, container, now_ms=0)


def test_nothing_can_be_claimed_before_the_first_generation(manager: CheckpointManager) -> None:
    with pytest.raises(CheckpointError, match="there is none yet"):
        manager.claim(1, 0, now_ms=0)


def test_epochs_grow_with_each_claim(another: Another) -> None:
    holder = started(another(), "a")
    epochs = [another().claim(1, 0, now_ms=0) for _ in range(3)]
    assert epochs == sorted(set(epochs))
    with pytest.raises(FencedError):
        holder.write({"a": at(1)})


def test_a_holder_whose_container_is_claimed_again_is_fenced(another: Another) -> None:
    zombie, holder = started(another(), "a"), another()
    zombie.write({"a": at(1)})
    holder.claim(1, 0, now_ms=0)
    with pytest.raises(FencedError, match="started again"):
        zombie.write({"a": at(2)})
    assert holder.read_last() == {"a": at(1)}
    holder.write({"a": at(3)})
    assert another().read_last() == {"a": at(3)}
    with pytest.raises(CheckpointError):
        zombie.write({"a": at(4)})
    assert another().read_last() == {"a": at(3)}


def test_a_new_holder_keeps_the_tasks_that_it_does_not_write(another: Another) -> None:
    started(another(), "a", "b").write({"a": at(1), "b": at(1)})
    holder = another()
    holder.claim(1, 0, now_ms=0)
    holder.write({"a": at(2)})
    assert another().read_last() == {"a": at(2), "b": at(1)}


def test_a_new_generation_fences_all_containers_of_the_one_before(
    another: Another,
) -> None:
    another().open_generation({0: ["a"], 1: ["b"], 2: ["c"]}, now_ms=0)
    zombies = {task: another() for task in "abc"}
    for container, (task, zombie) in enumerate(zombies.items()):
        zombie.claim(1, container, now_ms=0)
        zombie.write({task: at(container)})
    another().open_generation({0: ["a", "b", "c"]}, now_ms=0)
    for task, zombie in zombies.items():
        with pytest.raises(FencedError, match="newer start of the job"):
            zombie.write({task: at(99)})
    assert another().read_last() == {"a": at(0), "b": at(1), "c": at(2)}


def test_a_container_of_an_older_generation_cannot_be_claimed_any_more(another: Another) -> None:
    another().open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    another().open_generation({0: ["a"], 1: ["b"]}, now_ms=0)
    with pytest.raises(FencedError, match="generation 2"):
        another().claim(1, 1, now_ms=0)


def test_checkpoints_are_carried_over_generations_with_other_assignments(another: Another) -> None:
    started(another(), "a", "b", "c").write({"a": at(1), "b": at(1), "c": at(1)})
    another().open_generation({0: ["a"], 1: ["b", "c"]}, now_ms=0)
    holder = another()
    holder.claim(2, 1, now_ms=0)
    holder.write({"c": at(2)})
    another().open_generation({0: ["c"]}, now_ms=0)
    another().open_generation({0: ["a", "b", "c"]}, now_ms=0)
    assert another().read_last() == {"a": at(1), "b": at(1), "c": at(2)}


def test_history_is_oldest_first_across_generations_and_has_no_duplicates(another: Another) -> None:
    holder = started(another(), "a", "b")
    holder.write({"a": at(1), "b": at(1)})
    holder.write({"a": at(2)})
    holder = started(another(), "a", "b")
    holder.write({"a": at(3)})
    holder.claim(2, 0, now_ms=0)
    holder.write({"b": at(2)})
    assert another().history() == {"a": [at(1), at(2), at(3)], "b": [at(1), at(2)]}


def test_history_keeps_the_last_commits_and_ends_where_the_job_goes_on(another: Another) -> None:
    holder = started(another(), "a")
    for offset in range(35):
        holder.write({"a": at(offset)})
    assert another().history() == {"a": [at(offset) for offset in range(25, 35)]}
    assert another().read_last() == {"a": at(34)}


def test_a_zombie_stays_fenced_after_the_records_that_fenced_it_are_pruned(another: Another) -> None:
    zombie, holder = started(another(), "a"), another()
    zombie.write({"a": at(0)})
    holder.claim(1, 0, now_ms=0)
    for offset in range(1, 40):
        holder.write({"a": at(offset)})
    with pytest.raises(FencedError, match="started again"):
        zombie.write({"a": at(99)})
    assert another().history()["a"] == [at(offset) for offset in range(30, 40)]


def test_a_zombie_stays_fenced_after_its_generation_was_forgotten(
    another: Another, starts_until_forgotten: int
) -> None:
    zombie = started(another(), "a")
    zombie.write({"a": at(0)})
    for _ in range(starts_until_forgotten):
        started(another(), "a")
    with pytest.raises(FencedError, match="newer start"):
        zombie.write({"a": at(99)})
    with pytest.raises(FencedError):
        zombie.claim(1, 0, now_ms=0)
    assert another().read_last() == {"a": at(0)}


def test_rewind_replaces_the_given_checkpoints_and_stops_what_runs(another: Another) -> None:
    holder = started(another(), "a", "b")
    for offset in range(3):
        holder.write({"a": at(offset), "b": at(offset)})
    generation = another().rewind({"a": at(0)}, now_ms=0)
    assert generation == another().last_generation() == Generation(2, {0: ("a", "b")}, known=at(0).partitions)
    assert another().read_last() == {"a": at(0), "b": at(2)}
    with pytest.raises(FencedError):
        holder.write({"a": at(9)})
    assert another().history() == {"a": [at(0), at(1), at(2), at(0)], "b": [at(0), at(1), at(2)]}


def test_a_job_goes_on_from_where_it_was_rewound_to(another: Another) -> None:
    started(another(), "a", "b").write({"a": at(7), "b": at(7)})
    another().rewind({"a": at(2)}, now_ms=0)
    holder = started(another(), "a", "b")
    assert holder.read_last() == {"a": at(2), "b": at(7)}
    holder.write({"b": at(8)})
    assert another().read_last() == {"a": at(2), "b": at(8)}


def test_rewinding_a_task_that_does_not_exist_is_refused_and_stops_nothing(another: Another) -> None:
    holder = started(another(), "a", "b")
    with pytest.raises(CheckpointError, match="no task 'A'; it has a, b"):
        another().rewind({"A": at(0)}, now_ms=0)
    holder.write({"a": at(1)})
    assert another().read_last() == {"a": at(1)}


def test_a_job_may_be_rewound_before_its_first_start(another: Another) -> None:
    another().rewind({"a": at(5)}, now_ms=0)
    assert started(another(), "a", "b").read_last() == {"a": at(5)}


def test_closing_gives_up_the_claim_and_may_be_done_twice(another: Another) -> None:
    manager = started(another(), "a")
    manager.write({"a": at(1)})
    manager.close()
    manager.close()
    with pytest.raises(CheckpointError):
        manager.write({"a": at(2)})
    assert manager.read_last() == {"a": at(1)}
