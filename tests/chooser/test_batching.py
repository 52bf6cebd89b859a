"""Batches: exactly so many messages in a row from one partition, unless it runs dry."""

from __future__ import annotations

import pytest

from streambench.chooser import BatchingChooser, MessageChooser, RoundRobinChooser, TieredPriorityChooser
from streambench.errors import ConfigError
from tests.chooser.messages import A, held, held_at, put, rule_of, started, take, take_all, waiting


def _full(chooser: MessageChooser, partitions: tuple[str, ...], choices: int) -> list[str]:
    """The partitions chosen from while each of them always has a message."""
    started(chooser, *partitions)
    offsets = dict.fromkeys(partitions, 0)
    put(chooser, *(f"{partition}@0" for partition in partitions))
    order = []
    for _ in range(choices):
        partition = str(take(chooser)).partition("@")[0]
        order.append(partition)
        offsets[partition] += 1
        put(chooser, f"{partition}@{offsets[partition]}")
    return order


@pytest.mark.parametrize("size", [1, 2, 3, 10])
def test_a_batch_is_exactly_so_many_messages_in_a_row(size: int) -> None:
    order = _full(BatchingChooser(RoundRobinChooser(), size), ("a.0", "b.0", "b.1"), size * 6)
    assert order == 2 * ([*["a.0"] * size, *["b.0"] * size, *["b.1"] * size])


def test_a_batch_ends_early_when_its_partition_has_nothing() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 3), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert take(chooser) == "a.0@0"
    assert take(chooser) == "b.0@0"
    put(chooser, "a.0@1", "b.0@1")
    assert take_all(chooser) == ["b.0@1", "a.0@1"]


def test_a_batch_ends_at_a_choice_that_found_nothing_at_all() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 3), "a.0", "b.0")
    put(chooser, "a.0@0")
    assert take_all(chooser) == ["a.0@0"]
    put(chooser, "b.0@0", "a.0@1")
    assert take_all(chooser) == ["b.0@0", "a.0@1"]


def test_after_its_batch_a_partition_goes_behind_all_that_wait() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 2), "a.0", "b.0", "c.0")
    put(chooser, "a.0@0", "b.0@0", "c.0@0")
    assert take(chooser) == "a.0@0"
    put(chooser, "a.0@1")
    assert take(chooser) == "a.0@1"
    put(chooser, "a.0@2")
    assert take_all(chooser) == ["b.0@0", "c.0@0", "a.0@2"]


def test_a_batch_goes_on_although_a_higher_priority_waits() -> None:
    tiers = TieredPriorityChooser({A: 1}, {1: RoundRobinChooser()}, RoundRobinChooser())
    chooser = started(BatchingChooser(tiers, 3), "a.0", "b.0")
    put(chooser, "b.0@0")
    assert take(chooser) == "b.0@0"
    put(chooser, "b.0@1", "a.0@0")
    assert take(chooser) == "b.0@1"
    put(chooser, "b.0@2")
    assert take(chooser) == "b.0@2"
    put(chooser, "b.0@3")
    assert take_all(chooser) == ["a.0@0", "b.0@3"]


@pytest.mark.parametrize("size", [0, -1])
def test_a_batch_of_less_than_one_message_is_an_error(size: int) -> None:
    with pytest.raises(
        ConfigError, match=f"task.consumer.batch.size: {size} is less than 1 message"
    ) as caught:
        BatchingChooser(RoundRobinChooser(), size)
    assert caught.value.key == "task.consumer.batch.size"


def test_the_rule_counts_the_messages_of_a_batch() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 3), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    rules = []
    for offset in range(1, 4):
        rules.append(rule_of(chooser))
        put(chooser, f"a.0@{offset}")
    rules.append(rule_of(chooser))
    assert rules == [
        "round robin: it has waited longest",
        "batch: message 2 of 3 from this partition",
        "batch: message 3 of 3 from this partition",
        "round robin: it has waited longest",
    ]


def test_a_choice_that_found_nothing_is_no_part_of_a_batch() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 3), "a.0")
    put(chooser, "a.0@0")
    take(chooser)
    put(chooser, "a.0@1")
    assert "batch" in rule_of(chooser)
    assert "batch" not in rule_of(chooser)


def test_a_batch_holds_the_others_until_it_is_full() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 3), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert held(chooser) == {}
    first = chooser.choose()
    assert held_at(chooser, first) == {}, "it was chosen by the round robin"
    put(chooser, "a.0@1")
    assert held(chooser) == {"b.0": "batch: after up to 2 more of sys.a.0"}
    assert waiting(chooser) == {"a.0", "b.0"}
    assert held_at(chooser, chooser.choose()) == {"b.0": "batch: message 2 of 3 from sys.a.0"}
    put(chooser, "a.0@2")
    assert held(chooser) == {"b.0": "batch: after up to 1 more of sys.a.0"}
    take(chooser)
    assert held(chooser) == {}
