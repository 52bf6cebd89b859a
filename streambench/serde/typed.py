"""JSON and MessagePack with msgspec: plain objects, or those of one type, which is checked in both directions."""

from __future__ import annotations

from typing import Any

import msgspec

from streambench import load
from streambench.config import Config
from streambench.errors import SerdeError
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde


class MsgspecSerde(Serde):
    """Encodes and decodes objects of one type: a msgspec Struct, a dataclass, a TypedDict, ``list[int]``, ... or Any.

    What is written must be of the type, its fields too, or the plain dict or list of one; what is read is of the type. ``coding`` is
    ``msgspec.json`` or ``msgspec.msgpack``. Raises TypeError for a type that msgspec cannot decode.
    """

    def __init__(self, coding: Any, kind: Any = Any) -> None:
        self._encode = coding.Encoder().encode
        self._decode = coding.Decoder(kind).decode
        self._kind = kind

    def to_bytes(self, value: Any) -> bytes:
        try:
            is_given = type(value) is self._kind
            if self._kind is not Any and not is_given:
                value = msgspec.convert(value, self._kind)
            data: bytes = self._encode(value)
            if is_given:
                self._decode(data)  # an object may be of the type while its fields are not: nobody could read that
        except RecursionError:
            raise SerdeError("the object nests too deeply") from None
        return data

    def from_bytes(self, data: bytes) -> Any:
        try:
            return self._decode(data)
        except RecursionError:
            raise SerdeError("the message nests too deeply") from None


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
    try:
        return MsgspecSerde(coding, kind)
    except TypeError as error:
        raise config.error(key, f"{path} is not a type of messages: {error}") from error
