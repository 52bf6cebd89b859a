"""From the name of a serde in the configuration to the serde."""

from __future__ import annotations

import codecs
from typing import Any, Protocol, runtime_checkable

from streambench import imports as load
from streambench.config import Config
from streambench.errors import ConfigError, StreambenchError, described
from streambench.serde.api import Serde
from streambench.serde.builtin import EncodedStringSerde, StringSerde
from streambench.suggestions import suggest

GROUP = "streambench.serdes"
"""The entry-point group by which a package adds serdes."""

BUILTIN = {
    "bytes": "streambench.serde.builtin:BytesSerde",
    "string": "streambench.serde.builtin:StringSerde",
    "json": "streambench.serde.typed:JsonSerdeFactory",
    "integer": "streambench.serde.builtin:IntegerSerde",
    "long": "streambench.serde.builtin:LongSerde",
    "double": "streambench.serde.builtin:DoubleSerde",
    "msgpack": "streambench.serde.typed:MsgpackSerdeFactory",
    "avro": "streambench.serde.avro:AvroSerdeFactory",
    "arrow": "streambench.serde.arrow:ArrowSerde",
}

_SETTINGS = {
    "string": ["encoding"],
    "json": ["type"],
    "msgpack": ["type"],
    "avro": ["schema", "reader.schema", "confluent.schema.id"],
}
"""The settings of the builtin serdes below ``serializers.registry.<n>.``; a foreign serde
knows its own."""


_SETTINGS_CHANGE_BYTES = {"string", "avro"}


@runtime_checkable
class SerdeFactory(Protocol):
    """Makes serdes from the configuration: what ``serializers.registry.<n>.class`` may name instead of a
    Serde class."""

    def get_serde(self, name: str, config: Config) -> Serde:
        """A serde; its own settings stand below ``serializers.registry.<name>.``. Raises ConfigError."""


def serde_named(config: Config, name: str, *, key: str) -> Serde:
    """A new serde of that name: registered in the configuration, builtin, or brought by a package, in this
    order.

    Raises ConfigError that names ``key``, where the name stands, if there is none; or the registry's key, if
    that is wrong.
    """
    registered = f"serializers.registry.{name}.class"
    _check_settings(config, name, config.text(registered) or name)
    if config.text(registered) is not None:
        return _made(config, registered, name, load.resolve(config, registered, group=GROUP, builtin=BUILTIN))
    paths = BUILTIN if name in BUILTIN else load.brought_by_packages(GROUP) | BUILTIN
    if name not in paths:
        config.refuse_java(key, name)
        known = sorted(paths.keys() | set(config.names_below("serializers.registry.")))
        hint = suggest(name, known) + " "
        raise config.error(
            key,
            f"there is no serde '{name}'; {hint.lstrip()}There are {', '.join(known)}, "
            f"and what {registered}=... defines",
        )
    return _made(config, key, name, load.by_path(config, key, paths[name]))


def can_read(config: Config, name: str, written: str) -> bool:
    """Return True where the serde ``name`` reads what the serde ``written`` wrote: the same one, or another
    of its kind. Bytes are anything."""
    kinds = {config.text(f"serializers.registry.{each}.class") or each for each in (name, written)}
    if name == written or "bytes" in kinds:
        return True
    return len(kinds) == 1 and kinds <= BUILTIN.keys() - _SETTINGS_CHANGE_BYTES


def _made(config: Config, key: str, name: str, named: Any) -> Serde:
    try:
        made = named() if isinstance(named, type) else named
        if isinstance(made, SerdeFactory):
            made = made.get_serde(name, config)
    except ConfigError as error:
        if error.key is None or error.key in config or key not in config:
            raise
        raise ConfigError(f"{error}; {config.placed(key)} needs it", key=error.key) from None
    except StreambenchError:
        raise
    except Exception as error:
        hint = ""
        if isinstance(named, type) and not isinstance(named, SerdeFactory) and isinstance(error, TypeError):
            hint = (
                "; a serde is made without arguments: for one that needs its configuration name a class with "
                "get_serde(name, config)"
            )
        raise config.error(key, f"cannot make the serde '{name}': {described(error)}{hint}") from error
    if not isinstance(made, Serde):
        raise config.error(
            key, f"{config.get(key, name)} is neither a Serde nor has it get_serde(name, config)"
        )
    return _with_encoding(config, name) or made if isinstance(made, StringSerde) else made


def _check_settings(config: Config, name: str, kind: str) -> None:
    if kind not in BUILTIN:
        return
    known = _SETTINGS.get(kind, [])
    prefix = f"serializers.registry.{name}."
    for setting in config.below(prefix):
        if setting != "class" and setting not in known:
            there = f"it has {', '.join(known)}" if known else "it has none"
            hint = suggest(setting, known, there, prefix=prefix)
            raise config.error(prefix + setting, f"is not a setting of the serde {kind}; {hint}")


def _with_encoding(config: Config, name: str) -> Serde | None:
    """Samza's own setting of its string serde: ``serializers.registry.<n>.encoding``."""
    key = f"serializers.registry.{name}.encoding"
    encoding = config.text(key)
    if encoding is None:
        return None
    try:
        if codecs.lookup(encoding).name == "utf-8":
            return None
        "".encode(encoding)  # raises LookupError where it encodes bytes, not text
        return EncodedStringSerde(encoding)
    except (LookupError, UnicodeError):
        raise config.error(key, f"there is no encoding '{encoding}'") from None
