"""The cursor: the read side of one partition, for one reader.

It never changes anything. A batch that is not all there yet does not exist for it; looking at a partition where nothing has happened
costs one ``stat``.
"""

from __future__ import annotations

import bisect
import os

import pyarrow as pa

from streambench.errors import CorruptDataError, OffsetError
from streambench.system.log.appender import Place
from streambench.system.log.frame import EndOfStream, Frame, Torn, checksum_matches, decode, parse
from streambench.system.log.handles import Handles
from streambench.system.log.segment import Segment, find, segments, start_of

_BLOCK = 1 << 16
_AHEAD = 1 << 10


class Cursor:
    """Reads a partition on from ``offset``, which is the next one to be returned."""

    def __init__(self, place: Place, handles: Handles, offset: int) -> None:
        self._place = place
        self._handles = handles
        self.offset = offset
        self.at_head = False
        self._segment: Segment | None = None
        self._inode = 0
        self._position = 0
        self._size = 0
        self._stamp: tuple[int, int] | None = None
        self._dry = False
        self._sealed = False
        self._reached = 0
        self._block: memoryview = memoryview(b"")
        self._block_at = 0
        self._rest: pa.RecordBatch | None = None

    def read(self, at_most: int) -> list[pa.RecordBatch]:
        """The next messages, at most so many, as batches with the columns of SCHEMA; nothing where there are none yet.

        Raises OffsetError where retention has removed what should come next, CorruptDataError where a batch is damaged.
        """
        batches = []
        while at_most > 0:
            rest = self._rest if self._rest is not None else self._next_batch()
            if rest is None:
                break
            if rest.num_rows > at_most:
                self._rest = rest.slice(at_most)
                rest = rest.slice(0, at_most)
                self.offset = self._rest.column(0)[0].as_py()
            else:
                self._rest = None
                self.offset = rest.column(0)[rest.num_rows - 1].as_py() + 1
            at_most -= rest.num_rows
            batches.append(rest)
        if self._rest is not None:
            self.at_head = False
        elif not self._dry and self._segment is not None and self._position >= self._size:
            self._dry = True
            self.at_head = not self._changed()
        else:
            self.at_head = self._dry or self._segment is None
        return batches

    def _next_batch(self) -> pa.RecordBatch | None:
        """The next batch, from ``offset`` on; None at the end of what is there."""
        while True:
            if self._segment is None:
                if not self._locate():
                    return None
            elif self._dry and not self._changed():
                return None
            found = self._next_frame()
            if isinstance(found, Frame):
                batch = self._batch(found)
                if batch is not None:
                    return batch
            elif isinstance(found, EndOfStream):
                if not self._next_segment():
                    self._dry = self._sealed = True
                    return None
            elif isinstance(found, Torn):
                self._incomplete(found)

    def _locate(self) -> bool:
        """Find the segment and the place in it where ``offset`` is; False where nothing was ever appended."""
        while True:
            present = segments(self._place.directory)
            if not present:
                self._place.check()
                self._check_reached(0)
                return False
            at = bisect.bisect_right([segment.base for segment in present], self.offset) - 1
            if at < 0:
                raise self._removed(present[0].base)
            try:
                self._go_to(present[at])
            except FileNotFoundError:
                continue  # retention was faster; the next look tells
            return True

    def _go_to(self, segment: Segment) -> None:
        inode = os.stat(segment.path).st_ino
        descriptor = self._handles.open(segment.path)
        if os.fstat(descriptor).st_ino != inode:
            self._handles.close(segment.path)
            descriptor = self._handles.open(segment.path)
        stat = os.fstat(descriptor)
        self._inode, self._size, self._stamp = stat.st_ino, stat.st_size, (stat.st_size, stat.st_mtime_ns)
        self._position = find(segment, descriptor, self.offset) if self.offset > segment.base else start_of(segment, descriptor)
        self._segment, self._reached = segment, segment.base
        self._dry = self._sealed = False
        self._block = memoryview(b"")

    def _next_segment(self) -> bool:
        """Go on behind a sealed segment; False where the next one is not there yet."""
        assert self._segment is not None
        present = segments(self._place.directory)
        if present and present[0].base > self.offset:
            raise self._removed(present[0].base)
        following = next((segment for segment in present if segment.base > self._segment.base), None)
        if following is None:
            return False
        try:
            self._go_to(following)
        except FileNotFoundError:
            self._segment = None
            return self._locate()
        return True

    def _changed(self) -> bool:
        """Whether there is something new since everything was read."""
        assert self._segment is not None
        if self._sealed:
            return self._next_segment()
        try:
            stat = os.stat(self._segment.path)
        except FileNotFoundError:
            self._segment, self._dry = None, False
            return self._locate()
        if stat.st_ino != self._inode:
            self._handles.close(self._segment.path)
            self._segment, self._dry = None, False
            return self._locate()
        stamp = (stat.st_size, stat.st_mtime_ns)
        if stamp == self._stamp:
            return False
        self._size, self._stamp, self._dry = stat.st_size, stamp, False
        self._block = memoryview(b"")
        return True

    def _next_frame(self) -> Frame | EndOfStream | Torn | None:
        """What lies at the position; None where it was all read, or the place had to be looked for anew."""
        if self._position >= self._size:
            self._check_reached(self._reached)
            self._dry = True
            self._block = memoryview(b"")
            return None
        at = self._position - self._block_at
        found = parse(self._block, at, self._position) if 0 <= at < len(self._block) else 8
        if isinstance(found, int):
            if self._position + found > self._size:
                return Torn(self._position, False, "the file ends within the batch's metadata")
            if not self._read_block(max(_BLOCK, found)):
                return None
            found = parse(self._block, 0, self._position)
            if isinstance(found, int):
                if not self._read_block(max(_BLOCK, found)):
                    return None
                found = parse(self._block, 0, self._position)
        if isinstance(found, int) or (isinstance(found, Frame) and found.end > self._size):
            return Torn(self._position, False, "the file ends within the batch")
        return found

    def _read_block(self, size: int) -> bool:
        """Read from the position on; False where the file under that name is another one by now."""
        assert self._segment is not None
        try:
            descriptor = self._handles.open(self._segment.path)
        except FileNotFoundError:
            self._segment = None
            return False
        if os.fstat(descriptor).st_ino != self._inode:
            self._handles.close(self._segment.path)
            self._segment = None
            return False
        self._block = memoryview(os.pread(descriptor, size, self._position))
        self._block_at = self._position
        return True

    def _batch(self, frame: Frame) -> pa.RecordBatch | None:
        """Read a frame, and decode what of it is wanted; None where nothing is."""
        if frame.last < self.offset:
            self._position, self._reached = frame.end, frame.last + 1
            return None
        at = self._position - self._block_at
        if at + frame.size > len(self._block) and not self._read_block(frame.size + _AHEAD):
            return None
        data = self._block[self._position - self._block_at :]
        if len(data) < frame.size or not checksum_matches(data, frame):
            # A writer that cut a torn end and wrote anew may have been faster than this reader: look once more before saying so.
            if not self._read_block(frame.size):
                return None
            data = self._block
            if len(data) < frame.size or not checksum_matches(data, frame):
                raise self._corrupt(frame.position, "the checksum of the batch does not match")
        batch = decode(data, frame)
        self._position, self._reached = frame.end, frame.last + 1
        if frame.base < self.offset:
            batch = batch.slice(bisect.bisect_left(batch.column(0).to_pylist(), self.offset))
        return batch if batch.num_rows else None

    def _incomplete(self, torn: Torn) -> None:
        """Stop before what is not whole, if it is the end of the log; else it is damage."""
        assert self._segment is not None
        present = segments(self._place.directory)
        if torn.garbage or (present and present[-1].base > self._segment.base):
            if self._has_grown():
                return
            if torn.garbage and not self._zeros(torn.position):
                raise self._corrupt(torn.position, torn.reason)
            if present and present[-1].base > self._segment.base:
                raise self._corrupt(torn.position, torn.reason)
        self._block = memoryview(b"")
        self._dry = True

    def _has_grown(self) -> bool:
        """Whether the file is another than when it was last looked at: a writer may have finished its batch, and gone on to the next
        segment, since."""
        assert self._segment is not None
        try:
            stat = os.stat(self._segment.path)
        except FileNotFoundError:
            self._segment = None
            return True
        stamp = (stat.st_size, stat.st_mtime_ns)
        if stat.st_ino == self._inode and stat.st_size == self._size and stamp == self._stamp:
            return False
        self._size, self._stamp = stat.st_size, stamp
        self._block = memoryview(b"")
        if stat.st_ino != self._inode:
            self._handles.close(self._segment.path)
            self._segment = None
        return True

    def _check_reached(self, upcoming: int) -> None:
        """At the end: what is waited for must be what comes next, or the partition is not the one that it was."""
        if self.offset > upcoming:
            raise OffsetError(f"{self._place.name}: offset {self.offset} lies beyond the end; the next message will get {upcoming}")

    def _zeros(self, position: int) -> bool:
        """Whether the file has nothing but zeros from there on: what a power failure leaves of a batch that was not forced."""
        assert self._segment is not None
        return not os.pread(self._handles.open(self._segment.path), self._size - position, position).strip(b"\0")

    def _corrupt(self, position: int, reason: str) -> CorruptDataError:
        path = self._segment.path if self._segment else self._place.directory
        return CorruptDataError(
            f"{path}, byte {position}: {reason} ({self._place.name}, wanted from offset {self.offset} on). "
            "Restore the file from a copy, or begin behind the damage with another start offset"
        )

    def _removed(self, oldest: int) -> OffsetError:
        gone = f"{self._place.name}: offset {self.offset} is not there any more"
        return OffsetError(f"{gone}; the oldest is {oldest} (retention removed the rest)")
