"""Reading on behind lost data, for systems with ``fail.on.data.loss=false``.

Where a plain cursor raises CorruptDataError, this one logs a warning with the file, the offsets and their
count. Then it continues with the next message that is intact. At the end of a partition it waits behind the
damage for what follows a repair. Writers never go on behind damage: that takes ``streambench streams
repair``.
"""

from __future__ import annotations

import bisect
import logging
import os
from collections import deque

import pyarrow as pa

from streambench.errors import CorruptDataError
from streambench.system.log.cursor import Cursor
from streambench.system.log.frame import Frame
from streambench.system.log.handles import Handles, unusable
from streambench.system.log.location import PartitionLocation, ends_early
from streambench.system.log.notes import recovery_point
from streambench.system.log.repair import Loss, Salvage, missing, salvage
from streambench.system.log.segment import Segment, segments

log = logging.getLogger(__name__)

_State = tuple[list[Segment], tuple[int, int, int] | None]
"""The segments of a partition, and the inode, size and time of change of the last one."""


class SkippingCursor(Cursor):
    """A cursor that skips gaps and damage with a warning."""

    def __init__(self, location: PartitionLocation, handles: Handles, offset: int) -> None:
        super().__init__(location, handles, offset)
        self._salvaged: deque[tuple[Frame, bytes]] = deque()
        self._behind: int | None = None
        self._waits_since: _State | None = None
        self._warned: set[tuple[str, int, int | None]] = set()

    def read(self, at_most: int) -> list[pa.RecordBatch]:
        """As ``Cursor.read``, but a warning instead of CorruptDataError."""
        while True:
            if self._salvaged:
                return self._read_salvaged(at_most)
            if self._behind is not None:
                self.offset, self._behind = max(self.offset, self._behind), None
            if self._waits_since is not None:
                if self._waits_since == _state(self._location):
                    self.at_head = True
                    return []
                self._waits_since = None
            try:
                return super().read(at_most)
            except CorruptDataError as error:
                try:
                    self._salvage(error)
                except OSError as failure:
                    raise unusable(self._location.name, self._location.directory, failure) from failure

    def _check_reached(self, upcoming: int) -> None:
        committed = recovery_point(self._location.directory).upcoming
        if upcoming < self.offset <= committed:
            path = self._segment.path if self._segment is not None else self._location.directory
            raise ends_early(self._location, path, upcoming, committed)
        super()._check_reached(upcoming)

    def _read_salvaged(self, at_most: int) -> list[pa.RecordBatch]:
        """The next messages of a damaged segment."""
        self.at_head = False
        batches = []
        while at_most > 0 and self._salvaged:
            frame, data = self._salvaged[0]
            batch = self._decode_frame(memoryview(data), frame).slice(0, at_most)
            if batch.num_rows:
                at_most -= batch.num_rows
                self.offset = batch.column(0)[batch.num_rows - 1].as_py() + 1
                batches.append(batch)
            if self.offset > frame.last or not batch.num_rows:
                self._salvaged.popleft()
        return batches

    def _salvage(self, error: CorruptDataError) -> None:
        """Find what is intact from the segment on that holds ``offset``, and log what is lost of it."""
        self._segment, self._rest, self._dry = None, None, False
        found, state, following = self._intact()
        present = state[0]
        committed = recovery_point(self._location.directory).upcoming
        end = found.lost_end if found is not None else 0
        losses = list(found.losses) if found is not None else []
        if following is not None and following > end:
            losses.append(missing(self._location, end, following))
        elif following is None and committed > end:
            losses.append(missing(self._location, end, committed))
        if not losses:
            log.info("%s: %s: it could be read at the second attempt", self._location.name, error)
        for loss in losses:
            self._warn(loss)
        frames = found.frames if found is not None else []
        self._salvaged.extend(each for each in frames if each[0].last >= self.offset)
        if following is not None:
            self._behind = following
            return
        if found is None or found.ends_damaged or committed > end or not self._resume(present[-1], found):
            self._waits_since = state

    def _intact(self) -> tuple[Salvage | None, _State, int | None]:
        """The readable part of the segment that holds ``offset``, the state of the partition by then, and the
        base offset of the next segment."""
        location = self._location
        while True:
            state = _state(location)
            present = state[0]
            committed = recovery_point(location.directory).upcoming
            bases = [segment.base for segment in present]
            at = bisect.bisect_right(bases, self.offset) - 1
            try:
                if at < 0:
                    found, following = None, bases[0] if bases else None
                else:
                    following = bases[at + 1] if at + 1 < len(bases) else None
                    found = salvage(location, present[at], following, committed)
                    # What a compaction was about to remove stands before the end.
                    following = next((base for base in bases[at + 1 :] if base >= found.end), None)
            except FileNotFoundError:
                continue  # retention or a compaction was faster
            if segments(location.directory) == present:
                return found, state, following

    def _resume(self, segment: Segment, found: Salvage) -> bool:
        """Go on behind the last whole batch of the active segment; False where its header is damaged."""
        offset = self.offset
        try:
            self.offset = max(offset, found.end)
            self._go_to(segment, is_last=True)
        except (CorruptDataError, FileNotFoundError):
            self._segment = None
            return False
        finally:
            self.offset = offset
        if found.frames:
            self._position, self._reached = found.frames[-1][0].end, found.end
        return True

    def _warn(self, loss: Loss) -> None:
        known = (str(loss.file), loss.position, loss.first)
        is_passed = loss.messages > 0 and loss.last is not None and loss.last < self.offset
        if known in self._warned or is_passed:
            return
        self._warned.add(known)
        if loss.messages <= 0:
            lost = "no message is lost"
        else:
            lost = f"the offsets {loss.first} to {loss.last} are lost ({loss.messages} messages at most)"
        log.warning(
            "%s: %s, byte %d: %s; %s; reading goes on behind it, since systems.%s.fail.on.data.loss=false",
            self._location.name,
            loss.file,
            loss.position,
            loss.why,
            lost,
            self._location.name.partition(".")[0],
        )


def _state(location: PartitionLocation) -> _State:
    """The state of a partition, which changes with anything that is written to it."""
    present = segments(location.directory)
    try:
        stat = os.stat(present[-1].path) if present else None
    except FileNotFoundError:
        stat = None
    return present, None if stat is None else (stat.st_ino, stat.st_size, stat.st_mtime_ns)


def readable_end(location: PartitionLocation, last: Segment) -> int:
    """The offset behind the last whole batch of a partition, past all damage. Raises FileNotFoundError."""
    return salvage(location, last, None, recovery_point(location.directory).upcoming).end
