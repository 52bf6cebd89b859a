"""Settings of systems are declared once: reading, checks and the key table follow from the fields."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from rich.pretty import pretty_repr

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.system.settings import Secret, SettingsTable, SystemSettings, required, setting


@dataclass(frozen=True, kw_only=True)
class Box(SystemSettings):
    url: str = required("where it is")
    retry_ms: int = setting(1000, "how long", least=1)
    ca: Path | None = setting(None, "certificates")
    limit: int | None = setting(None, "the most", least=0)
    token: Secret | None = setting(None, "the token")


@dataclass(frozen=True, kw_only=True)
class Shape(SystemSettings):
    form: Literal["round", "square"] = setting("round", "the form")
    follow: bool = setting(False, "go on")
    names: tuple[str, ...] = setting((), "names")
    arguments: dict[str, str] = setting({}, "more")


TABLE = SettingsTable("box", system=(Box,), both=(Shape,))


def config(**values: Any) -> Config:
    return Config({f"systems.s.{key.replace('__', '.')}": value for key, value in values.items()})


def test_what_is_not_configured_has_its_default() -> None:
    assert Box.read(config(url="u"), "s") == Box(url="u")
    assert Shape.read(config(), "s", "t") == Shape()


def test_a_field_is_the_key_of_its_name_with_dots() -> None:
    found = Box.read(config(url="u", retry__ms="5", limit="0", ca="/x"), "s")
    assert (found.retry_ms, found.limit, found.ca) == (5, 0, Path("/x"))


def test_a_stream_has_its_own_setting_before_that_of_its_system() -> None:
    both = config(form="SQUARE", names="a, b", streams__t__form="round", streams__t__arguments__x="1")
    assert Shape.read(both, "s", "t") == Shape(form="round", names=("a", "b"), arguments={"x": "1"})
    assert Shape.read(both, "s", "other").form == "square"


@pytest.mark.parametrize(
    ("values", "key", "reason"),
    [
        ({}, "url", r"is missing \(where it is\)"),
        ({"url": "u", "retry__ms": "0"}, "retry.ms", "0 is too small: give 1 or more"),
        ({"url": "u", "limit": "x"}, "limit", "'x' is not a whole number"),
        ({"url": "u", "token": "a", "token__env": "A"}, "token.env", "token is set as well"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_its_key(values: dict[str, str], key: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as raised:
        Box.read(config(**values), "s")
    assert raised.value.key == f"systems.s.{key}"


def test_a_secret_is_never_shown() -> None:
    found = Box.read(config(url="u", token="hunter2"), "s", "t")
    assert found.token == Secret("systems.s.token", "hunter2")
    assert "hunter2" not in repr(found) + pretty_repr(found)


def test_a_misspelled_setting_is_an_error_with_a_suggestion() -> None:
    for key, near in (("rety.ms", "retry.ms"), ("streams.t.folow", "follow")):
        with pytest.raises(ConfigError, match=f"did you mean {near}?") as raised:
            TABLE.check(Config({f"systems.s.{key}": "1"}), "s")
        assert raised.value.key == f"systems.s.{key}"


def test_the_streams_that_the_configuration_names_are_listed() -> None:
    given = config(
        streams__a__b__form="round",
        streams__c__arguments__x__y="1",
        streams__d__samza__priority="1",
        streams__e__partitions="2",
    )
    assert [found[:2] for found in TABLE.of_streams(given, "s")] == [
        ("a.b", "form"),
        ("c", "arguments.<n>"),
        ("d", "samza.priority"),
        ("e", "partitions"),
    ]


def test_the_key_table_says_all_that_the_fields_say() -> None:
    keys = {each.pattern.removeprefix("systems.<s>."): each for each in TABLE.keys}
    assert keys["retry.ms"][1:] == ("integer", "1000", "box: how long", (), 1)
    assert keys["form"][1:] == ("text", "round", "box: the form", ("round", "square"), None)
    assert keys["streams.<t>.form"][2:4] == (None, "as for the box system")
    assert {"token.env", "token.file", "arguments.<n>", "streams.<t>.arguments.<n>"} <= keys.keys()
    assert (keys["follow"].default, keys["names"].kind, keys["ca"].kind) == ("false", "names", "path")
