"""The bytes of a file, by their positions."""

from __future__ import annotations

import contextlib
import gzip
import os
import zlib
from abc import ABC, abstractmethod
from pathlib import Path

from streambench.errors import CorruptDataError, OffsetError, StreamSystemError, UnknownStreamError
from streambench.system.file.streams import PartitionFile

BLOCK = 1 << 18
_LOOK_BACK = 1 << 14


class Source(ABC):
    """Reads a file anywhere. ``path`` and ``name`` (the partition's) are for errors."""

    def __init__(self, name: str, path: Path) -> None:
        self.name = name
        self.path = path

    @abstractmethod
    def read(self, position: int, count: int) -> bytes:
        """So many bytes from a position on, fewer only where the file ends. Raises a StreamSystemError."""

    def close(self) -> None:  # noqa: B027 - not every source holds something
        """Close the file; may be called more than once."""

    def line_start(self, position: int) -> int:
        """The beginning of the line that holds the byte at ``position``."""
        back = _LOOK_BACK
        while position > 0:
            start = max(0, position - back)
            newline = self.read(start, position - start).rfind(b"\n")
            if newline >= 0:
                return start + newline + 1
            if start == 0:
                break
            back *= 4
        return 0

    def line_number(self, position: int) -> int:
        """The number, from 1 on, of the line at ``position``."""
        lines, at = 1, 0
        while at < position:
            block = self.read(at, min(BLOCK, position - at))
            if not block:
                break
            lines += block.count(b"\n")
            at += len(block)
        return lines


class PlainSource(Source):
    """A file as it is. It is opened for each block and not kept open, so that a thousand partitions need no
    thousand handles."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self._identity: tuple[int, int] | None = None
        self._read_up_to = 0

    def size(self) -> int:
        """The present size. Raises OffsetError where the file was replaced, or is shorter than what was
        read."""
        try:
            return self._checked(os.stat(self.path))
        except OSError as error:
            raise self._failure(error) from None

    def read(self, position: int, count: int) -> bytes:
        try:
            with open(self.path, "rb", buffering=0) as file:
                self._checked(os.fstat(file.fileno()))
                file.seek(position)
                data = file.read(count)
        except OSError as error:
            raise self._failure(error) from None
        self._read_up_to = max(self._read_up_to, position + len(data))
        return data

    def _checked(self, status: os.stat_result) -> int:
        identity = (status.st_dev, status.st_ino)
        if self._identity is None:
            self._identity = identity
        if identity != self._identity:
            raise OffsetError(
                f"{self.name}: {self.path} was replaced by another file while it was being read; {_REMEDY}"
            )
        if status.st_size < self._read_up_to:
            raise OffsetError(
                f"{self.name}: {self.path} was cut to {status.st_size} bytes, of which {self._read_up_to} "
                f"had been read; {_REMEDY}"
            )
        return status.st_size

    def _failure(self, error: OSError) -> StreamSystemError:
        if isinstance(error, FileNotFoundError):
            if self._identity is not None:
                return OffsetError(f"{self.name}: {self.path} was removed while it was being read; {_REMEDY}")
            return UnknownStreamError(f"{self.name}: there is no file {self.path}")
        return StreamSystemError(f"{self.name}: cannot read {self.path}: {error.strerror}")


class GzipSource(Source):
    """The contents of a compressed file. To go back means to read it again from its beginning."""

    def __init__(self, name: str, path: Path) -> None:
        super().__init__(name, path)
        self._file: gzip.GzipFile | None = None

    def read(self, position: int, count: int) -> bytes:
        try:
            if self._file is None:
                self._file = gzip.GzipFile(self.path, "rb")
            self._file.seek(position)
            return self._file.read(count) if self._file.tell() == position else b""
        except FileNotFoundError:
            raise UnknownStreamError(f"{self.name}: there is no file {self.path}") from None
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise CorruptDataError(
                f"{self.name}: {self.path} is damaged, or not complete yet: {error}"
            ) from error
        except OSError as error:
            raise StreamSystemError(f"{self.name}: cannot read {self.path}: {error.strerror}") from error

    def close(self) -> None:
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            self._file = None


_REMEDY = (
    "its offsets mean nothing any more: start with samza.reset.offset=true, or read a directory of "
    "files that only grow"
)


def source_of(file: PartitionFile) -> Source:
    """Return the reader of the file of a partition."""
    return (GzipSource if file.compressed else PlainSource)(file.name, file.path)
