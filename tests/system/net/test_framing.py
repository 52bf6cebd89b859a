"""Framing: however a stream of bytes is cut into pieces, the messages in it are found."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.errors import MessageTooLargeError, SerdeError
from streambench.model import OutgoingMessageEnvelope, SystemStreamPartition
from streambench.system.net.framing import FRAMINGS, Envelopes, Framing, Lengths, Lines, Splitter
from tests.system.net.peers import SSP, STREAM

MOST = 100


def framing(name: str, most: int = MOST) -> Framing:
    return FRAMINGS[name](STREAM, most)


def pieces(data: bytes, cuts: list[int]) -> list[bytes]:
    places = sorted({0, len(data), *(cut % (len(data) + 1) for cut in cuts)})
    return [data[start:end] for start, end in zip(places, places[1:], strict=False)]


def bare(message: bytes | None, **what: object) -> OutgoingMessageEnvelope:
    return OutgoingMessageEnvelope(STREAM, message, **what)  # type: ignore[arg-type]


@given(
    st.lists(st.binary(max_size=MOST).filter(lambda data: b"\n" not in data)),
    st.lists(st.integers(0, 10_000)),
)
def test_lines_are_found_however_they_are_cut(messages: list[bytes], cuts: list[int]) -> None:
    data = b"".join(framing("lines").frame(bare(message), None, message) for message in messages)
    splitter = Lines(MOST)
    found = [message for piece in pieces(data, cuts) for message in splitter.split(piece)]
    assert found == messages
    assert (splitter.unfinished, splitter.refusal) == (0, None)


@given(st.lists(st.binary(max_size=MOST)), st.lists(st.integers(0, 10_000)))
def test_frames_with_their_length_are_found_however_they_are_cut(
    messages: list[bytes], cuts: list[int]
) -> None:
    data = b"".join(framing("length").frame(bare(message), None, message) for message in messages)
    splitter = Lengths(MOST)
    found = [message for piece in pieces(data, cuts) for message in splitter.split(piece)]
    assert found == messages
    assert (splitter.unfinished, splitter.refusal) == (0, None)


@given(
    st.lists(
        st.tuples(
            st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=50),
            st.none() | st.integers(0, 1 << 60),
            st.none() | st.dictionaries(st.text(max_size=5), st.binary(max_size=5), max_size=3),
        )
    ),
    st.lists(st.integers(0, 10_000)),
)  # fmt: skip
def test_envelopes_bring_all_that_belongs_to_a_message(rows: list[tuple], cuts: list[int]) -> None:  # type: ignore[type-arg]
    made = framing("envelope", 1000)
    data = b"".join(
        made.frame(bare(message, timestamp=timestamp, headers=headers), key, message)
        for message, key, timestamp, headers in rows
    )
    splitter = Envelopes(1000)
    found = [each for piece in pieces(data, cuts) for each in splitter.split(piece)]
    read = made.chunk(SSP, 7, found).envelopes()
    assert [(each.message, each.key, each.timestamp, each.headers or None) for each in read] == [
        (message, key, timestamp, headers or None) for message, key, timestamp, headers in rows
    ]
    assert [each.offset for each in read] == [str(7 + number) for number in range(len(rows))]


@pytest.mark.parametrize(("kind", "good", "bad"), [
    (Lines, b"ok\nfine\n", b"x" * 101 + b"\nafter\n"),
    (Lines, b"ok\nfine\n", b"x" * 101),
    (Lengths, b"\0\0\0\2ok\0\0\0\4fine", b"\0\0\0\x65"),
])  # fmt: skip
def test_what_is_too_large_is_refused_and_what_came_before_it_is_not(
    kind: type[Splitter], good: bytes, bad: bytes
) -> None:
    whole = kind(MOST)
    assert whole.split(good + bad) == [b"ok", b"fine"]
    assert whole.is_too_large and "max.message.bytes" in (whole.refusal or "")
    assert whole.unfinished == 0
    slow, found = kind(MOST), []
    for at in range(len(good + bad)):
        found += slow.split((good + bad)[at : at + 1])
        assert slow.unfinished <= MOST + 5
        if slow.refusal:
            break
    assert found == [b"ok", b"fine"]
    assert slow.is_too_large


WRONG_MAPS: list[Any] = [
    [1],
    {},
    {"message": "text"},
    {"message": b"", "kye": b""},
    {"message": b"", "timestamp": 1 << 63},
]
NO_ENVELOPES = [b"", b"\xc1", b"\x81\xa1\xff\x01", *map(msgspec.msgpack.encode, WRONG_MAPS)]


@pytest.mark.parametrize("frame", NO_ENVELOPES)
def test_a_frame_that_is_no_envelope_is_refused_but_not_what_came_before(frame: bytes) -> None:
    splitter = Envelopes(MOST)
    good = framing("envelope").frame(bare(b"ok"), None, b"ok")
    assert [each.message for each in splitter.split(good + len(frame).to_bytes(4, "big") + frame + good)] == [
        b"ok"
    ]
    assert "no envelope" in (splitter.refusal or "")
    assert not splitter.is_too_large


@given(st.binary(max_size=300), st.lists(st.integers(0, 300)), st.sampled_from([Lines, Lengths, Envelopes]))
def test_whatever_is_sent_nothing_breaks(data: bytes, cuts: list[int], kind: type[Splitter]) -> None:
    splitter = kind(20)
    for piece in pieces(data, cuts):
        splitter.split(piece)
        assert splitter.unfinished <= len(data)
        if splitter.refusal is not None:
            return


def test_what_does_not_go_into_a_frame_is_an_error_that_tells_what_to_do() -> None:
    for name, message, remedy in (
        ("lines", b"a\nb", "framing=length"),
        ("lines", None, "framing=envelope"),
        ("lines", "text", "serde"),
        ("length", None, "envelope"),
        ("length", {"a": 1}, "serde"),
        ("envelope", "text", "serde"),
    ):
        with pytest.raises(SerdeError, match=remedy) as caught:
            framing(name).frame(bare(message), None, message)  # type: ignore[arg-type]
        assert str(STREAM) in str(caught.value)
    with pytest.raises(SerdeError, match="serde"):
        framing("envelope").frame(bare(b""), "key", b"")
    with pytest.raises(SerdeError, match="no envelope"):
        framing("envelope").frame(bare(b"", headers={"a": object()}), None, b"")
    for name in FRAMINGS:
        with pytest.raises(MessageTooLargeError, match=r"max\.message\.bytes"):
            framing(name).frame(bare(b""), None, b"x" * (MOST + 1))
    with pytest.raises(MessageTooLargeError):
        framing("envelope").frame(bare(b""), b"k" * 60, b"x" * 60)


def test_a_chunk_is_numbered_from_its_start() -> None:
    chunk = framing("lines").chunk(SystemStreamPartition("t", "lines", 3), 998, [b"a", b"b", b"c"])
    assert (chunk.offsets, chunk.messages, chunk.keys) == (
        ["998", "999", "1000"],
        [b"a", b"b", b"c"],
        [None] * 3,
    )
