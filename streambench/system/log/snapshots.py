"""Snapshots of state, in files beside the changelog that leads to it.

A snapshot holds the entries that a store had where its changelog ended before some offset. Its name says
that offset, and the commit that it was written at: ``snapshot-<offset>-<generation>.<number>``. The file has
the format of a sealed segment: each entry is a message, with offsets from 0 on and without a timestamp. Its
header says more, below ``snapshot.``:

- ``format``: 1; files of another one are left alone.
- ``identity``: that of the stream. ``before``: the last message of the changelog before the offset, by its
  timestamp and the checksums of its key and value. Both show a changelog that is another one by now.
- ``stamped``: true where each value begins with the time it was written, eight bytes, as in a store whose
  entries expire.

A file gets its name when all of it is written. Each batch has a checksum, so that damage is noticed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pyarrow as pa
from crc32c import crc32c
from msgspec import Struct

from streambench.errors import CorruptDataError, described
from streambench.fsync import fsync_directory, temporary_beside
from streambench.system.capabilities import SnapshotName
from streambench.system.log.arrays import binary_column, int64s
from streambench.system.log.frame import (
    END_OF_STREAM,
    SCHEMA,
    EndOfStream,
    Frame,
    checksum_matches,
    decode,
    encode,
    walk,
)
from streambench.system.log.header import header_bytes, read_header
from streambench.system.log.location import PartitionLocation

_FORMAT = "1"
_NAME = re.compile(r"snapshot-(\d{20})-(\d+)\.(\d+)")
_TEMPORARY = re.compile(rf"\.{_NAME.pattern}\.\d+\.[0-9a-f]{{8}}")
_MOST_BYTES = 4 << 20
_KEPT = 2

Batch = tuple[Sequence[bytes], Sequence[bytes]]


class Changelog(Struct, frozen=True):
    """The partition that snapshots lie beside. ``identity``: that of its stream. ``before`` returns the
    fingerprint of the message before an offset, None where there is none. ``compacted_past`` says whether
    compaction may have looked at anything from an offset on."""

    location: PartitionLocation
    identity: str
    before: Callable[[int], str | None]
    compacted_past: Callable[[int], bool]


class LogSnapshots:
    """The snapshots of one partition of a changelog. ``force``: they are forced to the disk."""

    def __init__(self, changelog: Changelog, *, force: bool) -> None:
        self._changelog = changelog
        self._location = changelog.location
        self._force = force

    def names(self, upto: int) -> list[SnapshotName]:
        """The snapshots that hold nothing from the offset ``upto`` on, newest first, by their names alone."""
        return [each for each in self._all() if each.offset <= upto]

    def entries(self, name: SnapshotName, *, stamped: bool) -> int | None:
        """The number of entries of a snapshot; None where it does not lead to what the changelog holds.
        ``stamped``: see ``write``. Raises CorruptDataError where it is damaged, and OSError."""
        changelog, path = self._changelog, self._path(name)
        with open(path, "rb", buffering=0) as file:
            header = read_header(path, file.fileno()).values
            wanted = self._values(name.offset, stamped=stamped)
            if wanted is None or {each: header.get(each) for each in wanted} != wanted:
                return None
            if changelog.compacted_past(name.offset):
                return None
            count = 0
            for frame in _frames(path, file.fileno()):
                if frame.base != count:
                    raise _damaged(path, frame.position, "entries are missing")
                count = frame.last + 1
            return count

    def is_valid(self, name: SnapshotName) -> bool:
        """False where compaction may have removed changes behind a snapshot since ``entries``: one of them
        may be the deletion of what the snapshot has."""
        return not self._changelog.compacted_past(name.offset)

    def read(self, name: SnapshotName) -> Iterator[Batch]:
        """The entries of a snapshot, as keys and values, many at a time. Raises CorruptDataError, OSError."""
        path = self._path(name)
        with open(path, "rb", buffering=0) as file:
            for frame in _frames(path, file.fileno()):
                data = memoryview(os.pread(file.fileno(), frame.size, frame.position))
                if len(data) < frame.size or not checksum_matches(data, frame):
                    raise _damaged(path, frame.position, "the checksum of the batch does not match")
                try:
                    _, _, keys, values, _ = decode(data, frame).columns
                except (pa.ArrowException, ValueError) as error:
                    raise _damaged(path, frame.position, described(error)) from None
                yield keys.to_pylist(), values.to_pylist()

    def write(self, name: SnapshotName, batches: Iterable[Batch], *, stamped: bool) -> int | None:
        """Write a snapshot; the number of its entries. None: nothing was written, because the changelog does
        not reach that offset, or has lost its begin.

        ``stamped``: each value begins with the time it was written. Raises UnknownStreamError where the
        stream was deleted since; and OSError."""
        values = self._values(name.offset, stamped=stamped)
        if values is None:
            return None
        self._remove_left(name)
        path = self._path(name)
        with temporary_beside(path) as temporary:
            with open(temporary, "xb") as file:
                file.write(header_bytes(values))
                count = 0
                for keys, entries in batches:
                    for some in _pieces(keys, entries):
                        file.write(_encoded(*some, count))
                        count += len(some[0])
                file.write(END_OF_STREAM)
                file.flush()
                if self._force:
                    os.fsync(file.fileno())
            self._location.check()
            os.replace(temporary, path)
        if self._force:
            fsync_directory(path.parent)
        return count

    def remove(self, name: SnapshotName) -> None:
        """Remove a snapshot. Raises OSError."""
        self._path(name).unlink(missing_ok=True)

    def path(self, name: SnapshotName) -> Path:
        """The file of a snapshot."""
        return self._path(name)

    def _values(self, offset: int, *, stamped: bool) -> dict[str, str] | None:
        before = self._changelog.before(offset)
        if before is None:
            return None
        return {
            "stream": self._location.stream,
            "partition": str(self._location.partition),
            "snapshot.format": _FORMAT,
            "snapshot.offset": str(offset),
            "snapshot.identity": self._changelog.identity,
            "snapshot.before": before,
            "snapshot.stamped": "true" if stamped else "false",
        }

    def _all(self) -> list[SnapshotName]:
        try:
            names = os.listdir(self._location.directory)
        except FileNotFoundError:
            return []
        found = [_named(match) for name in names if (match := _NAME.fullmatch(name))]
        return sorted(found, reverse=True)

    def _path(self, name: SnapshotName) -> Path:
        generation, number = name.commit
        return self._location.directory / f"snapshot-{name.offset:020d}-{generation}.{number}"

    def _remove_left(self, name: SnapshotName) -> None:
        """Remove what earlier writers left of files that they did not finish."""
        for each in os.listdir(self._location.directory):
            match = _TEMPORARY.fullmatch(each)
            if match and _named(match).commit <= name.commit:
                (self._location.directory / each).unlink(missing_ok=True)

    def remove_older(self, name: SnapshotName) -> None:
        """Remove the snapshots before this one, but for one. Those of later commits stay: this writer may
        have been replaced. Raises OSError.

        A file of an earlier commit with a later offset is of a changelog that has lost its end since."""
        own = [each for each in self._all() if each.commit <= name.commit]
        kept = [each for each in own if each.offset <= name.offset][:_KEPT]
        for each in own:
            if each not in kept:
                self.remove(each)


def fingerprint(batch: pa.RecordBatch) -> str:
    """A fingerprint of the only message of a batch."""
    _, timestamp, key, value, _ = (column[0].as_py() for column in batch.columns)
    return f"{timestamp}.{crc32c(key or b''):08x}.{'-' if value is None else f'{crc32c(value):08x}'}"


def _named(match: re.Match[str]) -> SnapshotName:
    offset, generation, number = map(int, match.groups())
    return SnapshotName(offset, (generation, number))


def _frames(path: Path, descriptor: int) -> Iterator[Frame]:
    """The batches of a file. Raises CorruptDataError where it does not end with the mark of its end."""
    position = read_header(path, descriptor).size
    for found in walk(descriptor, position, os.fstat(descriptor).st_size):
        if isinstance(found, Frame):
            yield found
            position = found.end
        elif isinstance(found, EndOfStream):
            return
        else:
            raise _damaged(path, found.position, found.reason)
    raise _damaged(path, position, "the file ends before its end mark")


def _damaged(path: Path, position: int, why: str) -> CorruptDataError:
    return CorruptDataError(f"{path}, byte {position}: {why}")


def _pieces(keys: Sequence[bytes], values: Sequence[bytes]) -> Iterator[Batch]:
    """Entries in batches that are not too large, but for single ones."""
    if not keys:
        return
    if len(keys) > 1 and sum(map(len, keys)) + sum(map(len, values)) > _MOST_BYTES:
        middle = len(keys) // 2
        yield from _pieces(keys[:middle], values[:middle])
        yield from _pieces(keys[middle:], values[middle:])
    else:
        yield keys, values


def _encoded(keys: Sequence[bytes], values: Sequence[bytes], first: int) -> memoryview:
    count = len(keys)
    columns = [
        int64s(range(first, first + count)),
        pa.nulls(count, pa.int64()),
        binary_column(keys),
        binary_column(values),
        pa.nulls(count, SCHEMA.field("headers").type),
    ]
    return encode(pa.RecordBatch.from_arrays(columns, schema=SCHEMA), timestamp=0)
