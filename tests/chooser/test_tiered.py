"""Priorities: nothing of a lower one goes as long as something of a higher one is there."""

from __future__ import annotations

import pytest

from streambench.chooser import MessageChooser, RoundRobinChooser, TieredPriorityChooser
from streambench.errors import ConfigError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from tests.chooser.messages import (
    A,
    B,
    C,
    held,
    held_at,
    put,
    queue,
    rule_of,
    started,
    take,
    take_all,
    waiting,
)


class Recorder(MessageChooser):
    """Notes what it is told and never chooses."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def register(self, ssp: SystemStreamPartition, offset: str) -> None:
        self.calls.append(f"register {ssp} {offset}")

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def at_head(self, ssp: SystemStreamPartition) -> None:
        self.calls.append(f"at head {ssp}")

    def update(self, envelope: IncomingMessageEnvelope) -> None:
        self.calls.append(f"update {envelope.ssp}@{envelope.offset}")

    def choose(self) -> IncomingMessageEnvelope | None:
        return None


def _tiers() -> MessageChooser:
    choosers: dict[int, MessageChooser] = {2: RoundRobinChooser(), 0: RoundRobinChooser()}
    return started(
        TieredPriorityChooser({A: 2, B: 0}, choosers, RoundRobinChooser()), "a.0", "a.1", "b.0", "c.0"
    )


def test_a_higher_priority_goes_first_whatever_arrived_first() -> None:
    chooser = _tiers()
    put(chooser, "c.0@0", "b.0@0", "a.1@0", "a.0@0")
    assert take_all(chooser) == ["a.1@0", "a.0@0", "b.0@0", "c.0@0"]


def test_a_stream_without_a_priority_comes_after_an_explicit_zero() -> None:
    choosers: dict[int, MessageChooser] = {0: RoundRobinChooser(), -3: RoundRobinChooser()}
    chooser = started(
        TieredPriorityChooser({A: 0, B: -3}, choosers, RoundRobinChooser()), "a.0", "b.0", "c.0"
    )
    put(chooser, "c.0@0", "b.0@0", "a.0@0")
    assert take_all(chooser) == ["a.0@0", "b.0@0", "c.0@0"]


def test_a_lower_priority_waits_as_long_as_the_higher_one_goes_on() -> None:
    chooser = _tiers()
    put(chooser, "b.0@0", "a.0@0")
    for offset in range(1, 50):
        assert take(chooser) == f"a.0@{offset - 1}"
        put(chooser, f"a.0@{offset}")
    assert take_all(chooser) == ["a.0@49", "b.0@0"]


def test_a_priority_without_a_chooser_is_an_error() -> None:
    with pytest.raises(ConfigError, match=r"sys\.a has priority 2, but there is no chooser for it"):
        TieredPriorityChooser({A: 2}, {1: RoundRobinChooser()}, RoundRobinChooser())


def test_a_stream_with_neither_priority_nor_default_is_an_error() -> None:
    chooser = TieredPriorityChooser({A: 1}, {1: RoundRobinChooser()})
    with pytest.raises(ConfigError, match=r"sys\.c has no priority") as caught:
        started(chooser, "a.0", "c.0")
    assert caught.value.key == "systems.sys.streams.c.samza.priority"
    with pytest.raises(ConfigError, match=r"sys\.c has no priority"):
        put(chooser, "c.0@0")


def test_a_tier_hears_only_of_its_own_partitions() -> None:
    high, low = Recorder(), Recorder()
    chooser = started(TieredPriorityChooser({A: 1}, {1: high}, low), "a.0@7", "b.0@8")
    put(chooser, "a.0@7")
    put(chooser, "b.0@8")
    for each in ("a.0", "b.0"):
        chooser.at_head(SystemStreamPartition.parse(f"sys.{each}"))
    chooser.stop()
    assert high.calls == ["register sys.a.0 7", "start", "update sys.a.0@7", "at head sys.a.0", "stop"]
    assert low.calls == ["register sys.b.0 8", "start", "update sys.b.0@8", "at head sys.b.0", "stop"]


def test_the_rule_names_the_priority_that_won_and_those_that_waited() -> None:
    chooser = _tiers()
    assert rule_of(chooser) == "priorities: nothing was there"
    put(chooser, "c.0@0", "b.0@0", "a.1@0", "a.0@0")
    assert [rule_of(chooser) for _ in range(5)] == [
        "priority 2 over 0, none; round robin: it has waited longest",
        "priority 2 over 0, none",
        "priority 0 over none",
        "round robin: nothing else was there",
        "priorities: nothing was there",
    ]


def test_a_choice_is_explained_by_its_tier_and_what_waits_in_those_below() -> None:
    chooser = _tiers()
    put(chooser, "c.0@0", "b.0@0", "a.1@0", "a.0@0")
    explanation = chooser.explain(chooser.choose())
    assert explanation.lines() == [
        "sys.a.1@0 (priority 2 over 0, none; round robin: it has waited longest)",
        "4 candidates, next sys.a.0@0",
        "held back: sys.b.0@0 (priority 0: after priority 2)",
        "held back: sys.c.0@0 (no priority: after priority 2)",
    ]


def test_a_lower_tier_is_held_even_by_a_chooser_that_explains_nothing() -> None:
    chooser = started(TieredPriorityChooser({A: 1}, {1: RoundRobinChooser()}, Recorder()), "a.0", "b.0")
    put(chooser, "b.0@0", "a.0@0")
    explanation = chooser.explain(chooser.choose())
    assert {str(ssp): reason for ssp, reason in explanation.held.items()} == {
        "sys.b.0": "no priority: after priority 1"
    }
    assert explanation.rule == "round robin: nothing else was there"


def test_who_waits_for_a_higher_priority_is_held() -> None:
    chooser = _tiers()
    put(chooser, "c.0@0", "b.0@0")
    assert held(chooser) == {"c.0": "no priority: after priority 0"}
    put(chooser, "a.0@0")
    assert held(chooser) == {"b.0": "priority 0: after priority 2", "c.0": "no priority: after priority 2"}
    assert waiting(chooser) == {"a.0", "b.0", "c.0"}
    assert queue(chooser) == ["a.0@0"]


def test_the_winner_of_the_last_choice_stays_ahead_until_the_next_choice() -> None:
    chooser = _tiers()
    put(chooser, "b.0@0", "a.0@0")
    assert held_at(chooser, chooser.choose()) == {"b.0": "priority 0: after priority 2"}
    assert held(chooser) == {"b.0": "priority 0: after priority 2"}
    take(chooser)
    assert held(chooser) == {}


def test_streams_of_one_priority_take_turns() -> None:
    chooser = started(
        TieredPriorityChooser({A: 1, B: 1, C: 1}, {1: RoundRobinChooser()}), "a.0", "b.0", "c.0"
    )
    put(chooser, "b.0@0", "c.0@0", "a.0@0")
    assert take(chooser) == "b.0@0"
    put(chooser, "b.0@1")
    assert take_all(chooser) == ["c.0@0", "a.0@0", "b.0@1"]
