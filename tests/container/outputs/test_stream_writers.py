"""Writers of streams: encoding, the choice of a partition, and the quick way of plain messages."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.container.outputs.stream_writers import StreamWriter, StreamWriters, stream_writer
from streambench.errors import ContainerStateError, MessageTooLargeError, SerdeError, StreamSystemError
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde
from streambench.system.api import PartitionAppenders
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


# A writer by itself


class Ends:
    """The producer's end of one stream of three partitions, and what could not be encoded.

    ``appended``: (partition, key, message) of what came the quick way; ``sent``: of all else. ``limits``: how
    often the limits were applied. ``error``: raised by ``send``."""

    def __init__(self) -> None:
        self.appended: list[tuple[int, Any, Any]] = []
        self.sent: list[tuple[int, Any, Any]] = []
        self.refused: list[tuple[str, OutgoingMessageEnvelope, Exception]] = []
        self.limits = 0
        self.error: Exception | None = None

    def send(
        self, source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
    ) -> None:
        if self.error is not None:
            raise self.error
        self.sent.append((partition, key, message))

    def writer(
        self,
        message_serde: Serde | None = None,
        keyless: Iterator[int] | None = None,
        *,
        quick: bool = True,
        largest: int = 1500,
    ) -> StreamWriter:
        appenders = PartitionAppenders(
            [partial(self._append, each) for each in range(3)], largest, self._count
        )
        return stream_writer(
            OUT,
            self.send,
            appenders if quick else None,
            3,
            None,
            message_serde,
            lambda source, envelope, error: self.refused.append((source, envelope, error)),
            keyless,
        )

    def _append(self, partition: int, message: tuple[Any, Any, None]) -> None:
        self.appended.append((partition, *message[:2]))

    def _count(self) -> None:
        self.limits += 1


def writers(**by_stream: StreamWriter) -> StreamWriters:
    """The writers of streams by name; there is none for any other."""

    def writer_of(source: str, envelope: OutgoingMessageEnvelope) -> StreamWriter:
        if envelope.system_stream.stream not in by_stream:
            raise StreamSystemError(f"there is no {envelope.system_stream}")
        return by_stream[envelope.system_stream.stream]

    return StreamWriters(writer_of)


STREAMS = {name: SystemStream("mem", name) for name in ("out", "other", "none")}


def plain(message: bytes, key: bytes | None = None, stream: str = "out") -> tuple[Any, ...]:
    """Plain output, as a collector notes it."""
    return "task", OutgoingMessageEnvelope(STREAMS[stream], message, key), None, message, key


PLAIN_KEYS = st.none() | st.binary(max_size=3) | st.sampled_from([b"k" * 1_000, b"k" * 1_001])


@given(st.lists(PLAIN_KEYS, max_size=12))
def test_plain_bytes_go_to_the_partition_that_any_other_message_goes_to(keys: list[bytes | None]) -> None:
    quick, other = Ends(), Ends()
    writers(out=quick.writer()).send([plain(b"m", key) for key in keys])
    writer = other.writer(quick=False)
    for key in keys:
        writer.put("task", OutgoingMessageEnvelope(OUT, b"m", key))
    assert sorted(quick.appended + quick.sent, key=repr) == sorted(other.sent, key=repr)
    assert {key for _, key, _ in quick.sent} == {b"k" * 1_001} & {*keys}
    assert all(at == partition_for(key, 3) for at, key, _ in other.sent if key is not None)


def test_messages_without_a_key_go_on_where_an_earlier_writer_stopped() -> None:
    ends, turns = Ends(), iter([2, 0, 1])
    writers(out=ends.writer(keyless=turns)).send([plain(b"1"), plain(b"2")])
    ends.writer(keyless=turns).put("task", OutgoingMessageEnvelope(OUT, b"3"))
    assert ends.appended == [(2, None, b"1"), (0, None, b"2"), (1, None, b"3")]


@pytest.mark.parametrize("partition", [-1, 3, "1", 1.0])
def test_a_partition_out_of_range_is_unserialisable_and_names_the_stream(partition: Any) -> None:
    ends = Ends()
    envelope = OutgoingMessageEnvelope(OUT, b"m", partition=partition)
    writers(out=ends.writer()).send([("task", envelope, None, b"m", None)])
    ((source, refused, error),) = ends.refused
    assert (source, refused) == ("task", envelope)
    assert str(error) == f"partition {partition!r} is out of range: mem.out has 3, numbered from 0"
    assert ends.appended == ends.sent == []


def test_a_message_that_cannot_be_encoded_goes_to_unserialisable() -> None:
    ends = Ends()
    writer = ends.writer(JsonSerde())
    writer.put("task", OutgoingMessageEnvelope(OUT, object(), partition=1))
    writer.put("task", OutgoingMessageEnvelope(OUT, {"n": 1}, partition=1))
    assert [(source, type(envelope.message)) for source, envelope, _ in ends.refused] == [("task", object)]
    assert ends.appended == [(1, None, b'{"n":1}')]


def test_a_message_that_its_system_does_not_take_goes_to_unserialisable() -> None:
    ends = Ends()
    writer = ends.writer(quick=False)
    for error in (MessageTooLargeError("too large"), SerdeError("no bytes")):
        ends.error = error
        writer.put("task", OutgoingMessageEnvelope(OUT, b"m"))
    assert [str(error) for _, _, error in ends.refused] == ["too large", "no bytes"]
    ends.error = StreamSystemError("the disk is full")
    with pytest.raises(StreamSystemError, match="the disk is full"):
        writer.put("task", OutgoingMessageEnvelope(OUT, b"m"))
    assert len(ends.refused) == 2


def test_what_is_not_plain_or_may_be_too_large_goes_to_the_sender() -> None:
    ends = Ends()
    send = writers(out=ends.writer(largest=1_500)).send
    send([plain(b"x" * 500, b"k"), plain(b"x" * 501, b"k")])
    for extra in ({"timestamp": 7}, {"headers": {"h": b"1"}}):
        envelope = OutgoingMessageEnvelope(OUT, b"m", b"k", **extra)
        send([("task", envelope, None, None if "headers" in extra else b"m", b"k")])
    at = partition_for(b"k", 3)
    assert ends.appended == [(at, b"k", b"x" * 500)]
    assert ends.sent == [(at, b"k", b"x" * 501), (at, b"k", b"m"), (at, b"k", b"m")]


# All writers of a container


def test_a_send_that_fails_names_the_place_of_its_message_in_the_list() -> None:
    ends = Ends()
    every = writers(out=ends.writer())
    with pytest.raises(StreamSystemError, match=r"there is no mem\.none"):
        every.send([plain(b"1"), plain(b"2"), plain(b"3", stream="none"), plain(b"4")])
    assert every.failed_index == 2
    assert [message for *_, message in ends.appended] == [b"1", b"2"]


def test_nothing_more_is_sent_once_writers_are_closed_for_writes() -> None:
    ends = Ends()
    every = writers(out=ends.writer())
    every.send([plain(b"1")])
    every.close_for_writes(ContainerStateError("abandoned"))
    with pytest.raises(ContainerStateError, match="abandoned"):
        every.send([plain(b"2")])
    assert [message for *_, message in ends.appended] == [b"1"]


def test_limits_of_every_stream_are_applied_after_a_thousand_messages() -> None:
    ends, other = Ends(), Ends()
    every = writers(out=ends.writer(), other=other.writer())
    every.send([plain(b"m", stream="other"), *[plain(b"m")] * 998])
    assert (ends.limits, other.limits, every.pending()) == (0, 0, 999)
    every.send([plain(b"m")])
    assert (ends.limits, other.limits, every.pending()) == (1, 1, 1_000)
    assert every.apply_limits(only_fresh=True) == 1_000
    assert (ends.limits, every.pending()) == (1, 0)
    assert every.apply_limits() == 0
    assert (ends.limits, other.limits) == (2, 2)


def test_sends_may_be_deferred_while_all_streams_only_keep_a_message() -> None:
    every = writers(out=Ends().writer(), other=Ends().writer(quick=False))
    assert not every.can_defer
    for stream, can_defer in (("out", True), ("other", False), ("out", False)):
        every.send([plain(b"m", stream=stream)])
        assert every.can_defer is can_defer, stream
    every.forget()
    every.send([plain(b"m")])
    assert every.can_defer
