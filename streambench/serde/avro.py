"""Avro: each message is one datum, without its schema, which the configuration names.

The bytes are the plain binary encoding. With ``confluent.schema.id`` they have the five bytes before them
that Confluent's serializers write (a zero and the schema's id). Only messages with that id are read, and no
registry is asked.
"""

from __future__ import annotations

import datetime as dt
import io
import json
import math
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import fastavro
from fastavro import _read_py, _validation_py, _write_py
from fastavro.schema import fingerprint, load_schema, parse_schema, to_parsing_canonical_form

from streambench.config import Config
from streambench.errors import SerdeError, described
from streambench.serde.api import Serde

_HEADER_BYTES = 5


class AvroSerde(Serde):
    """Objects of one schema: records as dicts, and logical types (timestamps, decimals, uuids) as Python's
    own.

    What the schema cannot hold is refused: microseconds in milliseconds, a time without a zone as a moment,
    an int that no double is. The fraction of a number that is written as a float (32 bits) is the nearest
    one.

    A record must have the schema's fields and no others; those with a default may be missing.
    ``reader_schema``: how messages are to look when they are read, where that is not as they are written.
    Raises ValueError for a schema that is none.
    """

    def __init__(
        self, schema: Any, reader_schema: Any = None, *, confluent_schema_id: int | None = None
    ) -> None:
        written = _Schema(schema)
        read = None if reader_schema is None else _Schema(reader_schema)
        self._schema = written.parsed
        self._reader_schema = None if read is None else read.parsed
        self._header = b"" if confluent_schema_id is None else b"\0" + confluent_schema_id.to_bytes(4, "big")
        # What fastavro does in C has no limit of depth: bytes that nest deeply, or an object that holds
        # itself, would end the process.
        in_python = written.is_recursive or (read is not None and read.is_recursive)
        self._read: Callable[..., Any]
        self._write: Callable[..., None]
        self._check: _Check | None
        if in_python:
            self._read, self._write = _read_py.schemaless_reader, _write_py.schemaless_writer
            self._check = partial(_validation_py.validate, schema=self._schema)
        else:
            self._read, self._write = fastavro.schemaless_reader, fastavro.schemaless_writer
            self._check = _values(self._schema, {})

    @property
    def format(self) -> str:
        """The name of the bytes that it writes: the schema's fingerprint, and the id before them."""
        digest = fingerprint(to_parsing_canonical_form(self._schema), "CRC-64-AVRO")
        header = f", schema id {int.from_bytes(self._header[1:], 'big')}" if self._header else ""
        return f"avro (schema {digest}{header})"

    def to_bytes(self, value: Any) -> bytes:
        out = io.BytesIO()
        out.write(self._header)
        try:
            if self._check is not None:
                self._check(value)
            self._write(out, self._schema, value, strict_allow_default=True)
        except RecursionError:
            raise SerdeError("the object nests too deeply") from None
        return out.getvalue()

    def from_bytes(self, data: bytes) -> Any:
        source = io.BytesIO(data)
        if self._header:
            header = source.read(_HEADER_BYTES)
            if header != self._header:
                raise SerdeError(
                    f"the message begins with {header!r}; with the id of the configured schema it would be "
                    f"{self._header!r}"
                )
        try:
            value = self._read(source, self._schema, self._reader_schema)
        except RecursionError:
            raise SerdeError("the message nests too deeply") from None
        if source.tell() != len(data):
            raise SerdeError(
                f"{len(data) - source.tell()} bytes are left over behind the datum: this is another schema's"
            )
        return value


class AvroSerdeFactory:
    """Makes Avro serdes of ``serializers.registry.<n>.schema``, ``.reader.schema`` and
    ``.confluent.schema.id``."""

    def get_serde(self, name: str, config: Config) -> AvroSerde:
        prefix = f"serializers.registry.{name}."
        schema = _schema(config, prefix + "schema")
        has_reader = config.text(prefix + "reader.schema") is not None
        reader = _schema(config, prefix + "reader.schema") if has_reader else None
        key = prefix + "confluent.schema.id"
        number = config.integer(key) if config.text(key) is not None else None
        if number is not None and not 0 <= number < 2**31:
            raise config.error(
                key, f"{number} is not the id of a schema: those are numbers from 0 to {2**31 - 1}"
            )
        return AvroSerde(schema, reader, confluent_schema_id=number)


def _schema(config: Config, key: str) -> Any:
    """The schema that stands there, or in the file that is named there. Raises ConfigError."""
    text = config.required(key)
    path: Path | None = None if text[0] in '{["' else config.path(key)
    if path is not None and not path.is_file():
        raise config.error(key, f"there is no file {path} (a schema may also stand here itself, as JSON)")
    try:
        schema = json.loads(text) if path is None else load_schema(str(path))
        _Schema(schema)
    except json.JSONDecodeError as error:
        raise config.error(key, f"{path or 'the schema'} is not JSON: {error}") from None
    except Exception as error:
        raise config.error(
            key, f"{path or 'this'} is not an Avro schema that can be used: {described(error)}"
        ) from error
    return schema


class _Schema:
    """A schema, found to be one. Raises what fastavro raises, and ValueError where a few bytes of it could be
    read without end.

    ``is_recursive``: whether a record may hold another one of its own kind."""

    def __init__(self, definition: Any) -> None:
        self.parsed = parse_schema(definition)
        self.is_recursive = False
        self._takes_none: dict[str, bool | None] = {}
        self._takes_no_bytes(self.parsed, frozenset())

    def _takes_no_bytes(self, schema: Any, around: frozenset[str]) -> bool:
        """Return True where a datum takes no bytes at all. ``around``: the records that it is a part of,
        with nothing but records in between."""
        if isinstance(schema, str):
            if schema in around:
                raise ValueError(f"the record {schema} is a part of itself, without end")
            known = self._takes_none.get(schema, False)
            self.is_recursive |= known is None
            return schema == "null" or bool(known)
        if isinstance(schema, list):
            if not schema:
                raise ValueError("a union of nothing")
            for branch in schema:
                self._takes_no_bytes(branch, frozenset())
            return False
        kind = schema["type"]
        if kind in ("record", "error"):
            name = schema["name"]
            self._takes_none[name] = None
            for field in schema["fields"]:
                _mend_default(field)
            nothing = all(
                [self._takes_no_bytes(field["type"], around | {name}) for field in schema["fields"]]
            )
            self._takes_none[name] = nothing
            return nothing
        if kind == "array":
            if self._takes_no_bytes(schema["items"], frozenset()):
                raise ValueError(
                    "an array of what takes no bytes: a few bytes could announce any number of them"
                )
            return False
        if kind == "map":
            self._takes_no_bytes(schema["values"], frozenset())
            return False
        if kind in ("fixed", "enum"):
            self._takes_none[schema["name"]] = nothing = kind == "fixed" and int(schema["size"]) == 0
            return nothing
        return self._takes_no_bytes(kind, around)


def _mend_default(field: dict[str, Any]) -> None:
    """The default of bytes stands in a schema as text; fastavro would write and return that text."""
    kind = field["type"][0] if isinstance(field["type"], list) else field["type"]
    kind = kind["type"] if isinstance(kind, dict) else kind
    if kind in ("bytes", "fixed") and isinstance(field.get("default"), str):
        field["default"] = field["default"].encode("latin-1")


_Check = Callable[[Any], object]

_LARGEST_FLOAT = (2 - 2**-23) * 2.0**127
_NUMBERS = ("int", "long", "float", "double", "boolean")
_BYTES = (bytes, bytearray, memoryview)
_WIDTHS = {"float": struct.Struct("<f"), "double": struct.Struct("<d")}
_INTEGERS = {"int": range(-(2**31), 2**31), "long": range(-(2**63), 2**63)}


def _values(schema: Any, named: dict[str, _Check | None]) -> _Check | None:
    """Return a check for values that fastavro's writer would change silently.

    It makes 3 of 3.7, true or 1.5 of text, and an int of a larger number. It makes infinity of what is too
    large for a float, an array of the characters of a text, and null of anything. None where there is nothing
    to look at. (Its ``validate`` finds most of it too, for four times the price of writing.)"""
    if isinstance(schema, list):
        return _union([(_kind(branch, named), _values(branch, named)) for branch in schema])
    if isinstance(schema, str):
        return named[schema] if schema in named else _simple(schema, is_logical=False)
    kind = schema["type"]
    check: _Check | None
    if kind in ("record", "error"):
        fields = [(field["name"], _values(field["type"], named)) for field in schema["fields"]]
        check = named[schema["name"]] = _each_field(
            schema["name"], [(name, each) for name, each in fields if each is not None]
        )
        return check
    if kind == "array":
        return _each_item(_values(schema["items"], named))
    if kind == "map":
        inside = _values(schema["values"], named)
        return None if inside is None else _each_value(inside)
    if isinstance(kind, str):
        return _logical(schema.get("logicalType"), _simple(kind, is_logical="logicalType" in schema))
    return _values(kind, named)


def _kind(schema: Any, named: Mapping[str, _Check | None]) -> str:
    """The type of a branch of a union; "bytes" also for what has a name and is no record."""
    while isinstance(schema, dict):
        schema = schema["type"]
    if schema in ("record", "error") or schema in named:
        return "record"
    kind = str(schema)
    return kind if kind in (*_NUMBERS, "null", "string", "array", "map") else "bytes"


def _union(branches: list[tuple[str, _Check | None]]) -> _Check | None:
    """To find the branch the writer validates, which leaves what is too large for a float, bytes for an
    array, and what stands inside."""
    kinds = [kind for kind, _ in branches]
    in_dicts = [check for kind, check in branches if kind in ("record", "map")]
    in_lists = [check for kind, check in branches if kind == "array"]
    numbers = [
        check for kind, check in branches if kind == "float" and check is not None and "double" not in kinds
    ]
    fractions = [check for kind, check in branches if kind in _WIDTHS]
    whole = [_INTEGERS[kind] for kind in kinds if kind in _INTEGERS]
    times = [check for kind, check in branches if kind in ("int", "long", "string") and check is not None]
    if not any(in_dicts) and not in_lists and not fractions and not times:
        return None

    return _union_check(kinds, whole, in_dicts, in_lists, numbers, fractions, times)


def _union_check(
    kinds: Sequence[str],
    whole: Sequence[range],
    in_dicts: Sequence[_Check | None],
    in_lists: Sequence[_Check | None],
    numbers: Sequence[_Check],
    fractions: Sequence[_Check | None],
    times: Sequence[_Check],
) -> _Check:
    """The check of a value by its class; ``whole``: the ranges of the whole numbers among ``kinds``."""

    def check(value: Any) -> None:
        if isinstance(value, tuple) and len(value) == 2 and isinstance(value[0], str):
            value = value[1]  # with the name of its branch
        if isinstance(value, dict):
            _any_of(in_dicts, value)
        elif isinstance(value, (dt.date, dt.time)):
            _any_of(times, value)
        elif isinstance(value, (int, float)):
            if isinstance(value, int):
                if not isinstance(value, bool) and not any(value in allowed for allowed in whole):
                    _any_of(fractions, value)
            elif numbers and abs(value) > _LARGEST_FLOAT:
                numbers[0](value)
        elif isinstance(value, _BYTES):
            if "bytes" not in kinds:
                raise TypeError(f"{value!r} is of none of the types {', '.join(kinds)}")
        elif isinstance(value, Sequence) and not isinstance(value, str):
            _any_of(in_lists, value)

    return check


def _any_of(checks: Sequence[_Check | None], value: Any) -> None:
    """Raise what the first of these checks raises, if all of them do."""
    errors: list[Exception] = []
    for check in checks:
        try:
            if check is not None:
                check(value)
        except (TypeError, ValueError) as error:
            errors.append(error)
        else:
            return
    if errors:
        raise errors[0]


def _simple(kind: str, *, is_logical: bool) -> _Check | None:
    if kind == "null":
        return _none
    if kind not in _NUMBERS:
        return None
    allowed = _INTEGERS.get(kind)

    def check(value: Any) -> None:
        if isinstance(value, bool) != (kind == "boolean"):
            raise TypeError(f"{value!r} is not of the type {kind}")
        if allowed is not None and (
            value not in allowed if isinstance(value, int) else not is_logical or isinstance(value, float)
        ):
            raise ValueError(f"{value!r} is not of the type {kind}")
        if allowed is None and isinstance(value, str):
            raise TypeError(f"{value!r} is not of the type {kind}")
        if kind == "float" and _LARGEST_FLOAT < abs(value) < math.inf:
            raise ValueError(f"{value!r} is too large for a float; a double would hold it")
        if kind in _WIDTHS and not isinstance(value, float):
            (back,) = _WIDTHS[kind].unpack(_WIDTHS[kind].pack(value))
            if back != value:
                raise ValueError(f"no {kind} is exactly {value!r}: {back!r} would come back")

    return check


def _logical(kind: str | None, check: _Check | None) -> _Check | None:
    """The check of a simple type, and of what its logical type would change: parts of a time that it has no
    place for."""
    check_time = _TIMES.get(kind or "")
    if check_time is None:
        return check

    def both(value: Any) -> None:
        check_time(value, kind)
        if check is not None:
            check(value)

    return both


def _check_timestamp(value: Any, kind: str) -> None:
    if isinstance(value, dt.datetime):
        is_local = kind.startswith("local-")
        if is_local and value.tzinfo is not None:
            raise ValueError(f"{value!r} has a time zone, which a {kind} does not keep")
        if not is_local and value.tzinfo is None:
            raise ValueError(
                f"{value!r} has no time zone: a {kind} is a moment in UTC (datetime.now(UTC), for example)"
            )
        _check_precision(value, kind)
    elif isinstance(value, (dt.date, dt.time)):
        raise TypeError(f"{value!r} is no {kind}")


def _check_date(value: Any, kind: str) -> None:
    if isinstance(value, (dt.datetime, dt.time)):
        raise TypeError(f"{value!r} is no {kind}: the time would be lost")


def _check_time(value: Any, kind: str) -> None:
    if isinstance(value, dt.date):
        raise TypeError(f"{value!r} is no {kind}")
    if isinstance(value, dt.time):
        if value.tzinfo is not None:
            raise ValueError(f"{value!r} has a time zone, which a {kind} does not keep")
        _check_precision(value, kind)


def _check_precision(value: dt.datetime | dt.time, kind: str) -> None:
    if kind.endswith("-millis") and value.microsecond % 1_000:
        raise ValueError(
            f"{value!r} is more precise than a {kind}: use {kind.replace('-millis', '-micros')}, or round it"
        )


def _check_uuid(value: Any, _kind: str) -> None:
    if not isinstance(value, UUID):
        UUID(value)


_TIMES: dict[str, Callable[[Any, Any], None]] = {
    "timestamp-millis": _check_timestamp,
    "timestamp-micros": _check_timestamp,
    "local-timestamp-millis": _check_timestamp,
    "local-timestamp-micros": _check_timestamp,
    "date": _check_date,
    "time-millis": _check_time,
    "time-micros": _check_time,
    "uuid": _check_uuid,
}


def _each_field(kind: str, checks: list[tuple[str, _Check]]) -> _Check:
    def check(record: Any) -> None:
        if not isinstance(record, dict):
            raise TypeError(f"a dict is wanted for the record {kind}, not {type(record).__name__}")
        for name, each in checks:
            if name in record:
                try:
                    each(record[name])
                except (TypeError, ValueError) as error:
                    raise type(error)(f"{name}: {error}") from None

    return check


def _each_item(check_item: _Check | None) -> _Check:
    def check(items: Any) -> None:
        # What has no length is gone once it was looked at.
        if isinstance(items, (str, *_BYTES, Mapping)) or not hasattr(items, "__len__"):
            raise TypeError(f"a list is wanted for an array, not {type(items).__name__}")
        if check_item is not None:
            for each in items:
                check_item(each)

    return check


def _each_value(check_value: _Check) -> _Check:
    def check(items: Any) -> None:
        if not isinstance(items, dict):
            raise TypeError(f"a dict is wanted for a map, not {type(items).__name__}")
        for each in items.values():
            check_value(each)

    return check


def _none(value: Any) -> None:
    if value is not None:
        raise TypeError(f"{value!r} is not of the type null")
