"""Acks: a sender is never told too early that something is safe."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from streambench.system.net import acks
from streambench.system.net.acks import Acks
from streambench.system.net.connection import Connection


class Sender:
    """What Acks know of a connection."""

    def __init__(self) -> None:
        self.safe = 0


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(1, 5)) | st.integers(0, 30), max_size=60),
    st.sampled_from([4, 10_000]),
)
def test_each_sender_is_told_how_many_of_its_messages_are_safe(steps: list[Any], most: int) -> None:
    senders = [Sender() for _ in range(5)]
    tracked, owners, safe_up_to = Acks(), [], -1
    tracked._most = most
    whole = acks._MOST
    acks._MOST = most
    try:
        for step in steps:
            if isinstance(step, tuple):
                sender, length = step
                owners += [sender] * length
                tracked.add(cast(Connection, senders[sender]), len(owners), length)
                continue
            safe_up_to = max(safe_up_to, min(step, len(owners) - 1))
            for sender, count in tracked.up_to(safe_up_to).items():
                cast(Sender, sender).safe = count
            for number, each in enumerate(senders):
                # Where much is kept for few, it may be told later; never too early.
                truly = owners[: safe_up_to + 1].count(number)
                assert each.safe == truly or (most == 4 and each.safe <= truly)
        for sender, count in tracked.up_to(len(owners) - 1).items():
            cast(Sender, sender).safe = count
        assert [each.safe for each in senders] == [owners.count(number) for number in range(5)]
    finally:
        acks._MOST = whole


def test_what_is_remembered_is_bounded_by_the_number_of_senders() -> None:
    senders = [Sender() for _ in range(100)]
    tracked = Acks()
    for number in range(100_000):
        tracked.add(cast(Connection, senders[number % 100]), number + 1, 1)
        assert len(tracked._spans) <= acks._MOST
    assert {cast(Sender, sender): count for sender, count in tracked.up_to(99_999).items()} == dict.fromkeys(
        senders, 1000
    )
    assert not tracked._spans and not tracked._counts
