"""Staged writes: many processes write one step of a stream, and all of it is appended once, or nothing is.

Each process *stages* its messages in files of its own, which no reader looks at. One process then commits the
step. It creates a record that names the files of those that succeeded, and how many messages each append has.
It appends their messages, and notes that the step is done.

    .staging/<stream>/<write>/<step>/<attempt>/<partition>.arrow    staged messages
    .staging/<stream>/<write>/<step>.json                           the record: these files are the step
    .staging/<stream>/<write>/<step>.appends.json                   the record, where that names only files
    .staging/<stream>/<write>/done.json                             the last step of which all is appended
    .staging/<stream>/<write>/owner.json                            the process without which the write ends

The record decides. Where the process dies behind it, the next commit of the same step appends what that
record names, whatever was staged again meanwhile. Each append carries the write, the step and its number in
the step. By these the partition knows what it has. Number and messages go together as the record says, also
where the settings of batches are others by then. A step that is done is not appended again.

Older records name only the files. What was appended by one of these is counted in the partition.

A write that is not repeated under its name ends with its owner. Where that was killed, the next such write
removes what it left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import cast
from urllib.parse import quote

import pyarrow as pa
from msgspec import Struct

from streambench.errors import CorruptDataError, MessageTooLargeError, StreamSystemError
from streambench.fsync import create_durably, fsync_directory
from streambench.process_identity import ProcessIdentity
from streambench.system.log.arrays import as_one, longest_message, slices
from streambench.system.log.columns import as_columns
from streambench.system.log.frame import SCHEMA
from streambench.system.log.notes import checked, read_note, write_note
from streambench.system.log.streams import Log

STAGED = pa.schema(
    [
        pa.field("key", pa.binary()),
        pa.field("message", pa.binary()),
        pa.field("timestamp", pa.int64()),
        SCHEMA.field("headers"),
    ]
)
"""The columns of staged messages."""

_DONE = "done.json"
_OWNER = "owner.json"
_GONE = ".gone"
_LEFT_BEHIND_S = 24 * 3600
_REMEDY = "remove the directory to give the write up"


class _Owner(Struct, frozen=True):
    """The process without which a write ends; None: it is not known."""

    process: ProcessIdentity | None


class StagedFile(Struct, frozen=True):
    """A file of staged messages; ``path`` is relative to the directory of the write."""

    partition: int
    path: str
    messages: int


class _Record(Struct, frozen=True):
    """A step that is decided. ``appends``: the messages of each append, in order, by partition."""

    files: list[StagedFile]
    appends: dict[int, list[int]]


class StagedWrite:
    """A write to one stream under a name, step by step. Steps are numbered upwards, not necessarily one by
    one.

    ``once``: the name is used again after a crash, to go on. Of any other nothing is left when a step is
    done."""

    def __init__(self, log: Log, stream: str, name: str, *, once: bool = True) -> None:
        self._log = log
        self._stream = stream
        self._producer = f"staged:{name}" if once else None
        self._once = once
        self._directory = log.path / ".staging" / stream / quote(name, safe="")

    def begin(self, owner: ProcessIdentity | None = None) -> None:
        """Make the directory of a write that is not ``once``. It lasts until the write ends:
        a process that is late finds none, and leaves nothing. It removes what others left whose owners have
        ended. Of those without a known owner on this machine, it removes what nothing was written to for a
        day."""
        self._directory.mkdir(parents=True, exist_ok=True)
        write_note(self._directory / _OWNER, _Owner(owner))
        for path in self._directory.parent.iterdir():
            if path != self._directory and _is_left(path):
                _remove(path)

    def stage(self, step: int) -> StagingFiles:
        """The files of one attempt at a part of a step."""
        log = self._log
        if self._once:
            self._directory.mkdir(parents=True, exist_ok=True)
        return StagingFiles(
            self._directory,
            self._directory / str(step) / uuid.uuid4().hex,
            f"{log.name}.{self._stream}",
            log.settings.max_message_bytes,
            durable=log.settings.fsync != "never",
        )

    def last(self) -> int | None:
        """The last step that is done; None before the first."""
        return read_note(self._directory / _DONE, int, _REMEDY)

    def commit(self, step: int, files: Sequence[StagedFile]) -> bool:
        """Append the messages of these files, in their order; False where the step was done before, with
        whatever files.

        Raises StreamSystemError where a file is not there, and what an append raises; the step can be
        committed again then."""
        if self._is_done(step):
            self._clean(step)  # also what a process left that was killed after the step, or in a repeat of it
            return False
        self._directory.mkdir(parents=True, exist_ok=True)
        try:
            decided = self._decide(step, files)
            if self._is_done(step):
                self._clean(step)  # by another process, which may have removed its record just now
                return False
            for number in sorted(decided.appends):
                self._append(step, number, decided)
        except FileNotFoundError as error:
            if self._is_done(step):
                return False  # by another process, which was faster and has removed what was staged
            raise _missing(error) from error
        self._finish(step)
        return True

    def discard(self, step: int, files: Sequence[StagedFile]) -> None:
        """Remove what the attempts with these files staged for a step, unless it is decided that it will be
        appended. Of a write that is not ``once`` all is removed."""
        if self._record(step).exists() and not self._is_done(step):
            return
        if not self._once:
            self._end()
            return
        for attempt in {(self._directory / each.path).parent for each in files}:
            shutil.rmtree(attempt, ignore_errors=True)

    def _is_done(self, step: int) -> bool:
        last = self.last()
        return last is not None and step <= last

    def _record(self, step: int) -> Path:
        return self._directory / f"{step}.json"

    def _decide(self, step: int, files: Sequence[StagedFile]) -> _Record:
        """The record of a step: the one that is there, else one of these files."""
        path = self._record(step)
        if not path.exists():
            create_durably(path, checked(_Record(list(files), self._cut(files, {}))))
        found = read_note(path, cast("type[_Record | list[StagedFile]]", _Record | list[StagedFile]), _REMEDY)
        if isinstance(found, list):
            return self._completed(step, found)
        return found or _Record([], {})

    def _completed(self, step: int, files: list[StagedFile]) -> _Record:
        """The record of a step of which only the files are known."""
        path = self._directory / f"{step}.appends.json"
        if not path.exists():
            there = {number: self._appended(step, number) for number in {each.partition for each in files}}
            create_durably(path, checked(_Record(files, self._cut(files, there))))
        return read_note(path, _Record, _REMEDY) or _Record([], {})

    def _appended(self, step: int, number: int) -> list[int]:
        """The messages of each append of a step that the partition has already."""
        if self._producer is None:
            return []
        partition = self._log.partition(self._stream, number)
        found = partition.appends_of(self._producer, step)
        if found is None:
            raise StreamSystemError(
                f"{partition.name}: the step of {self._record(step)} was appended in part. How much of it is "
                f"not known any more, because retention or compaction has removed it; {_REMEDY}"
            )
        return found

    def _cut(self, files: Sequence[StagedFile], there: Mapping[int, list[int]]) -> dict[int, list[int]]:
        """The messages of each append, by partition, behind those that are there."""
        settings, found = self._log.settings, {}
        for number in sorted({each.partition for each in files}):
            begun = there.get(number, [])
            pieces = _behind(sum(begun), _pieces(self._directory, files, number))
            found[number] = [*begun, *_sizes(pieces, settings.batch_messages, settings.batch_bytes)]
        return found

    def _append(self, step: int, number: int, decided: _Record) -> None:
        partition = self._log.partition(self._stream, number)
        batches = _batches(_pieces(self._directory, decided.files, number), decided.appends[number])
        for sequence, batch in enumerate(batches):
            columns, newest = as_columns(*batch.columns, checked=True)
            if self._producer is None:
                partition.append_columns(columns, newest)
            else:
                partition.append_columns(
                    columns, newest, producer=self._producer, generation=step, sequence=sequence
                )
        partition.flush()

    def _finish(self, step: int) -> None:
        if not self._once:
            self._end()
            return
        # One that was frozen finishes a step late.
        write_note(self._directory / _DONE, max(step, self.last() or 0))
        self._clean(step)

    def _clean(self, step: int) -> None:
        """Remove what was staged for a step that is done, and for the steps before."""
        for path in list(self._directory.iterdir()):
            number = path.name.partition(".")[0]
            if number.isdecimal() and int(number) <= step:
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)

    def _end(self) -> None:
        """Remove all of the write. It goes in one step: what is staged meanwhile finds no directory."""
        _remove(self._directory)


def _remove(directory: Path) -> None:
    gone = directory.with_name(f"{uuid.uuid4().hex}{_GONE}")
    with contextlib.suppress(FileNotFoundError):
        directory.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)


def _is_left(directory: Path) -> bool:
    """True for a write that will never be committed, since its owner has ended."""
    if directory.suffix == _GONE:
        return True
    try:
        owner = read_note(directory / _OWNER, _Owner, _REMEDY)
        if owner is None:
            return False  # it has a name under which it goes on
        if owner.process is not None and owner.process.is_here:
            return owner.process.is_gone
        newest = max(path.stat().st_mtime for path in (directory, *directory.rglob("*")))
        return time.time() - newest > _LEFT_BEHIND_S
    except (OSError, CorruptDataError):
        return False


class StagingFiles:
    """The staged messages of one attempt: a file for each partition."""

    def __init__(self, base: Path, directory: Path, stream: str, largest: int, *, durable: bool) -> None:
        self._base = base
        self._directory = directory
        self._stream = stream
        self._largest = largest
        self._durable = durable
        self._open: dict[int, tuple[Path, pa.OSFile, pa.RecordBatchStreamWriter]] = {}
        self._messages: dict[int, int] = {}

    def write(self, partition: int, columns: pa.RecordBatch) -> None:
        """Stage messages with the columns of ``STAGED``. Raises MessageTooLargeError, and StreamSystemError
        where the write has no directory here (any more)."""
        self._check_sizes(partition, columns)
        if partition not in self._open:
            path = self._directory / f"{partition}.arrow"
            try:
                self._directory.parent.mkdir(exist_ok=True)
                self._directory.mkdir(exist_ok=True)
                file = pa.OSFile(str(path), "wb")
            except FileNotFoundError as error:
                raise self._ended(self._base) from error
            self._open[partition] = path, file, pa.ipc.new_stream(file, STAGED)
        self._open[partition][2].write_batch(columns.cast(STAGED))
        self._messages[partition] = self._messages.get(partition, 0) + columns.num_rows

    def close(self) -> list[StagedFile]:
        """Make the files durable; what was staged. Raises StreamSystemError where another process has done
        the step meanwhile."""
        found = []
        for number, (path, file, writer) in sorted(self._open.items()):
            writer.close()
            file.close()
            if self._durable:
                try:
                    with open(path, "rb") as written:
                        os.fsync(written.fileno())
                except FileNotFoundError as error:
                    raise self._ended(path) from error
            relative = str(path.relative_to(self._base))
            found.append(StagedFile(number, relative, self._messages[number]))
        if found and self._durable:
            fsync_directory(self._directory)
            fsync_directory(self._directory.parent)
        self._open.clear()
        return found

    def _ended(self, path: Path) -> StreamSystemError:
        return StreamSystemError(
            f"{path} is not there: the write has ended without this process, or they do not share that "
            "directory"
        )

    def _check_sizes(self, partition: int, columns: pa.RecordBatch) -> None:
        if columns.nbytes <= self._largest:
            return
        largest = longest_message(columns["key"], columns["message"], columns["headers"])
        if largest > self._largest:
            raise MessageTooLargeError(
                f"{self._stream}.{partition}: a message of {largest} bytes is larger than "
                f"systems.{self._stream.partition('.')[0]}.max.message.bytes={self._largest}; nothing was "
                "written. Raise the limit, or make it smaller"
            )


def _pieces(directory: Path, files: Sequence[StagedFile], number: int) -> Iterator[pa.RecordBatch]:
    """The messages of files for one partition, as they were staged. Raises CorruptDataError where some are
    missing: a file that was cut between two of its batches reads as a whole one. Raises FileNotFoundError
    that names the file."""
    for each in files:
        if each.partition != number:
            continue
        path, count = directory / each.path, 0
        with _mapped(path) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                count += batch.num_rows
                yield batch
        if count != each.messages:
            raise CorruptDataError(f"{path} has {count} of {each.messages} staged messages; {_REMEDY}")


def _mapped(path: Path) -> pa.MemoryMappedFile:
    try:
        return pa.memory_map(str(path))
    except FileNotFoundError as error:
        error.filename = str(path)  # Arrow has it in its text only
        raise


def _behind(count: int, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The messages behind the first ones."""
    for piece in pieces:
        yield piece.slice(min(count, piece.num_rows))
        count -= min(count, piece.num_rows)


def _sizes(pieces: Iterator[pa.RecordBatch], messages: int, size: int) -> list[int]:
    """The messages of batches that have at most so many messages and about so many bytes."""
    found: list[int] = []
    count = held = 0
    for piece in pieces:
        for batch in slices(piece, messages, size):
            if count and (count + batch.num_rows > messages or held + batch.nbytes > size):
                found.append(count)
                count = held = 0
            count, held = count + batch.num_rows, held + batch.nbytes
    return [*found, count] if count else found


def _batches(pieces: Iterator[pa.RecordBatch], sizes: Sequence[int]) -> Iterator[pa.RecordBatch]:
    """The messages in batches of so many each."""
    gathered: list[pa.RecordBatch] = []
    count, wanted = 0, iter(sizes)
    size = next(wanted, 0)
    for piece in pieces:
        while count + piece.num_rows >= size > 0:
            yield as_one([*gathered, piece.slice(0, size - count)])
            gathered, piece = [], piece.slice(size - count)
            count, size = 0, next(wanted, 0)
        if piece.num_rows:
            gathered.append(piece)
            count += piece.num_rows


def _missing(error: FileNotFoundError) -> StreamSystemError:
    return StreamSystemError(
        f"what was staged in {error.filename} is not there: all processes of the write must share that "
        "directory, on a network file system"
    )
