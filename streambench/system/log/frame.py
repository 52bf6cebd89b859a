"""Frames: the batches of a segment as they lie in the file, found and checked without decoding.

A segment is an Arrow IPC stream: a schema message, then one message per record batch, then (once the segment
is sealed) the end-of-stream mark. The properties of a batch stand in the custom metadata of its message,
which is read straight from the flatbuffer. Walking over a thousand batches costs a thousand small reads, and
decodes nothing.

The checksum of a batch is the CRC-32C of its metadata (with the eight digits of the checksum itself as zeros)
and its body. The metadata has a checksum of its own (with the digits of both as zeros). So offsets and sizes
are reliable while bodies are skipped unread. Batches of older versions lack that second one.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct

from streambench.errors import described

#: The columns of every segment. ``value`` is null for a tombstone, ``timestamp`` is in milliseconds since
#: 1970 (UTC).
SCHEMA = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64()),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
        pa.field("headers", pa.map_(pa.string(), pa.binary())),
    ]
)

END_OF_STREAM = b"\xff\xff\xff\xff\x00\x00\x00\x00"

_PREFIX = struct.Struct("<Ii")
_CONTINUATION = 0xFFFFFFFF
_MARK = b"\xff\xff\xff\xff"
_BLOCK = 1 << 16
_LARGEST_METADATA = 1 << 20
_RECORD_BATCH = 3
_DIGITS = b"00000000"
_CHECK, _METADATA_CHECK = "crc32c", "metadata.crc32c"
_i32 = struct.Struct("<i").unpack_from
_u16 = struct.Struct("<H").unpack_from
_i64 = struct.Struct("<q").unpack_from


class Frame(Struct, frozen=True, gc=False):
    """One batch of a segment: where it lies, and what its metadata says.

    ``position`` and ``size`` are bytes in the file, ``metadata_size`` those before the body. ``base`` and
    ``last`` are its first and last offset; ``count`` is less than their span only after a compaction.
    ``timestamp``: the largest of its messages' (ms). ``producer`` and the three numbers are those of the
    append, where it named a producer. ``crc_at`` and ``check_at``: where the checksums of the whole and of
    the metadata stand, from ``position`` on; ``check_at`` is 0 in frames of older versions.
    """

    position: int
    size: int
    metadata_size: int
    crc: int
    crc_at: int
    base: int
    last: int
    count: int
    timestamp: int
    producer: str | None = None
    generation: int = 0
    epoch: int = 0
    sequence: int | None = None
    check_at: int = 0

    @property
    def end(self) -> int:
        """The position of the next frame."""
        return self.position + self.size


class EndOfStream(Struct, frozen=True):
    """The mark that says: this segment is sealed, the log goes on in the next one."""

    position: int


class Torn(Struct, frozen=True):
    """The position from which on there is no whole frame. ``garbage``: not even the beginning of one
    (``reason`` says why)."""

    position: int
    garbage: bool
    reason: str


def encode(
    batch: pa.RecordBatch,
    *,
    timestamp: int,
    producer: str | None = None,
    generation: int = 0,
    epoch: int = 0,
    sequence: int | None = None,
) -> memoryview:
    """The frame of a batch with the columns of SCHEMA; its offsets ascend. ``timestamp``: the largest of its
    messages' (ms)."""
    offsets = batch.column(0)
    about = {
        _CHECK: "00000000",
        _METADATA_CHECK: "00000000",
        "base.offset": str(offsets[0].as_py()),
        "last.offset": str(offsets[-1].as_py()),
        "count": str(batch.num_rows),
        "timestamp": str(timestamp),
    }
    if producer is not None:
        about |= {"producer": producer, "generation": str(generation), "epoch": str(epoch)}
        if sequence is not None:
            about["sequence"] = str(sequence)
    sink = pa.BufferOutputStream()
    writer = pa.ipc.new_stream(sink, SCHEMA)
    writer.write_batch(batch, custom_metadata=about)
    whole = memoryview(sink.getvalue()).cast("B")
    data = whole[
        8 + _PREFIX.unpack_from(whole)[1] :
    ]  # behind the schema, which stands at the segment's beginning already
    frame = _parse_metadata(data, 8, _PREFIX.unpack_from(data)[1], 0, 0)
    at = frame.check_at
    data[at : at + 8] = b"%08x" % crc32c(data[: frame.metadata_size])
    at = frame.crc_at
    data[at : at + 8] = b"%08x" % _checksum(data, frame)
    return data


def checksum_matches(data: memoryview, frame: Frame) -> bool:
    """Return True where ``data`` (the frame's bytes, from its position on) is what was written."""
    return _checksum(data, frame) == frame.crc


def _checksum(data: memoryview, frame: Frame) -> int:
    at = frame.crc_at
    crc = crc32c(data[:at])
    crc = crc32c(_DIGITS, crc)
    return crc32c(data[at + 8 : frame.size], crc)


def decode(data: memoryview, frame: Frame) -> pa.RecordBatch:
    """The batch whose frame ``data`` begins with; it shares the memory of ``data``."""
    return pa.ipc.read_record_batch(pa.py_buffer(data[: frame.size]), SCHEMA)


def parse(
    data: memoryview | bytes, at: int, position: int, *, verify: bool = True
) -> Frame | EndOfStream | Torn | int:
    """The frame or mark at ``data[at]``, which lies at ``position`` of the file.

    An int says how many bytes must be there to know. The body of a frame need not be in ``data``. Without
    ``verify`` the metadata is not looked at for its checksum: for those who look at that of the whole frame
    next.
    """
    there = len(data) - at
    if there < 8:
        return 8
    continuation: int
    size: int
    continuation, size = _PREFIX.unpack_from(data, at)
    if continuation != _CONTINUATION or not 0 <= size <= _LARGEST_METADATA:
        return Torn(position, True, "there is no batch here")
    if size == 0:
        return EndOfStream(position)
    if there < 8 + size:
        return 8 + size
    try:
        frame = _parse_metadata(data, at + 8, size, at, position)
    except (struct.error, KeyError, ValueError, IndexError) as error:
        return Torn(position, True, f"the batch's metadata cannot be read ({described(error)})")
    if verify and not metadata_matches(data, at, frame):
        return Torn(position, True, "the checksum of the batch's metadata does not match")
    return frame


def unverified(data: memoryview, at: int, position: int) -> Frame | None:
    """The claims of damaged metadata at ``data[at]`` about its batch, where that is free of contradictions;
    else None."""
    try:
        frame = _parse_metadata(data, at + 8, _PREFIX.unpack_from(data, at)[1], at, position)
    except (struct.error, KeyError, ValueError, IndexError):
        return None
    return frame if frame.count == frame.last - frame.base + 1 else None


def metadata_matches(data: memoryview | bytes, at: int, frame: Frame) -> bool:
    """Return True where the metadata at ``data[at]`` is what was written, or where it has no checksum of its
    own."""
    check_at, crc_at = frame.check_at, frame.crc_at
    if not check_at:
        return True
    metadata = bytearray(data[at : at + frame.metadata_size])
    wanted = metadata[check_at : check_at + 8]
    metadata[crc_at : crc_at + 8] = metadata[check_at : check_at + 8] = _DIGITS
    return b"%08x" % crc32c(metadata) == wanted


def _parse_metadata(data: memoryview | bytes, root: int, size: int, at: int, position: int) -> Frame:
    message = root + _i32(data, root)[0]
    kind = _field(data, message, 1)
    length = _field(data, message, 3)
    custom = _field(data, message, 4)
    if not kind or data[kind] != _RECORD_BATCH or not custom:
        raise ValueError("not a batch of this log")
    body = _i64(data, length)[0] if length else 0
    vector = custom + _i32(data, custom)[0]
    about: dict[str, str] = {}
    crc_at = check_at = 0
    for n in range(_i32(data, vector)[0]):
        slot = vector + 4 + 4 * n
        entry = slot + _i32(data, slot)[0]
        key, _ = _string(data, _field(data, entry, 0))
        about[key], where = _string(data, _field(data, entry, 1))
        if key == _CHECK:
            crc_at = where - at
        elif key == _METADATA_CHECK:
            check_at = where - at
    base, last, count = int(about["base.offset"]), int(about["last.offset"]), int(about["count"])
    if (
        body < 0
        or not 0 < crc_at <= size
        or not 0 <= check_at <= size
        or not 0 < count <= last - base + 1
        or base < 0
    ):
        raise ValueError("impossible sizes")
    producer = about.get("producer")
    sequence = about.get("sequence")
    return Frame(
        position,
        8 + size + body,
        8 + size,
        int(about[_CHECK], 16),
        crc_at,
        base,
        last,
        count,
        int(about["timestamp"]),
        producer,
        int(about["generation"]) if producer is not None else 0,
        int(about["epoch"]) if producer is not None else 0,
        int(sequence) if sequence is not None else None,
        check_at,
    )


def _field(data: memoryview | bytes, table: int, number: int) -> int:
    """The position of a field of a flatbuffer table, 0 where it is absent."""
    vtable: int = table - _i32(data, table)[0]
    if 4 + 2 * number >= _u16(data, vtable)[0]:
        return 0
    at: int = _u16(data, vtable + 4 + 2 * number)[0]
    return table + at if at else 0


def _string(data: memoryview | bytes, at: int) -> tuple[str, int]:
    """A flatbuffer string, and where its first byte lies."""
    at += _i32(data, at)[0]
    length = _i32(data, at)[0]
    return str(bytes(data[at + 4 : at + 4 + length]), "utf-8"), at + 4


def walk(descriptor: int, position: int, size: int) -> Iterator[Frame | EndOfStream | Torn]:
    """All that lies between ``position``, where a frame begins, and the end of the file at ``size``.

    Bodies are passed over unread. The walk ends after an end-of-stream mark or something torn; an incomplete
    frame at the end is Torn.
    """
    block, start = b"", position
    while position < size:
        found = parse(block, position - start, position) if position < start + len(block) else 8
        if isinstance(found, int):
            if position + found > size:
                yield Torn(position, False, "the file ends within the batch's metadata")
                return
            block, start = os.pread(descriptor, max(_BLOCK, found), position), position
            if len(block) < found:
                yield Torn(position, False, "the file ends within the batch's metadata")
                return
            continue
        if isinstance(found, Frame) and found.end > size:
            found = Torn(position, False, "the file ends within the batch")
        yield found
        if not isinstance(found, Frame):
            return
        position = found.end


def batch_beyond(tail: bytes | memoryview, least: int) -> int:
    """The position behind the first byte at which a whole batch begins whose offsets are from ``least`` on;
    -1 where there is none."""
    view, data = memoryview(tail), bytes(tail)
    at = data.find(_MARK, 1)
    while at >= 0:
        found = parse(view, at, at) if at % 8 == 0 else None
        if (
            isinstance(found, Frame)
            and found.base >= least
            and found.end <= len(data)
            and checksum_matches(view[at:], found)
        ):
            return at
        at = data.find(_MARK, at + 1)
    return -1
