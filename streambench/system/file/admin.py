"""The admin of files: where they begin and end, and how new ones are made."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from streambench.errors import StreamExistsError, StreamSystemError
from streambench.fsync import fsync_directory
from streambench.model import PartitionMetadata, StreamsMetadata, SystemStream, SystemStreamPartition
from streambench.system.file.producer import check_writable
from streambench.system.file.reader import Reader, reader_of
from streambench.system.file.source import PlainSource, source_of
from streambench.system.file.streams import FileStreams, PartitionFile
from streambench.system.numbered import NumberedAdmin, numbered_metadata, to_number

_AT_ONCE = 10_000
_HEAD = 4096  # checkpoints hold what comes of it: with another number, every file would seem to be replaced


class _Scan:
    """Findings of reading a partition from its beginning; where a file only grows, the next look
    begins where this one ended."""

    def __init__(self, reader: Reader, stamp: tuple[int, ...]) -> None:
        self.reader = reader
        self.stamp = stamp
        self.oldest: int | None = None
        self.newest: int | None = None

    def go_on(self) -> None:
        while messages := self.reader.read(_AT_ONCE):
            if self.oldest is None:
                self.oldest = messages.ends[0]
            self.newest = messages.ends[-1]
        self.reader.close()


class FileAdmin(NumberedAdmin):
    """Knows the files of one file system. It deletes none: they are not its own.

    A file is known by its beginning, up to what was processed: so it may grow, be copied,
    and be edited behind that.
    """

    identity_grows = True

    def __init__(self, streams: FileStreams) -> None:
        self._streams = streams
        self._scans: dict[PartitionFile, _Scan] = {}
        self._places: dict[SystemStreamPartition, PartitionFile] = {}
        self._heads: dict[PartitionFile, bytes] = {}

    def metadata(self, streams: Iterable[SystemStream]) -> StreamsMetadata:
        found = {}
        for stream in streams:
            files = self._streams.partitions(stream.stream)
            self._places.update(
                {
                    SystemStreamPartition(stream.system, stream.stream, number): file
                    for number, file in enumerate(files)
                }
            )
            found[stream] = dict(enumerate(map(self._metadata_of, files)))
        return found

    def identity(self, ssp: SystemStreamPartition, position: str) -> str | None:
        head = self._head(self._places[ssp], min(to_number(position, ssp), _HEAD))
        return hashlib.blake2b(head, digest_size=8).hexdigest()

    def create(self, stream: SystemStream, partitions: int, **settings: Any) -> bool:
        path = self._streams.path(stream.stream)
        if path is None or not path.exists():
            path = self._streams.new_path(stream.stream, partitions)
            check_writable(self._streams.system, stream.stream, path)
            if _make(path, partitions, self._streams.ending(stream.stream)):
                return True
        present = len(self._streams.partitions(stream.stream))
        if present != partitions:
            raise StreamExistsError(
                f"{stream} is there already, with {present} partitions and not {partitions}: {path}"
            )
        return False

    def streams(self) -> list[SystemStream]:
        return [SystemStream(self._streams.system, name) for name in self._streams.names()]

    def close(self) -> None:
        for scan in self._scans.values():
            scan.reader.close()
        self._scans.clear()

    def _head(self, file: PartitionFile, length: int) -> bytes:
        """So many of the first bytes of a file: of the one that was there when this was first asked, should
        it be replaced meanwhile."""
        known = self._heads.get(file)
        if known is None or len(known) < length:
            source = source_of(file)
            # A file that was deleted once it was read must not prevent the commit.
            with contextlib.suppress(StreamSystemError), contextlib.closing(source):
                found = source.read(0, _HEAD)
                if found.startswith(known or b""):
                    known = self._heads[file] = found
        return (known or b"")[:length]

    def _metadata_of(self, file: PartitionFile) -> PartitionMetadata:
        oldest, newest = self._scanned(file) if file.format == "csv" or file.compressed else _looked_up(file)
        if oldest is None or newest is None:
            return numbered_metadata(0, 0)
        return numbered_metadata(oldest, newest + 1)

    def _scanned(self, file: PartitionFile) -> tuple[int | None, int | None]:
        """First and last message, by reading all of the file: only that shows where rows end, or what was
        compressed."""
        try:
            status = os.stat(file.path)
        except OSError as error:
            raise StreamSystemError(f"{file.name}: cannot read {file.path}: {error.strerror}") from None
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        scan = self._scans.get(file)
        if scan is None or (
            scan.stamp != stamp
            and not (file.follow and scan.stamp[:2] == stamp[:2] and scan.stamp[2] <= stamp[2])
        ):
            scan = self._scans[file] = _Scan(reader_of(file, 0), ())
        if scan.stamp != stamp:
            scan.go_on()
            scan.stamp = stamp
        return scan.oldest, scan.newest


def _looked_up(file: PartitionFile) -> tuple[int | None, int | None]:
    """First and last message of a file of lines, by looking at its two ends."""
    reader = reader_of(file, 0)
    first = reader.read(1)
    source = source_of(file)
    assert isinstance(source, PlainSource)
    if first is None:
        return None, None
    end = source.size()
    if file.follow:
        end = source.line_start(end)
    while end > first.ends[0] + 1:
        start = source.line_start(end - 1)
        if file.format != "jsonl" or source.read(start, end - start).strip(b"\r\n"):
            return first.ends[0], end - 1
        end = start
    return first.ends[0], first.ends[0]


def _make(path: Path, partitions: int, ending: str) -> bool:
    """Make a file, or a directory of so many, durably and in one step; False where it is there already."""
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        if partitions == 1 and path.suffix:
            with open(path, "xb"):
                pass
        else:
            _make_directory(path, partitions, ending)
    except FileExistsError:
        return False
    except OSError as error:
        raise StreamSystemError(f"cannot create {path}: {error.strerror}") from error
    fsync_directory(path.parent)
    return True


def _make_directory(path: Path, partitions: int, ending: str) -> None:
    new = path.with_name(f".{path.name}.{os.getpid()}.new")
    new.mkdir()
    try:
        for number in range(partitions):
            (new / f"{number}{ending}").touch()
        fsync_directory(new)
        try:
            new.rename(path)
        except OSError as error:
            if path.exists():
                raise FileExistsError(path) from None
            raise error
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(new)
