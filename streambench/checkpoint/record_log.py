"""Step 5: numbered records in a directory: each is created once, whole, or not at all, by the first to come.

A record is written under a temporary name, synced, and *linked* to its number, which fails where that number
is taken. So one of several writers wins, and the others see that they are too late. Two things would
break this and are ruled out:

- **An empty directory** looks like one whose first records were pruned. So the directory of a record log
  appears by one rename, with its first record in it, and is never empty afterwards.
- **A pruned number is free again.** A process that slept through it all could link it. Records are therefore
  pruned in ascending order only. A writer that might be late names a *witness*, a record that would have been
  pruned before, and holds it open. If that is gone from its name after the link, the new record may follow
  nothing, and does not count.

A record may carry a *payload*: bytes behind its line, durable with it, which are cut off once they have
served. The line stays as it is.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import uuid
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType

import crc32c

from streambench.errors import CheckpointError

VERSION = 1

_BLOCK = 1 << 16

_FRAME = re.compile(
    rb'\{"version":(\d{1,9}),"crc32c":"([0-9a-f]{8})",(?:"payload":\[(\d{1,15}),"([0-9a-f]{8})"\],)?"body":'
)
_NAME = re.compile(r"\d{20}\.json")
_TEMPORARY = re.compile(r"\..+\.tmp")


class DamagedRecordError(CheckpointError):
    """A record is not what was written. ``path`` is its file, ``what`` the text without it."""

    def __init__(self, path: Path, what: str) -> None:
        super().__init__(f"{path} {what}")
        self.path = path
        self.what = what


class Record:
    """A record, held open, so that its file cannot be mistaken for a later one of the same
    name."""

    def __init__(self, path: Path, number: int, handle: int) -> None:
        self.path = path
        self.number = number
        self._handle = handle

    def __enter__(self) -> Record:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def body(self) -> bytes:
        """The content that was written. Raises DamagedRecordError."""
        line, _, rest = self._read()
        frame = _FRAME.match(line)
        if frame is None or not line.endswith(b"}\n") or (rest and frame[3] is None):
            raise DamagedRecordError(
                self.path, "is damaged: it is empty, cut off or no record of checkpoints"
            )
        body = line[frame.end() : -2]
        # First of all: where a byte is damaged, the version may be it.
        if f"{crc32c.crc32c(body):08x}".encode() != frame[2]:
            raise DamagedRecordError(self.path, "is damaged: its contents do not match their checksum")
        if int(frame[1]) != VERSION:
            raise CheckpointError(
                f"{self.path} has version {int(frame[1])}; this streambench reads version {VERSION}: use "
                "the one that wrote it"
            )
        return body

    def payload(self) -> bytes | None:
        """The payload; None where the record has none, or it has been cut off. Raises DamagedRecordError."""
        line, end, rest = self._read()
        frame = _FRAME.match(line)
        if frame is None or frame[3] is None or not rest:
            return None
        if len(rest) != int(frame[3]) or f"{crc32c.crc32c(rest):08x}".encode() != frame[4]:
            if os.fstat(self._handle).st_size == end:
                return None  # cut off while it was read
            raise DamagedRecordError(
                self.path, "is damaged: what it holds beside the checkpoints does not match its checksum"
            )
        return rest

    def cut(self) -> None:
        """Cut the payload off: it has served."""
        end = 0
        while block := os.pread(self._handle, _BLOCK, end):
            found = block.find(b"\n") + 1
            end += found or len(block)
            if found:
                break
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return
        try:
            if os.path.samestat(os.fstat(handle), os.fstat(self._handle)):
                os.ftruncate(handle, end)
        finally:
            os.close(handle)

    def _read(self) -> tuple[bytes, int, bytes]:
        """The line, where it ends, and what follows it."""
        size, data = os.fstat(self._handle).st_size, bytearray()
        # One call reads 2 GiB at most.
        while len(data) < size and (part := os.pread(self._handle, size - len(data), len(data))):
            data += part
        end = data.find(b"\n") + 1 or len(data)
        return bytes(data[:end]), end, bytes(data[end:])

    def stands(self) -> bool:
        """Return True while the name leads to this very file: it has not been pruned."""
        try:
            return os.path.samestat(os.stat(self.path), os.fstat(self._handle))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close the file; may be called more than once."""
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1


class RecordLog:
    """The records of one directory, numbered from 1."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def path(self, number: int) -> Path:
        """The file of a record."""
        return self.directory / f"{number:020d}.json"

    def numbers(self) -> list[int]:
        """The records that there are, ascending."""
        try:
            return sorted(int(name[:20]) for name in os.listdir(self.directory) if _NAME.fullmatch(name))
        except FileNotFoundError:
            return []

    def kept(self) -> list[int]:
        """The records up to the last one that have no gap between them. What lies below a gap is no part of
        it: a late process left it."""
        numbers = self.numbers()
        start = len(numbers) - 1
        while start > 0 and numbers[start - 1] == numbers[start] - 1:
            start -= 1
        return numbers[max(start, 0) :]

    def open(self, number: int) -> Record | None:
        """A record; None where it is not there (any more)."""
        path = self.path(number)
        try:
            return Record(path, number, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            return None

    def last(self) -> Record | None:
        """The last record, None where there is none."""
        while numbers := self.numbers():
            record = self.open(numbers[-1])
            if record is not None:
                return record
        return None

    def append(
        self, after: Record | None, body: bytes, *, payload: bytes = b"", witness: Record | None = None
    ) -> Record | None:
        """Create the record that follows ``after`` (None: the first), durably.

        None where something else follows it already, or the record log is gone, or the witness was pruned. In
        the last case a record may have been left behind which no later one builds on.
        """
        about = b'"payload":[%d,"%08x"],' % (len(payload), crc32c.crc32c(payload)) if payload else b""
        data = b'{"version":%d,"crc32c":"%08x",%b"body":%b}\n%b' % (
            VERSION,
            crc32c.crc32c(body),
            about,
            body,
            payload,
        )
        record = self._create_first(data) if after is None else self._follow(after.number + 1, data)
        if record is not None and witness is not None and not witness.stands():
            record.close()
            return None
        return record

    def _follow(self, number: int, data: bytes) -> Record | None:
        path = self.path(number)
        while True:
            temporary = self.directory / f".{path.stem}.{uuid.uuid4().hex}.tmp"
            try:
                record = Record(path, number, _written(temporary, data))
            except FileNotFoundError:
                return None
            try:
                os.link(temporary, path)
            except FileExistsError:
                # Over a network a link may be repeated that had succeeded: it is ours all the same.
                if not record.stands():
                    _remove(temporary)
                    record.close()
                    return None
            except FileNotFoundError:
                # Swept away by a successor; the next attempt finds out which.
                record.close()
                continue
            except BaseException:
                record.close()
                raise
            _remove(temporary)
            self.sync()
            return record

    def _create_first(self, data: bytes) -> Record | None:
        first = self.path(1)
        while True:
            make_directory(self.directory.parent)
            temporary = self.directory.parent / f".{self.directory.name}.{uuid.uuid4().hex}.tmp"
            try:
                os.mkdir(temporary)
                record = Record(first, 1, _written(temporary / first.name, data))
                _sync(temporary)
            except FileNotFoundError:
                continue
            try:
                os.rename(temporary, self.directory)
            except FileNotFoundError:
                record.close()
                continue
            except OSError as error:
                record.close()
                shutil.rmtree(temporary, ignore_errors=True)
                if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                    return None
                raise
            with contextlib.suppress(FileNotFoundError):
                _sync(self.directory.parent)
            return record

    def sync(self) -> None:
        """Make the linked records of all processes durable, before something is built on them."""
        with contextlib.suppress(FileNotFoundError):
            _sync(self.directory)

    def prune(self, numbers: Iterable[int]) -> None:
        """Delete records; ``numbers`` must be ascending, and above all that was pruned before. Durable with
        the next record."""
        for number in numbers:
            _remove(self.path(number))

    def sweep(self) -> None:
        """Delete the unfinished files of writers that died. A writer that is alive notices it and starts
        again."""
        sweep(self.directory)


def make_directory(directory: Path) -> None:
    """Create a directory and those above it, durably."""
    if not os.path.isdir(directory):
        make_directory(directory.parent)
        try:
            os.mkdir(directory)
        except FileExistsError:
            return
        _sync(directory.parent)


def sweep(directory: Path) -> None:
    """Delete the temporary files and directories in a directory."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return
    for name in names:
        if _TEMPORARY.fullmatch(name):
            path = directory / name
            if os.path.isdir(path):
                shutil.rmtree(path, ignore_errors=True)
            else:
                _remove(path)


def _written(path: Path, data: bytes) -> int:
    """Write a new file and sync it; its handle."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644)
    try:
        rest = memoryview(data)
        while rest:
            rest = rest[os.write(handle, rest) :]
        os.fsync(handle)
    except BaseException:
        os.close(handle)
        raise
    return handle


def _sync(directory: Path) -> None:
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        os.unlink(path)
