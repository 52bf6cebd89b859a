"""A batch of messages as one object: the argument of a task's ``process_batch``.

Calling Python once per message is what limits a stream task. Work on whole columns, by pyarrow, polars or
whatever reads Arrow, is not limited by it. So the messages stay as they were read, and are decoded only on
demand. A batch from a log system shares the memory of the log's segments, and costs as much for one message
as for ten thousand.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from streambench.chunk import COLUMNS, Chunk, Messages, Undecodable, Unreadable
from streambench.errors import SerdeError, shortened
from streambench.model import IncomingMessageEnvelope, SystemStreamPartition
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde
from streambench.serde.columns import json_table, table_of
from streambench.serde.streams import decoded, readable, undecodable

if TYPE_CHECKING:
    import pyarrow as pa

SERDE = b"streambench.serde"
"""Under which name the metadata of an Arrow field says which serde, as the configuration calls it, reads the
bytes of the column."""

LeaveOut = Callable[[IncomingMessageEnvelope, SerdeError], None]
"""Takes a message, as it was read, that cannot be decoded: it raises the error, or returns and the message
is left out."""


class MessageBatch:
    """Consecutive messages of one partition, at least one.

    There are three ways to read it. ``to_arrow()`` gives the columns as they were read. ``table()`` gives the
    fields of the decoded messages as columns. Iteration gives the envelopes that ``process`` would get one by
    one.

    Nothing is decoded before it is asked for. A message that cannot be decoded is an error only then. It is a
    SerdeError that names its offset, which ends the job as it does for ``process``. Where the configuration
    says to drop such messages or to send them to a dead-letter stream, that happens instead. ``table``,
    ``messages`` and iteration then lack the message. ``len`` and ``to_arrow`` always count all of them. Code
    that reads only the bytes gets them as they are.
    """

    def __init__(
        self,
        pieces: Sequence[Messages],
        key_serde: Serde | None = None,
        message_serde: Serde | None = None,
        undecodable: LeaveOut | None = None,
        serdes: tuple[str | None, str | None] = (None, None),
    ) -> None:
        """``pieces``: what was read, in order, none of it empty. Without a serde, keys or messages are what
        was read. ``serdes``: what the configuration calls those of keys and of messages, for ``to_arrow`` to
        say so."""
        self._pieces = pieces
        self._key_serde = key_serde
        self._message_serde = message_serde
        self._undecodable = undecodable or _refuse
        self._serdes = serdes
        self._length = sum(map(len, pieces))
        self._left_out: set[str] = set()

    @classmethod
    def of(cls, envelopes: Sequence[IncomingMessageEnvelope]) -> MessageBatch:
        """A batch of envelopes of one partition, to try a task out with. Raises ValueError where there is
        none, or of several."""
        if len({envelope.ssp for envelope in envelopes}) != 1:
            raise ValueError("a batch holds messages of one partition, and at least one of them")
        return cls([Chunk.of(envelopes[0].ssp, envelopes)])

    @property
    def ssp(self) -> SystemStreamPartition:
        """The partition that all of it comes from."""
        return self._pieces[0].ssp

    @property
    def first_offset(self) -> str:
        """The offset of the first message."""
        return self._pieces[0].offset(0)

    @property
    def last_offset(self) -> str:
        """The offset of the last message. When ``process_batch`` has returned, all up to it counts as
        processed."""
        return self._pieces[-1].offset(len(self._pieces[-1]) - 1)

    def __len__(self) -> int:
        return self._length

    def __repr__(self) -> str:
        return f"<MessageBatch {self.ssp}@{self.first_offset}..{self.last_offset}: {self._length} messages>"

    def __iter__(self) -> Iterator[IncomingMessageEnvelope]:
        """The messages one by one, decoded by the stream's serdes. Raises SerdeError where one cannot be."""
        plain = self._key_serde is None and self._message_serde is None
        for piece in self._pieces:
            raw = piece.envelopes()
            if isinstance(piece, Unreadable):
                yield from self._one_by_one(raw)
            else:
                yield from raw if plain else self._decoded(raw)

    def messages(self) -> list[Any]:
        """The decoded messages alone. Raises SerdeError where one cannot be."""
        return [message for _, message in self._decoded_messages()]

    def to_arrow(self) -> pa.RecordBatch:
        """The messages as they were read, with the columns offset, timestamp (ms), key, message and headers.

        ``offset`` is int64 where the system's offsets are whole numbers, else text. Keys and messages are
        binary; those of a system in memory are what was sent. What a log gives in one piece is not copied.
        The fields of key and message say in their metadata which serde reads them (``SERDE``). So
        ``send_batch`` does not pass them on to a stream of another one. Raises SerdeError for objects that
        make no column.
        """
        return self._noted_columns

    def table(self, *beside: str, schema: pa.Schema | None = None) -> pa.Table:
        """The decoded messages as a table: one row per message, one column per field of its object.

        ``beside``: which of the columns offset, timestamp, key and headers stand before them, as they were
        read. ``schema``: the fields wanted, with their types; without it, fields and types are found out from
        what is there, so that two batches may differ. A field that a message does not have is null, and so
        are all fields of a message that is None. Messages that have no fields make a column ``message``. JSON
        objects are parsed by pyarrow, not one by one; text stays text, whether it looks like a time or not.
        Where a schema wants floats, a number becomes the nearest one.

        Raises SerdeError where a message cannot be decoded, or where they make no table.
        """
        import pyarrow as pa

        unknown = [name for name in beside if name not in COLUMNS or name == "message"]
        if unknown:
            raise ValueError(
                f"there is no column {unknown[0]} to stand beside the fields; there are offset, timestamp, "
                "key, headers"
            )
        quickly = (
            type(self._message_serde) is JsonSerde
            and not self._left_out
            and Unreadable not in map(type, self._pieces)
        )
        fields = json_table(self._columns["message"], schema) if quickly else None
        places = None
        if fields is None:
            found = list(self._decoded_messages())
            fields = table_of([message for _, message in found], schema)
            places = pa.array([place for place, _ in found], pa.int64()) if len(found) < len(self) else None
        for name in reversed(beside):
            if name in fields.column_names:
                raise SerdeError(
                    f"{self}: the messages have a field '{name}' themselves; the column of that name is in "
                    "to_arrow()"
                )
            column = self._columns[name]
            fields = fields.add_column(0, name, column if places is None else column.take(places))
        return fields

    def peek(self, at_most: int | None = None) -> list[IncomingMessageEnvelope]:
        """The messages (the last ``at_most`` of them) for display. Nothing is left out or
        refused by it: what cannot be decoded is there as it was read, unless it was left out before."""
        pieces = (
            self._pieces if at_most is None else parts(self._pieces, self._length - at_most, self._length)
        )
        # A message that was left out for an error is not shown.
        return [
            self._readable(raw)
            for piece in pieces
            for raw in piece.envelopes()
            if raw.offset not in self._left_out
        ]

    def raw(self) -> list[IncomingMessageEnvelope]:
        """The messages as they were read, without those that were left out because they cannot be decoded."""
        return [
            raw for piece in self._pieces for raw in piece.envelopes() if raw.offset not in self._left_out
        ]

    def part(self, start: int, stop: int) -> MessageBatch:
        """The messages from place ``start`` to before ``stop``, at least one."""
        part = MessageBatch(
            parts(self._pieces, start, stop),
            self._key_serde,
            self._message_serde,
            self._undecodable,
            self._serdes,
        )
        part._left_out = self._left_out
        return part

    def offset(self, at: int) -> str:
        """The offset of the message at place ``at``, from 0 on."""
        return offset_in(self._pieces, at)

    @cached_property
    def _noted_columns(self) -> pa.RecordBatch:
        columns = self._columns
        noted = [
            (name, serde)
            for name, serde in zip(("key", "message"), self._serdes, strict=True)
            if serde is not None
        ]
        if not noted:
            return columns
        import pyarrow as pa

        schema = columns.schema
        for name, serde in noted:
            at = schema.get_field_index(name)
            schema = schema.set(at, schema.field(at).with_metadata({SERDE: serde.encode()}))
        return pa.RecordBatch.from_arrays(columns.columns, schema=schema)

    @cached_property
    def _columns(self) -> pa.RecordBatch:
        if len(self._pieces) == 1:
            return self._pieces[0].columns()
        import pyarrow as pa

        tables = [pa.Table.from_batches([piece.columns()]) for piece in self._pieces]
        try:
            whole = pa.concat_tables(tables, promote_options="permissive").combine_chunks().to_batches()
        except pa.ArrowException as error:
            raise SerdeError(
                f"{self}: these messages make no columns ({error}); go over the batch one by one"
            ) from error
        if len(whole) != 1:
            raise SerdeError(
                f"{self} holds more than the 2 GiB that fit into one record batch; set task.batch.messages "
                "lower"
            )
        return whole[0]

    def _decoded(self, raw: list[IncomingMessageEnvelope]) -> Iterable[IncomingMessageEnvelope]:
        key_of, message_of = _decoder(self._key_serde), _decoder(self._message_serde)
        try:
            return [
                IncomingMessageEnvelope(
                    e.ssp, e.offset, key_of(e.key), message_of(e.message), e.timestamp, e.headers
                )
                for e in raw
            ]
        except Exception:
            return self._one_by_one(raw)

    def _one_by_one(self, raw: list[IncomingMessageEnvelope]) -> Iterator[IncomingMessageEnvelope]:
        """The messages of which one cannot be decoded, up to there or without it."""
        for each in raw:
            found = decoded(each, self._key_serde, self._message_serde)
            if isinstance(found, SerdeError):
                self._leave_out(each, found)
            else:
                yield found

    def _decoded_messages(self) -> Iterator[tuple[int, Any]]:
        """Place and decoded message of each that can be decoded."""
        decode = _decoder(self._message_serde)
        place = -1
        for piece in self._pieces:
            for at, value in enumerate(piece.values()):
                place += 1
                if isinstance(piece, Unreadable):
                    self._leave_out(piece.envelopes()[0], piece.error)
                    continue
                if self._left_out and piece.offset(at) in self._left_out:
                    continue
                try:
                    message = decode(value)
                except Exception as cause:
                    raw = piece.part(at, at + 1).envelopes()[0]
                    self._leave_out(raw, undecodable(raw, "message", self._message_serde, cause))
                else:
                    yield place, message

    def _readable(self, raw: IncomingMessageEnvelope) -> IncomingMessageEnvelope:
        if type(raw) is Undecodable:
            return raw
        key, message = readable(self._key_serde, raw.key), readable(self._message_serde, raw.message)
        return IncomingMessageEnvelope(raw.ssp, raw.offset, key, message, raw.timestamp, raw.headers)

    def _leave_out(self, raw: IncomingMessageEnvelope, error: SerdeError) -> None:
        """Once per message, however often it is read."""
        if raw.offset not in self._left_out:
            self._undecodable(raw, error)
            self._left_out.add(raw.offset)


def parts(pieces: Iterable[Messages], start: int, stop: int) -> list[Messages]:
    """Return the part between two positions of all pieces together."""
    found: list[Messages] = []
    for piece in pieces:
        length = len(piece)
        if start < length and stop > 0:
            found.append(piece.part(max(start, 0), min(stop, length)))
        start, stop = start - length, stop - length
    return found


def offset_in(pieces: Sequence[Messages], at: int) -> str:
    """The offset of the message at a place of all pieces together. Raises IndexError."""
    for piece in pieces:
        if at < len(piece):
            return piece.offset(at)
        at -= len(piece)
    raise IndexError(at)


def _decoder(serde: Serde | None) -> Callable[[Any], Any]:
    """Return the decoder of one value; None stays None."""
    if serde is None:
        return lambda value: value
    decode = serde.from_bytes
    return lambda value: None if value is None else decode(value)


def _refuse(raw: IncomingMessageEnvelope, error: SerdeError) -> None:
    raise error


def place_of(batch: MessageBatch) -> str:
    """The partition and offsets of a batch, in words; of a single message also its key."""
    if len(batch) > 1:
        return f"{batch.ssp}@{batch.first_offset}..{batch.last_offset} (a run of {len(batch)} messages)"
    keys = [each.key for each in batch.peek()]
    key = keys[0] if keys else None
    return f"{batch.ssp}@{batch.first_offset}" + ("" if key is None else f", key {shortened(key)}")
