"""Messages that wait undecoded, for tasks that take batches."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from streambench.batch import MessageBatch
from streambench.chunk import ArrowChunk, Chunk, Messages
from streambench.container.inputs.raw_buffer import RawBuffer
from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.builtin import JsonSerde

SSP = SystemStreamPartition("mem", "a", 0)


def lists(values: Sequence[bytes], first: int = 0) -> Chunk:
    """These messages, at the offsets from ``first`` on."""
    offsets = [str(first + number) for number in range(len(values))]
    return Chunk(SSP, offsets, [None] * len(values), list(values))


def columns(values: Sequence[bytes], first: int = 0) -> ArrowChunk:
    """The same as an Arrow record batch."""
    nothing = pa.nulls(len(values))
    arrays = [
        pa.array(range(first, first + len(values)), pa.int64()),
        pa.array([5] * len(values), pa.int64()),
        nothing.cast(pa.binary()),
        pa.array(values, pa.binary()),
        nothing.cast(pa.map_(pa.string(), pa.binary())),
    ]
    return ArrowChunk(SSP, pa.RecordBatch.from_arrays(arrays, names=list("otkmh")))


def numbers(start: int, stop: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, stop)]


def buffered(*pieces: Messages) -> RawBuffer:
    buffer = RawBuffer(None, JsonSerde(), (None, "json"))
    for piece in pieces:
        buffer.add(piece)
    return buffer


def refuse(envelope: IncomingMessageEnvelope, error: SerdeError) -> None:
    raise error


def test_a_message_inside_the_chooser_is_not_counted_until_it_is_taken() -> None:
    buffer = buffered(lists(numbers(0, 2)))
    assert (len(buffer), bool(buffer)) == (2, True)
    buffer.popleft()
    assert (len(buffer), bool(buffer)) == (1, True)
    buffer.take(1, refuse)
    assert (len(buffer), bool(buffer)) == (1, True)
    buffer.popleft()
    assert (len(buffer), bool(buffer)) == (0, False)


def test_a_batch_begins_with_the_message_that_was_inside_the_chooser() -> None:
    buffer = buffered(lists(numbers(0, 3)))
    chosen = buffer.popleft()
    assert (chosen.offset, chosen.message) == ("0", 0)
    assert buffer.take(2, refuse).messages() == [0, 1]
    assert buffer.popleft().offset == "2"


@given(
    st.lists(st.tuples(st.sampled_from([lists, columns]), st.integers(0, 5)), max_size=6),
    st.lists(st.integers(1, 7), max_size=20),
)
def test_batches_of_any_size_hold_every_message_once_in_order(pieces: list, sizes: list[int]) -> None:
    buffer, count = buffered(), 0
    for make, size in pieces:
        buffer.add(make(numbers(count, count + size), count))
        count += size
    seen: list[int] = []
    for size in sizes:
        assert len(buffer) == count - len(seen)
        if not buffer:
            break
        assert buffer.popleft().message == len(seen)
        batch = buffer.take(min(size, len(buffer) + 1), refuse)
        assert (batch.first_offset, len(batch)) == (str(len(seen)), len(batch.messages()))
        seen += batch.messages()
    assert seen == list(range(len(seen)))


def test_the_last_batch_is_known_until_the_next_message_is_chosen() -> None:
    buffer = buffered(lists(numbers(0, 2)))
    buffer.popleft()
    assert buffer.taken is None
    batch = buffer.take(1, refuse)
    assert buffer.taken is batch
    buffer.popleft()
    assert buffer.taken is None


def test_a_message_that_cannot_be_decoded_fails_in_its_batch_not_before() -> None:
    buffer = buffered(lists([b"{", b"1"]))
    assert buffer.popleft().message == b"{"  # as it was read
    assert len(list(buffer.peek(0, 2))) == 2
    batch = buffer.take(2, refuse)
    with pytest.raises(SerdeError, match=r"mem\.a\.0@0"):
        batch.messages()


def test_a_policy_may_leave_messages_out_that_cannot_be_decoded() -> None:
    left_out: list[str] = []
    buffer = buffered(lists([b"1", b"{", b"3"]))
    buffer.popleft()
    batch = buffer.take(3, lambda envelope, error: left_out.append(envelope.offset))
    assert batch.messages() == [1, 3]
    assert left_out == ["1"]


def test_a_batch_names_its_serdes_to_the_streams_it_goes_on_to() -> None:
    buffer = buffered(lists(numbers(0, 1)))
    buffer.popleft()
    fields = buffer.take(1, refuse).to_arrow().schema
    assert fields.field("message").metadata == {b"streambench.serde": b"json"}


def test_a_batch_that_is_put_back_is_chosen_again() -> None:
    first, second = lists(numbers(0, 2)), columns(numbers(2, 4), 2)
    buffer = buffered(first, second, lists(numbers(4, 5), 4))
    buffer.popleft()
    buffer.take(4, refuse)
    buffer.put_back([first, second])
    assert (len(buffer), buffer.taken) == (4, None)
    assert buffer.take(5, refuse).messages() == [0, 1, 2, 3, 4]


def test_messages_are_peeked_at_without_being_taken() -> None:
    buffer = buffered(lists(numbers(0, 100)), columns(numbers(100, 200), 100))
    assert [envelope.message for envelope in buffer.peek(3, 170)] == list(range(3, 170))
    assert len(buffer) == 200


def test_offsets_are_those_from_the_chosen_message_on() -> None:
    buffer = buffered(lists(numbers(0, 2)), columns(numbers(2, 5), 2))
    buffer.popleft()
    assert list(buffer.offsets(4)) == ["0", "1", "2", "3"]
    assert (len(buffer.offsets(100)), buffer.offsets(100)[-1]) == (5, "4")
    assert isinstance(buffer.take(2, refuse), MessageBatch)
    assert list(buffer.offsets(100)) == ["2", "3", "4"]


def test_a_slice_of_offsets_is_again_a_sequence_of_them() -> None:
    offsets = buffered(lists(numbers(0, 2)), columns(numbers(2, 5), 2)).offsets(5)
    assert list(offsets[1:4]) == ["1", "2", "3"]
    assert (offsets[1:4][-1], len(offsets[4:2])) == ("3", 0)
    with pytest.raises(IndexError, match="one after the other"):
        offsets[::2]
    with pytest.raises(IndexError):
        offsets[5]
