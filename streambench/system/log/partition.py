"""A partition of a log: append to it, read it, fence it, ask where it begins and ends."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from streambench.errors import OffsetError, SerdeError, StreambenchError
from streambench.model import PartitionMetadata
from streambench.system.log.appender import Appender, Place
from streambench.system.log.arrays import FEW, binaries, int64s
from streambench.system.log.cleaner import Cleaner
from streambench.system.log.cursor import Cursor
from streambench.system.log.frame import SCHEMA, Frame, walk
from streambench.system.log.handles import Handles
from streambench.system.log.segment import find, segments, start_of
from streambench.system.log.settings import Settings
from streambench.system.timestamps import as_milliseconds

log = logging.getLogger(__name__)

Bytes: TypeAlias = Sequence[bytes | None] | pa.Array
"""A column of keys or values: bytes or None, as a list or as an Arrow array of binary."""

_HEADERS = SCHEMA.field("headers").type
_BYTES_OR_NONE = {bytes, type(None)}


class Partition:
    """One partition of a stream of a log. Not to be shared among threads; several processes may have it open."""

    def __init__(self, place: Place, handles: Handles, settings: Settings) -> None:
        self._place = place
        self._handles = handles
        self._cleaner = Cleaner(place, handles, settings)
        self._appender = Appender(place, handles, settings)
        self._end: tuple[Any, int, int] | None = None

    @property
    def name(self) -> str:
        """As ``system.stream.partition``."""
        return self._place.name

    @property
    def stream(self) -> str:
        """The stream's name in its system."""
        return self._place.stream

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
        """Append messages as one batch, all of them or (in an error, in a crash) none; returns the offsets that they got.

        It is seen by readers at once, and durable after ``flush``. Timestamps (ms; an Arrow array may hold
        times instead) that are None become the present time.

        ``producer`` with its ``generation`` and ``epoch``: FencedError where the partition is fenced against it. With a ``sequence``
        the append happens once: where the producer has already appended this (generation, sequence), or a later one, nothing is
        written and None is returned. So a record of a journal can be applied again and again.
        """
        columns, newest = as_columns(keys, values, timestamps, headers)
        if not columns.num_rows:
            return range(0)
        return self.append_columns(columns, newest, producer=producer, generation=generation, epoch=epoch, sequence=sequence)

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
                # What was appended is there all the same: whoever appended it must not be told otherwise.
                log.error("%s: could not be cleaned: %s", self.name, error)
        return offsets

    def flush(self) -> None:
        """Return when what was appended here is durable (unless ``fsync=never``)."""
        self._appender.flush()

    def fence(self, producer: str, generation: int, epoch: int) -> None:
        """From now on refuse appends of this producer with a lower (generation, epoch). Raises FencedError where this one is lower."""
        self._appender.fence(producer, generation, epoch)

    def last_of(self, producer: str) -> tuple[int, int] | None:
        """The last (generation, sequence) with which this producer appended here; None where it never did."""
        return self._appender.last_of(producer)

    def roll(self) -> None:
        """Seal the segment that is appended to, so that retention and compaction may touch it."""
        self._appender.roll()
        self._appender.rolled = False

    def clean(self, now_ms: int | None = None) -> None:
        """Delete what retention says, or compact. Happens by itself when a segment is sealed (compaction: when it is worthwhile)."""
        self._cleaner.clean(time.time_ns() // 1_000_000 if now_ms is None else now_ms)

    def keep_from(self, offset: int) -> None:
        """From this offset on compaction leaves everything as it is, until it is told a later one."""
        self._cleaner.keep_from(offset)

    def compacted_to(self) -> int | None:
        """The first offset that compaction has not looked at; None where there was none yet."""
        return self._cleaner.compacted_to()

    def read(self, offset: int, at_most: int = 1 << 62) -> list[pa.RecordBatch]:
        """The messages from ``offset`` on that are there now, as batches with the columns offset, timestamp, key, value, headers.

        Raises OffsetError where the offset lies outside the partition."""
        return self.cursor(offset).read(at_most)

    def cursor(self, offset: int) -> Cursor:
        """A reader that goes on from ``offset``. Raises OffsetError where it lies outside the partition."""
        oldest, upcoming = self.bounds()
        if not oldest <= offset <= upcoming:
            raise OffsetError(f"{self.name}: there is no offset {offset}; the oldest is {oldest} and the next message will get {upcoming}")
        return Cursor(self._place, self._handles, offset)

    def bounds(self) -> tuple[int, int]:
        """The oldest and the upcoming offset, as of now; equal where it is empty."""
        while True:
            present = segments(self._place.directory)
            if not present:
                return 0, 0
            try:
                stat = os.stat(present[-1].path)
                stamp = (present[-1].base, stat.st_ino, stat.st_size, stat.st_mtime_ns)
                known = self._end
                if known is None or known[0] != stamp:
                    descriptor = self._handles.open(present[-1].path)
                    if os.fstat(descriptor).st_ino != stat.st_ino:
                        self._handles.forget(present[-1].path)
                        continue
                    if known is not None and known[0][:2] == stamp[:2] and known[2] <= stat.st_size:
                        upcoming, position = known[1], known[2]
                    else:
                        upcoming, position = present[-1].base, find(present[-1], descriptor, 1 << 62)
                    for found in walk(descriptor, max(position, start_of(present[-1], descriptor)), stat.st_size):
                        if isinstance(found, Frame):
                            upcoming, position = found.last + 1, found.end
                    self._end = stamp, upcoming, position
                assert self._end is not None
                return present[0].base, self._end[1]
            except FileNotFoundError:
                continue  # deleted or replaced between the two looks

    def metadata(self) -> PartitionMetadata:
        """As ``bounds``, in the words of the plug-in contract."""
        oldest, upcoming = self.bounds()
        if oldest == upcoming:
            return PartitionMetadata(None, None, str(upcoming))
        return PartitionMetadata(str(oldest), str(upcoming - 1), str(upcoming))


def as_columns(
    keys: Bytes | None,
    values: Bytes,
    timestamps: Sequence[int | None] | pa.Array | None = None,
    headers: Sequence[Mapping[str, bytes] | None] | pa.Array | None = None,
    *,
    checked: bool = False,
) -> tuple[pa.RecordBatch, int]:
    """Columns of one length as a batch without offsets, and the largest timestamp. Raises SerdeError for what is no such column.

    ``checked``: keys and values are known to be bytes or None."""
    count = len(values)
    given: tuple[tuple[str, Any], ...] = (("keys", keys), ("timestamps", timestamps), ("headers", headers))
    for what, column in given:
        if column is not None and len(column) != count:
            raise SerdeError(f"{count} values cannot be appended with {len(column)} {what}")
    times, newest = _times(timestamps, count)
    columns = [
        times,
        pa.nulls(count, pa.binary()) if keys is None else _binary(keys, "key", checked),
        _binary(values, "value", checked),
        pa.nulls(count, _HEADERS) if headers is None else _headers(headers),
    ]
    return pa.RecordBatch.from_arrays(columns, names=["timestamp", "key", "value", "headers"]), newest


def _times(timestamps: Any, count: int) -> tuple[pa.Array, int]:
    """The timestamps, where there are none the present time; and the largest of them."""
    now = time.time_ns() // 1_000_000
    if timestamps is None:
        return int64s([now] * count) if count <= FEW else pa.repeat(pa.scalar(now, pa.int64()), count), now
    try:
        times = as_milliseconds(timestamps) if isinstance(timestamps, pa.Array) else pa.array(timestamps, pa.int64())
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
        raise SerdeError(f"the timestamp of a message must be a whole number of milliseconds ({error})") from None
    times = times.fill_null(now)
    return times, pc.max(times).as_py() or 0


def _binary(column: Any, what: str, checked: bool) -> pa.Array:
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if isinstance(column, pa.Array):
        return column if column.type == pa.binary() else column.cast(pa.binary())
    if not checked:
        # Arrow would take str and others for bytes without a word; the set of types is small and quickly made.
        wrong = set(map(type, column)) - _BYTES_OR_NONE
        if wrong:
            raise SerdeError(f"a {what} of a log must be bytes or None, not {wrong.pop().__name__}")
    return binaries(column) if len(column) <= FEW else pa.array(column, pa.binary())


def _headers(headers: Sequence[Mapping[str, bytes] | None] | pa.Array) -> pa.Array:
    if isinstance(headers, pa.Array):
        return headers if headers.type == _HEADERS else headers.cast(_HEADERS)
    wrong = {type(value) for header in headers if header for value in header.values()} - {bytes}
    if wrong:
        raise SerdeError(f"the headers of a message must map names to bytes, not to {wrong.pop().__name__}")
    return pa.array([None if header is None else list(header.items()) for header in headers], _HEADERS)
