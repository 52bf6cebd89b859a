"""JSON and MessagePack of a type."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from decimal import Decimal
from typing import Annotated, Any

import msgspec
import pydantic
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
    config = Config(
        {"serializers.registry.clicks.class": kind, "serializers.registry.clicks.type": f"{__name__}:{of}"}
    )
    return serde_named(config, "clicks", key="systems.log.samza.msg.serde")


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("of", "value"), [("Click", Click("a", 5)), ("Place", Place("ZRH")), ("Numbers", [1, 2])]
)
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
    [
        ("Click", "names no class"),
        (f"{__name__}:Nothing", "has no 'Nothing'"),
        (f"{__name__}:pytest", "not a type of messages"),
    ],
)
def test_what_is_no_type_is_an_error_that_names_the_key(path: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        serde_named(
            Config({"serializers.registry.json.type": path}), "json", key="systems.log.samza.msg.serde"
        )
    assert raised.value.key == "serializers.registry.json.type"


def test_messages_that_nest_too_deeply_are_refused() -> None:
    serde = serde_named(Config(), "msgpack", key="systems.log.samza.msg.serde")
    with pytest.raises(SerdeError, match="nests too deeply"):
        serde.from_bytes(b"\x91" * 1_000_000)
    round_and_round: list[Any] = []
    round_and_round.append(round_and_round)
    with pytest.raises(SerdeError, match="nests too deeply"):
        serde.to_bytes(round_and_round)


class Model(pydantic.BaseModel):
    user: str = pydantic.Field(alias="User", min_length=1)
    at: dt.datetime | None = None
    price: Decimal = Decimal(0)


class Hidden(pydantic.BaseModel):
    word: pydantic.SecretStr


@pydantic.dataclasses.dataclass
class Positive:
    n: Annotated[int, pydantic.Field(gt=0)]


Models = list[Model]
Either = Model | Positive
Unfits = dict[str, Unfit]


class Mixed(msgspec.Struct):
    model: Model


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("of", "value"),
    [("Model", Model(User="a", at=dt.datetime(2026, 1, 2, tzinfo=dt.UTC), price=Decimal("1.10"))),
     ("Models", [Model(User="a")]),
     ("Positive", Positive(1)), ("Either", Positive(2))],
)  # fmt: skip
def test_models_of_pydantic_come_back_equal(kind: str, of: str, value: Any) -> None:
    serde = typed(kind, of)
    back = serde.from_bytes(serde.to_bytes(value))
    assert back == value and type(back) is type(value)


@pytest.mark.parametrize("kind", ["json", "msgpack"])
def test_the_plain_dict_of_a_model_will_do(kind: str) -> None:
    serde = typed(kind, "Model")
    assert serde.from_bytes(serde.to_bytes({"User": "a", "price": "2"})) == Model(User="a", price=Decimal(2))


@pytest.mark.parametrize("kind", ["json", "msgpack"])
@pytest.mark.parametrize(
    ("of", "wrong"),
    [("Model", {"User": 5}), ("Model", {"User": ""}), ("Model", 5), ("Model", Model.model_construct(user=5)),
     ("Positive", {"n": 0}),
     ("Models", [{"at": 1}]), ("Hidden", Hidden(word=pydantic.SecretStr("geheim")))],
)  # fmt: skip
def test_what_is_no_model_is_not_written_and_told_in_one_line(kind: str, of: str, wrong: Any) -> None:
    with pytest.raises(SerdeError) as raised:
        typed(kind, of).to_bytes(wrong)
    assert "\n" not in str(raised.value) and "geheim" not in str(raised.value)


def test_what_is_no_model_is_not_read() -> None:
    with pytest.raises(SerdeError, match="not a Model: User: Field required"):
        typed("json", "Model").from_bytes(b"{}")


@pytest.mark.parametrize(
    ("of", "what"),
    [("Unfit", "it holds .*Unfit"), ("Unfits", "it holds .*Unfit"), ("Mixed", "pydantic cannot use")],
)
def test_a_type_that_would_fail_at_every_message_is_a_config_error(of: str, what: str) -> None:
    with pytest.raises(ConfigError, match=what) as raised:
        typed("json", of)
    assert raised.value.key == "serializers.registry.clicks.type"
