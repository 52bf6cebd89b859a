"""Names of what serdes write."""

from __future__ import annotations

from pathlib import Path

import pytest

from streambench.config import Config
from streambench.serde.api import Serde
from streambench.serde.formats import format_of
from streambench.serde.registry import serde_named

SCHEMA = '{"type": "record", "name": "R", "fields": [{"name": "n", "type": "%s"}]}'


class Own(Serde):
    def to_bytes(self, value: str) -> bytes:
        return value.encode()

    def from_bytes(self, data: bytes) -> str:
        return data.decode()


class Named(Own):
    format = "named 1"


def named(**settings: str) -> str:
    config = Config(
        {f"serializers.registry.x.{key.replace('_', '.')}": value for key, value in settings.items()}
    )
    return format_of(config, "x", serde_named(config, "x", key="stores.s.msg.serde"))


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"class": "json"}, "json"),
        ({"class": "streambench.serde.typed:JsonSerdeFactory"}, "json"),
        ({"class": "json", "type": "builtins.dict"}, "json (dict)"),
        ({"class": "string", "encoding": "UTF8"}, "string"),
        ({"class": "string", "encoding": "latin1"}, "string (iso8859-1)"),
        ({"class": f"{__name__}:Own"}, f"{__name__}:Own"),
        ({"class": f"{__name__}.Named"}, "named 1"),
    ],
)
def test_a_format_is_that_of_the_bytes_whatever_the_registry_says(
    settings: dict[str, str], expected: str
) -> None:
    assert named(**settings) == expected


def test_an_avro_format_follows_what_is_written(tmp_path: Path) -> None:
    inline = named(**{"class": "avro", "schema": SCHEMA % "int"})
    file = tmp_path / "r.avsc"
    file.write_text((SCHEMA % "int").replace(" ", "\n"))
    assert named(**{"class": "avro", "schema": str(file)}) == inline
    assert named(**{"class": "avro", "schema": SCHEMA % "int", "reader_schema": SCHEMA % "long"}) == inline
    assert named(**{"class": "avro", "schema": SCHEMA % "long"}) != inline
    assert named(**{"class": "avro", "schema": SCHEMA % "int", "confluent_schema_id": "7"}) != inline


def test_the_settings_of_ones_own_serde_count_and_its_secrets_do_not() -> None:
    plain = named(**{"class": f"{__name__}.Own"})
    versioned = named(**{"class": f"{__name__}.Own", "version": "2"})
    assert plain != versioned
    assert named(**{"class": f"{__name__}.Own", "version": "2", "password": "x"}) == versioned
