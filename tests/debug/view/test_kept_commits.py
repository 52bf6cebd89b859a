"""The commits that a rewind can go back to."""

from __future__ import annotations

from msgspec import structs

from streambench.checkpoint.api import Checkpoint
from streambench.container.observe.snapshot import PartitionSnapshot
from streambench.debug.view.kept_commits import KeptCommit, kept_commits
from streambench.model import SystemStreamPartition

PARTS = [SystemStreamPartition("log", "clicks", number) for number in range(2)]


def standing(*positions: str) -> list[PartitionSnapshot]:
    """The partitions as a job stands in them, each with a task of its own."""
    return [
        PartitionSnapshot(ssp, (f"Partition {number}",), "0", position, "99", "100", 1, None, 0, 0, "")
        for number, (ssp, position) in enumerate(zip(PARTS, positions, strict=True))
    ]


def made(number: int, offset: str, generation: int, sequence: int) -> Checkpoint:
    return Checkpoint({PARTS[number]: offset}, generation=generation, sequence=sequence, time_ms=sequence)


def test_the_newest_are_first_with_the_messages_since_of_all_tasks() -> None:
    history = {
        "Partition 0": [made(0, "4", 1, 1), made(0, "9", 1, 3), made(0, "11", 2, 1)],
        "Partition 1": [made(1, "1", 1, 2)],
    }
    assert kept_commits(history, standing("20", "2")) == (
        KeptCommit("2.1", 1, 8),
        KeptCommit("1.3", 3, 10),
        KeptCommit("1.2", 2, 15),
        KeptCommit("1.1", 1, 15),
    )
    assert [each.name for each in kept_commits(history, standing("20", "2"), most=2)] == ["2.1", "1.3"]


def test_a_rewind_is_no_commit_and_a_task_counts_from_its_start() -> None:
    begun = Checkpoint({}, {PARTS[0]: "5"}, generation=1, sequence=1)
    rewound = Checkpoint({}, {PARTS[0]: "0"})
    assert kept_commits({"Partition 0": [begun, rewound]}, standing("7", "0")) == (KeptCommit("1.1", 0, 2),)


def test_a_task_counts_from_what_a_rewind_has_put_in_place() -> None:
    first, other, last = made(0, "4", 1, 1), made(1, "0", 1, 1), made(0, "9", 1, 2)
    again = structs.replace(first, rewound=2)
    history = {"Partition 0": [first, last, again], "Partition 1": [other, made(1, "1", 3, 1)]}
    assert kept_commits(history, standing("20", "2"), most=1) == (KeptCommit("3.1", 1, 15),)


def test_offsets_that_are_no_numbers_are_not_counted() -> None:
    history = {"Partition 0": [made(0, "a7", 1, 1)]}
    assert kept_commits(history, standing("a9", "0")) == (KeptCommit("1.1", 1, None),)
