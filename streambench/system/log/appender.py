"""The appender: the write side of one partition, for one of the several processes that may write to it.

Everything happens with the partition's lock held. What other processes have appended in the meantime is found by the size of the
file; what one of them left unfinished when it died is cut off, and nobody but a holder of the lock ever cuts.
"""

from __future__ import annotations

import errno
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from streambench.durable import make_durable
from streambench.errors import CorruptDataError, MessageTooLargeError, StreamSystemError, UnknownStreamError
from streambench.system.log.arrays import FEW, int64s
from streambench.system.log.fences import Fences
from streambench.system.log.frame import (
    END_OF_STREAM,
    SCHEMA,
    EndOfStream,
    Frame,
    Torn,
    checksum_matches,
    encode,
    parse,
    schema_bytes,
)
from streambench.system.log.handles import Handles, create_durably, locked
from streambench.system.log.segment import Segment, cut_index, find, frames, last_noted, note, segment_of, segments, start_of
from streambench.system.log.settings import Settings

log = logging.getLogger(__name__)

_LARGEST_BATCH = 1 << 30
_FOREVER = 1 << 62


class Place(Struct, frozen=True):
    """Which partition it is (``name``: system.stream.partition, for errors), and where its files are."""

    name: str
    stream: str
    partition: int
    directory: Path
    identity: tuple[int, int]

    @property
    def stream_file(self) -> Path:
        return self.directory.parent / "stream.json"

    def make(self, *, durable: bool) -> None:
        """Make the directory, if it is not there. Raises UnknownStreamError."""
        if not self.directory.exists():
            self.check()
            self.directory.mkdir(exist_ok=True)
            if durable:
                make_durable(self.directory.parent)

    def check(self) -> None:
        """Raises UnknownStreamError where the stream has been deleted since this was made (and perhaps created anew)."""
        try:
            stat = os.stat(self.stream_file)
        except FileNotFoundError:
            raise UnknownStreamError(f"{self.name}: the stream has been deleted ({self.stream_file} is gone)") from None
        if (stat.st_ino, stat.st_mtime_ns) != self.identity:
            raise UnknownStreamError(f"{self.name}: the stream has been deleted and created anew; begin again with the new one")


class Appender:
    """Appends batches to one partition."""

    def __init__(self, place: Place, handles: Handles, settings: Settings) -> None:
        self._place = place
        self._handles = handles
        self._settings = settings
        self._fences = Fences(place.directory, place.name)
        self._lock = place.directory / ".lock"
        self._active: Segment | None = None
        self._inode = 0
        self._created_ms = 0
        self._start = 0
        self._end = 0
        self._next = 0
        self._noted = 0
        self._producers: dict[str, tuple[int, int]] | None = None
        self._written: set[Path] = set()
        self.rolled = False

    def append(
        self, columns: pa.RecordBatch, timestamp: int, producer: str | None, generation: int, epoch: int, sequence: int | None
    ) -> range | None:
        """Append timestamp, key, value and headers as one batch; the offsets it got, None where this sequence is there already."""
        if columns.nbytes > _LARGEST_BATCH:
            raise MessageTooLargeError(f"{self._place.name}: a batch of {columns.nbytes} bytes is too large; append it in parts")
        with self._locked():
            self._catch_up()
            if producer is not None:
                self._fences.check(producer, generation, epoch)
                if sequence is not None and self._last_of(producer) >= (generation, sequence):
                    # Whoever appended it may have died before it was forced to the disk.
                    self._must_force(self._active)
                    return None
            if self._roll_is_due():
                self._roll()
            base = self._next
            batch = pa.RecordBatch.from_arrays([_offsets(base, columns.num_rows), *columns.columns], schema=SCHEMA)
            data = encode(batch, timestamp=timestamp, producer=producer, generation=generation, epoch=epoch, sequence=sequence)
            self._write(data)
            frame = parse(data, 0, self._end)
            assert isinstance(frame, Frame)
            self._passed(frame)
            if self._settings.fsync == "batch":
                self.flush()
        return range(base, self._next)

    def fence(self, producer: str, generation: int, epoch: int) -> None:
        """Refuse what an older (generation, epoch) of this producer appends from now on."""
        with self._locked():
            self._fences.set(producer, generation, epoch)

    def last_of(self, producer: str) -> tuple[int, int] | None:
        """The (generation, sequence) of the last batch that this producer appended with a sequence; None where there is none."""
        with self._locked():
            self._catch_up()
            last = self._last_of(producer)
        return last if last >= (0, 0) else None

    def flush(self) -> None:
        """Force what was appended here to the disk."""
        if self._settings.fsync == "never":
            self._written.clear()
        for path in sorted(self._written):
            try:
                self._handles.force(path)
            except FileNotFoundError:
                self._handles.forget(path)
            except OSError as error:
                raise StreamSystemError(f"{self._place.name}: {path} could not be forced to the disk: {error.strerror}") from error
            self._written.discard(path)

    def roll(self) -> None:
        """Seal the active segment and begin the next one, if there is anything in it."""
        with self._locked():
            self._catch_up()
            if self._end > self._start:
                self._roll()

    @contextmanager
    def _locked(self) -> Iterator[None]:
        place = self._place
        try:
            if self._active is None:
                place.make(durable=self._settings.fsync != "never")
            with locked(self._lock):
                place.check()
                yield
        except FileNotFoundError as error:
            self._active = None
            place.check()
            raise StreamSystemError(f"{place.name}: a file of the log vanished while it was written to: {error.filename}") from error

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
        present = segments(self._place.directory)
        self._producers = None
        if not present:
            self._begin(0)
            return
        active = present[-1]
        descriptor = self._enter(active)
        cut_index(active, os.fstat(descriptor).st_size)
        self._noted = last_noted(active)
        self._scan(active, find(active, descriptor, _FOREVER), trust_last=False)

    def _enter(self, segment: Segment) -> int:
        """Make a segment the active one, without looking at what is in it."""
        descriptor = self._handles.open(segment.path, write=True)
        self._inode = os.fstat(descriptor).st_ino
        self._start = start_of(segment, descriptor)
        schema = pa.ipc.read_schema(pa.py_buffer(os.pread(descriptor, self._start, 0)))
        self._created_ms = int((schema.metadata or {}).get(b"created.ms", b"0"))
        self._active, self._end, self._next, self._noted = segment, self._start, segment.base, 0
        return descriptor

    def _scan(self, segment: Segment, position: int, *, trust_last: bool) -> None:
        """Go over the frames from ``position`` on, to the end; cut off what is not whole."""
        descriptor = self._handles.open(segment.path, write=True)
        self._end = position
        last: Frame | None = None
        for found in frames(segment, descriptor, position):
            if isinstance(found, Frame):
                self._passed(found)
                last = found
            elif isinstance(found, EndOfStream):
                self._follow(segment)
                return
            else:
                self._cut(segment, descriptor, found, save=found.garbage)
                return
        if last is not None and not trust_last:
            data = memoryview(os.pread(descriptor, last.size, last.position))
            if len(data) < last.size or not checksum_matches(data, last):
                self._next, self._end = last.base, last.position
                torn = Torn(last.position, True, "the checksum of the last batch does not match")
                self._cut(segment, descriptor, torn, save=True)

    def _follow(self, sealed: Segment) -> None:
        """Go on behind a sealed segment. Who sealed it may have died before the next one was there."""
        following = [segment for segment in segments(self._place.directory) if segment.base > sealed.base]
        if not following:
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

    def _passed(self, frame: Frame) -> None:
        """A frame is known to be in the active segment: what comes next, comes behind it."""
        assert self._active is not None
        self._next, self._end = frame.last + 1, frame.end
        self._noted = note(self._active, frame, self._noted)
        if self._producers is not None and frame.producer is not None and frame.sequence is not None:
            self._producers[frame.producer] = (frame.generation, frame.sequence)

    def _cut(self, segment: Segment, descriptor: int, torn: Torn, *, save: bool) -> None:
        """Cut off the end of the active segment from the place where it is torn.

        A batch that was not written whole by a process that died is simply gone: nobody was told that it was there. Anything else is put
        aside first. Raises CorruptDataError where whole batches follow: then it is no torn end but damage in the middle.
        """
        size = os.fstat(descriptor).st_size
        tail = os.pread(descriptor, size - torn.position, torn.position)
        if _batch_beyond(tail, self._next):
            raise CorruptDataError(
                f"{segment.path}, byte {torn.position}: {torn.reason}, but whole batches follow; "
                "nothing was changed. Restore the file from a copy, or move the partition's directory away"
            )
        zeros = not tail.strip(b"\0")
        if save and not zeros:
            aside = segment.path.with_suffix(f".{torn.position}.cut")
            create_durably(aside, tail)
            log.warning("%s: put %d bytes aside as %s: %s", self._place.name, len(tail), aside, torn.reason)
        else:
            log.warning("%s: cut %d bytes of an unfinished batch off %s", self._place.name, len(tail), segment.path)
        os.ftruncate(descriptor, torn.position)
        os.fsync(descriptor)
        cut_index(segment, torn.position)
        self._noted = last_noted(segment)
        self._end = torn.position

    def _write(self, data: memoryview) -> None:
        assert self._active is not None
        path = self._active.path
        descriptor = self._handles.open(path, write=True)
        try:
            written = os.pwrite(descriptor, data, self._end)
            if written != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        except OSError as error:
            os.ftruncate(descriptor, self._end)
            raise StreamSystemError(f"{self._place.name}: {len(data)} bytes could not be written to {path}: {error.strerror}") from error
        self._must_force(self._active)

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
        return settings.retention_ms >= 0 and time.time_ns() // 1_000_000 - self._created_ms > settings.retention_ms // 2

    def _roll(self) -> None:
        """Seal the active segment and begin the next."""
        assert self._active is not None
        producers = self._known_producers()
        if producers:
            following = segment_of(self._place.directory, self._next)
            following.state_path.unlink(missing_ok=True)
            create_durably(following.state_path, msgspec.json.encode(producers))
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
        place = self._place
        segment = segment_of(place.directory, base)
        now = time.time_ns() // 1_000_000
        create_durably(segment.path, schema_bytes(place.stream, place.partition, now), force=self._settings.fsync != "never")
        segment.index_path.unlink(missing_ok=True)
        self._enter(segment)

    def _last_of(self, producer: str) -> tuple[int, int]:
        return self._known_producers().get(producer, (-1, -1))

    def _known_producers(self) -> dict[str, tuple[int, int]]:
        """Per producer its last (generation, sequence): as it was when the active segment began, and what the segment says since."""
        if self._producers is None:
            assert self._active is not None
            self._producers = {}
            if self._active.state_path.exists():
                try:
                    self._producers = msgspec.json.decode(self._active.state_path.read_bytes(), type=dict[str, tuple[int, int]])
                except msgspec.DecodeError as error:
                    raise CorruptDataError(f"{self._active.state_path}: cannot be read ({error})") from None
            descriptor = self._handles.open(self._active.path, write=True)
            for found in frames(self._active, descriptor, self._start):
                if isinstance(found, Frame) and found.producer is not None and found.sequence is not None:
                    self._producers[found.producer] = (found.generation, found.sequence)
        return self._producers


@cache
def _counted(count: int) -> pa.Array:
    """0, 1, 2, ...: made once, since making it anew for each batch would be the dearest part of an append."""
    return pa.array(range(count), pa.int64())


def _offsets(base: int, count: int) -> pa.Array:
    if count <= FEW:
        return int64s(range(base, base + count))
    # Sizes go by powers of two, so that few different ones are kept.
    return pc.add(_counted(1 << max(10, (count - 1).bit_length())).slice(0, count), base)


def _batch_beyond(tail: bytes, least: int) -> bool:
    """Whether a whole batch with offsets from ``least`` on begins somewhere behind the first byte."""
    view = memoryview(tail)
    at = tail.find(b"\xff\xff\xff\xff", 1)
    while at >= 0:
        found = parse(view, at, at) if at % 8 == 0 else None
        if isinstance(found, Frame) and found.base >= least and found.end <= len(tail) and checksum_matches(view[at:], found):
            return True
        at = tail.find(b"\xff\xff\xff\xff", at + 1)
    return False
