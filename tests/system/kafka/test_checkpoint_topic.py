"""The order of a checkpoint topic decides: without a broker, over all orders that writers who know nothing of
each other can come to."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

pytest.importorskip("kafka")

from streambench.checkpoint.stored_checkpoints import encode
from streambench.errors import CheckpointError
from streambench.system.kafka.checkpoint_topic import (
    CheckpointTopicState,
    Claimed,
    Committed,
    Entry,
    Opened,
    read,
)

ENTRIES = st.one_of(
    st.builds(
        lambda number, containers: Opened(
            number=number,
            assignment={str(each): [f"t{each}"] for each in range(containers)},
            places={},
            who="",
        ),
        st.integers(1, 4),
        st.integers(1, 2),
    ),
    st.builds(
        lambda generation, container, holder: Claimed(
            generation=generation, container=container, holder=holder, who=""
        ),
        st.integers(1, 4),
        st.integers(0, 1),
        st.sampled_from("abc"),
    ),
    st.builds(
        lambda generation, container, holder, value: Committed(
            generation=generation,
            container=container,
            holder=holder,
            checkpoints={f"t{container}": Raw(b"%d" % value)},
        ),
        st.integers(1, 4),
        st.integers(0, 1),
        st.sampled_from("abc"),
        st.integers(0, 99),
    ),
)


def state(topic: CheckpointTopicState) -> object:
    return (
        topic.generation,
        {c: holder for c, (holder, _) in topic.holders.items()},
        {t: list(kept) for t, kept in topic.history.items()},
    )


@given(st.lists(ENTRIES, max_size=40))
def test_a_commit_counts_only_by_the_last_to_claim_in_the_last_generation(entries: list[Entry]) -> None:
    topic = CheckpointTopicState("job", 3)
    generation, holders = 0, {}
    containers: set[int] = set()
    for offset, entry in enumerate(entries):
        counts = topic.apply(offset, entry)
        if isinstance(entry, Opened):
            assert counts == (entry.number == generation + 1)
            if counts:
                generation, holders, containers = entry.number, {}, set(map(int, entry.assignment or {}))
        elif isinstance(entry, Claimed):
            assert counts == (entry.generation == generation and entry.container in containers)
            if counts:
                holders[entry.container] = entry.holder
        elif isinstance(entry, Committed):
            assert counts == (entry.generation == generation and holders.get(entry.container) == entry.holder)
            if counts:
                assert topic.history[f"t{entry.container}"][-1] == bytes(
                    entry.checkpoints[f"t{entry.container}"]
                )


@given(st.lists(ENTRIES, max_size=30), st.lists(ENTRIES, max_size=30))
def test_a_snapshot_comes_to_the_same_as_all_that_it_stands_for(
    before: list[Entry], after: list[Entry]
) -> None:
    whole, late = CheckpointTopicState("job", 3), CheckpointTopicState("job", 3)
    for offset, entry in enumerate(before):
        whole.apply(offset, entry)
    snapshot = read(encode(whole.snapshot(len(before), 1 << 20)), "here")
    assert late.apply(len(before), snapshot)
    for offset, entry in enumerate(after, len(before) + 1):
        assert whole.apply(offset, entry) == late.apply(offset, read(encode(entry), "here"))
    assert state(whole) == state(late)


def test_a_late_repeated_commit_does_not_bring_back_what_is_over() -> None:
    topic = CheckpointTopicState("job", 3)
    topic.apply(0, Opened(number=1, assignment={"0": ["a"]}, places={}, who=""))
    topic.apply(1, Claimed(generation=1, container=0, holder="h", who=""))
    commits = [
        Committed(
            generation=1, container=0, holder="h", checkpoints={"a": Raw(b"%d" % number)}, number=number
        )
        for number in (1, 2)
    ]
    assert [topic.apply(offset, commits[at]) for offset, at in enumerate((0, 0, 1, 0), 2)] == [
        True,
        False,
        True,
        False,
    ]
    assert list(topic.history["a"]) == [b"1", b"2"]
    topic.apply(6, Claimed(generation=1, container=0, holder="another", who=""))
    assert topic.apply(
        7, Committed(generation=1, container=0, holder="another", checkpoints={"a": Raw(b"3")}, number=1)
    )


def test_a_snapshot_that_something_has_come_before_does_not_count() -> None:
    topic = CheckpointTopicState("job", 3)
    assert not CheckpointTopicState("job", 3).apply(8, topic.snapshot(7, 1 << 20))


def test_a_too_large_snapshot_drops_history_but_the_last_of_each_task() -> None:
    topic = CheckpointTopicState("job", 8)
    topic.apply(0, Opened(number=1, assignment={"0": ["a"]}, places={}, who=""))
    topic.apply(1, Claimed(generation=1, container=0, holder="h", who=""))
    for number in range(8):
        topic.apply(
            2 + number,
            Committed(
                generation=1,
                container=0,
                holder="h",
                checkpoints={"a": Raw(b'"%d%s"' % (number, b"." * 100))},
            ),
        )
    kept = [bytes(each)[1:2] for each in topic.snapshot(10, 300).history["a"]]
    assert kept == [b"6", b"7"]
    assert [bytes(each)[1:2] for each in topic.snapshot(10, 1).history["a"]] == [b"7"]


def test_what_is_no_record_is_an_error_that_names_its_place() -> None:
    with pytest.raises(CheckpointError, match=r"k\.topic@5 is no record of checkpoints"):
        read(b'{"type":"other"}', "k.topic@5")
