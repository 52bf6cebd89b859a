"""JSON and MessagePack of a type."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
import pytest

from streambench.config import Config
from streambench.errors import ConfigError, SerdeError
from streambench.serde.api import Serde
from streambench.serde.registry import serde_named


class Click(msgspec.Struct):
    user: str
    at: int = 0


@dataclass
class Place:
    code: str


Numbers = list[int]


class Unfit:
    x: object


def typed(kind: str, of: str) -> Serde:
    config = Config({"serializers.registry.clicks.class": kind, "serializers.registry.clicks.type": f"{__name__}:{of}"})
    return serde_named(config, "clicks", key="systems.log.samza.msg.serde")


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize(("of", "value"), [("Click", Click("a", 5)), ("Place", Place("ZRH")), ("Numbers", [1, 2])])
def test_objects_of_the_type_come_back_as_such(kind: str, of: str, value: Any) -> None:
    serde = typed(kind, of)
    back = serde.from_bytes(serde.to_bytes(value))
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_the_plain_dict_of_an_object_will_do(kind: str) -> None:
    assert typed(kind, "Click").from_bytes(typed(kind, "Click").to_bytes({"user": "a"})) == Click("a")


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize("wrong", [{"user": 5}, {}, Place("ZRH"), 5, {"user": "a", "at": "now"}])
def test_what_is_not_of_the_type_is_neither_written_nor_read(kind: str, wrong: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        typed(kind, "Click").to_bytes(wrong)
    with pytest.raises(msgspec.ValidationError):
        typed(kind, "Click").from_bytes(getattr(msgspec, kind).encode(wrong))


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize(("of", "wrong"), [("Click", Click(5)), ("Place", Place(5))])  # type: ignore[arg-type]
def test_an_object_whose_fields_are_not_of_their_types_is_not_written(kind: str, of: str, wrong: Any) -> None:
    with pytest.raises(msgspec.ValidationError):
        typed(kind, of).to_bytes(wrong)


@pytest.mark.parametrize(
    ("path", "what"),
    [("Click", "names no class"), (f"{__name__}:Nothing", "has no 'Nothing'"), (f"{__name__}:pytest", "not a type of messages")],
)
def test_what_is_no_type_is_an_error_that_names_the_key(path: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        serde_named(Config({"serializers.registry.json.type": path}), "json", key="systems.log.samza.msg.serde")
    assert raised.value.key == "serializers.registry.json.type"


def test_messages_that_nest_too_deeply_are_refused() -> None:
    serde = serde_named(Config(), "msgpack", key="systems.log.samza.msg.serde")
    with pytest.raises(SerdeError, match="nests too deeply"):
        serde.from_bytes(b"\x91" * 1_000_000)
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    with pytest.raises(SerdeError, match="nests too deeply"):
        serde.to_bytes(round_and_round)
