"""Step 5: a partition of a log: append to it, read it, fence it, ask where it begins and ends."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from streambench.errors import CorruptDataError, OffsetError, StreambenchError
from streambench.model import PartitionMetadata
from streambench.system.log import repair
from streambench.system.log.appender import Appender
from streambench.system.log.cleaner import Cleaner
from streambench.system.log.columns import Bytes, as_columns
from streambench.system.log.cursor import Cursor
from streambench.system.log.data_loss import SkippingCursor, readable_end
from streambench.system.log.frame import EndOfStream, Frame, walk
from streambench.system.log.handles import Handles, unusable
from streambench.system.log.header import read_header
from streambench.system.log.location import PartitionLocation, ends_early
from streambench.system.log.notes import START, read_note, recovery_point
from streambench.system.log.repair import Loss
from streambench.system.log.segment import Segment, find, frames, segment_of, segments, start_of
from streambench.system.log.settings import Settings
from streambench.system.log.snapshots import Changelog, LogSnapshots, fingerprint

log = logging.getLogger(__name__)


class Partition:
    """One partition of a stream of a log. Not to be shared among threads; several processes may have it
    open."""

    def __init__(self, location: PartitionLocation, handles: Handles, settings: Settings) -> None:
        self._location = location
        self._handles = handles
        self._fails_on_loss = settings.fail_on_data_loss
        self._forces = settings.fsync != "never"
        self._cleaner = Cleaner(location, handles, settings)
        self._appender = Appender(location, handles, settings)
        self._end: tuple[Any, int, int] | None = None
        self._sealed = False
        self._torn = False
        self._readable: tuple[tuple[int, int, int, int], int] | None = None
        self._checked_oldest = -1

    @property
    def name(self) -> str:
        """As ``system.stream.partition``."""
        return self._location.name

    @property
    def stream(self) -> str:
        """The stream's name in its system."""
        return self._location.stream

    def append(
        self,
        keys: Bytes | None,
        values: Bytes,
        timestamps: Sequence[int | None] | pa.Array | None = None,
        headers: Sequence[Mapping[str, bytes] | None] | None = None,
        *,
        producer: str | None = None,
        generation: int = 0,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> range | None:
        """Append messages as one batch, all of them or (in an error, in a crash) none; returns the offsets
        that they got.

        It is seen by readers at once, and durable after ``flush``. Timestamps (ms; an Arrow array may hold
        times instead) that are None become the present time.

        ``producer`` with its ``generation`` and ``epoch``: FencedError where the partition is fenced against
        it. With a ``sequence`` the append happens once. Where the producer has already appended this
        (generation, sequence), or a later one, nothing is written and None is returned. So a record of a
        journal can be applied again and again.
        """
        columns, newest = as_columns(keys, values, timestamps, headers)
        if not columns.num_rows:
            return range(0)
        return self.append_columns(
            columns, newest, producer=producer, generation=generation, epoch=epoch, sequence=sequence
        )

    def append_columns(
        self,
        columns: pa.RecordBatch,
        newest: int,
        *,
        producer: str | None = None,
        generation: int = 0,
        epoch: int = 0,
        sequence: int | None = None,
    ) -> range | None:
        """As ``append``, with what ``as_columns`` returned."""
        offsets = self._appender.append(columns, newest, producer, generation, epoch, sequence)
        if self._appender.rolled:
            self._appender.rolled = False
            try:
                self._cleaner.clean(time.time_ns() // 1_000_000, only_if_worthwhile=True)
            except (StreambenchError, OSError) as error:
                # The messages are there all the same: an error would say the opposite.
                log.error("%s: could not be cleaned: %s", self.name, error)
        return offsets

    def flush(self) -> None:
        """Return when what was appended here is durable (unless ``fsync=never``)."""
        self._appender.flush()

    def fence(self, producer: str, generation: int, epoch: int) -> None:
        """From now on refuse appends of this producer with a lower (generation, epoch). Raises FencedError
        where this one is lower."""
        self._appender.fence(producer, generation, epoch)

    def last_of(self, producer: str) -> tuple[int, int] | None:
        """The last (generation, sequence) with which this producer appended here; None where it never did."""
        return self._appender.last_of(producer)

    def appends_of(self, producer: str, generation: int) -> list[int] | None:
        """The messages of each append that a producer made with a sequence in its last generation, in order.

        None where they are not all there any more."""
        last, sequence = self.last_of(producer) or (-1, -1)
        if last != generation:
            return [] if last < generation else None
        found: dict[int, int] = {}
        for segment in reversed(segments(self._location.directory)):
            descriptor = self._handles.open(segment.path)
            for frame in frames(segment, descriptor, start_of(segment, descriptor)):
                if (
                    isinstance(frame, Frame)
                    and (frame.producer, frame.generation) == (producer, generation)
                    and frame.sequence is not None
                ):
                    found[frame.sequence] = frame.last + 1 - frame.base
            if 0 in found:
                break
        is_whole = found.keys() == set(range(sequence + 1))
        return [found[number] for number in sorted(found)] if is_whole else None

    def roll(self) -> None:
        """Seal the segment that is appended to, so that retention and compaction may touch it."""
        self._appender.roll()
        self._appender.rolled = False

    def clean(self, now_ms: int | None = None) -> None:
        """Delete what retention says, or compact. Happens by itself when a segment is sealed (compaction:
        when it is worthwhile)."""
        with self._located():
            self._cleaner.clean(time.time_ns() // 1_000_000 if now_ms is None else now_ms)

    def keep_from(self, offset: int) -> None:
        """From this offset on compaction leaves everything as it is, until this is called with a later
        one."""
        with self._located():
            self._cleaner.keep_from(offset)

    def compacted_to(self) -> int | None:
        """The first offset that compaction has not looked at; None where there was none yet."""
        with self._located():
            return self._cleaner.compacted_to()

    def snapshots(self, identity: str) -> LogSnapshots:
        """The snapshots of the state that this partition, as a changelog, leads to. ``identity``: that of
        its stream."""
        changelog = Changelog(
            self._location, identity, self._fingerprint_before, self._cleaner.compacted_past
        )
        return LogSnapshots(changelog, force=self._forces)

    def _fingerprint_before(self, offset: int) -> str | None:
        """A fingerprint of the message before an offset; None where that is not there, nor the first one."""
        oldest, upcoming = self.bounds()
        if oldest or not 0 < offset <= upcoming:
            return None
        batches = self.read(offset - 1, 1)
        if not batches or batches[0].column(0)[0].as_py() != offset - 1:
            return None
        return fingerprint(batches[0].slice(0, 1))

    def damage(self) -> list[Loss]:
        """The damage, in the order of its offsets; nothing is changed. Appends wait
        meanwhile."""
        if not self._location.directory.is_dir():
            return []
        with self._located(), self._cleaner.paused(), self._appender.exclusive():
            return repair.survey(self._location)

    def repair(self) -> list[Loss]:
        """Give up what cannot be read any more: move it aside, and have the rest read and appended to again.
        What was lost."""
        if not self._location.directory.is_dir():
            return []
        with self._located(), self._cleaner.paused(), self._appender.exclusive() as check:
            return repair.repair(self._location, check)

    @contextmanager
    def _located(self) -> Iterator[None]:
        """Turn errors of the operating system into a StreamSystemError that names the file."""
        try:
            yield
        except OSError as error:
            raise unusable(self.name, self._location.directory, error) from error

    def read(self, offset: int, at_most: int = 1 << 62) -> list[pa.RecordBatch]:
        """The messages from ``offset`` on that are there now, as batches with the columns offset, timestamp,
        key, value, headers.

        Raises OffsetError where the offset lies outside the partition."""
        cursor = self.cursor(offset)
        batches: list[pa.RecordBatch] = []
        # A cursor stops before damage, and raises or goes on behind it at the next call.
        while at_most > 0:
            more = cursor.read(at_most)
            batches += more
            at_most -= sum(batch.num_rows for batch in more)
            if cursor.at_head or not more:
                break
        return batches

    def fail_on_data_loss(self) -> None:
        """From now on a gap or damage is an error for readers, whatever the configuration says."""
        self._fails_on_loss = True

    def cursor(self, offset: int) -> Cursor:
        """A reader that goes on from ``offset``. Raises OffsetError where it lies outside the partition."""
        oldest, upcoming = self.bounds()
        if not oldest <= offset <= upcoming:
            raise OffsetError(
                f"{self.name}: there is no offset {offset}; the oldest is {oldest} and the next message "
                f"will get {upcoming}"
            )
        kind = Cursor if self._fails_on_loss else SkippingCursor
        return kind(self._location, self._handles, offset)

    def bounds(self) -> tuple[int, int]:
        """The oldest and the upcoming offset, as of now; equal where it is empty.

        Raises CorruptDataError where the first or the last messages are known to be missing, unless
        ``fail.on.data.loss=false``."""
        with self._located():
            return self._bounds() if self._fails_on_loss else self._bounds_with_losses()[::2]

    def _bounds_with_losses(self) -> tuple[int, int, int]:
        """The oldest offset, the one behind the last message that can be read, and the upcoming one.

        The last two differ where committed messages at the end are lost: positions behind them stay valid."""
        directory = self._location.directory
        while True:
            try:
                committed = recovery_point(directory).upcoming
                present = segments(directory)
                if not present:
                    if committed and self._checked_oldest != committed:
                        self._warn(ends_early(self._location, segment_of(directory, 0).path, 0, committed))
                        self._checked_oldest = committed
                    return committed, committed, committed
                stamp = _stamp_of(present[-1])
                if self._readable is None or self._readable[0] != stamp:
                    self._readable = stamp, self._look_for_readable_end(present[-1], committed)
                self._warn_of_missing_start(present[0])
                end = self._readable[1]
                return present[0].base, end, max(end, committed)
            except FileNotFoundError:
                self._end = None  # deleted or replaced between the two looks

    def _look_for_readable_end(self, last: Segment, committed: int) -> int:
        self._torn = False
        try:
            end = None
            while end is None:
                end = self._look_for_end(last)
        except CorruptDataError:
            return readable_end(self._location, last)
        if end < committed:
            self._warn(ends_early(self._location, last.path, end, committed))
        return readable_end(self._location, last) if self._torn or end < committed else end

    @staticmethod
    def _warn(error: CorruptDataError) -> None:
        log.warning("%s; readers go on behind it (fail.on.data.loss=false)", error)

    def _warn_of_missing_start(self, first: Segment) -> None:
        if first.base in (0, self._checked_oldest):
            return
        try:
            self._check_oldest(first)
        except CorruptDataError as error:
            self._warn(error)
        self._checked_oldest = first.base

    def _bounds(self) -> tuple[int, int]:
        directory = self._location.directory
        while True:
            try:
                present = segments(directory)
                if not present or self._end is None or self._end[0] != _stamp_of(present[-1]):
                    # Read first: what is forced to the disk meanwhile is no loss.
                    committed = recovery_point(directory).upcoming
                    present = segments(directory)
                    end = self._look_for_end(present[-1]) if present else 0
                    if end is None:
                        continue
                    if end < committed:
                        first_lost = (
                            segment_of(directory, end) if self._sealed or not present else present[-1]
                        )
                        raise ends_early(self._location, first_lost.path, end, committed)
                    if not present:
                        return 0, 0
                assert self._end is not None
                if present[0].base != self._checked_oldest:
                    if present[0].base:
                        self._check_oldest(present[0])
                    self._checked_oldest = present[0].base
                return present[0].base, self._end[1]
            except FileNotFoundError:
                continue  # deleted or replaced between the two looks

    def _look_for_end(self, last: Segment) -> int | None:
        """The upcoming offset, from the last segment; None where that was replaced meanwhile."""
        known, stamp = self._end, _stamp_of(last)
        _, inode, size, _ = stamp
        descriptor = self._handles.open(last.path)
        if os.fstat(descriptor).st_ino != inode:
            self._handles.forget(last.path)
            return None
        header = read_header(last.path, descriptor)
        if known is not None and known[0][:2] == stamp[:2] and known[2] <= size:
            upcoming, position = known[1], known[2]
        else:
            upcoming, position = last.base, find(last, descriptor, 1 << 62)
        self._sealed = False
        for found in walk(descriptor, max(position, header.size), size):
            if isinstance(found, Frame):
                upcoming, position = found.last + 1, found.end
            elif isinstance(found, EndOfStream):
                self._sealed, upcoming = True, max(upcoming, header.end or 0)
            else:
                self._torn = found.garbage
        self._end = stamp, upcoming, position
        return upcoming

    def _check_oldest(self, first: Segment) -> None:
        """Raises CorruptDataError where segments are missing before the first that is there, which retention
        has not removed."""
        path = self._location.directory / START
        start = read_note(path, int, self._location.remedy)
        if start is None and not read_header(first.path, self._handles.open(first.path)).is_strict:
            return  # of a version that did not note it
        if first.base > (start or 0):
            missing, why = (
                segment_of(self._location.directory, start or 0).path,
                str(path) if start else "retention has removed nothing",
            )
            raise CorruptDataError(
                f"{missing} is missing: {self.name} begins at offset {start or 0} ({why}), but its first "
                "segment is "
                f"{first.path}; the messages {start or 0} to {first.base - 1} are lost; "
                f"{self._location.remedy}"
            )

    def metadata(self) -> PartitionMetadata:
        """As ``bounds``, in the words of the plug-in contract."""
        if self._fails_on_loss:
            oldest, upcoming = self.bounds()
            end = upcoming
        else:
            with self._located():
                oldest, end, upcoming = self._bounds_with_losses()
        if oldest == end:
            return PartitionMetadata(None, None, str(upcoming))
        return PartitionMetadata(str(oldest), str(end - 1), str(upcoming))

    def size(self) -> int:
        """The bytes of all segments that are there."""
        total = 0
        for segment in segments(self._location.directory):
            with contextlib.suppress(FileNotFoundError):  # retention removes old ones meanwhile
                total += segment.path.stat().st_size
        return total


def _stamp_of(segment: Segment) -> tuple[int, int, int, int]:
    """By this a change of a segment is noticed: its base, and the inode, size and time of change of its
    file."""
    stat = os.stat(segment.path)
    return segment.base, stat.st_ino, stat.st_size, stat.st_mtime_ns
