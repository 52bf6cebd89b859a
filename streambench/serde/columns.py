"""Decoded messages as Arrow tables: a row per message, a column per field."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streambench.errors import SerdeError

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_BLOCK = (1 << 31) - 1


def table_of(objects: Sequence[Any], schema: pa.Schema | None = None) -> pa.Table:
    """The table of objects; None is a row of nulls. Objects that have no fields make a column ``message``. Raises SerdeError."""
    import pyarrow as pa

    try:
        if all(each is None or isinstance(each, dict) for each in objects):
            rows = [each or {} for each in objects]
            names = list(schema.names if schema is not None else dict.fromkeys(name for row in rows for name in row))
            if schema is not None:
                return pa.Table.from_pylist(rows, schema=schema)
            return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
        return pa.table({"message": pa.array(objects)}) if schema is None else pa.table({"message": pa.array(objects)}, schema=schema)
    except (pa.ArrowException, TypeError, OverflowError, KeyError) as error:
        hint = "they do not fit the schema" if schema is not None else "give table() a schema, or go over the batch one by one"
        raise SerdeError(f"these messages make no table ({error}): {hint}") from error


def json_table(messages: pa.Array, schema: pa.Schema | None = None) -> pa.Table | None:
    """What pyarrow's reader makes of JSON objects, null for a message being an object without fields.

    None where it is not certain that there is one row for each message with the values that the JSON serde would give, which then decides.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if not pa.types.is_binary(messages.type):
            return None
        if messages.null_count:
            messages = pc.fill_null(messages, b"{}")
        # Checks that it is UTF-8, which the reader does not. An object that ends where its message does cannot run into the next one.
        texts = messages.cast(pa.string())
        if not (pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py()):
            return None
        table = _read(_lines(texts), schema)
        if schema is None:
            plain = pa.schema([field.with_type(_without_times(field.type)) for field in table.schema])
            if plain != table.schema:
                table = _read(_lines(texts), plain)
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(messages) else None


def _lines(texts: pa.Array) -> pa.Buffer:
    import pyarrow as pa
    import pyarrow.compute as pc

    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array([0, len(texts)], pa.int32()), texts), "\n")
    return joined[0].as_buffer()


def _read(lines: pa.Buffer, schema: pa.Schema | None) -> pa.Table:
    import pyarrow as pa
    import pyarrow.json

    # In one block: types are found out per block.
    block = min(max(lines.size + 1, 1 << 12), _LARGEST_BLOCK)
    return pa.json.read_json(
        pa.BufferReader(lines),
        read_options=pa.json.ReadOptions(use_threads=False, block_size=block),
        parse_options=pa.json.ParseOptions(
            explicit_schema=schema,
            newlines_in_values=True,
            unexpected_field_behavior="infer" if schema is None else "ignore",
        ),
    )


def _without_times(kind: pa.DataType) -> pa.DataType:
    """The type with text in the place of times: pyarrow takes text for a time where all of a column looks like one."""
    import pyarrow as pa

    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    return kind
