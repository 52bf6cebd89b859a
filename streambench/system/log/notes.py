"""Notes: the small files of a partition, each with a checksum, and what two of them are for.

``start.json``: the offset from which retention has left the partition. It is durable before a segment is
deleted, so that a first segment that is missing is distinguished from one that was removed on purpose.

``recovery-point.json``: up to which offset everything was forced to the disk, and since which start of the
machine. It is written after that and never forced itself, so that it may be behind the truth but not ahead of
it. A log that ends before this offset has lost what was committed. Absent or damaged it says nothing, and the
log is read as it is.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from crc32c import crc32c
from msgspec import Raw, Struct

from streambench.errors import CorruptDataError
from streambench.fsync import write_durably
from streambench.process_identity import boot_id
from streambench.system.log.handles import Handles

START = "start.json"
RECOVERY_POINT = "recovery-point.json"
COMPACTED = "compacted.json"

# Every state of it is written over the last one whole.
_WIDTH = 128

T = TypeVar("T")


class _Checked(Struct, forbid_unknown_fields=True):
    crc32c: str
    body: Raw


def checked(value: Any) -> bytes:
    """A note, for ``read_note``."""
    body = msgspec.json.encode(value)
    return b'{"crc32c":"%08x","body":%b}' % (crc32c(body), body)


def read_note(path: Path, kind: type[T], remedy: str) -> T | None:
    """The value of a note, None where there is none. Old ones have no checksum. Raises CorruptDataError."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    try:
        if b'"body"' in data or b"crc32c" in data:
            note = msgspec.json.decode(data, type=_Checked)
            if note.crc32c != f"{crc32c(bytes(note.body)):08x}":
                raise CorruptDataError(f"{path}: its contents do not match their checksum; {remedy}")
            data = bytes(note.body)
        return msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptDataError(f"{path}: cannot be read ({error}); {remedy}") from None


def write_note(path: Path, value: Any, check: Callable[[], object] | None = None) -> None:
    """Put a note in place, durably. ``check``: as for ``write_durably``."""
    write_durably(path, checked(value), check)


class RecoveryPoint(Struct, frozen=True):
    """Everything before the offset ``upcoming`` was on the disk once; 0 where that is not known. ``boot``:
    the machine's start by then."""

    upcoming: int = 0
    boot: str = ""

    @property
    def is_of_an_earlier_boot(self) -> bool:
        """The machine was started again since, as after a loss of power."""
        return self.upcoming > 0 and self.boot != boot_id()


class RecoveryPointFile:
    """The recovery point of a partition, for its writer. The file stays open: it is written at every flush.

    ``check`` raises where the partition has been deleted, and is called before a file is opened by its name.
    """

    def __init__(self, directory: Path, handles: Handles, check: Callable[[], object]) -> None:
        self._path = directory / RECOVERY_POINT
        self._handles = handles
        self._check = check

    def write(self, upcoming: int) -> None:
        """Note that all before ``upcoming`` is on the disk. Raises OSError, and what ``check`` raises."""
        data = checked(RecoveryPoint(upcoming, boot_id())).ljust(_WIDTH - 1) + b"\n"
        if not self._handles.is_open(self._path):
            self._check()
            os.close(os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o644))
        os.pwrite(self._handles.open(self._path, write=True), data, 0)


def recovery_point(directory: Path) -> RecoveryPoint:
    """The recovery point of a partition."""
    try:
        return read_note(directory / RECOVERY_POINT, RecoveryPoint, "") or RecoveryPoint()
    except CorruptDataError:
        return RecoveryPoint()


def was_compacted(directory: Path, base: int) -> bool:
    """True where the segment that begins there may have been compacted."""
    upto = read_note(directory / COMPACTED, int, "delete it, to have everything compacted once more")
    return upto is not None and base <= upto
