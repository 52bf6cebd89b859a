"""Input: the cursor, the read side of one partition, for one reader.

It never changes anything. A batch that is not all there yet does not exist for it; looking at a partition
where nothing has happened costs one ``stat``.
"""

from __future__ import annotations

import bisect
import logging
import os

import pyarrow as pa

from streambench.errors import CorruptDataError, OffsetError, described
from streambench.system.log.frame import (
    EndOfStream,
    Frame,
    Torn,
    checksum_matches,
    decode,
    metadata_matches,
    parse,
)
from streambench.system.log.handles import Handles, unusable
from streambench.system.log.header import read_header
from streambench.system.log.location import PartitionLocation, ends_early
from streambench.system.log.notes import recovery_point, was_compacted
from streambench.system.log.segment import Segment, find, segment_of, segments

_BLOCK = 1 << 16
_AHEAD = 1 << 10
_UNKNOWN = -1
_WRONG_METADATA = "the checksum of the batch's metadata does not match"

log = logging.getLogger(__name__)


class Cursor:
    """Reads a partition on from ``offset``, which is the next one to be returned."""

    def __init__(self, location: PartitionLocation, handles: Handles, offset: int) -> None:
        self._location = location
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
        self._is_last = True
        self._sparse = False
        self._until: int | None = None
        self._lost = ""
        self._reached = 0
        self._block: memoryview = memoryview(b"")
        self._block_at = 0
        self._rest: pa.RecordBatch | None = None

    def read(self, at_most: int) -> list[pa.RecordBatch]:
        """The next messages, at most so many, as batches with the columns of SCHEMA; nothing where there are
        none yet.

        Raises OffsetError where retention has removed what should come next, CorruptDataError where a batch
        is damaged or missing.
        """
        batches: list[pa.RecordBatch] = []
        try:
            while at_most > 0 and (batch := self._next_part(at_most)) is not None:
                at_most -= batch.num_rows
                batches.append(batch)
            self.at_head = self._is_at_head()
        except CorruptDataError:
            if not batches:
                raise
            # What lies before the damage is read all the same; the next call raises.
            self.at_head = False
        except OSError as error:
            raise unusable(
                self._location.name, self._segment.path if self._segment else self._location.directory, error
            ) from error
        return batches

    def _next_part(self, at_most: int) -> pa.RecordBatch | None:
        """The next batch, or so many messages of it; None where there is none yet."""
        batch = self._rest if self._rest is not None else self._next_batch()
        if batch is None:
            return None
        if batch.num_rows > at_most:
            self._rest = batch.slice(at_most)
            self.offset = self._rest.column(0)[0].as_py()
            return batch.slice(0, at_most)
        self._rest = None
        self.offset = batch.column(0)[batch.num_rows - 1].as_py() + 1
        return batch

    def _is_at_head(self) -> bool:
        """True where everything that is there now was read."""
        if self._rest is not None:
            return False
        if self._segment is None or self._dry:
            return True
        if self._position < self._size:
            return False
        self._dry = True
        return not self._changed()

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
                batch = self._read_frame(found)
                if batch is not None:
                    return batch
            elif isinstance(found, EndOfStream):
                if not self._next_segment():
                    self._dry = self._sealed = True
                    return None
            elif isinstance(found, Torn):
                self._incomplete(found)

    def _locate(self) -> bool:
        """Find the segment of ``offset`` and the position in it; False where nothing was ever appended."""
        while True:
            present = segments(self._location.directory)
            if not present:
                self._location.check()
                self._check_reached(0)
                return False
            at = bisect.bisect_right([segment.base for segment in present], self.offset) - 1
            if at < 0:
                raise self._removed(present[0].base)
            try:
                self._go_to(present[at], is_last=at == len(present) - 1)
            except FileNotFoundError:
                continue  # retention was faster; look again
            return True

    def _go_to(self, segment: Segment, *, is_last: bool) -> None:
        inode = os.stat(segment.path).st_ino
        descriptor = self._handles.open(segment.path)
        if os.fstat(descriptor).st_ino != inode:
            self._handles.close(segment.path)
            descriptor = self._handles.open(segment.path)
        header = read_header(segment.path, descriptor)
        stat = os.fstat(descriptor)
        self._inode, self._size, self._stamp = stat.st_ino, stat.st_size, (stat.st_size, stat.st_mtime_ns)
        self._position = find(segment, descriptor, self.offset) if self.offset > segment.base else header.size
        self._segment, self._reached = segment, segment.base if self._position == header.size else _UNKNOWN
        self._dry = self._sealed = False
        self._is_last, self._until, self._lost = is_last, header.end, header.lost
        self._sparse = header.end is not None or (
            not header.is_strict and was_compacted(self._location.directory, segment.base)
        )
        self._block = memoryview(b"")

    def _next_segment(self, *, again: bool = False) -> bool:
        """Go on behind a segment that ends here; False where the next one is not there yet.

        Raises CorruptDataError where that does not begin where this one ends."""
        segment = self._segment
        assert segment is not None
        present = segments(self._location.directory)
        if present and present[0].base > self.offset:
            raise self._removed(present[0].base)
        end = self._until if self._until is not None else self._reached
        # What a compaction was about to remove when its process died stands before the end.
        following = next(
            (
                each
                for each in present
                if each.base > segment.base and (self._until is None or each.base >= end)
            ),
            None,
        )
        committed = recovery_point(self._location.directory).upcoming if following is None else 0
        if following is None:
            if committed <= max(end, segment.base):
                return False
        elif following.base == end or (self._sparse and self._until is None) or end == _UNKNOWN:
            return self._enter(following, present)
        # It may have been compacted, or the next one been made, since this one was looked at.
        if not again:
            if self._was_replaced():
                return self._locate()
            return self._next_segment(again=True)
        if following is None:
            raise ends_early(self._location, segment_of(self._location.directory, end).path, end, committed)
        raise self._gap(segment, end, following)

    def _enter(self, following: Segment, present: list[Segment]) -> bool:
        if self._lost:
            log.warning(
                "%s: the offsets %s were given up when it was repaired, and are not read",
                self._location.name,
                self._lost,
            )
        try:
            self._go_to(following, is_last=following == present[-1])
        except FileNotFoundError:
            self._segment = None
            return self._locate()
        return True

    def _was_replaced(self) -> bool:
        """Forget the segment where another file is under its name by now."""
        assert self._segment is not None
        try:
            if os.stat(self._segment.path).st_ino == self._inode:
                return False
        except FileNotFoundError:
            pass
        self._handles.close(self._segment.path)
        self._segment, self._dry = None, False
        return True

    def _gap(self, segment: Segment, end: int, following: Segment) -> CorruptDataError:
        name, first = self._location.name, max(end, segment.base)
        return CorruptDataError(
            f"{segment.path}, byte {self._position}: it ends before offset {first}, but the next segment, "
            f"{following.path}, begins at "
            f"offset {following.base}: the messages {first} to {following.base - 1} of {name} are missing; "
            f"{self._location.remedy}"
        )

    def _changed(self) -> bool:
        """Return True where something is new since everything was read."""
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
            return False if self._is_last else self._beyond_the_cut()
        if stat.st_size < self._position:
            raise self._corrupt(
                stat.st_size, f"the file has become shorter than what was read of it ({self._position} bytes)"
            )
        self._size, self._stamp, self._dry = stat.st_size, stamp, False
        self._block = memoryview(b"")
        return True

    def _beyond_the_cut(self) -> bool:
        """Continue behind a segment without an end mark, if others follow it and nothing is missing."""
        assert self._segment is not None
        if self._sparse:
            raise self._corrupt(self._position, "the end of the segment is missing, though others follow it")
        return self._next_segment()

    def _next_frame(self) -> Frame | EndOfStream | Torn | None:
        """The frame at the position; None where it was all read, or the position has to be found again."""
        if self._position >= self._size:
            self._end_of_file()
            return None
        found = self._parsed()
        if found is None or isinstance(found, EndOfStream | Torn):
            return found
        if isinstance(found, int) or found.end > self._size:
            return self._torn(found)
        return found

    def _parsed(self) -> Frame | EndOfStream | Torn | int | None:
        """Parse what is at the position; an int says how many bytes must be there to know. A block is read
        where the present one ends. None: the place has to be found again."""
        missing = 8
        at = self._position - self._block_at
        if 0 <= at < len(self._block):
            found = parse(self._block, at, self._position, verify=False)
            if not isinstance(found, int):
                return found
            missing = found
        if self._position + missing > self._size:
            return missing
        for _ in range(2):  # the first block may hold no more than the size of the metadata
            if not self._read_block(max(_BLOCK, missing)):
                return None
            found = parse(self._block, 0, self._position, verify=False)
            if not isinstance(found, int):
                return found
            missing = found
        return missing

    def _end_of_file(self) -> None:
        """Continue with the next segment where others follow this one; else there is nothing to read."""
        # A segment that others follow is sealed, or should be.
        if not self._is_last and (self._has_grown() or self._beyond_the_cut()):
            return
        self._check_reached(self._reached)
        self._dry = True
        self._block = memoryview(b"")

    def _torn(self, found: Frame | int) -> Torn:
        """The batch at the position, of which the file does not hold everything."""
        if isinstance(found, int):
            return Torn(self._position, False, "the file ends within the batch's metadata")
        if not metadata_matches(self._block, self._position - self._block_at, found):
            return Torn(self._position, True, _WRONG_METADATA)
        return Torn(self._position, False, "the file ends within the batch")

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

    def _read_frame(self, frame: Frame) -> pa.RecordBatch | None:
        """Read a frame, and decode what of it is wanted; None where nothing is."""
        self._check_sequence(frame)
        if frame.last < self.offset:
            self._pass_over(frame)
            return None
        data = self._checked_bytes(frame)
        if data is None:
            return None
        batch = self._decode_frame(data, frame)
        self._position, self._reached = frame.end, frame.last + 1
        return batch if batch.num_rows else None

    def _decode_frame(self, data: memoryview, frame: Frame) -> pa.RecordBatch:
        """The messages of a frame from ``offset`` on. Raises CorruptDataError."""
        try:
            batch = decode(data, frame)
        except (pa.ArrowException, OSError, ValueError) as error:
            raise self._corrupt(frame.position, f"the batch cannot be decoded ({described(error)})") from None
        if frame.base < self.offset:
            batch = batch.slice(bisect.bisect_left(batch.column(0).to_pylist(), self.offset))
        return batch

    def _pass_over(self, frame: Frame) -> None:
        """Go on behind a frame of which no message is wanted."""
        if not metadata_matches(self._block, self._position - self._block_at, frame):
            raise self._corrupt(frame.position, _WRONG_METADATA)
        self._position, self._reached = frame.end, frame.last + 1

    def _check_sequence(self, frame: Frame) -> None:
        """Raise CorruptDataError where messages are missing before a frame."""
        if frame.base == self._reached or self._reached == _UNKNOWN:
            return
        if not (self._sparse and frame.base > self._reached):
            raise self._corrupt(
                frame.position,
                f"its first message has the offset {frame.base} instead of {self._reached}",
            )

    def _checked_bytes(self, frame: Frame) -> memoryview | None:
        """The bytes of a frame, whose checksum is right; None where the place has to be found again. Raises
        CorruptDataError."""
        at = self._position - self._block_at
        if at + frame.size > len(self._block) and not self._read_block(frame.size + _AHEAD):
            return None
        data = self._block[self._position - self._block_at :]
        if len(data) >= frame.size and checksum_matches(data, frame):
            return data
        # A writer that cut a torn end and wrote again may have been faster than this reader: look once more
        # before saying so.
        if not self._read_block(frame.size):
            return None
        data = self._block
        if len(data) < frame.size or not checksum_matches(data, frame):
            raise self._corrupt(frame.position, "the checksum of the batch does not match")
        return data

    def _incomplete(self, torn: Torn) -> None:
        """Stop before what is not whole, if it is the end of the log; else it is damage."""
        assert self._segment is not None
        present = segments(self._location.directory)
        if torn.garbage or (present and present[-1].base > self._segment.base):
            if self._has_grown():
                return
            following = next((each for each in present if each.base > self._segment.base), None)
            if following is not None and following.base == self._reached and not self._sparse:
                # Only the end mark is damaged: nothing is missing.
                self._enter(following, present)
                return
            if following is not None or (torn.garbage and not self._zeros(torn.position)):
                raise self._corrupt(torn.position, torn.reason)
        committed = recovery_point(self._location.directory).upcoming
        if committed > self._reached != _UNKNOWN:
            if self._has_grown():
                return  # and is known as it is now: nothing else would have it looked at again
            raise self._corrupt(
                torn.position, f"{torn.reason}, and what is there up to offset {committed - 1} was committed"
            )
        self._block = memoryview(b"")
        self._dry = True

    def _has_grown(self) -> bool:
        """Return True where the file has changed since the last look. A writer may have finished its batch
        since, and gone on to the next segment."""
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
        """At the end: what is waited for must be what comes next, or the partition is not the one that it
        was."""
        if self.offset > upcoming != _UNKNOWN:
            raise OffsetError(
                f"{self._location.name}: offset {self.offset} lies beyond the end; the next message will get "
                f"{upcoming}"
            )

    def _zeros(self, position: int) -> bool:
        """Return True where the file has nothing but zeros from there on: what a power failure leaves of a
        batch that was not forced."""
        assert self._segment is not None
        return not os.pread(self._handles.open(self._segment.path), self._size - position, position).strip(
            b"\0"
        )

    def _corrupt(self, position: int, reason: str) -> CorruptDataError:
        path = self._segment.path if self._segment else self._location.directory
        remedy = self._location.remedy
        return CorruptDataError(
            f"{path}, byte {position}: {reason} ({self._location.name}, wanted from offset {self.offset} "
            f"on). {remedy[0].upper()}{remedy[1:]}"
        )

    def _removed(self, oldest: int) -> OffsetError:
        gone = f"{self._location.name}: offset {self.offset} is not there any more"
        return OffsetError(f"{gone}; the oldest is {oldest} (retention removed the rest)")
