"""From names in a configuration to serdes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.serde.api import Serde
from streambench.serde.builtin import JsonSerde, LongSerde, StringSerde
from streambench.serde.registry import serde_named
from streambench.serde.streams import StreamSerdes, readable

KEY = "systems.log.samza.msg.serde"


class Shouting(Serde):
    def to_bytes(self, value: Any) -> bytes:
        return str(value).upper().encode()

    def from_bytes(self, data: bytes) -> str:
        return data.decode()


class Prefixing(Serde):
    def __init__(self, prefix: bytes) -> None:
        self.prefix = prefix

    def to_bytes(self, value: bytes) -> bytes:
        return self.prefix + value

    def from_bytes(self, data: bytes) -> bytes:
        return data[len(self.prefix) :]


class PrefixingFactory:
    def get_serde(self, name: str, config: Config) -> Serde:
        return Prefixing(config[f"serializers.registry.{name}.prefix"].encode())


def test_a_registered_class_is_found_by_its_name() -> None:
    config = Config({"serializers.registry.loud.class": f"{__name__}.Shouting"})
    assert serde_named(config, "loud", key=KEY).to_bytes("hey") == b"HEY"


def test_a_registered_factory_is_asked_with_name_and_config() -> None:
    config = Config(
        {"serializers.registry.x.class": f"{__name__}:PrefixingFactory", "serializers.registry.x.prefix": ">"}
    )
    assert serde_named(config, "x", key=KEY).to_bytes(b"a") == b">a"


def test_a_class_in_a_file_beside_the_configuration_will_do(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "from streambench.serde.api import Serde\n"
        "class Mine(Serde):\n"
        "    def to_bytes(self, value): return b'mine'\n"
        "    def from_bytes(self, data): return 'mine'\n"
    )
    config = Config.from_text("serializers.registry.mine.class=mine.py:Mine", directory=tmp_path)
    assert serde_named(config, "mine", key=KEY).to_bytes(None) == b"mine"


def test_a_registered_name_overrides_a_builtin_one() -> None:
    config = Config({"serializers.registry.json.class": "string"})
    assert isinstance(serde_named(config, "json", key=KEY), StringSerde)


def test_an_unknown_name_is_an_error_with_key_suggestion_and_list() -> None:
    with pytest.raises(
        ConfigError, match=r"there is no serde 'jsn'; did you mean json\?.*bytes, double"
    ) as raised:
        serde_named(Config({KEY: "jsn"}), "jsn", key=KEY)
    assert raised.value.key == KEY
    assert str(raised.value).startswith(KEY)


@pytest.mark.parametrize("path", [f"{__name__}.KEY", "pathlib.Path", f"{__name__}.Prefixing"])
def test_what_is_no_serde_is_an_error_that_names_the_registration(path: str) -> None:
    with pytest.raises(ConfigError, match=r"serializers\.registry\.odd\.class"):
        serde_named(Config({"serializers.registry.odd.class": path}), "odd", key=KEY)


def test_strings_may_have_another_encoding() -> None:
    config = Config({"serializers.registry.string.encoding": "latin-1"})
    assert serde_named(config, "string", key=KEY).to_bytes("ü") == b"\xfc"
    assert serde_named(config, "string", key=KEY).from_bytes(b"\xfc") == "ü"


def test_an_unknown_encoding_is_an_error_that_names_its_key() -> None:
    with pytest.raises(
        ConfigError, match=r"serializers\.registry\.string\.encoding: there is no encoding 'klingon'"
    ):
        serde_named(Config({"serializers.registry.string.encoding": "klingon"}), "string", key=KEY)


def test_a_streams_own_serde_comes_before_that_of_its_system() -> None:
    serdes = StreamSerdes(
        Config(
            {
                KEY: "json",
                "systems.log.samza.key.serde": "string",
                "systems.log.streams.a.b.samza.msg.serde": "long",
            }
        )
    )
    key, message = serdes.for_stream(SystemStream("log", "a.b"))
    assert isinstance(key, StringSerde) and isinstance(message, LongSerde)
    key, message = serdes.for_stream(SystemStream("log", "other"))
    assert isinstance(key, StringSerde) and isinstance(message, JsonSerde)


def test_streams_without_serdes_pass_bytes_through() -> None:
    assert StreamSerdes(Config()).for_stream(SystemStream("log", "raw")) == (None, None)


def test_a_serde_is_made_once_per_name() -> None:
    serdes = StreamSerdes(Config({KEY: "json", "systems.log.samza.key.serde": "json"}))
    first = serdes.for_stream(SystemStream("log", "a"))
    assert first[0] is first[1] is serdes.for_stream(SystemStream("log", "b"))[0]


def test_a_wrong_name_for_a_stream_is_reported_under_the_streams_key() -> None:
    key = "systems.log.streams.a.samza.key.serde"
    with pytest.raises(ConfigError) as raised:
        StreamSerdes(Config({key: "nope"})).for_stream(SystemStream("log", "a"))
    assert raised.value.key == key


def test_what_cannot_be_decoded_is_shown_as_it_is_and_told() -> None:
    told: list[Exception] = []
    assert readable(JsonSerde(), b'{"a": 1}', told.append) == {"a": 1}
    assert readable(None, b"as it is", told.append) == b"as it is"
    assert readable(LongSerde(), None, told.append) is None
    assert told == []
    assert readable(LongSerde(), b"abc", told.append) == b"abc"
    assert len(told) == 1
    assert readable(LongSerde(), b"abc") == b"abc"
