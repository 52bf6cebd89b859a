"""Frames: the batches of a segment as they lie in the file, and how to find one's way among them without decoding.

A segment is an Arrow IPC stream: a schema message, then one message per record batch, then (once the segment is sealed) the
end-of-stream mark. What the log needs to know of a batch stands in the message's custom metadata, which is read here straight from
the flatbuffer: walking over a thousand batches then costs a thousand small reads, and nothing is decoded.

The checksum of a batch is the CRC-32C of its metadata (with the eight digits of the checksum itself as zeros) and its body.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator

import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct

#: The columns of every segment. ``value`` is null for a tombstone, ``timestamp`` is in milliseconds since 1970 (UTC).
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
_BLOCK = 1 << 16
_LARGEST_METADATA = 1 << 20
_RECORD_BATCH = 3
_i32 = struct.Struct("<i").unpack_from
_u16 = struct.Struct("<H").unpack_from
_i64 = struct.Struct("<q").unpack_from


class Frame(Struct, frozen=True, gc=False):
    """One batch of a segment: where it lies, and what its metadata says.

    ``position`` and ``size`` are bytes in the file, ``metadata_size`` those before the body. ``base`` and ``last`` are its first and
    last offset; ``count`` is less than their span only after a compaction. ``timestamp``: the largest of its messages' (ms).
    ``producer`` and the three numbers are those of the append, where it named a producer.
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

    @property
    def end(self) -> int:
        """Where the next frame begins."""
        return self.position + self.size


class EndOfStream(Struct, frozen=True):
    """The mark that says: this segment is sealed, the log goes on in the next one."""

    position: int


class Torn(Struct, frozen=True):
    """What follows is not a whole frame. ``garbage``: not even the beginning of one (``reason`` says why)."""

    position: int
    garbage: bool
    reason: str


def schema_bytes(stream: str, partition: int, created_ms: int) -> bytes:
    """The beginning of a segment: its schema message, which names the stream and the partition, and tells when the segment began."""
    schema = SCHEMA.with_metadata({"stream": stream, "partition": str(partition), "created.ms": str(created_ms)})
    return bytes(schema.serialize().to_pybytes())


def encode(
    batch: pa.RecordBatch,
    *,
    timestamp: int,
    producer: str | None = None,
    generation: int = 0,
    epoch: int = 0,
    sequence: int | None = None,
) -> memoryview:
    """The frame of a batch with the columns of SCHEMA; its offsets ascend. ``timestamp``: the largest of its messages' (ms)."""
    offsets = batch.column(0)
    about = {
        "crc32c": "00000000",
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
    data = whole[8 + _PREFIX.unpack_from(whole)[1] :]  # behind the schema, which stands at the segment's beginning already
    frame = parse(data, 0, 0)
    assert isinstance(frame, Frame)
    at = frame.crc_at
    data[at : at + 8] = b"%08x" % _checksum(data, frame)
    return data


def checksum_matches(data: memoryview, frame: Frame) -> bool:
    """Whether ``data`` (the frame's bytes, from its position on) is what was written."""
    return _checksum(data, frame) == frame.crc


def _checksum(data: memoryview, frame: Frame) -> int:
    at = frame.crc_at
    crc = crc32c(data[:at])
    crc = crc32c(b"00000000", crc)
    return crc32c(data[at + 8 : frame.size], crc)


def decode(data: memoryview, frame: Frame) -> pa.RecordBatch:
    """The batch whose frame ``data`` begins with; it shares the memory of ``data``."""
    return pa.ipc.read_record_batch(pa.py_buffer(data[: frame.size]), SCHEMA)


def parse(data: memoryview | bytes, at: int, position: int) -> Frame | EndOfStream | Torn | int:
    """What begins at ``data[at]``, which lies at ``position`` of the file.

    An int says how many bytes must be there to tell. The body of a frame need not be in ``data``.
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
        return _parse_metadata(data, at + 8, size, at, position)
    except (struct.error, KeyError, ValueError, IndexError) as error:
        return Torn(position, True, f"the batch's metadata cannot be read ({error})")


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
    crc_at = 0
    for n in range(_i32(data, vector)[0]):
        slot = vector + 4 + 4 * n
        entry = slot + _i32(data, slot)[0]
        key, _ = _string(data, _field(data, entry, 0))
        about[key], where = _string(data, _field(data, entry, 1))
        if key == "crc32c":
            crc_at = where - at
    if body < 0 or not 0 < crc_at < size + 8:
        raise ValueError("impossible sizes")
    producer = about.get("producer")
    sequence = about.get("sequence")
    return Frame(
        position,
        8 + size + body,
        8 + size,
        int(about["crc32c"], 16),
        crc_at,
        int(about["base.offset"]),
        int(about["last.offset"]),
        int(about["count"]),
        int(about["timestamp"]),
        producer,
        int(about["generation"]) if producer is not None else 0,
        int(about["epoch"]) if producer is not None else 0,
        int(sequence) if sequence is not None else None,
    )


def _field(data: memoryview | bytes, table: int, number: int) -> int:
    """Where a field of a flatbuffer table lies, 0 where it is absent."""
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

    Bodies are passed over unread. The walk ends after an end-of-stream mark or something torn; an incomplete frame at the end is Torn.
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
