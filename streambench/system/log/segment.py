"""Segments: the files of a partition, each named after the offset of its first message, and their sparse
indexes.

Beside ``<base>.arrow`` lies ``<base>.index``: pairs of (offset, position) of some batches, in ascending
order. The index is a hint only. It is never forced to the disk, may be missing or wrong, and each entry is
checked against the segment before it is used.
"""

from __future__ import annotations

import bisect
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path

import msgspec
from crc32c import crc32c
from msgspec import Struct

from streambench.errors import CorruptDataError
from streambench.fsync import fsync_directory, temporary_beside
from streambench.system.log.frame import END_OF_STREAM, EndOfStream, Frame, Torn, parse, walk
from streambench.system.log.header import Header, header_bytes, read_header

_ENTRY = struct.Struct("<qq")
_INDEX_EVERY = 1 << 18
_HEADER_READ = 1 << 12


class Segment(Struct, frozen=True, order=True):
    """One file of a partition; ``base`` is the offset that its first message has, or will have."""

    base: int
    path: Path

    @property
    def index_path(self) -> Path:
        return self.path.with_suffix(".index")

    @property
    def state_path(self) -> Path:
        """The file with the state of the producers when the segment began; absent where there was nothing to
        know."""
        return self.path.with_suffix(".json")


def segment_of(directory: Path, base: int) -> Segment:
    """The segment of a partition's directory that begins at ``base``, whether it is there or not."""
    return Segment(base, directory / f"{base:020d}.arrow")


def segments(directory: Path) -> list[Segment]:
    """The segments of a partition, in order; none where nothing was ever appended."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    bases = sorted(
        int(name[:20])
        for name in names
        if len(name) == 26 and name.endswith(".arrow") and name[:20].isdecimal()
    )
    return [segment_of(directory, base) for base in bases]


def start_of(segment: Segment, descriptor: int) -> int:
    """The position of the first frame. Raises CorruptDataError where the file does not begin as a segment
    does."""
    return read_header(segment.path, descriptor).size


def frames(segment: Segment, descriptor: int, position: int) -> Iterator[Frame | EndOfStream | Torn]:
    """Everything from ``position`` (where a frame begins) on, as it is now."""
    return walk(descriptor, position, os.fstat(descriptor).st_size)


def find(segment: Segment, descriptor: int, offset: int) -> int:
    """The position to read from for ``offset``: at a frame that begins at or before it, from the index."""
    start = start_of(segment, descriptor)
    entries = _entries(segment)
    at = bisect.bisect_right(entries, (offset, 1 << 62)) - 1
    while at >= 0:
        known, position = entries[at]
        if known <= offset and position >= start:
            found = parse(os.pread(descriptor, _HEADER_READ, position), 0, position)
            if isinstance(found, Frame) and found.base == known:
                return position
        at -= 1
    return start


def write_sealed(
    segment: Segment,
    batches: Iterable[memoryview | bytes],
    values: Mapping[str, str],
    check: Callable[[], object] | None = None,
) -> None:
    """Put a sealed segment in place, durably: a header with this metadata, and these frames.

    A reader that has the former file open keeps it. ``check``: as for ``write_durably``."""
    written: list[Frame] = []
    with temporary_beside(segment.path) as temporary:
        with open(temporary, "xb") as file:
            position = file.write(header_bytes(values))
            for data in batches:
                frame = parse(data, 0, position)
                assert isinstance(frame, Frame)
                written.append(frame)
                position += file.write(data)
            file.write(END_OF_STREAM)
            file.flush()
            os.fsync(file.fileno())
        if check is not None:
            check()
        segment.index_path.unlink(missing_ok=True)
        os.replace(temporary, segment.path)
        fsync_directory(segment.path.parent)
    noted = 0
    for frame in written:
        noted = note(segment, frame, noted)


def state_check(data: bytes) -> str:
    """The checksum of the producers' file, as it stands in the header of a segment."""
    return f"{crc32c(data):08x}"


def read_state(segment: Segment, header: Header, remedy: str) -> dict[str, tuple[int, int]]:
    """Per producer its last (generation, sequence) when the segment began. Raises CorruptDataError."""
    path = segment.state_path
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        if header.producers is None:
            return {}
        raise CorruptDataError(f"{path} is missing, which {segment.path} begins with; {remedy}") from None
    try:
        if header.producers not in (None, state_check(data)):
            raise CorruptDataError(
                f"{path}: its contents do not match the checksum in {segment.path}; {remedy}"
            )
        return msgspec.json.decode(data, type=dict[str, tuple[int, int]])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptDataError(f"{path}: cannot be read ({error}); {remedy}") from None


def note(segment: Segment, frame: Frame, last_noted: int) -> int:
    """Put a frame into the index if enough lies between it and the last one that was. Returns the position
    last noted."""
    if frame.position - last_noted < _INDEX_EVERY:
        return last_noted
    with open(segment.index_path, "ab") as file:
        file.write(_ENTRY.pack(frame.base, frame.position))
    return frame.position


def cut_index(segment: Segment, position: int) -> None:
    """Forget the entries at and after ``position``, and what is left of one that was not written whole."""
    kept = [entry for entry in _entries(segment) if entry[1] < position]
    try:
        os.truncate(segment.index_path, len(kept) * _ENTRY.size)
    except FileNotFoundError:
        return


def last_noted(segment: Segment) -> int:
    """The position of the index's last entry, 0 where it has none."""
    entries = _entries(segment)
    return entries[-1][1] if entries else 0


def _entries(segment: Segment) -> list[tuple[int, int]]:
    try:
        data = segment.index_path.read_bytes()
    except FileNotFoundError:
        return []
    return list(_ENTRY.iter_unpack(data[: len(data) // _ENTRY.size * _ENTRY.size]))
