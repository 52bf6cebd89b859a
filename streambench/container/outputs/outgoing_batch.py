"""Messages sent by the column: ``collector.send_batch``.

What one ``send`` does for a message is done here for a whole column. It is serialised, dealt out to
partitions by key, and handed to the producer as Arrow arrays. A log appends them as they are. A column takes
the way of single messages where something is known only message by message. Examples are a key that is no
bytes in a stream without a serde, and a system that takes envelopes.
"""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct

from streambench.batch import SERDE
from streambench.container.outputs.stream_writers import OnUnserialisable, Write, hashed_bytes
from streambench.errors import MessageTooLargeError, SerdeError, class_name
from streambench.model import OutgoingMessageEnvelope, SystemStream
from streambench.rows import check_headers
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde, StringSerde
from streambench.serde.streams import StreamSerdes
from streambench.system.api import SendColumns, Sender, row_by_row
from streambench.system.partitioner import key_bytes, partition_for
from streambench.system.timestamps import as_milliseconds

if TYPE_CHECKING:
    import pyarrow as pa

Column: TypeAlias = Any
"""An Arrow array, or a list of Python objects."""

_TAKEN_OVER = ("key", "timestamp", "headers")


class BatchTarget(Struct, frozen=True):
    """The name by which an outbox knows the way of batches to a stream, apart from that of its single
    messages."""

    stream: SystemStream


_COLUMNS = ("messages", "keys", "partition_keys", "partitions", "timestamps", "headers")


class OutgoingBatch:
    """Messages for one stream, by the column. All columns are None or of one length.

    ``refused``: the rows that were refused when it was sent last, in that order."""

    __slots__ = (
        "headers",
        "keys",
        "messages",
        "partition_keys",
        "partitions",
        "refused",
        "serdes",
        "system_stream",
        "timestamps",
    )

    def __init__(
        self, stream: SystemStream, messages: Any, keys: Any = None, *,
        partition_keys: Any = None, partitions: Any = None, timestamps: Any = None, headers: Any = None,
    ) -> None:  # fmt: skip
        """The arguments of ``MessageCollector.send_batch``. Raises SerdeError for what cannot be sent."""
        if not isinstance(stream, SystemStream):
            raise SerdeError(f"send_batch takes a SystemStream(system, stream) first, not {stream!r}")
        taken: dict[str, Any] = {"key": keys, "timestamp": timestamps, "headers": headers}
        self.serdes: dict[str, str] = {}
        """The serdes by which columns of bytes were written, where that was noted."""
        if _is_table(messages):
            messages, found, self.serdes = _of_table(messages)
            if keys is not None:
                self.serdes.pop("key", None)
            taken = {name: found.get(name) if given is None else given for name, given in taken.items()}
        self.system_stream = BatchTarget(stream)
        self.refused: list[int] = []
        if messages is None:
            raise SerdeError("send_batch takes the messages as a column or a table, not None")
        self.messages = column = _column("messages", messages)
        self.keys: Column | None = _column("keys", taken["key"])
        timestamps = _column("timestamps", taken["timestamp"])
        self.timestamps: pa.Array | None = None if timestamps is None else as_milliseconds(timestamps)
        self.headers: Column | None = _column("headers", taken["headers"])
        self.partition_keys: Column | None = _column("partition_keys", partition_keys)
        assert column is not None
        count = len(column)
        self.partitions: Column | None = _column(
            "partitions", [partitions] * count if type(partitions) is int else partitions
        )
        for name in ("keys", "timestamps", "headers", "partition_keys", "partitions"):
            column = getattr(self, name)
            if column is not None and len(column) != count:
                raise SerdeError(f"{count} messages cannot be sent with {len(column)} {name}")

    @property
    def stream(self) -> SystemStream:
        """The stream of the batch."""
        return self.system_stream.stream

    def __len__(self) -> int:
        return 0 if self.messages is None else len(self.messages)

    def envelopes(self, start: int = 0, stop: int | None = None) -> Iterator[OutgoingMessageEnvelope]:
        """The messages one by one, from place ``start`` to before ``stop``."""
        stop = len(self) if stop is None else stop
        columns = (getattr(self, name) for name in _COLUMNS)
        for message, key, partition_key, partition, timestamp, headers in zip(
            *(
                [None] * (stop - start) if column is None else _objects(column[start:stop])
                for column in columns
            ),
            strict=True,
        ):
            yield OutgoingMessageEnvelope(
                self.stream, message, key, partition_key, partition, timestamp, _named(headers)
            )

    def rows(self, rows: Sequence[int]) -> OutgoingBatch:
        """A batch of these rows, in this order."""
        import pyarrow as pa

        places = pa.array(rows, pa.int64())
        taken = OutgoingBatch.__new__(OutgoingBatch)
        taken.system_stream, taken.serdes, taken.refused = self.system_stream, self.serdes, []
        for name in _COLUMNS:
            column = getattr(self, name)
            if isinstance(column, list):
                column = [column[row] for row in rows]
            elif column is not None:
                column = column.take(places)
            setattr(taken, name, column)
        return taken

    def without(self, rows: Sequence[int]) -> OutgoingBatch:
        """A batch of all rows but these."""
        left_out = set(rows)
        return self.rows([row for row in range(len(self)) if row not in left_out])


class RowReport:
    """Reports the messages of a batch that are refused, and notes their rows in ``OutgoingBatch.refused``.

    ``row``: the row that is handed over. ``following``: the rows of the part that is handed over, from which
    ``row`` is taken where they go one by one."""

    __slots__ = ("_refused", "_unserialisable", "following", "row")

    def __init__(self, unserialisable: OnUnserialisable) -> None:
        self._unserialisable = unserialisable
        self._refused: list[int] = []
        self.row = 0
        self.following: Iterator[int] = iter(())

    def begin(self, batch: OutgoingBatch) -> None:
        """Begin with another batch."""
        self._refused = batch.refused = []

    def __call__(self, source: str, envelope: OutgoingMessageEnvelope, error: Exception) -> None:
        """Report the message of the current row. Raises what that raises."""
        self._unserialisable(source, envelope, error)
        self._refused.append(self.row)


class ColumnarWriter:
    """The writer of batches for one output stream, as ``stream_writer`` is for messages, which ``single``
    takes.

    ``send`` takes what is encoded, for one partition. Both report to ``report`` what they refuse."""

    def __init__(
        self,
        stream: SystemStream,
        send: SendColumns,
        single: Write,
        partitions: int,
        key_serde: Serde | None,
        message_serde: Serde | None,
        report: RowReport,
    ) -> None:
        self._stream = stream
        self._send = send
        self._single = single
        self._partitions = partitions
        self._key_serde = key_serde
        self._message_serde = message_serde
        self._report = report
        self._next = 0

    def put(self, source: str, batch: OutgoingBatch) -> None:
        """Encode a batch and hand it over, a part for each partition. What cannot be encoded is reported as a
        message by itself."""
        report = self._report
        report.begin(batch)
        if not goes_by_column(batch, self._key_serde, self._message_serde):
            for report.row, envelope in enumerate(batch.envelopes()):
                self._single(source, envelope)
            return
        bad: dict[int, Exception] = {}
        rows = self._rows(batch, bad)
        to = self._partitions_of(batch, rows.column(0), bad)
        # Only now, since a partition or a key may be wrong, too; in order, as single messages would fail.
        for at in sorted(bad):
            report.row = at
            report(source, next(batch.envelopes(at, at + 1)), bad[at])
        good = None
        if bad:
            import pyarrow as pa

            good = pa.array([at for at in range(len(batch)) if at not in bad], pa.int32())
            rows, to = rows.take(good), to.take(good)
        self._send_parts(source, rows, to, good)

    def _rows(self, batch: OutgoingBatch, bad: dict[int, Exception]) -> pa.RecordBatch:
        """The batch as bytes. What cannot be encoded is null and noted in ``bad``."""
        import pyarrow as pa

        count = len(batch)
        keys = _encoded("key", batch.keys, self._key_serde, count, bad, self._stream)
        messages = _encoded("message", batch.messages, self._message_serde, count, bad, self._stream)
        times = pa.nulls(count, pa.int64()) if batch.timestamps is None else batch.timestamps
        kind = pa.map_(pa.string(), pa.binary())
        named = None if batch.headers is None else _checked_headers(batch.headers, bad, self._stream)
        headers = pa.nulls(count, kind) if named is None else _cast("headers", named, kind)
        return pa.RecordBatch.from_arrays(
            [keys, messages, times, headers], names=["key", "message", "timestamp", "headers"]
        )

    def _partitions_of(self, batch: OutgoingBatch, keys: pa.Array, bad: dict[int, Exception]) -> pa.Array:
        """The partition of each message."""
        import pyarrow as pa
        import pyarrow.compute as pc

        found: list[pa.Array] = []
        if batch.partitions is not None:
            found.append(_numbered(batch.partitions, self._stream, self._partitions, bad))
        if self._partitions == 1:
            return pa.nulls(len(batch), pa.int32())
        # Each column decides what those before it have left open: partition, partition key, key.
        for column in (batch.partition_keys, keys):
            if column is not None and (not found or found[-1].null_count):
                wrong: dict[int, Exception] = {}
                known = _hashed(column, self._partitions, wrong)
                for at, error in wrong.items():
                    # Where the partition is known, a key that cannot be hashed does no harm.
                    if not found or not found[-1][at].is_valid:
                        bad.setdefault(at, error)
                found.append(known if not found else pc.coalesce(found[-1], known))
        to = found[-1] if found else pa.nulls(len(batch), pa.int32())
        return self._in_turn(to) if to.null_count else to

    def _in_turn(self, to: pa.Array) -> pa.Array:
        """Give the messages without a key to the partitions in turn, from where the last batch ended."""
        import pyarrow as pa
        import pyarrow.compute as pc

        missing, partitions = to.null_count, self._partitions
        round_ = [(self._next + at) % partitions for at in range(partitions)]
        turns = pa.array((round_ * (missing // partitions + 1))[:missing], pa.int32())
        self._next = (self._next + missing) % partitions
        return turns if missing == len(to) else pc.replace_with_mask(to, pc.is_null(to), turns)

    def _send_parts(
        self, source: str, rows: pa.RecordBatch, to: pa.Array, numbers: pa.Array | None
    ) -> None:
        """Send to each partition its messages, in the order in which they were sent. ``numbers``: the rows of
        the batch that these are, where some are left out."""
        import pyarrow.compute as pc

        report = self._report
        if self._partitions == 1:
            if rows.num_rows:
                report.following = _numbers_from(0, numbers)
                self._send(source, 0, rows)
            return
        order = pc.sort_indices(to)  # a stable sort
        rows, to = rows.take(order), to.take(order)
        start = 0
        for number, count in zip(*_lengths(to), strict=True):
            report.following = _numbers_from(start, order, numbers)
            self._send(source, number, rows.slice(start, count))
            start += count


def skip_oversized(
    stream: SystemStream, send: SendColumns | None, send_one: Sender, report: RowReport
) -> SendColumns:
    """``send``, where all that it is given can be sent. Messages that the system does not take are left out,
    and ``report`` is called with them. Without a ``send`` the messages go one by one to ``send_one``."""

    def send_or_report(
        source: str, envelope: OutgoingMessageEnvelope, key: Any, message: Any, partition: int
    ) -> None:
        report.row = next(report.following)
        try:
            send_one(source, envelope, key, message, partition)
        except (SerdeError, MessageTooLargeError) as error:
            report(source, envelope, error)

    one_by_one = row_by_row(stream, send_or_report)
    if send is None:
        return one_by_one

    def send_columns(source: str, partition: int, columns: pa.RecordBatch) -> None:
        try:
            send(source, partition, columns)
        except MessageTooLargeError:
            one_by_one(source, partition, columns)

    return send_columns


def _numbers_from(start: int, *orders: pa.Array | None) -> Iterator[int]:
    """The rows of a batch that stand at ``start`` and behind it, through all orders and selections since.

    Nothing is looked up before it is asked for: most parts are sent whole."""
    for at in itertools.count(start):
        for order in orders:
            at = at if order is None else order[at].as_py()
        yield at


def check_serdes(source: str, batch: OutgoingBatch, serdes: StreamSerdes) -> None:
    """Raise SerdeError where bytes are noted to be of a serde that is not the stream's: no consumer could
    read them there."""
    for what, wanted in zip(("key", "message"), serdes.names_for(batch.stream), strict=True):
        written = batch.serdes.get(what)
        if written is not None and wanted is not None and not serdes.can_read(wanted, written):
            raise SerdeError(
                f"{source} sent a column '{what}' of {written} bytes to {batch.stream}, whose {what} serde "
                f"is {wanted}: send what is "
                "decoded (of batch.table(), or of the envelopes of the batch) to have it written as "
                f"{wanted}; or, if the bytes are "
                f"{wanted} by now, the column by itself"
            )


def _lengths(sorted_partitions: pa.Array) -> tuple[list[int], list[int]]:
    import pyarrow.compute as pc

    counted = pc.value_counts(sorted_partitions)
    return counted.field("values").to_pylist(), counted.field("counts").to_pylist()


def _numbered(column: Column, stream: SystemStream, partitions: int, bad: dict[int, Exception]) -> pa.Array:
    """The partitions that messages name, null where they name none. Numbers out of range are null, too, and
    noted in ``bad``."""
    import pyarrow as pa

    numbers: list[int | None] = []
    for at, number in enumerate(_objects(column)):
        if number is None or (isinstance(number, Integral) and 0 <= int(number) < partitions):
            numbers.append(None if number is None else int(number))
        else:
            numbers.append(None)
            error = f"partition {number!r} is out of range: {stream} has {partitions}, numbered from 0"
            bad.setdefault(at, SerdeError(error))
    return pa.array(numbers, pa.int32())


def _hashed(column: Column, partitions: int, wrong: dict[int, Exception]) -> pa.Array:
    """The partition of each key, null where there is none: worked out once for each different key. Keys that
    can have none are null, too, and noted in ``wrong``."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not isinstance(column, pa.Array) or not (
        _is_bytes(column) or _is_text(column) or pa.types.is_signed_integer(column.type)
    ):
        keys: list[bytes | None] = []
        for at, key in enumerate(_objects(column)):
            try:
                keys.append(None if key is None else hashed_bytes(key))
            except SerdeError as error:
                wrong[at] = error
                keys.append(None)
        column = pa.array(keys, pa.binary())
    coded = pc.dictionary_encode(column)
    places = [
        None if key is None else partition_for(key_bytes(key), partitions)
        for key in coded.dictionary.to_pylist()
    ]
    return pa.array(places, pa.int32()).take(coded.indices)


def goes_by_column(batch: OutgoingBatch, key_serde: Serde | None, message_serde: Serde | None) -> bool:
    """True for a batch that can become bytes as a whole. The messages of any other go one by one, and those
    without a key take their turn with single messages."""
    return _is_encodable(batch.keys, key_serde) and _is_encodable(batch.messages, message_serde)


def _is_encodable(column: Column | None, serde: Serde | None) -> bool:
    """True where a column can become bytes as a whole: objects without a serde cannot."""
    import pyarrow as pa

    if column is None or serde is not None:
        return True
    return isinstance(column, pa.Array) and (_is_bytes(column) or _is_text(column))


def _encoded(
    what: str,
    column: Column | None,
    serde: Serde | None,
    count: int,
    bad: dict[int, Exception],
    stream: SystemStream,
) -> pa.Array:
    """The column as bytes. What cannot be encoded is null and noted in ``bad``."""
    import pyarrow as pa

    if column is None:
        return pa.nulls(count, pa.binary())
    if isinstance(column, pa.Array):
        if _is_bytes(column):
            return _cast(what, column, pa.binary())
        if _is_text(column):
            if serde is None or type(serde) is StringSerde:
                return _cast(what, column, pa.binary())
            if isinstance(serde, JsonSerde):
                raise SerdeError(
                    f"a column of text was sent as {what} to {stream}, whose serde is json: if it is JSON "
                    "already, cast it to binary; "
                    "if it is to become JSON, give a list"
                )
    assert serde is not None
    encode = serde.to_bytes
    encoded: list[bytes | None] = []
    for at, value in enumerate(_objects(column)):
        try:
            encoded.append(None if value is None else encode(value))
        except Exception as error:
            bad.setdefault(at, error)
            encoded.append(None)
    return pa.array(encoded, pa.binary())


def _checked_headers(column: Column, bad: dict[int, Exception], stream: SystemStream) -> Column:
    """The headers; of a list, those that cannot be sent are None and noted in ``bad``."""
    if not isinstance(column, list):
        return column
    checked: list[Mapping[str, bytes] | None] = []
    for at, headers in enumerate(column):
        named = _named(headers)
        try:
            check_headers(stream, named)
        except SerdeError as error:
            bad.setdefault(at, error)
            named = None
        checked.append(named)
    return checked


def _named(headers: Any) -> Any:
    """Headers as a mapping, also where they are pairs, as Arrow has them; anything else as it is."""
    if headers is None or isinstance(headers, Mapping):
        return headers
    try:
        return dict(headers)
    except (TypeError, ValueError):
        return headers


def _objects(column: Column) -> Sequence[Any]:
    values: Sequence[Any] = column if isinstance(column, list) else column.to_pylist()
    return values


def _cast(what: str, column: Column, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        if not isinstance(column, pa.Array):
            entries = [list(each.items()) if isinstance(each, Mapping) else each for each in column]
            return pa.array(entries, kind)
        return column if column.type == kind else column.cast(kind)
    except (pa.ArrowException, OverflowError) as error:
        raise SerdeError(f"{what} cannot be made {kind}: {error}") from error


def _is_bytes(column: pa.Array | pa.Field) -> bool:
    import pyarrow as pa

    kind = column.type
    return any(
        test(kind)
        for test in (
            pa.types.is_binary,
            pa.types.is_large_binary,
            pa.types.is_binary_view,
            pa.types.is_fixed_size_binary,
            pa.types.is_null,
        )
    )


def _is_text(column: pa.Array) -> bool:
    import pyarrow as pa

    return any(
        test(column.type) for test in (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
    )


def _is_table(given: Any) -> bool:
    """Arrow's own, and the data frames that give themselves as Arrow (polars, pandas); a Series has no
    columns."""
    return (
        hasattr(given, "schema")
        and hasattr(given, "column_names")
        or (hasattr(given, "__arrow_c_stream__") and hasattr(given, "columns"))
    )


def _is_pandas_series(given: Any) -> bool:
    """Only a process that has imported pandas can have one; others do not wait for the import."""
    pandas = sys.modules.get("pandas")
    return isinstance(given, getattr(pandas, "Series", ()))


def _of_table(given: Any) -> tuple[Any, dict[str, Any], dict[str, str]]:
    """Messages, what else is there by name, and the serdes that are noted of key and message. A table without
    a column ``message`` holds the fields of messages that are objects."""
    import pyarrow as pa

    table = given if isinstance(given, (pa.Table, pa.RecordBatch)) else pa.table(given)
    if "message" not in table.schema.names:
        return table.to_pylist(), {}, {}
    noted = {
        each.name: each.metadata[SERDE]
        for each in table.schema
        if SERDE in (each.metadata or {}) and _is_bytes(each)
    }
    serdes = {name: serde.decode() for name, serde in noted.items()}
    return table["message"], {name: table[name] for name in _TAKEN_OVER if name in table.schema.names}, serdes


def _column(what: str, given: Any) -> Column | None:
    """A column as an Arrow array, or as a list where that is how it was given and it is not bytes."""
    import pyarrow as pa

    if given is None:
        return None
    if isinstance(given, (list, tuple)):
        return (
            pa.array(given, pa.binary())
            if set(map(type, given)) <= {bytes, type(None)} and what in ("keys", "messages")
            else [*given]
        )
    try:
        if _is_pandas_series(given):
            if given.dtype == object:
                values = given.where(given.notna(), None).tolist()
                if len(set(map(type, values)) - {type(None)}) > 1 or not all(
                    isinstance(each, (bytes, str, type(None))) for each in values
                ):
                    return values  # Arrow would make one struct of dicts, with the names of all in each
            given = pa.array(given, from_pandas=True)
        if not isinstance(given, (pa.Array, pa.ChunkedArray)):
            if not hasattr(given, "__arrow_c_stream__") and not hasattr(given, "__arrow_c_array__"):
                raise SerdeError(
                    f"{what} of a batch must be an Arrow array, a Series or a list, not "
                    f"{class_name(type(given))}"
                )
            given = pa.chunked_array(given) if hasattr(given, "__arrow_c_stream__") else pa.array(given)
        if isinstance(given, pa.ChunkedArray):
            given = given.combine_chunks()
        if isinstance(given, pa.ChunkedArray):
            raise SerdeError(
                f"{what} of a batch: more than the 2 GiB that fit into one array; send it in parts"
            )
        return given.dictionary_decode() if pa.types.is_dictionary(given.type) else given
    except (pa.ArrowException, OverflowError) as error:
        raise SerdeError(f"{what} of a batch cannot be read as Arrow: {error}") from error
