"""The cleaner: deletes what is too old or too much, and compacts; always whole sealed segments, never the one
that is appended to.

A sealed segment changes no more, so that cleaning needs no lock that an appender waits for, only its own. A
reader that has a segment open goes on reading what it opened.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise

import pyarrow as pa
import pyarrow.compute as pc

from streambench.errors import CorruptDataError
from streambench.locks import LeasedLock
from streambench.system.log.arrays import slices
from streambench.system.log.frame import SCHEMA, EndOfStream, Frame, Torn, checksum_matches, decode, encode
from streambench.system.log.handles import Handles
from streambench.system.log.header import Header, read_header
from streambench.system.log.location import PartitionLocation
from streambench.system.log.notes import COMPACTED, START, read_note, was_compacted, write_note
from streambench.system.log.segment import Segment, frames, segments, start_of, write_sealed
from streambench.system.log.settings import Settings

log = logging.getLogger(__name__)

_MERGED_MESSAGES = 10_000
_MERGED_BYTES = 4 << 20
_SMALL = 1 << 16
_KEEP = "keep.json"


class Cleaner:
    """Cleans one partition according to its settings."""

    def __init__(self, location: PartitionLocation, handles: Handles, settings: Settings) -> None:
        self._location = location
        self._handles = handles
        self._settings = settings
        # Not taken over: what a frozen cleaner is about to put in place was read before, and is old by then.
        self._lock = LeasedLock(location.directory / ".clean", f"cleaning {location.name}", math.inf)
        self._busy = ""

    def clean(self, now_ms: int, *, only_if_worthwhile: bool = False) -> None:
        """Do what is due; nothing where another process is at it.

        ``only_if_worthwhile``: compact only once as much was written since the last time as was left then. So
        no message is written again more often than about twice overall."""
        try:
            if not self._lock.try_acquire():
                self._report_busy()
                return
            try:
                if self._settings.cleanup_policy == "compact":
                    if not only_if_worthwhile or self._compaction_is_worthwhile():
                        self._compact(now_ms)
                else:
                    self._merge()
                    self._delete(now_ms)
            finally:
                self._lock.release()
        except FileNotFoundError:
            return

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let no process clean the partition meanwhile; wait for one that does."""
        with self._lock:
            yield

    def _report_busy(self) -> None:
        """Warn where the same cleaning is still going on that was already the last time."""
        holder, before = self._lock.holder(), self._busy
        self._busy = holder
        if holder and holder == before:
            log.warning(
                "cleaning %s: waiting for %s; nothing is deleted or compacted there until that process goes "
                "on or ends",
                self._location.name,
                holder,
            )

    def _delete(self, now_ms: int) -> None:
        settings = self._settings
        present = segments(self._location.directory)
        sizes = [segment.path.stat().st_size for segment in present]
        total = sum(sizes)
        doomed = []
        for segment, size in zip(present[:-1], sizes, strict=False):
            too_much = 0 <= settings.retention_bytes < total - size
            if not too_much and not (
                settings.retention_ms >= 0 and self._newest(segment) < now_ms - settings.retention_ms
            ):
                break
            doomed.append(segment)
            total -= size
        if doomed:
            # Before anything is gone: a first segment that is missing is damage, unless this says that it was
            # removed.
            write_note(self._location.directory / START, present[len(doomed)].base)
            for segment in doomed:
                self._remove(segment)

    def _remove(self, segment: Segment) -> None:
        for path in (segment.path, segment.index_path, segment.state_path):
            path.unlink(missing_ok=True)
        self._handles.forget(segment.path)

    def _newest(self, segment: Segment) -> int:
        """The largest timestamp in a segment."""
        return max((frame.timestamp for frame in self._frames(segment)), default=0)

    def _merge(self) -> None:
        """Write the last sealed segment again with few large batches, where it has many small ones."""
        sealed = segments(self._location.directory)[:-1]
        if sealed:
            count = sum(1 for _ in self._frames(sealed[-1]))
            if count > 1 and sealed[-1].path.stat().st_size / count < _SMALL:
                (following,) = self._following(sealed)
                self._check_whole(sealed[-1], following)
                self._rewrite(sealed[-1], None, following.base)

    def _compact(self, now_ms: int) -> None:
        """Keep the last message of every key in the sealed segments; messages without a key stay."""
        sealed = self._compactable(now_ms)
        expired = now_ms - self._settings.delete_retention_ms
        for segment, following in pairwise([*sealed, *self._following(sealed)]):
            self._check_whole(segment, following)
        keyed = [
            _keyed(self._batch(segment, frame), expired)
            for segment in sealed
            for frame in self._frames(segment)
        ]
        if sealed:
            # Before anything is gone: a snapshot of state relies on all that no compaction has looked at.
            write_note(self._location.directory / COMPACTED, sealed[-1].base)
        if keyed:
            # The largest offset per key; where that is a tombstone whose time is over, the key goes
            # altogether.
            last = (
                pa.Table.from_batches(keyed)
                .group_by("key", use_threads=False)
                .aggregate([("offset", "max"), ("expired", "last")])
            )
            keep = last.filter(pc.invert(last["expired_last"]))["offset_max"].combine_chunks()
            for segment, following in pairwise([*sealed, *self._following(sealed)]):
                self._rewrite(segment, keep, following.base)
            self._join_empty(sealed)

    def _following(self, sealed: list[Segment]) -> list[Segment]:
        """The segment behind these, if there is one."""
        return [
            each for each in segments(self._location.directory) if sealed and each.base > sealed[-1].base
        ][:1]

    def _check_whole(self, segment: Segment, following: Segment) -> None:
        """Raises CorruptDataError where a sealed segment does not reach to the next one: what is rewritten
        looks whole ever after."""
        descriptor = self._handles.open(segment.path)
        header = read_header(segment.path, descriptor)
        if not header.is_strict and was_compacted(self._location.directory, segment.base):
            return
        end, is_sealed, position = segment.base, False, header.size
        for found in frames(segment, descriptor, header.size):
            if isinstance(found, Frame):
                end, position = found.last + 1, found.end
            is_sealed = isinstance(found, EndOfStream)
        if not is_sealed or max(end, header.end or 0) != following.base:
            raise CorruptDataError(
                f"{segment.path}, byte {position}: it ends before offset {end}, or without its end mark, "
                "but the next segment is "
                f"{following.path}; {self._location.remedy}"
            )

    def _join_empty(self, sealed: list[Segment]) -> None:
        """Of segments in a row in which compaction left nothing, leave one, which reaches to the end of the
        last."""
        for segment, following in reversed(list(pairwise(sealed))):
            if not any(self._frames(segment)) and not any(self._frames(following)):
                end = self._header(following).end
                if end is not None:
                    self._replace(segment, [], {**self._header(segment).values, "end.offset": str(end)})
                    self._remove(following)

    def _header(self, segment: Segment) -> Header:
        return read_header(segment.path, self._handles.open(segment.path))

    def keep_from(self, offset: int) -> None:
        """From this offset on compaction leaves everything as it is, until it gets a later one."""
        self._location.make(durable=True)
        write_note(self._location.directory / _KEEP, offset)

    def compacted_to(self) -> int | None:
        """The first offset that compaction has not looked at; None where there was none yet."""
        upto = self._number(COMPACTED)
        return (
            None
            if upto is None
            else next((each.base for each in segments(self._location.directory) if each.base > upto), None)
        )

    def compacted_past(self, offset: int) -> bool:
        """False if compaction has looked at nothing from ``offset`` on, nor is about to.

        Headers count as well as the note, which may have been deleted because it was damaged."""
        if self._number(COMPACTED) is not None:
            upto = self.compacted_to()
            if upto is None or upto > offset:
                return True
        return any(
            following.base > offset and self._header(segment).end is not None
            for segment, following in pairwise(segments(self._location.directory))
        )

    def _compactable(self, now_ms: int) -> list[Segment]:
        """The sealed segments that are old enough, and before everything that has to be kept."""
        youngest = now_ms - self._settings.min_compaction_lag_ms
        keep = self._number(_KEEP)
        found = []
        for segment, following in pairwise(segments(self._location.directory)):
            if (keep is not None and following.base > keep) or self._newest(segment) > youngest:
                break
            found.append(segment)
        return found

    def _compaction_is_worthwhile(self) -> bool:
        upto = self._number(COMPACTED)
        if upto is None:
            upto = -1
        sizes = [
            (segment.base > upto, segment.path.stat().st_size)
            for segment in segments(self._location.directory)[:-1]
        ]
        return sum(size for new, size in sizes if new) >= sum(size for new, size in sizes if not new)

    def _number(self, name: str) -> int | None:
        path = self._location.directory / name
        return read_note(
            path, int, f"delete it, to have {self._location.name} compacted as if it had never been there"
        )

    def _rewrite(self, segment: Segment, keep: pa.Array | None, end: int) -> None:
        """Write a sealed segment again, with large batches and (where given) only the offsets in ``keep`` and
        what has no key.

        ``end``: where the next one begins."""
        table = pa.Table.from_batches(
            [self._batch(segment, frame) for frame in self._frames(segment)], SCHEMA
        )
        header = self._header(segment)
        values = dict(header.values)
        if keep is not None or not header.is_strict:
            values["end.offset"] = str(end)
        if keep is not None:
            kept = table.filter(pc.or_(pc.is_null(table["key"]), pc.is_in(table["offset"], value_set=keep)))
            if kept.num_rows == table.num_rows:
                return
            table = kept
        merged = slices(table, _MERGED_MESSAGES, _MERGED_BYTES)
        batches = (each.combine_chunks().to_batches()[0] for each in merged)
        data = (encode(batch, timestamp=pc.max(batch["timestamp"]).as_py() or 0) for batch in batches)
        self._replace(segment, data, values)

    def _replace(self, segment: Segment, batches: Iterable[memoryview], values: Mapping[str, str]) -> None:
        """Put another file in the place of a sealed segment, with these frames and this metadata."""
        write_sealed(segment, batches, values)
        self._handles.forget(segment.path)

    def _frames(self, segment: Segment) -> Iterator[Frame]:
        """The batches of a sealed segment. Raises CorruptDataError where it is damaged."""
        descriptor = self._handles.open(segment.path)
        for found in frames(segment, descriptor, start_of(segment, descriptor)):
            if isinstance(found, Frame):
                yield found
            elif isinstance(found, Torn):
                raise CorruptDataError(
                    f"{segment.path}, byte {found.position}: {found.reason}; {self._location.remedy}"
                )

    def _batch(self, segment: Segment, frame: Frame) -> pa.RecordBatch:
        data = memoryview(os.pread(self._handles.open(segment.path), frame.size, frame.position))
        if len(data) < frame.size or not checksum_matches(data, frame):
            at = f"{segment.path}, byte {frame.position}"
            raise CorruptDataError(f"{at}: the checksum of the batch does not match; {self._location.remedy}")
        return decode(data, frame)


def _keyed(batch: pa.RecordBatch, expired: int) -> pa.RecordBatch:
    """Offset and key of the messages that have one, and whether each is a tombstone from before ``expired``
    (ms)."""
    over = pc.and_(pc.is_null(batch["value"]), pc.fill_null(pc.less(batch["timestamp"], expired), False))
    columns = pa.RecordBatch.from_arrays(
        [batch["offset"], batch["key"], over], names=["offset", "key", "expired"]
    )
    return columns.filter(pc.is_valid(batch["key"]))
