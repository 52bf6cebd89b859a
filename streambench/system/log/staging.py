"""Staged writes: many processes write one step of a stream, and all of it is appended once, or nothing is.

Each process *stages* its messages in files of its own, which no reader looks at. One process then commits the
step. It creates a record that names the files of those that succeeded, appends their messages, and notes that
the step is done.

    .staging/<stream>/<write>/<step>/<attempt>/<partition>.arrow    staged messages
    .staging/<stream>/<write>/<step>.json                           the record: these files are the step
    .staging/<stream>/<write>/done.json                             the last step of which all is appended
    .staging/<stream>/<write>/owner.json                            the process without which the write ends

The record decides. Where the process dies behind it, the next commit of the same step appends what that
record names, whatever was staged again meanwhile. Each append carries the write, the step and its number in
the step. By these the partition knows what it has. A step that is done is not appended again.

A write that is not repeated under its name ends with its owner. Where that was killed, the next such write
removes what it left.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import pyarrow as pa
from msgspec import Struct

from streambench.errors import CorruptDataError, MessageTooLargeError, StreamSystemError
from streambench.fsync import fsync_directory
from streambench.process_identity import ProcessIdentity
from streambench.system.log.arrays import as_one, longest_message, slices
from streambench.system.log.frame import SCHEMA
from streambench.system.log.handles import create_durably
from streambench.system.log.notes import checked, read_note, write_note
from streambench.system.log.partition import as_columns
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
            self.discard(step, files)
            return False
        self._directory.mkdir(parents=True, exist_ok=True)
        record = self._record(step)
        self._check_there(files)
        create_durably(record, checked(files))
        decided = read_note(record, list[StagedFile], _REMEDY) or []
        try:
            for number in sorted({each.partition for each in decided}):
                self._append(step, number, [each for each in decided if each.partition == number])
        except FileNotFoundError as error:
            if self._is_done(step):
                return True  # another process committed the same record, and was faster
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

    def _check_there(self, files: Sequence[StagedFile]) -> None:
        for each in files:
            path = self._directory / each.path
            if not path.exists():
                raise _missing(FileNotFoundError(2, "", str(path)))

    def _append(self, step: int, number: int, files: Sequence[StagedFile]) -> None:
        partition = self._log.partition(self._stream, number)
        settings = self._log.settings
        batches = _batches(self._directory, files, settings.batch_messages, settings.batch_bytes)
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
        write_note(self._directory / _DONE, step)
        for path in list(self._directory.iterdir()):
            if path.stem.isdecimal() and int(path.stem) <= step:
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
                raise StreamSystemError(
                    f"{self._base} is not there: the write has ended without this process, or they do not "
                    "share that directory"
                ) from error
            self._open[partition] = path, file, pa.ipc.new_stream(file, STAGED)
        self._open[partition][2].write_batch(columns.cast(STAGED))
        self._messages[partition] = self._messages.get(partition, 0) + columns.num_rows

    def close(self) -> list[StagedFile]:
        """Make the files durable; what was staged."""
        found = []
        for number, (path, file, writer) in sorted(self._open.items()):
            writer.close()
            file.close()
            if self._durable:
                with open(path, "rb") as written:
                    os.fsync(written.fileno())
            relative = str(path.relative_to(self._base))
            found.append(StagedFile(number, relative, self._messages[number]))
        if found and self._durable:
            fsync_directory(self._directory)
            fsync_directory(self._directory.parent)
        self._open.clear()
        return found

    def _check_sizes(self, partition: int, columns: pa.RecordBatch) -> None:
        if columns.nbytes <= self._largest:
            return
        largest = longest_message(columns.column(0), columns.column(1))
        if largest > self._largest:
            raise MessageTooLargeError(
                f"{self._stream}.{partition}: a message of {largest} bytes is larger than "
                f"systems.{self._stream.partition('.')[0]}.max.message.bytes={self._largest}; nothing was "
                "written. Raise the limit, or make it smaller"
            )


def _batches(
    directory: Path, files: Sequence[StagedFile], messages: int, size: int
) -> Iterator[pa.RecordBatch]:
    """The messages of files in batches of at most so many messages and about so many bytes."""
    gathered: list[pa.RecordBatch] = []
    count = held = 0
    for batch in _pieces(directory, files, messages, size):
        if gathered and (count + batch.num_rows > messages or held + batch.nbytes > size):
            yield as_one(gathered)
            gathered, count, held = [], 0, 0
        gathered.append(batch)
        count, held = count + batch.num_rows, held + batch.nbytes
    if gathered:
        yield as_one(gathered)


def _pieces(
    directory: Path, files: Sequence[StagedFile], messages: int, size: int
) -> Iterator[pa.RecordBatch]:
    for each in files:
        with pa.memory_map(str(directory / each.path)) as source, pa.ipc.open_stream(source) as reader:
            for batch in reader:
                yield from slices(batch, messages, size)


def _missing(error: FileNotFoundError) -> StreamSystemError:
    return StreamSystemError(
        f"what was staged in {error.filename} is not there: all processes of the write must share that "
        "directory, on a network file system"
    )
