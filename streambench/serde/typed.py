"""JSON and MessagePack with msgspec: plain objects, or those of one type, which is checked in both
directions."""

from __future__ import annotations

import contextlib
import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from typing import Any, get_args
from uuid import UUID

import msgspec

from streambench import imports as load
from streambench.config import Config
from streambench.errors import SerdeError, class_name, described, shortened
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde
from streambench.serde.json_text import check_finite, json_bytes, json_value

_AS_THEY_ARE = (bytes, bytearray, dt.datetime, dt.date, dt.time, dt.timedelta, Decimal, UUID)


class MsgspecSerde(Serde):
    """Encodes and decodes objects of one type: a msgspec Struct, a dataclass, a TypedDict, ``list[int]``, ...
    or Any.

    What is written must be of the type, its fields too, or the plain dict or list of one. What is read is of
    the type. Fields of a dict that the type does not have are left out, unless the type forbids them
    (``forbid_unknown_fields=True``). ``coding`` is ``msgspec.json`` or ``msgspec.msgpack``. Raises TypeError
    for a type that msgspec cannot decode.

    MessagePack without a type: integers beyond 64 bits are refused, NaN and bytes are kept. A datetime with a
    time zone is read in UTC. One without is read as text, and so are dates, times, decimals and UUIDs. Tuples
    and sets are read as lists.
    """

    def __init__(self, coding: Any, kind: Any = Any) -> None:
        self._encode = coding.Encoder().encode
        self._decode = coding.Decoder(kind).decode
        self._kind = kind
        self._is_json = coding is msgspec.json

    def to_bytes(self, value: Any) -> bytes:
        try:
            is_given = type(value) is self._kind
            if self._kind is not Any and not is_given:
                value = msgspec.convert(value, self._kind)
            data: bytes = self._encode(value)
            if self._is_json and b"null" in data:
                check_finite(msgspec.to_builtins(value, builtin_types=_AS_THEY_ARE, str_keys=False))
            if is_given:
                # An object may be of the type while its fields are not: it could never be read.
                self._decode(data)
        except RecursionError:
            raise SerdeError("the object nests too deeply") from None
        return data

    def from_bytes(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except RecursionError:
            raise SerdeError("the message nests too deeply") from None


class PydanticSerde(Serde):
    """Encodes and decodes objects of a type of pydantic, or one that holds such: models, pydantic's
    dataclasses, ``list[Model]``, ...

    What is written is an object of the type, or the plain dict or list of one. Pydantic then changes nothing
    of it: its strict mode. Fields go by their aliases. An object that would not come back equal is refused
    (excluded fields, secrets, NaN). ``coding`` is ``msgspec.json`` or ``msgspec.msgpack``. Raises what
    pydantic raises for a type that it cannot use.
    """

    def __init__(self, coding: Any, kind: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter = TypeAdapter(kind)
        self._is_json = coding is msgspec.json

    def to_bytes(self, value: Any) -> bytes:
        with _in_one_line():
            given = value
            if isinstance(value, (dict, list)):
                with contextlib.suppress(TypeError):  # a list of models is no JSON, but is of the type
                    given = self._adapter.validate_json(json_bytes(value), strict=True)
            data: bytes = self._adapter.dump_json(given, by_alias=True, warnings="error")
            if self._adapter.validate_json(data) != given:
                raise ValueError(
                    f"{shortened(given)} would not come back equal: a field is excluded, a secret, or is no "
                    "JSON"
                )
            return data if self._is_json else msgspec.msgpack.encode(json_value(data))

    def from_bytes(self, data: bytes) -> Any:
        with _in_one_line():
            return self._adapter.validate_json(
                data if self._is_json else json_bytes(msgspec.msgpack.decode(data))
            )


@contextlib.contextmanager
def _in_one_line() -> Iterator[None]:
    """Pydantic's errors go over several lines, and some end with a link."""
    from pydantic import ValidationError

    try:
        yield
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, each['loc'])) or 'message'}: {each['msg']}"
            for each in error.errors(include_url=False)
        ]
        raise SerdeError(f"not a {error.title}: {'; '.join(found)}") from None
    except ValueError as error:
        raise SerdeError(" ".join(str(error).split())) from None


class MsgpackSerdeFactory:
    """Makes MessagePack serdes; ``serializers.registry.<n>.type`` names the type, if there is to be one."""

    def get_serde(self, name: str, config: Config) -> Serde:
        return _typed(msgspec.msgpack, name, config) or MsgspecSerde(msgspec.msgpack)


class JsonSerdeFactory:
    """Makes JSON serdes; ``serializers.registry.<n>.type`` names the type, if there is to be one."""

    def get_serde(self, name: str, config: Config) -> Serde:
        return _typed(msgspec.json, name, config) or JsonSerde()


def _typed(coding: Any, name: str, config: Config) -> Serde | None:
    key = f"serializers.registry.{name}.type"
    path = config.text(key)
    if path is None:
        return None
    kind = load.by_path(config, key, path)
    unknown = _classes_of_pydantic(kind)
    try:
        serde = MsgspecSerde(coding, kind)
        unknown = list(_unknown(msgspec.inspect.type_info(kind), set()))
    except TypeError as error:
        if not unknown:
            raise config.error(key, f"{path} is not a type of messages: {error}") from error
    else:
        if not unknown:
            return serde
    if not any(_is_of_pydantic(each) for each in unknown):
        raise config.error(
            key,
            f"{path} is not a type of messages: it holds {class_name(unknown[0])}; it may hold JSON's "
            "types, msgspec Structs, dataclasses, TypedDicts, NamedTuples and pydantic models",
        )
    try:
        return PydanticSerde(coding, kind)
    except Exception as error:
        raise config.error(key, f"pydantic cannot use {path}: {described(error)}") from error


def _unknown(info: Any, seen: set[int]) -> Iterator[type]:
    """The classes in a type that msgspec does not know, or whose rules it does not: those of pydantic."""
    if id(info) in seen:
        return
    seen.add(id(info))
    kind = getattr(info, "cls", None)
    if isinstance(info, msgspec.inspect.CustomType) or _is_of_pydantic(kind):
        yield info.cls
        return
    for name in getattr(info, "__struct_fields__", ()):
        inside = getattr(info, name)
        for each in inside if isinstance(inside, tuple) else (inside,):
            if isinstance(each, (msgspec.inspect.Type, msgspec.inspect.Field)):
                yield from _unknown(each, seen)


def _classes_of_pydantic(kind: Any) -> list[type]:
    """Those in a union, a list, ... of them."""
    if _is_of_pydantic(kind):
        return [kind]
    return [each for inside in get_args(kind) for each in _classes_of_pydantic(inside)]


def _is_of_pydantic(kind: Any) -> bool:
    return isinstance(kind, type) and hasattr(kind, "__pydantic_core_schema__")
