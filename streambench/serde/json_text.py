"""JSON without silent changes: encoding and decoding shared by everything that writes or reads it.

orjson and msgspec would change some values silently. These are kept (integers of any size, fields and offsets
that orjson omits) or refused (NaN and infinities, which JSON does not have).
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import math
import re
from collections.abc import Iterable
from functools import partial
from typing import Any

import msgspec
import orjson

from streambench.errors import SerdeError

_AS_ISO = (dt.datetime, dt.date, dt.time)
# orjson cuts the seconds off a UTC offset, and leaves out the fields of a dataclass that begin with an
# underscore.
_OPTIONS = orjson.OPT_PASSTHROUGH_DATETIME | orjson.OPT_PASSTHROUGH_DATACLASS
_SORTED = _OPTIONS | orjson.OPT_SORT_KEYS
_DEEPEST = 254  # the levels that orjson writes
# Faster than `b"null" in data`, which first tries to read b"null" as a number.
_find_null = re.compile(b"null").search
_HARMLESS = frozenset({str, int, bool, type(None)})

# As fast as orjson, which makes a float of an integer beyond 64 bits.
_decode = msgspec.json.Decoder().decode


def json_value(data: bytes) -> Any:
    """The value of a JSON text. Integers are exact; other numbers are the nearest double. Of equal names in
    an object the last one counts.

    Raises ValueError for what is not JSON, is not UTF-8, or is a number beyond a double's range. SerdeError:
    it nests too deeply."""
    try:
        return _decode(data)
    except RecursionError:
        raise SerdeError("the message nests too deeply") from None
    except ValueError:
        orjson.loads(data)  # its errors say more: the line and the column
        raise


def json_bytes(value: Any, options: int = _OPTIONS) -> bytes:
    """A value as JSON. Raises TypeError for what JSON cannot hold, and ValueError for NaN and infinities,
    with their place."""
    try:
        data = orjson.dumps(value, _plain, options)
    except TypeError as error:
        return _with_large_integers(value, options, error)
    # orjson writes null for NaN and infinities.
    if _find_null(data) is not None:
        check_finite(value)
    return data


sorted_json_bytes = partial(json_bytes, options=_SORTED)
"""As ``json_bytes``, with the names of objects sorted: equal dicts become equal bytes."""


def check_finite(value: Any) -> None:
    """Raise ValueError that names the place of a NaN or infinity, where there is one."""
    place = _not_finite(value)
    if place is not None:
        number = _at(value, place)
        where = "".join(f"[{step!r}]" for step in place)
        raise ValueError(
            f"JSON has no {number!r}{f' (at {where})' if where else ''}: send None or text, or use another "
            "serde (msgpack)"
        )


def check_names_differ(text: bytes) -> None:
    """Raise SerdeError where an object of this JSON text has a name twice: reading it would drop one of the
    values."""
    import json

    json.loads(text, object_pairs_hook=_only_once)


def _only_once(pairs: list[tuple[str, Any]]) -> None:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            raise SerdeError(f"the name {name!r} stands twice in one object")
        seen.add(name)


def _plain(value: Any) -> Any:
    """The JSON form of what orjson leaves to its caller."""
    if type(value) in _AS_ISO:
        return value.isoformat()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    raise TypeError


def _with_large_integers(value: Any, options: int, error: TypeError) -> bytes:
    """The JSON of a value with integers beyond 64 bits, which orjson does not take."""
    if "Recursion limit" in str(error):
        raise TypeError(f"{error}: it nests more than {_DEEPEST} levels deep") from None
    if "64-bit" not in str(error):
        raise error
    try:
        data = orjson.dumps(_as_fragments(value), _plain, options)
    except RecursionError:
        raise TypeError("the object nests too deeply") from None
    if _find_null(data) is not None:
        check_finite(value)
    return data


def _as_fragments(value: Any) -> Any:
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**64:
        return orjson.Fragment(int.__repr__(value).encode())
    if isinstance(value, enum.Enum):
        return _as_fragments(value.value)
    if isinstance(value, dict):
        return {name: _as_fragments(each) for name, each in value.items()}
    if type(value) is tuple or isinstance(value, list):
        return [_as_fragments(each) for each in value]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _as_fragments(_plain(value))
    return value


def _not_finite(value: Any) -> tuple[Any, ...] | None:
    """The steps to the first NaN or infinity in it; None without one."""
    kind = type(value)
    if kind in _HARMLESS:
        return None
    if kind is float:
        return None if math.isfinite(value) else ()
    for step, each in _parts(value):
        kind = type(each)
        if kind in _HARMLESS or (kind is float and math.isfinite(each)):
            continue
        inside = _not_finite(each)
        if inside is not None:
            return (step, *inside)
    return None


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """Yield the parts of a value, each with the step that leads to it."""
    if isinstance(value, dict):
        return value.items()
    if isinstance(value, (list, tuple)):
        return enumerate(value)
    if isinstance(value, enum.Enum):
        return [("value", value.value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(field.name, getattr(value, field.name)) for field in dataclasses.fields(value)]
    return ()


def _at(value: Any, place: tuple[Any, ...]) -> Any:
    for step in place:
        value = dict(_parts(value))[step]
    return value
