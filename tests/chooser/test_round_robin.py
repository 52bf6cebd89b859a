"""Round robin: whoever has waited longest goes next."""

from __future__ import annotations

from streambench.chooser import RoundRobinChooser
from streambench.model import IncomingMessageEnvelope
from tests.chooser.messages import held, put, queue, rule_of, started, take, take_all, waiting


def test_messages_go_in_the_order_of_their_arrival() -> None:
    chooser = started(RoundRobinChooser(), "a.0", "b.0", "c.0")
    put(chooser, "b.0@0", "a.0@0", "c.0@0")
    assert take_all(chooser) == ["b.0@0", "a.0@0", "c.0@0"]


def test_partitions_that_never_run_dry_take_turns() -> None:
    chooser = started(RoundRobinChooser(), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    order = []
    for offset in range(1, 4):
        order.append(take(chooser))
        put(chooser, f"a.0@{offset}")
        order.append(take(chooser))
        put(chooser, f"b.0@{offset}")
    assert order == ["a.0@0", "b.0@0", "a.0@1", "b.0@1", "a.0@2", "b.0@2"]


def test_nothing_inside_means_no_choice() -> None:
    chooser = started(RoundRobinChooser(), "a.0")
    assert take(chooser) is None
    put(chooser, "a.0@0")
    assert take_all(chooser) == ["a.0@0"]
    assert take(chooser) is None


def test_it_tells_its_rule_and_who_waits_and_holds_nobody_back() -> None:
    chooser = started(RoundRobinChooser(), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert waiting(chooser) == {"a.0", "b.0"}
    assert rule_of(chooser) == "round robin: it has waited longest"
    assert waiting(chooser) == {"b.0"}
    assert held(chooser) == {}
    assert rule_of(chooser) == "round robin: nothing else was there"


def test_it_tells_in_which_order_the_others_follow() -> None:
    chooser = started(RoundRobinChooser(), "a.0", "b.0", "c.0")
    put(chooser, "c.0@4", "a.0@0", "b.0@7")
    explanation = chooser.explain(chooser.choose())
    assert explanation.lines() == [
        "sys.c.0@4 (round robin: it has waited longest)",
        "3 candidates, next sys.a.0@0, sys.b.0@7",
    ]
    assert queue(chooser) == ["a.0@0", "b.0@7"]


def test_one_that_chooses_otherwise_does_not_say_that_it_takes_turns() -> None:
    class LastComeFirst(RoundRobinChooser):
        """Whoever came last goes first."""

        def choose(self) -> IncomingMessageEnvelope | None:
            return self._queue.pop() if self._queue else None

    chooser = started(LastComeFirst(), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert rule_of(chooser) == "LastComeFirst: whoever came last goes first"


def test_a_subclass_may_override_update() -> None:
    class Picky(RoundRobinChooser):
        def update(self, envelope: IncomingMessageEnvelope) -> None:
            if envelope.offset != "1":
                super().update(envelope)

    chooser = started(Picky(), "a.0")
    put(chooser, "a.0@0", "a.0@1", "a.0@2")
    assert take_all(chooser) == ["a.0@0", "a.0@2"]
