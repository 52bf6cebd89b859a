"""Headers: the schema message that a segment begins with, and what its metadata says of the segment.

``stream``, ``partition`` and ``created.ms`` stand in every header. Those of format 2 have a checksum.
``end.offset`` is there where the segment was rewritten (compacted, or repaired): its offsets may have gaps
then, and the next segment begins at that one. ``lost`` names the offsets that a repair gave up, such as
``10-14``. ``producers`` is the checksum of the file beside the segment that says what was known of the
producers when it began.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct

from streambench.errors import CorruptDataError, described
from streambench.system.log.frame import SCHEMA

_FORMAT = 2
_READ = 1 << 12
_LARGEST = 1 << 20
_MARK = b"\xff\xff\xff\xff"
_DIGITS = b"????????"


class Header(Struct, frozen=True):
    """The header of a segment. ``size``: where its first batch lies. ``end``, ``producers``:
    None where it says nothing.

    ``is_strict``: it was written by a version that has every gap between offsets noted.
    """

    size: int
    created_ms: int
    is_strict: bool
    end: int | None
    producers: str | None
    lost: str
    values: Mapping[str, str]


def header_bytes(values: Mapping[str, str]) -> bytes:
    """The beginning of a segment with this metadata."""
    said = {key: value for key, value in values.items() if key not in ("crc32c", "format")}
    while True:
        about = {**said, "format": str(_FORMAT), "crc32c": _DIGITS.decode()}
        data = bytes(SCHEMA.with_metadata(about).serialize().to_pybytes())
        digits = b"%08x" % crc32c(data)
        at = data.index(_DIGITS)
        whole = data[:at] + digits + data[at + 8 :]
        if whole.index(digits) == at:
            return whole
        said["salt"] = said.get("salt", "") + "."  # the digits stand elsewhere as well, by chance


def schema_bytes(stream: str, partition: int, created_ms: int, **more: str) -> bytes:
    """The beginning of a segment of this partition, which began at that time. ``more``: other metadata, ``_``
    for a point."""
    about = {"stream": stream, "partition": str(partition), "created.ms": str(created_ms)}
    return header_bytes(about | {name.replace("_", "."): value for name, value in more.items()})


def read_header(path: Path, descriptor: int) -> Header:
    """The header of a segment. Raises CorruptDataError where the file does not begin as a segment does."""
    data = os.pread(descriptor, _READ, 0)
    size = int.from_bytes(data[4:8], "little")
    if len(data) < 8 or data[:4] != _MARK or not 0 < size <= _LARGEST:
        raise _no_segment(path, "its schema cannot be read")
    if 8 + size > len(data):
        data = os.pread(descriptor, 8 + size, 0)
    if len(data) < 8 + size:
        raise _no_segment(path, "the file ends within its schema")
    try:
        return _parsed(data[: 8 + size])
    except (pa.ArrowException, OSError, ValueError, KeyError) as error:
        raise _no_segment(path, described(error)) from None


def _no_segment(path: Path, why: str) -> CorruptDataError:
    return CorruptDataError(
        f"{path}, byte 0: this is not a segment of a log, or its beginning is damaged ({why})"
    )


@lru_cache(256)
def _parsed(data: bytes) -> Header:
    schema = pa.ipc.read_schema(pa.py_buffer(data))
    if not schema.equals(SCHEMA, check_metadata=False):
        raise ValueError("its columns are not those of a log")
    values = {key.decode(): value.decode() for key, value in (schema.metadata or {}).items()}
    is_strict = "crc32c" in values
    if is_strict:
        digits = values["crc32c"].encode()
        if b"%08x" % crc32c(data.replace(digits, _DIGITS, 1)) != digits:
            raise ValueError("its checksum does not match")
    elif "end.offset" in values or "format" in values:
        raise ValueError("its checksum is missing")
    end = values.get("end.offset")
    created = int(values.get("created.ms", "0"))
    return Header(
        len(data),
        created,
        is_strict,
        None if end is None else int(end),
        values.get("producers"),
        values.get("lost", ""),
        values,
    )
