"""The cleaner: deletes what is too old or too much, and compacts; always whole sealed segments, never the one that is appended to.

A sealed segment changes no more, so that cleaning needs no lock that an appender waits for, only its own. A reader that has a
segment open goes on reading what it opened.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from filelock import FileLock, Timeout

from streambench.durable import make_durable
from streambench.errors import CorruptDataError
from streambench.system.log.appender import Place
from streambench.system.log.frame import END_OF_STREAM, SCHEMA, Frame, Torn, checksum_matches, decode, encode, parse
from streambench.system.log.handles import Handles, write_durably
from streambench.system.log.segment import Segment, frames, note, segments, start_of
from streambench.system.log.settings import Settings

_MERGED_MESSAGES = 10_000
_MERGED_BYTES = 4 << 20
_SMALL = 1 << 16
_COMPACTED = "compacted.json"
_KEEP = "keep.json"


class Cleaner:
    """Cleans one partition according to its settings."""

    def __init__(self, place: Place, handles: Handles, settings: Settings) -> None:
        self._place = place
        self._handles = handles
        self._settings = settings

    def clean(self, now_ms: int, *, only_if_worthwhile: bool = False) -> None:
        """Do what is due; nothing where another process is at it.

        ``only_if_worthwhile``: compact only once as much was written since the last time as was left then, so that in all no message is
        written anew more often than about twice."""
        try:
            with FileLock(self._place.directory / ".clean", timeout=0):
                if self._settings.cleanup_policy == "compact":
                    if not only_if_worthwhile or self._compaction_is_worthwhile():
                        self._compact(now_ms)
                else:
                    self._merge()
                    self._delete(now_ms)
        except (Timeout, FileNotFoundError):
            return

    def _delete(self, now_ms: int) -> None:
        settings = self._settings
        present = segments(self._place.directory)
        sizes = [segment.path.stat().st_size for segment in present]
        total = sum(sizes)
        for segment, size in zip(present[:-1], sizes, strict=False):
            too_much = 0 <= settings.retention_bytes < total - size
            if not too_much and not (settings.retention_ms >= 0 and self._newest(segment) < now_ms - settings.retention_ms):
                return
            self._remove(segment)
            total -= size

    def _remove(self, segment: Segment) -> None:
        for path in (segment.path, segment.index_path, segment.state_path):
            path.unlink(missing_ok=True)
        self._handles.forget(segment.path)

    def _newest(self, segment: Segment) -> int:
        """The largest timestamp in a segment."""
        return max((frame.timestamp for frame in self._frames(segment)), default=0)

    def _merge(self) -> None:
        """Write the last sealed segment anew with few large batches, where it has many small ones."""
        sealed = segments(self._place.directory)[:-1]
        if sealed:
            count = sum(1 for _ in self._frames(sealed[-1]))
            if count > 1 and sealed[-1].path.stat().st_size / count < _SMALL:
                self._rewrite(sealed[-1], None)

    def _compact(self, now_ms: int) -> None:
        """Keep the last message of every key in the sealed segments; messages without a key stay."""
        sealed = self._compactable(now_ms)
        expired = now_ms - self._settings.delete_retention_ms
        keyed = [_keyed(self._batch(segment, frame), expired) for segment in sealed for frame in self._frames(segment)]
        if keyed:
            # The largest offset per key; where that is a tombstone whose time is over, the key goes altogether.
            last = pa.Table.from_batches(keyed).group_by("key", use_threads=False).aggregate([("offset", "max"), ("expired", "last")])
            keep = last.filter(pc.invert(last["expired_last"]))["offset_max"].combine_chunks()
            for segment in sealed:
                self._rewrite(segment, keep)
        if sealed:
            write_durably(self._place.directory / _COMPACTED, msgspec.json.encode(sealed[-1].base))

    def keep_from(self, offset: int) -> None:
        """From this offset on compaction leaves everything as it is, until it is told a later one."""
        self._place.make(durable=True)
        write_durably(self._place.directory / _KEEP, msgspec.json.encode(offset))

    def compacted_to(self) -> int | None:
        """The first offset that compaction has not looked at; None where there was none yet."""
        upto = _number(self._place.directory / _COMPACTED)
        return None if upto is None else next((each.base for each in segments(self._place.directory) if each.base > upto), None)

    def _compactable(self, now_ms: int) -> list[Segment]:
        """The sealed segments that are old enough, and before everything that has to be kept."""
        youngest = now_ms - self._settings.min_compaction_lag_ms
        keep = _number(self._place.directory / _KEEP)
        found = []
        for segment, following in pairwise(segments(self._place.directory)):
            if (keep is not None and following.base > keep) or self._newest(segment) > youngest:
                break
            found.append(segment)
        return found

    def _compaction_is_worthwhile(self) -> bool:
        upto = _number(self._place.directory / _COMPACTED)
        if upto is None:
            upto = -1
        sizes = [(segment.base > upto, segment.path.stat().st_size) for segment in segments(self._place.directory)[:-1]]
        return sum(size for new, size in sizes if new) >= sum(size for new, size in sizes if not new)

    def _rewrite(self, segment: Segment, keep: pa.Array | None) -> None:
        """Write a sealed segment anew, with large batches and (where given) only the offsets in ``keep`` and what has no key."""
        table = pa.Table.from_batches([self._batch(segment, frame) for frame in self._frames(segment)], SCHEMA)
        if keep is not None:
            kept = table.filter(pc.or_(pc.is_null(table["key"]), pc.is_in(table["offset"], value_set=keep)))
            if kept.num_rows == table.num_rows:
                return
            table = kept
            if not table.num_rows and segment != segments(self._place.directory)[0]:
                # Only the first segment has to stay where it is empty: its name tells the oldest offset.
                self._remove(segment)
                return
        rows = max(1, min(_MERGED_MESSAGES, _MERGED_BYTES * max(1, table.num_rows) // max(1, table.nbytes)))
        descriptor = self._handles.open(segment.path)
        written: list[Frame] = []
        temporary = segment.path.with_name(f".{segment.path.name}.{os.getpid()}")
        try:
            with open(temporary, "wb") as file:
                position = file.write(os.pread(descriptor, start_of(segment, descriptor), 0))
                for at in range(0, table.num_rows, rows):
                    batch = table.slice(at, rows).combine_chunks().to_batches()[0]
                    data = encode(batch, timestamp=pc.max(batch["timestamp"]).as_py() or 0)
                    frame = parse(data, 0, position)
                    assert isinstance(frame, Frame)
                    written.append(frame)
                    position += file.write(data)
                file.write(END_OF_STREAM)
                file.flush()
                os.fsync(file.fileno())
            segment.index_path.unlink(missing_ok=True)
            os.replace(temporary, segment.path)
            make_durable(segment.path.parent)
        finally:
            temporary.unlink(missing_ok=True)
        self._handles.forget(segment.path)
        noted = 0
        for frame in written:
            noted = note(segment, frame, noted)

    def _frames(self, segment: Segment) -> Iterator[Frame]:
        """The batches of a sealed segment. Raises CorruptDataError where it is damaged."""
        descriptor = self._handles.open(segment.path)
        for found in frames(segment, descriptor, start_of(segment, descriptor)):
            if isinstance(found, Frame):
                yield found
            elif isinstance(found, Torn):
                raise CorruptDataError(f"{segment.path}, byte {found.position}: {found.reason}; restore the file from a copy")

    def _batch(self, segment: Segment, frame: Frame) -> pa.RecordBatch:
        data = memoryview(os.pread(self._handles.open(segment.path), frame.size, frame.position))
        if len(data) < frame.size or not checksum_matches(data, frame):
            at = f"{segment.path}, byte {frame.position}"
            raise CorruptDataError(f"{at}: the checksum of the batch does not match; restore the file from a copy")
        return decode(data, frame)


def _number(file: Path) -> int | None:
    """What stands in a file; None where there is none, or nothing that can be read."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=int)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def _keyed(batch: pa.RecordBatch, expired: int) -> pa.RecordBatch:
    """Offset and key of the messages that have one, and whether each is a tombstone from before ``expired`` (ms)."""
    over = pc.and_(pc.is_null(batch["value"]), pc.fill_null(pc.less(batch["timestamp"], expired), False))
    columns = pa.RecordBatch.from_arrays([batch["offset"], batch["key"], over], names=["offset", "key", "expired"])
    return columns.filter(pc.is_valid(batch["key"]))
