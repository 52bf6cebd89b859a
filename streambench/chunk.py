"""Input: messages by the column, what a consumer read at once of one partition, not decoded.

There are two kinds, alike to their readers: lists of Python objects (``Chunk``), and Arrow record batches
(``ArrowChunk``). The latter go through a container without an object per message as long as nothing asks for
one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct

from streambench.errors import SerdeError
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition

if TYPE_CHECKING:
    import pyarrow as pa

COLUMNS = ("offset", "timestamp", "key", "message", "headers")
"""The columns of messages in Arrow."""

_Part = TypeVar("_Part", bound="Messages")


class Messages(Protocol):
    """Consecutive messages of one partition."""

    @property
    def ssp(self) -> SystemStreamPartition: ...

    def __len__(self) -> int: ...

    def offset(self, at: int) -> str:
        """The offset of one of them, by its place from 0 on."""

    def part(self: _Part, start: int, stop: int) -> _Part:
        """Those from place ``start`` to before ``stop``."""

    def envelopes(self) -> list[IncomingMessageEnvelope]:
        """The messages one by one."""

    def values(self) -> list[Any]:
        """The messages alone, without what belongs to them."""

    def columns(self) -> pa.RecordBatch:
        """The messages with the columns ``COLUMNS``. Raises SerdeError for objects that make no column."""


class Chunk(Struct, gc=False):
    """Consecutive messages of one partition, as columns: what a consumer read at once, not yet
    decoded.

    All columns have the same length. ``timestamps`` (milliseconds) and ``headers`` are None where no message
    has any.
    """

    ssp: SystemStreamPartition
    offsets: list[str]
    keys: list[Any]
    messages: list[Any]
    timestamps: list[int | None] | None = None
    headers: list[Mapping[str, bytes] | None] | None = None

    def __len__(self) -> int:
        return len(self.offsets)

    @classmethod
    def of(cls, ssp: SystemStreamPartition, envelopes: Sequence[IncomingMessageEnvelope]) -> Chunk:
        """The columns of a list of envelopes, all of one partition."""
        return cls(
            ssp,
            [envelope.offset for envelope in envelopes],
            [envelope.key for envelope in envelopes],
            [envelope.message for envelope in envelopes],
            [envelope.timestamp for envelope in envelopes],
            [envelope.headers for envelope in envelopes],
        )

    @classmethod
    def joined(cls, chunks: Sequence[Chunk]) -> Chunk:
        """One chunk of consecutive ones, of one partition."""

        def all_of(columns: list[list[Any] | None]) -> list[Any] | None:
            if all(column is None for column in columns):
                return None
            given = zip(columns, chunks, strict=True)
            return [each for column, chunk in given for each in column or repeat(None, len(chunk))]

        return cls(
            chunks[0].ssp,
            [*chain.from_iterable(chunk.offsets for chunk in chunks)],
            [*chain.from_iterable(chunk.keys for chunk in chunks)],
            [*chain.from_iterable(chunk.messages for chunk in chunks)],
            all_of([chunk.timestamps for chunk in chunks]),
            all_of([chunk.headers for chunk in chunks]),
        )

    def offset(self, at: int) -> str:
        return self.offsets[at]

    def part(self, start: int, stop: int) -> Chunk:
        if start == 0 and stop >= len(self):
            return self
        timestamps = self.timestamps[start:stop] if self.timestamps is not None else None
        headers = self.headers[start:stop] if self.headers is not None else None
        return Chunk(
            self.ssp,
            self.offsets[start:stop],
            self.keys[start:stop],
            self.messages[start:stop],
            timestamps,
            headers,
        )

    def envelopes(self) -> list[IncomingMessageEnvelope]:
        """The messages one by one, as they were read."""
        return self.envelopes_of(self.keys, self.messages)

    def envelopes_of(self, keys: Sequence[Any], messages: Sequence[Any]) -> list[IncomingMessageEnvelope]:
        """The messages one by one, with these keys and messages: what a serde made of those of the chunk."""
        ssps = repeat(self.ssp)
        if self.timestamps is None and self.headers is None:
            return list(map(IncomingMessageEnvelope, ssps, self.offsets, keys, messages))
        timestamps = repeat(None) if self.timestamps is None else self.timestamps
        headers = repeat(None) if self.headers is None else self.headers
        return list(map(IncomingMessageEnvelope, ssps, self.offsets, keys, messages, timestamps, headers))

    def values(self) -> list[Any]:
        return self.messages

    def columns(self) -> pa.RecordBatch:
        import pyarrow as pa

        numbers = all(map(str.isdecimal, self.offsets))
        nothing = [None] * len(self)
        headers = [None if each is None else list(each.items()) for each in self.headers or nothing]
        arrays = [
            self._column("offsets", [*map(int, self.offsets)], pa.int64())
            if numbers
            else pa.array(self.offsets, pa.string()),
            self._column("timestamps", self.timestamps or nothing, pa.int64()),
            self._column("keys", self.keys, _objects(self.keys)),
            self._column("messages", self.messages, _objects(self.messages)),
            self._column("headers", headers, pa.map_(pa.string(), pa.binary())),
        ]
        return pa.RecordBatch.from_arrays(arrays, names=list(COLUMNS))

    def _column(self, what: str, values: Sequence[Any], kind: pa.DataType | None) -> pa.Array:
        import pyarrow as pa

        try:
            return pa.array(values, kind)
        except (pa.ArrowException, OverflowError) as error:
            raise SerdeError(
                f"{self.ssp}@{self.offsets[0]}..{self.offsets[-1]}: these {what} make no column ({error}); "
                "go over the batch one by one"
            ) from error


def _objects(values: list[Any]) -> pa.DataType | None:
    """The type of the column of these values: bytes (and nothing at all) as binary, objects (None) as Arrow
    takes them."""
    import pyarrow as pa

    return pa.binary() if set(map(type, values)) <= {bytes, type(None)} else None


class Undecodable(IncomingMessageEnvelope, frozen=True, gc=True, kw_only=True):
    """A message that cannot be decoded, with key and message as they were read. It waits for its turn like
    any other, so that what stands before it is processed first. The event loop decides what becomes of it.

    The traceback of its error may refer back to it, so that only the garbage collector frees it."""

    error: SerdeError


class Unreadable(Chunk, gc=True, kw_only=True):
    """One message that a consumer cannot make sense of, before any serde is asked: its bytes as they were
    found, and why."""

    error: SerdeError

    def envelopes(self) -> list[IncomingMessageEnvelope]:
        return [Undecodable(self.ssp, self.offsets[0], self.keys[0], self.messages[0], error=self.error)]


class ArrowChunk(Struct, gc=False):
    """Messages as Arrow read them: ``batch`` has the columns ``COLUMNS`` in their order (under whatever
    names), the offsets as int64."""

    ssp: SystemStreamPartition
    batch: pa.RecordBatch

    def __len__(self) -> int:
        rows: int = self.batch.num_rows
        return rows

    def offset(self, at: int) -> str:
        return str(self.batch.column(0)[at].as_py())

    def part(self, start: int, stop: int) -> ArrowChunk:
        return ArrowChunk(self.ssp, self.batch.slice(start, stop - start))

    def envelopes(self) -> list[IncomingMessageEnvelope]:
        return self.lists().envelopes()

    def values(self) -> list[Any]:
        messages: list[Any] = self.batch.column(3).to_pylist()
        return messages

    def columns(self) -> pa.RecordBatch:
        import pyarrow as pa

        return pa.RecordBatch.from_arrays(self.batch.columns, names=list(COLUMNS))

    def lists(self) -> Chunk:
        """The same as lists of Python objects."""
        offsets, timestamps, keys, values, headers = self.batch.columns
        rows = self.batch.num_rows
        if not rows:
            return Chunk(self.ssp, [], [], [])
        # Compaction and transactions leave gaps; without them the texts of the offsets need not be made.
        first = offsets[0].as_py()
        in_a_row = offsets[rows - 1].as_py() - first == rows - 1
        numbers = numbered(first, first + rows) if in_a_row else list(map(str, offsets.to_pylist()))
        return Chunk(
            self.ssp,
            numbers,
            [None] * rows if keys.null_count == rows else keys.to_pylist(),
            values.to_pylist(),
            timestamps.to_pylist(),
            None
            if headers.null_count == rows
            else [None if header is None else dict(header) for header in headers.to_pylist()],
        )


def chunk_of(ssp: SystemStreamPartition, batches: Sequence[pa.RecordBatch]) -> Chunk:
    """Make one chunk, in lists, of the batches of one read."""
    chunks = [ArrowChunk(ssp, batch).lists() for batch in batches]
    return chunks[0] if len(chunks) == 1 else Chunk.joined(chunks)


_THOUSAND = 1000
_ENDINGS = [f"{number:03}" for number in range(_THOUSAND)]


def numbered(start: int, stop: int) -> list[str]:
    """The whole numbers from ``start`` to before ``stop`` as text: offsets in a row.

    They are made a thousand at a time and kept for a while. Partitions that are read side by side share them,
    and to make them costs a consumer as much as all else it does."""
    first, last = start // _THOUSAND, stop // _THOUSAND
    if first == last:
        return _thousand(first)[start % _THOUSAND : stop % _THOUSAND]
    texts = _thousand(first)[start % _THOUSAND :]
    for number in range(first + 1, last):
        texts += _thousand(number)
    if stop % _THOUSAND:
        texts += _thousand(last)[: stop % _THOUSAND]
    return texts


@lru_cache(maxsize=64)
def _thousand(number: int) -> list[str]:
    """The numbers of one thousand; not to be changed."""
    return list(map(str(number).__add__, _ENDINGS)) if number else list(map(str, range(_THOUSAND)))
