"""The bootstrap gate: some streams are read up to where they ended at the start before anything else goes."""

from __future__ import annotations

import logging

import pytest

from streambench.chooser import (
    BatchingChooser,
    BootstrappingChooser,
    MessageChooser,
    PartitionMetadata,
    RoundRobinChooser,
    TieredPriorityChooser,
)
from streambench.model import SystemStream
from tests.chooser.messages import (
    A,
    B,
    C,
    held,
    held_at,
    put,
    rule_of,
    ssp,
    started,
    take,
    take_all,
    until,
    waiting,
)

Metadata = dict[SystemStream, dict[int, PartitionMetadata]]


def _gate(
    bootstrap: Metadata, *partitions: str, priorities: dict[SystemStream, int] | None = None
) -> BootstrappingChooser:
    chooser = BootstrappingChooser(RoundRobinChooser(), bootstrap, priorities=priorities)
    started(chooser, *partitions)
    return chooser


def test_nothing_else_goes_until_the_bootstrap_stream_has_caught_up() -> None:
    chooser = _gate({A: {0: until(2)}}, "a.0", "b.0")
    put(chooser, "b.0@0", "a.0@0")
    assert take_all(chooser) == ["a.0@0"]
    put(chooser, "a.0@1")
    assert take_all(chooser) == ["a.0@1"]
    put(chooser, "a.0@2")
    assert take_all(chooser) == ["a.0@2", "b.0@0"]


def test_others_wait_even_while_the_bootstrap_stream_has_nothing() -> None:
    chooser = _gate({A: {0: until(2)}}, "a.0", "b.0")
    put(chooser, "b.0@0")
    assert take(chooser) is None
    assert take(chooser) is None
    assert waiting(chooser) == {"b.0"}


def test_it_is_exclusive_without_any_priorities_and_against_any() -> None:
    tiers = TieredPriorityChooser({B: 9}, {9: RoundRobinChooser()}, RoundRobinChooser())
    chooser = started(BootstrappingChooser(tiers, {A: {0: until(0)}}, priorities={B: 9}), "a.0", "b.0")
    put(chooser, "b.0@0", "a.0@0")
    assert take_all(chooser) == ["a.0@0", "b.0@0"]


def test_a_partition_that_has_caught_up_is_held_while_its_stream_lags() -> None:
    chooser = _gate({A: {0: until(0), 1: until(1)}}, "a.0", "a.1", "b.0")
    put(chooser, "a.0@0", "a.1@0")
    assert take_all(chooser) == ["a.0@0", "a.1@0"]
    put(chooser, "b.0@0", "a.0@1")
    assert take(chooser) is None
    assert chooser.lagging == {ssp("a.1")}
    put(chooser, "a.1@1")
    assert take_all(chooser) == ["a.1@1", "b.0@0", "a.0@1"]


def test_a_stream_that_has_caught_up_is_held_while_an_equal_one_lags() -> None:
    chooser = _gate({A: {0: until(0)}, B: {0: until(1)}}, "a.0", "b.0")
    put(chooser, "a.0@0")
    assert take(chooser) == "a.0@0"
    put(chooser, "a.0@1")
    assert take(chooser) is None
    put(chooser, "b.0@0")
    assert take(chooser) == "b.0@0"
    put(chooser, "b.0@1")
    assert take_all(chooser) == ["b.0@1", "a.0@1"]


def test_equal_bootstrap_streams_do_not_wait_for_each_other() -> None:
    chooser = _gate({A: {0: until(5)}, B: {0: until(5)}}, "a.0", "b.0")
    put(chooser, "b.0@0")
    assert take(chooser) == "b.0@0"
    put(chooser, "b.0@1", "a.0@0")
    assert take_all(chooser) == ["b.0@1", "a.0@0"]


def test_bootstrap_streams_go_by_priority_with_those_without_any_first() -> None:
    bootstrap = {A: {0: until(0)}, B: {0: until(0)}, C: {0: until(0)}}
    chooser = _gate(bootstrap, "a.0", "b.0", "c.0", priorities={A: 1, B: 2})
    put(chooser, "a.0@0", "b.0@0")
    assert take(chooser) is None
    put(chooser, "c.0@0")
    assert take_all(chooser) == ["c.0@0", "b.0@0", "a.0@0"]


def test_a_negative_priority_of_a_bootstrap_stream_is_none() -> None:
    chooser = _gate({A: {0: until(0)}, B: {0: until(0)}}, "a.0", "b.0", priorities={A: 7, B: -1})
    put(chooser, "a.0@0", "b.0@0")
    assert take_all(chooser) == ["b.0@0", "a.0@0"]


def test_what_waited_at_the_gate_goes_on_in_the_order_of_its_arrival() -> None:
    chooser = _gate({A: {0: until(0)}}, "a.0", "b.0", "c.0", "c.1")
    put(chooser, "c.1@0", "b.0@0", "c.0@0")
    assert take(chooser) is None
    put(chooser, "a.0@0")
    assert take_all(chooser) == ["a.0@0", "c.1@0", "b.0@0", "c.0@0"]


def test_once_caught_up_a_stream_has_no_privilege_left() -> None:
    tiers = TieredPriorityChooser({B: 0}, {0: RoundRobinChooser()}, RoundRobinChooser())
    chooser = started(BootstrappingChooser(tiers, {A: {0: until(0)}}, priorities={B: 0}), "a.0", "b.0", "c.0")
    put(chooser, "a.0@0", "c.0@0")
    assert take(chooser) == "a.0@0"
    put(chooser, "a.0@1", "b.0@0")
    assert take_all(chooser) == ["b.0@0", "c.0@0", "a.0@1"]


def test_messages_that_come_after_the_start_do_not_close_the_gate_again() -> None:
    chooser = _gate({A: {0: until(0)}}, "a.0", "b.0")
    put(chooser, "a.0@0")
    take_all(chooser)
    put(chooser, "b.0@0", "a.0@1")
    assert take_all(chooser) == ["b.0@0", "a.0@1"]


@pytest.mark.parametrize(
    ("metadata", "start"),
    [
        (PartitionMetadata(None, None, "0"), "0"),
        (PartitionMetadata(None, None, "5"), "3"),
        (PartitionMetadata(None, None, None), "0"),
        (PartitionMetadata("0", "9", "10"), "10"),
        (PartitionMetadata("0", "9", "10"), "99"),
        (PartitionMetadata("0", "9", "12"), "10"),
    ],
    ids=[
        "empty",
        "emptied",
        "empty, and nobody knows more",
        "starts at the end",
        "starts beyond the end",
        "starts after the last message",
    ],
)
def test_a_partition_with_nothing_to_read_does_not_hold_the_gate(
    metadata: PartitionMetadata, start: str
) -> None:
    chooser = _gate({A: {0: metadata}}, f"a.0@{start}", "b.0")
    put(chooser, "b.0@0")
    assert take(chooser) == "b.0@0"


def test_a_start_at_the_newest_message_still_has_it_to_read() -> None:
    chooser = _gate({A: {0: until(9)}}, "a.0@9", "b.0")
    put(chooser, "b.0@0")
    assert take(chooser) is None


def test_offsets_are_compared_as_numbers() -> None:
    chooser = _gate({A: {0: until(10)}}, "a.0@9", "b.0")
    put(chooser, "b.0@0", "a.0@9")
    assert take_all(chooser) == ["a.0@9"]


def test_an_offset_beyond_the_newest_counts_as_caught_up() -> None:
    chooser = _gate({A: {0: until(9)}}, "a.0", "b.0")
    put(chooser, "b.0@0", "a.0@11")
    assert take_all(chooser) == ["a.0@11", "b.0@0"]


def test_a_newest_message_that_is_gone_does_not_hold_the_gate_for_ever() -> None:
    chooser = _gate({A: {0: until(9)}}, "a.0", "b.0")
    put(chooser, "b.0@0", "a.0@7")
    assert take_all(chooser) == ["a.0@7"]
    chooser.at_head(ssp("a.0"))
    assert chooser.explain(None).gate == ""
    assert take(chooser) == "b.0@0"
    chooser.at_head(ssp("a.0"))
    chooser.at_head(ssp("b.0"))


def test_partitions_of_other_containers_do_not_count() -> None:
    chooser = _gate({A: {0: until(0), 1: until(9)}, C: {0: until(9)}}, "a.0", "b.0")
    assert chooser.lagging == {ssp("a.0")}
    put(chooser, "b.0@0", "a.0@0")
    assert take_all(chooser) == ["a.0@0", "b.0@0"]


def test_a_partition_registered_twice_starts_at_the_lower_offset() -> None:
    for order in (["a.0@10", "a.0@3"], ["a.0@3", "a.0@10"]):
        chooser = _gate({A: {0: until(9)}}, *order, "b.0")
        assert chooser.lagging == {ssp("a.0")}


def test_offsets_are_compared_by_what_the_system_says() -> None:
    letters = BootstrappingChooser(
        RoundRobinChooser(),
        {A: {0: PartitionMetadata("a", "c", "d")}},
        compare=lambda one, other: (one > other) - (one < other),
    )
    started(letters, "a.0@b", "b.0")
    put(letters, "b.0@0", "a.0@b")
    assert take_all(letters) == ["a.0@b"]
    put(letters, "a.0@d")
    assert take_all(letters) == ["a.0@d", "b.0@0"]


def test_offsets_that_cannot_be_compared_catch_up_at_exactly_the_newest() -> None:
    chooser = BootstrappingChooser(
        RoundRobinChooser(), {A: {0: PartitionMetadata("x", "z", None)}}, compare=lambda one, other: None
    )
    started(chooser, "a.0@x", "b.0")
    put(chooser, "b.0@0", "a.0@y")
    assert take_all(chooser) == ["a.0@y"]
    put(chooser, "a.0@z")
    assert take_all(chooser) == ["a.0@z", "b.0@0"]


def test_offsets_that_are_no_numbers_are_compared_only_where_they_differ() -> None:
    chooser = _gate({A: {0: PartitionMetadata("x", "z", None)}}, "a.0@x", "b.0")
    put(chooser, "b.0@0", "a.0@y")
    assert take_all(chooser) == ["a.0@y"]
    put(chooser, "a.0@z")
    assert take_all(chooser) == ["a.0@z", "b.0@0"]


def test_a_batch_does_not_pass_the_gate() -> None:
    chooser: MessageChooser = BootstrappingChooser(
        BatchingChooser(RoundRobinChooser(), 5), {A: {0: until(0), 1: until(1)}}
    )
    started(chooser, "a.0", "a.1", "b.0")
    put(chooser, "a.0@0", "a.1@0")
    assert take(chooser) == "a.0@0"
    put(chooser, "a.0@1")
    assert take_all(chooser) == ["a.1@0"]
    put(chooser, "b.0@0", "a.1@1")
    assert take_all(chooser) == ["a.1@1", "a.0@1", "b.0@0"]


def test_a_batch_goes_on_when_the_gate_opens() -> None:
    chooser = started(
        BootstrappingChooser(BatchingChooser(RoundRobinChooser(), 3), {A: {0: until(0)}}), "a.0", "b.0"
    )
    put(chooser, "b.0@0", "a.0@0")
    assert take(chooser) == "a.0@0"
    put(chooser, "a.0@1")
    assert take(chooser) == "a.0@1"
    put(chooser, "a.0@2")
    assert take(chooser) == "a.0@2"
    put(chooser, "a.0@3")
    assert take_all(chooser) == ["b.0@0", "a.0@3"]


def test_the_rule_names_the_stream_that_lagged_at_the_choice() -> None:
    chooser = _gate({A: {0: until(1)}}, "a.0", "b.0")
    put(chooser, "b.0@0")
    rules = [rule_of(chooser)]
    for message in ("a.0@0", "a.0@1"):
        put(chooser, message)
        rules.append(rule_of(chooser))
    rules.append(rule_of(chooser))
    lags = "bootstrap: sys.a still has to catch up"
    assert rules == [lags, lags, lags, "round robin: nothing else was there"]


def test_the_choice_that_opens_the_gate_shows_what_it_held_until_then() -> None:
    chooser = _gate({A: {0: until(1)}}, "a.0", "b.0")
    put(chooser, "b.0@7", "a.0@0")
    first = chooser.explain(chooser.choose())
    put(chooser, "a.0@1")
    last = chooser.choose()
    reason = "bootstrap: sys.a still has to catch up"
    assert first.lines() == [
        f"sys.a.0@0 ({reason})",
        "2 candidates",
        f"held back: sys.b.0@7 ({reason})",
        f"gate closed, {reason}",
    ]
    assert held_at(chooser, last) == {"b.0": reason}
    assert (held(chooser), chooser.explain(last).gate) == ({}, "")


def test_a_closed_gate_says_what_it_waits_for_even_when_nothing_is_there() -> None:
    chooser = _gate({A: {0: until(0)}, B: {0: until(0)}}, "a.0", "b.0", "c.0", priorities={B: 1})
    assert chooser.explain(None).gate == "bootstrap: sys.a still has to catch up"
    put(chooser, "a.0@0")
    take(chooser)
    assert chooser.explain(None).gate == "bootstrap: sys.b still has to catch up"


def test_what_the_gate_holds_is_held_by_the_streams_whose_turn_it_is() -> None:
    chooser = _gate(
        {A: {0: until(0)}, B: {0: until(0)}, C: {0: until(0)}}, "a.0", "b.0", "c.0", priorities={C: 1}
    )
    put(chooser, "c.0@0")
    assert held(chooser) == {"c.0": "bootstrap: sys.a and sys.b still have to catch up"}
    put(chooser, "b.0@0")
    take(chooser)
    assert held(chooser) == {"c.0": "bootstrap: sys.a still has to catch up"}
    put(chooser, "a.0@0")
    take(chooser)
    assert held(chooser) == {}
    assert waiting(chooser) == {"c.0"}


def test_the_log_says_why_nothing_else_goes_and_when_it_does(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="streambench.chooser"):
        chooser = _gate({A: {0: until(0)}}, "a.0", "b.0")
        put(chooser, "a.0@0")
        take(chooser)
    assert caplog.messages == [
        "bootstrap: sys.a still has to catch up before any other input is processed",
        "bootstrap: all streams have caught up",
    ]
