"""Decoded messages as Arrow tables: a row per message, a column per field."""

from __future__ import annotations

import dataclasses
import datetime as dt
import re
from collections.abc import Sequence
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import msgspec

from streambench.errors import SerdeError

if TYPE_CHECKING:
    import pyarrow as pa

_LARGEST_BLOCK = (1 << 31) - 1
_EXACT = 2.0**53
# What pyarrow takes for a number, though it is no JSON.
_NO_NUMBER = re.compile(rb"[:,\[]\s*-?(?:NaN|Inf)")
_OF_ARROW = (bytes, bytearray, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal)


def table_of(objects: Sequence[Any], schema: pa.Schema | None = None) -> pa.Table:
    """The table of objects: dicts, msgspec Structs, dataclasses; None is a row of nulls. Objects that have no
    fields make a column ``message``. Raises SerdeError."""
    import pyarrow as pa

    try:
        found = [each if isinstance(each, dict) else _fields(each) for each in objects]
        rows = [each for each in found if each is not None]
        if len(rows) < len(found):
            return pa.table({"message": pa.array(objects)}, schema=schema)
        if schema is not None:
            for field in schema:
                _check_whole([row.get(field.name) for row in rows], field.type)
            return pa.Table.from_pylist(rows, schema=schema)
        names = dict.fromkeys(name for row in rows for name in row)
        if not names:  # so many rows all the same
            return pa.table({"message": pa.nulls(len(rows))}).select([])
        return pa.table({name: pa.array([row.get(name) for row in rows]) for name in names})
    except (pa.ArrowException, TypeError, ValueError, OverflowError, KeyError) as error:
        hint = "they do not fit the schema"
        if schema is None:
            hint = "give table() a schema, or go over the batch one by one"
        raise SerdeError(f"these messages make no table ({error}): {hint}") from error


def json_table(messages: pa.Array, schema: pa.Schema | None = None) -> pa.Table | None:
    """Return what pyarrow's reader makes of JSON objects, null for a message being an object without fields.

    None where it is not certain that there is one row for each message with the values of the JSON serde.
    That serde then decides.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        if not pa.types.is_binary(messages.type):
            return None
        if messages.null_count:
            messages = pc.fill_null(messages, b"{}")
        # Checks that it is UTF-8, which the reader does not. An object that ends where its message does
        # cannot run into the next one.
        texts = messages.cast(pa.string())
        if not (pc.all(pc.starts_with(texts, "{")).as_py() and pc.all(pc.ends_with(texts, "}")).as_py()):
            return None
        lines = _lines(texts)
        raw = lines.to_pybytes()
        if (b"NaN" in raw or b"Inf" in raw) and _NO_NUMBER.search(raw):
            return None
        table = _read(lines, schema)
        if schema is None:
            plain = pa.schema([field.with_type(_without_times(field.type)) for field in table.schema])
            if plain != table.schema:
                table = _read(lines, plain)
            if not all(_is_exact(column) for column in table.columns):
                return None
    except pa.ArrowException:
        return None
    return table if table.num_rows == len(messages) else None


def _fields(value: Any) -> dict[str, Any] | None:
    """The fields of an object by name, None for one that has none."""
    if value is None:
        return {}
    if not isinstance(value, msgspec.Struct) and not dataclasses.is_dataclass(value):
        return None
    fields = msgspec.to_builtins(value, builtin_types=_OF_ARROW)
    return fields if isinstance(fields, dict) else None


def _check_whole(values: Sequence[Any], kind: pa.DataType) -> None:
    """Raise ValueError where pyarrow would cut the fraction off a number to make it an integer."""
    import pyarrow as pa

    if pa.types.is_integer(kind):
        wrong = next((each for each in values if isinstance(each, float) and not each.is_integer()), None)
        if wrong is not None:
            raise ValueError(f"{wrong!r} is no {kind}")
    elif pa.types.is_struct(kind):
        inside = [each for each in values if isinstance(each, dict)]
        for field in kind:
            _check_whole([each.get(field.name) for each in inside], field.type)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        _check_whole(
            [item for each in values if isinstance(each, (list, tuple)) for item in each], kind.value_type
        )


def _is_exact(column: pa.ChunkedArray) -> bool:
    """Return True where no float in it can have been a whole number beyond a float's precision."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        return pc.all(pc.less(pc.abs(column), _EXACT)).as_py() is not False
    if pa.types.is_struct(column.type):
        return all(_is_exact(field) for field in column.flatten())
    return not pa.types.is_list(column.type) or _is_exact(pc.list_flatten(column))


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
    """The type with text in the place of times: pyarrow takes text for a time where all of a column looks
    like one."""
    import pyarrow as pa

    if pa.types.is_temporal(kind):
        return pa.string()
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_without_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_without_times(kind.value_type)))
    return kind
