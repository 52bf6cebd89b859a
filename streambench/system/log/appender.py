"""Step 5: the appender, the write side of one partition, for one of several processes that may write.

Everything happens with the partition's lock held. What other processes have appended in the meantime is found
by the size of the file. What one of them left unfinished when it died is cut off, and only a holder of
the lock ever cuts.

**What is cut, and what is damage.** Only the end of the last segment is ever cut, and only behind the
recovery point (``notes``), where nothing was committed. What is cut is an unfinished append: its bytes are
missing at the end of the file, or its body is nothing but zeros. A batch of full length that does not match
its checksum is damage. The exception is a machine that was started again since the recovery point: a loss of
power may have left it so. What whole batches follow is damage, whatever it looks like. Damage is a
CorruptDataError and changes nothing; ``streambench streams repair`` moves it aside.
"""

from __future__ import annotations

import errno
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import BinaryIO

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from streambench.errors import (
    CorruptDataError,
    LockLostError,
    MessageTooLargeError,
    StreamSystemError,
    UnknownStreamError,
)
from streambench.fsync import (
    create_durably,
    fsync_directory,
    remove_temporary,
    temporary_beside,
    write_durably,
)
from streambench.locks import LeasedLock, beating
from streambench.process_identity import boot_id
from streambench.system.log.arrays import FEW, int64s
from streambench.system.log.fences import Fences
from streambench.system.log.frame import (
    END_OF_STREAM,
    SCHEMA,
    EndOfStream,
    Frame,
    Torn,
    batch_beyond,
    checksum_matches,
    encode,
    parse,
)
from streambench.system.log.handles import Handles, unusable
from streambench.system.log.header import Header, read_header, schema_bytes
from streambench.system.log.location import PartitionLocation, ends_early
from streambench.system.log.notes import (
    RecoveryPoint,
    RecoveryPointFile,
    recovery_point,
)
from streambench.system.log.segment import (
    Segment,
    cut_index,
    find,
    frames,
    last_noted,
    note,
    read_state,
    segment_of,
    segments,
    state_check,
)
from streambench.system.log.settings import Settings

log = logging.getLogger(__name__)

_LARGEST_BATCH = 1 << 30
_FOREVER = 1 << 62
_COPIED_AT_ONCE = 1 << 20


class Appender:
    """Appends batches to one partition."""

    def __init__(self, location: PartitionLocation, handles: Handles, settings: Settings) -> None:
        self._location = location
        self._handles = handles
        self._settings = settings
        self._lock = LeasedLock(
            location.directory / ".lock", location.name, settings.lock_lease_ms / 1000, self._isolate
        )
        self._fences = Fences(location.directory, location.name, self._lock)
        self._active: Segment | None = None
        self._inode = 0
        self._created_ms = 0
        self._header: Header | None = None
        self._point = RecoveryPoint()
        self._point_file = RecoveryPointFile(location.directory, handles, location.check)
        self._start = 0
        self._end = 0
        self._next = 0
        self._noted = 0
        self._producers: dict[str, tuple[int, int]] | None = None
        self._written: set[Path] = set()
        self.rolled = False

    def append(
        self,
        columns: pa.RecordBatch,
        timestamp: int,
        producer: str | None,
        generation: int,
        epoch: int,
        sequence: int | None,
    ) -> range | None:
        """Append timestamp, key, value and headers as one batch; the offsets it got, None where this sequence
        is there already."""
        self._check_size(columns)
        with self._locked():
            self._catch_up()
            if producer is not None and self._is_repeated(producer, generation, epoch, sequence):
                return None
            if self._roll_is_due():
                self._roll()
            base = self._next
            arrays = [_offsets(base, columns.num_rows), *columns.columns]
            data = encode(
                pa.RecordBatch.from_arrays(arrays, schema=SCHEMA),
                timestamp=timestamp,
                producer=producer,
                generation=generation,
                epoch=epoch,
                sequence=sequence,
            )
            self._write(data)
            frame = parse(data, 0, self._end, verify=False)
            assert isinstance(frame, Frame)
            self._advance_past(frame)
            if self._settings.fsync == "batch":
                self.flush()
        return range(base, self._next)

    def _check_size(self, columns: pa.RecordBatch) -> None:
        if columns.nbytes > _LARGEST_BATCH:
            raise MessageTooLargeError(
                f"{self._location.name}: a batch of {columns.nbytes} bytes is too large; append it in parts"
            )

    def _is_repeated(self, producer: str, generation: int, epoch: int, sequence: int | None) -> bool:
        """True where this sequence is there already. Raises FencedError where the producer is fenced."""
        self._fences.check(producer, generation, epoch)
        if sequence is None or self._last_of(producer) < (generation, sequence):
            return False
        # Its writer may have died before it was forced to the disk.
        self._must_force(self._active)
        return True

    def fence(self, producer: str, generation: int, epoch: int) -> None:
        """Refuse what an older (generation, epoch) of this producer appends from now on."""
        with self._locked():
            self._fences.set(producer, generation, epoch)

    def last_of(self, producer: str) -> tuple[int, int] | None:
        """The (generation, sequence) of the last batch that this producer appended with a sequence; None
        where there is none."""
        with self._locked():
            self._catch_up()
            last = self._last_of(producer)
        return last if last >= (0, 0) else None

    def flush(self) -> None:
        """Force what was appended here to the disk."""
        if self._settings.fsync == "never":
            self._written.clear()
        if not self._written:
            return
        upcoming = self._next
        for path in sorted(self._written):
            self._force_segment(path)
            self._written.discard(path)
        if upcoming > self._point.upcoming and self._active is not None:
            self._note_recovery_point(upcoming)

    def _force_segment(self, path: Path) -> None:
        try:
            self._handles.force(path)
        except FileNotFoundError:
            self._handles.forget(path)
        except OSError as error:
            raise StreamSystemError(
                f"{self._location.name}: {path} could not be forced to the disk: {error.strerror}"
            ) from error

    def _note_recovery_point(self, upcoming: int) -> None:
        try:
            self._point_file.write(upcoming)
            self._point = RecoveryPoint(upcoming, boot_id())
        except (OSError, UnknownStreamError) as error:
            # Everything is on the disk all the same; it only looks like an unfinished append if it
            # is damaged one day.
            log.warning("%s: the recovery point could not be written: %s", self._location.name, error)

    def roll(self) -> None:
        """Seal the active segment and begin the next one, if there is anything in it."""
        with self._locked():
            self._catch_up()
            if self._end > self._start:
                self._roll()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        location = self._location
        try:
            if self._active is None:
                location.make(durable=self._settings.fsync != "never")
            with self._lock as lock:
                location.check()
                yield
                # One that was frozen has perhaps written to a file that is no part of the log any more.
                lock.check()
        except LockLostError:
            self._forget_active()
            raise
        except FileNotFoundError as error:
            self._forget_active()
            location.check()
            if self._lock.is_lost:
                raise self._lock.lost() from error
            raise StreamSystemError(
                f"{location.name}: a file of the log vanished while it was written to: {error.filename}"
            ) from error
        except OSError as error:
            # What is there by now is looked at once more before anything is appended.
            path, self._active = self._active.path if self._active is not None else location.directory, None
            raise unusable(location.name, path, error) from error

    @contextmanager
    def exclusive(self) -> Iterator[Callable[[], None]]:
        """Keep all writers out, also for longer than their lease. The callable that is yielded raises
        LockLostError where one of them has taken over all the same."""
        with self._locked(), beating(self._lock.beat, self._settings.lock_lease_ms / 1000):
            try:
                yield self._lock.check
            finally:
                self._forget_active()

    def _isolate(self) -> None:
        """Take from a frozen writer what it can still write to: the file that it has open becomes one without
        a name.

        The new file has the same bytes. What the frozen writer was about to put in place by a rename goes
        with its temporary file."""
        directory = self._location.directory
        remove_temporary(directory, r"(fence|\d{20})\.")
        present = segments(directory)
        if not present:
            return
        path = present[-1].path
        with temporary_beside(path) as temporary, open(path, "rb") as old, open(temporary, "xb") as new:
            self._lock.check()
            shutil.copyfileobj(old, new, _COPIED_AT_ONCE)
            _force(new)
            os.replace(temporary, path)
            # What came meanwhile may have been read already, since the old file still had its name.
            if os.fstat(old.fileno()).st_size > old.tell():
                shutil.copyfileobj(old, new, _COPIED_AT_ONCE)
                _force(new)
        fsync_directory(directory)
        self._handles.forget(path)
        self._active = None

    def _forget_active(self) -> None:
        active, self._active = self._active, None
        if active is not None:
            self._handles.forget(active.path)

    def _catch_up(self) -> None:
        """Learn what others have appended since, and where the next batch belongs."""
        active = self._active
        if active is not None:
            try:
                stat = os.stat(active.path)
            except FileNotFoundError:
                stat = None
            if stat is not None and stat.st_ino == self._inode and stat.st_size >= self._end:
                if stat.st_size != self._end:
                    self._scan(active, self._end, trust_last=True)
                return
            self._handles.forget(active.path)
        self._load()

    def _load(self) -> None:
        present = segments(self._location.directory)
        self._producers = None
        self._point = recovery_point(self._location.directory)
        if not present:
            if self._point.upcoming:
                raise self._ends_early(segment_of(self._location.directory, 0).path)
            self._begin(0)
            return
        active = present[-1]
        descriptor = self._enter(active)
        cut_index(active, os.fstat(descriptor).st_size)
        self._noted = last_noted(active)
        self._scan(active, find(active, descriptor, _FOREVER), trust_last=False)
        if self._next < self._point.upcoming:
            raise self._ends_early(active.path)

    def _ends_early(self, path: Path) -> CorruptDataError:
        """The error for a log that has lost messages which were committed."""
        upcoming, self._active = self._next if self._active is not None else 0, None
        return ends_early(self._location, path, upcoming, self._point.upcoming)

    def _enter(self, segment: Segment) -> int:
        """Make a segment the active one, without looking at what is in it."""
        descriptor = self._handles.open(segment.path, write=True)
        if os.fstat(descriptor).st_ino != os.stat(segment.path).st_ino:
            self._handles.forget(segment.path)
            descriptor = self._handles.open(segment.path, write=True)
        self._inode = os.fstat(descriptor).st_ino
        self._header = header = read_header(segment.path, descriptor)
        self._start, self._created_ms = header.size, header.created_ms
        self._active, self._end, self._next, self._noted = segment, self._start, segment.base, 0
        return descriptor

    def _scan(self, segment: Segment, position: int, *, trust_last: bool) -> None:
        """Go over the frames from ``position`` on, to the end; cut off what is not whole."""
        descriptor = self._handles.open(segment.path, write=True)
        self._end = position
        last: Frame | None = None
        for found in frames(segment, descriptor, position):
            if isinstance(found, Frame):
                self._advance_past(found)
                last = found
            elif isinstance(found, EndOfStream):
                self._follow(segment)
                return
            else:
                self._cut(segment, descriptor, found, whole=found.garbage)
                return
        if last is not None and not trust_last:
            data = memoryview(os.pread(descriptor, last.size, last.position))
            if len(data) < last.size or not checksum_matches(data, last):
                self._next, self._end = last.base, last.position
                torn = Torn(last.position, True, "the checksum of the last batch does not match")
                self._cut(segment, descriptor, torn, whole=True)

    def _follow(self, sealed: Segment) -> None:
        """Go on behind a sealed segment. Its writer may have died before the next one was there."""
        following = [segment for segment in segments(self._location.directory) if segment.base > sealed.base]
        assert self._header is not None
        self._next = max(self._next, self._header.end or 0)
        if not following:
            if self._next < self._point.upcoming:
                raise self._ends_early(segment_of(self._location.directory, self._next).path)
            self._must_force(sealed)
            self.flush()
            self._begin(self._next)
            return
        for segment in following:
            descriptor = self._enter(segment)
            if segment is following[-1]:
                self._producers = None
                self._noted = last_noted(segment)
                self._scan(segment, find(segment, descriptor, _FOREVER), trust_last=False)

    def _advance_past(self, frame: Frame) -> None:
        """Note a frame of the active segment: the next batch follows it."""
        assert self._active is not None
        self._next, self._end = frame.last + 1, frame.end
        self._noted = note(self._active, frame, self._noted)
        if self._producers is not None and frame.producer is not None and frame.sequence is not None:
            self._producers[frame.producer] = (frame.generation, frame.sequence)

    def _cut(self, segment: Segment, descriptor: int, torn: Torn, *, whole: bool) -> None:
        """Cut off the end of the active segment, from where it is torn on. ``whole``: the frame there
        has all its bytes, and is damaged.

        A batch that was not written whole by a process that died is simply gone: it was never acknowledged.
        What a loss of power made of one is put aside first. Raises CorruptDataError for anything else,
        and changes nothing.
        """
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, size - torn.position, torn.position)
        zeros = not tail.strip(b"\0")
        found = parse(tail, 0, 0)
        lost_power = self._point.is_of_an_earlier_boot or (
            isinstance(found, Frame) and not tail[found.metadata_size :].strip(b"\0")
        )
        why = None
        if batch_beyond(tail, self._next) >= 0:
            why = "whole batches follow"
        elif self._next < self._point.upcoming:
            why = f"what is there up to offset {self._point.upcoming - 1} was committed"
        elif whole and not zeros and not lost_power:
            why = "it is no unfinished append"
        if why is not None:
            self._active = None
            what = f"{torn.reason}, and {why} (from offset {self._next} on)"
            raise CorruptDataError(f"{segment.path}, byte {torn.position}: {what}; {self._location.remedy}")
        if whole and not zeros:
            aside = segment.path.with_suffix(f".{torn.position}.cut")
            create_durably(aside, tail)
            log.warning(
                "%s: put %d bytes aside as %s: %s", self._location.name, len(tail), aside, torn.reason
            )
        else:
            log.warning(
                "%s: cut %d bytes of an unfinished batch off %s", self._location.name, len(tail), segment.path
            )
        self._lock.check()  # as in ``_write``
        os.ftruncate(descriptor, torn.position)
        os.fsync(descriptor)
        cut_index(segment, torn.position)
        self._noted = last_noted(segment)
        self._end = torn.position

    def _write(self, data: memoryview) -> None:
        assert self._active is not None
        path = self._active.path
        descriptor = self._handles.open(path, write=True)
        # A file opened before the lock was lost is replaced by the taker: what is written to it later counts
        # for nothing.
        self._lock.check()
        try:
            written = os.pwrite(descriptor, data, self._end)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            raise self._unwritten(descriptor, path, len(data), error) from error
        self._must_force(self._active)

    def _unwritten(self, descriptor: int, path: Path, size: int, error: OSError) -> StreamSystemError:
        """Cut off what was written of a batch; the error for the rest."""
        with suppress(OSError):  # the next append cuts off what cannot be cut off now
            os.ftruncate(descriptor, self._end)
        self._active = None
        return StreamSystemError(
            f"{self._location.name}: {size} bytes could not be written to {path}: {error.strerror}"
        )

    def _must_force(self, segment: Segment | None) -> None:
        """Have the next ``flush`` force a segment to the disk."""
        assert segment is not None
        self._handles.mark_dirty(segment.path)
        self._written.add(segment.path)

    def _roll_is_due(self) -> bool:
        if self._end == self._start:
            return False
        settings = self._settings
        if self._end >= settings.segment_bytes:
            return True
        return (
            settings.retention_ms >= 0
            and time.time_ns() // 1_000_000 - self._created_ms > settings.retention_ms // 2
        )

    def _roll(self) -> None:
        """Seal the active segment and begin the next."""
        assert self._active is not None
        producers = self._known_producers()
        if producers:
            following = segment_of(self._location.directory, self._next)
            write_durably(following.state_path, msgspec.json.encode(producers), self._lock.check)
        sealed = self._active
        self._write(memoryview(END_OF_STREAM))
        self._end += len(END_OF_STREAM)
        self.flush()
        self._handles.forget(sealed.path)
        self._begin(self._next)
        self._producers = producers
        self.rolled = True

    def _begin(self, base: int) -> None:
        """Begin a segment at ``base``."""
        location = self._location
        segment = segment_of(location.directory, base)
        now = time.time_ns() // 1_000_000
        more = {}
        if segment.state_path.exists():
            more["producers"] = state_check(segment.state_path.read_bytes())
        header = schema_bytes(location.stream, location.partition, now, **more)
        force = self._settings.fsync != "never"
        create_durably(segment.path, header, force=force, check=self._lock.check)
        segment.index_path.unlink(missing_ok=True)
        self._enter(segment)

    def _last_of(self, producer: str) -> tuple[int, int]:
        return self._known_producers().get(producer, (-1, -1))

    def _known_producers(self) -> dict[str, tuple[int, int]]:
        """Per producer its last (generation, sequence): as it was when the active segment began, and what the
        segment says since."""
        if self._producers is None:
            assert self._active is not None
            assert self._header is not None
            self._producers = read_state(self._active, self._header, self._location.remedy)
            descriptor = self._handles.open(self._active.path, write=True)
            for found in frames(self._active, descriptor, self._start):
                if isinstance(found, Frame) and found.producer is not None and found.sequence is not None:
                    self._producers[found.producer] = (found.generation, found.sequence)
        return self._producers


def _force(file: BinaryIO) -> None:
    file.flush()
    os.fsync(file.fileno())


@cache
def _counted(count: int) -> pa.Array:
    """The array 0, 1, 2, ..., made once: making it for each batch would be the most expensive part of an
    append."""
    return int64s(range(count))


def _offsets(base: int, count: int) -> pa.Array:
    if count <= FEW:
        return int64s(range(base, base + count))
    # Sizes go by powers of two, so that few different ones are kept.
    return pc.add(_counted(1 << max(10, (count - 1).bit_length())).slice(0, count), int64s([base])[0])
