"""Writers of streams: encoding, the choice of a partition, and the quick way of plain messages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import SerdeError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.system.partitioner import key_bytes, partition_for
from streambench.testing import JobRun, run_job
from tests.container.jobs import echo, sending

OUT = SystemStream("mem", "out")
SEVEN = {"systems.mem.streams.out.partitions": 7}


def sent(*envelopes: Any, config: dict[str, Any] | None = None) -> JobRun:
    return run_job(sending(*envelopes), SEVEN | (config or {}), {"mem.a": {0: ["x"]}})


def where(*envelopes: Any, config: dict[str, Any] | None = None) -> list[int]:
    """The partitions that hold what was sent, in the order of the messages, which are numbers."""
    found = {
        message: number
        for number, entries in sent(*envelopes, config=config).outputs["mem.out"].items()
        for _, message in entries
    }
    return [found[message] for message in sorted(found)]


KEYS = st.one_of(st.binary(max_size=6), st.text(max_size=6), st.integers(-(2**63), 2**63 - 1))


@given(st.lists(KEYS, min_size=1, max_size=8))
def test_a_message_goes_where_the_hash_of_its_key_says(keys: list[Any]) -> None:
    envelopes = [OutgoingMessageEnvelope(OUT, number, key=key) for number, key in enumerate(keys)]
    assert where(*envelopes) == [partition_for(key_bytes(key), 7) for key in keys]


@given(KEYS, KEYS)
def test_a_partition_key_goes_before_the_key(partition_key: Any, key: Any) -> None:
    envelope = OutgoingMessageEnvelope(OUT, 0, key=key, partition_key=partition_key)
    assert where(envelope) == [partition_for(key_bytes(partition_key), 7)]


def test_a_partition_goes_before_both() -> None:
    envelopes = [
        OutgoingMessageEnvelope(OUT, number, key="k", partition_key="p", partition=number)
        for number in range(7)
    ]
    assert where(*envelopes) == list(range(7))


def test_a_key_is_hashed_as_it_is_serialised() -> None:
    config = {"systems.mem.streams.out.samza.key.serde": "json"}
    assert where(OutgoingMessageEnvelope(OUT, 0, key={"a": 1}), config=config) == [
        partition_for(b'{"a":1}', 7)
    ]


def test_a_partition_key_is_never_serialised() -> None:
    config = {"systems.mem.streams.out.samza.key.serde": "json"}
    run = sent(OutgoingMessageEnvelope(OUT, 0, key="k", partition_key="p"), config=config)
    assert run.outputs["mem.out"][partition_for(b"p", 7)] == [("k", 0)]


def test_without_any_key_the_partitions_take_turns_whoever_sends() -> None:
    run = run_job(
        echo,
        SEVEN | {"systems.mem.streams.out.partitions": 3},
        {"mem.a": {number: [number] for number in range(5)}},
    )
    assert run.outputs["mem.out"] == {0: [(None, 0), (None, 3)], 1: [(None, 1), (None, 4)], 2: [(None, 2)]}


def test_keys_that_are_equal_in_python_but_not_as_bytes_are_told_apart() -> None:
    keys: list[Any] = [1, True, 1.0, "1", b"1"]
    alone = [where(OutgoingMessageEnvelope(OUT, 0, key=key))[0] for key in keys]
    envelopes = [OutgoingMessageEnvelope(OUT, number, key=key) for number, key in enumerate([*keys, *keys])]
    assert where(*envelopes) == [*alone, *alone]


def test_a_key_of_another_type_counts_as_its_json_however_it_was_built() -> None:
    assert (
        where(
            OutgoingMessageEnvelope(OUT, 0, key={"a": 1, "b": [2]}),
            OutgoingMessageEnvelope(OUT, 1, key={"b": [2], "a": 1}),
        )
        == [partition_for(b'{"a":1,"b":[2]}', 7)] * 2
    )


def test_a_key_is_kept_as_the_kind_of_text_it_was_sent_as() -> None:
    class Colour(str):
        pass

    keys = ["red", Colour("red"), "red"]
    run = sent(*[OutgoingMessageEnvelope(OUT, number, key=key) for number, key in enumerate(keys)])
    (entries,) = [entries for entries in run.outputs["mem.out"].values() if entries]
    assert [(type(key), message) for key, message in entries] == [(str, 0), (Colour, 1), (str, 2)]


def test_a_key_that_cannot_be_hashed_is_an_error_that_says_what_to_do() -> None:
    with pytest.raises(
        SerdeError, match="a key of type object has no partition: give bytes, str or int, or set partition"
    ):
        sent(OutgoingMessageEnvelope(OUT, 0, key=object()))


def test_any_key_will_do_where_there_is_one_partition() -> None:
    key = object()
    run = run_job(sending(OutgoingMessageEnvelope(OUT, 0, key=key)), None, {"mem.a": {0: ["x"]}})
    assert run.outputs == {"mem.out": {0: [(key, 0)]}}
