"""The length of a batch that each chooser lets a task have; the batch counts as chosen."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from streambench.chooser import (
    BatchingChooser,
    BootstrappingChooser,
    MessageChooser,
    RoundRobinChooser,
    TieredPriorityChooser,
)
from streambench.chooser.fast_paths import take_batch
from streambench.model import IncomingMessageEnvelope
from tests.chooser.messages import A, B, put, started, take, until


class Choosy(RoundRobinChooser):
    """A round robin that makes each choice itself."""

    def choose(self) -> IncomingMessageEnvelope | None:
        return super().choose()


class OneByOne(MessageChooser):
    """Says nothing of batches."""

    def update(self, envelope: IncomingMessageEnvelope) -> None: ...

    def choose(self) -> IncomingMessageEnvelope | None: ...


def offsets(start: int, stop: int) -> Sequence[str]:
    return [str(number) for number in range(start, stop)]


def test_a_chooser_that_says_nothing_decides_message_by_message() -> None:
    assert take_batch(OneByOne(), offsets(0, 5)) == 1
    assert take_batch(Choosy(), offsets(0, 5)) == 1


def test_for_round_robin_a_batch_is_one_choice() -> None:
    chooser = started(RoundRobinChooser(), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert take(chooser) == "a.0@0"
    assert take_batch(chooser, offsets(0, 5)) == 5
    put(chooser, "a.0@5")
    assert take(chooser) == "b.0@0"


def test_with_priorities_the_chooser_of_the_tier_is_asked() -> None:
    chooser = started(
        TieredPriorityChooser({A: 1}, {1: RoundRobinChooser()}, BatchingChooser(RoundRobinChooser(), 3)),
        "a.0",
        "b.0",
    )
    assert take_batch(chooser, offsets(0, 5)) == 1
    put(chooser, "a.0@0", "b.0@0")
    assert (take(chooser), take_batch(chooser, offsets(0, 5))) == ("a.0@0", 5)
    assert (take(chooser), take_batch(chooser, offsets(0, 5))) == ("b.0@0", 3)


def test_a_batch_is_at_most_what_is_left_of_that_of_the_chooser() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 4), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert (take(chooser), take_batch(chooser, offsets(0, 2))) == ("a.0@0", 2)
    put(chooser, "a.0@2")
    assert (take(chooser), take_batch(chooser, offsets(2, 9))) == ("a.0@2", 2)
    put(chooser, "a.0@4")
    assert take(chooser) == "b.0@0"


def test_the_last_message_that_a_batching_chooser_allows_is_alone() -> None:
    chooser = started(BatchingChooser(RoundRobinChooser(), 2), "a.0")
    put(chooser, "a.0@0")
    assert (take(chooser), take_batch(chooser, offsets(0, 1))) == ("a.0@0", 1)
    put(chooser, "a.0@1")
    assert (take(chooser), take_batch(chooser, offsets(1, 9))) == ("a.0@1", 1)


@given(st.integers(0, 8), st.integers(1, 10), st.booleans())
def test_a_batch_of_a_bootstrap_stream_ends_where_it_has_caught_up(
    newest: int, there: int, gaps: bool
) -> None:
    """``gaps``: a compaction has removed the odd offsets, perhaps the newest of the start."""
    numbers = offsets(0, there)[:: 2 if gaps else 1]
    chooser = started(BootstrappingChooser(RoundRobinChooser(), {A: {0: until(newest)}}), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert take(chooser) == "a.0@0"
    reached = [at for at, number in enumerate(numbers, start=1) if int(number) >= newest]
    count = take_batch(chooser, numbers)
    assert count == (reached[0] if reached else len(numbers))
    put(chooser, f"a.0@{there}")
    assert take(chooser) == ("b.0@0" if reached else f"a.0@{there}")


def test_once_the_gate_is_open_batches_are_those_of_the_wrapped_one() -> None:
    chooser = started(BootstrappingChooser(RoundRobinChooser(), {A: {0: until(0)}}), "a.0", "b.0")
    put(chooser, "a.0@0", "b.0@0")
    assert (take(chooser), take_batch(chooser, offsets(0, 4))) == ("a.0@0", 1)
    assert (take(chooser), take_batch(chooser, offsets(0, 4))) == ("b.0@0", 4)


def test_a_batching_chooser_and_the_gate_each_bound_a_batch() -> None:
    for size, newest, expected in ((3, 9, 3), (9, 3, 4)):
        chooser = started(
            BootstrappingChooser(BatchingChooser(RoundRobinChooser(), size), {B: {0: until(newest)}}), "b.0"
        )
        put(chooser, "b.0@0")
        assert (take(chooser), take_batch(chooser, offsets(0, 8))) == ("b.0@0", expected)
