"""Settings: what can be configured of a log, for the whole system and for single streams.

A stream's own settings are kept with it since its creation; what the configuration says of the stream comes before them, and what it
says of the system comes last.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from typing import Any, Literal

import msgspec
from msgspec import Struct

from streambench import config_keys
from streambench.config import Config
from streambench.config_keys import Key
from streambench.errors import ConfigError

PATH = "the directory that holds the streams"

_OF_SYSTEMS = {
    "path": PATH,
    "fsync": "when what was written is forced to the disk: at each flush (hence commit), after each batch, or never",
    "linger.ms": "how long a message waits for others to be written with it as one batch",
    "batch.messages": "how many messages are written as one batch at most",
    "batch.bytes": "how many bytes are written as one batch; a larger message is a batch of its own",
    "max.message.bytes": "the most that key, value and headers of one message may take together",
}
_OF_STREAMS = {
    "segment.bytes": "a segment (a file of a partition) that has this size is followed by a new one",
    "retention.ms": "what is older is deleted, by whole segments; negative: kept for ever",
    "retention.bytes": "what a partition holds beyond this is deleted, oldest first, by whole segments; negative: all is kept",
    "cleanup.policy": "delete: by retention; compact: the last message of each key stays",
    "delete.retention.ms": "compact: how long it can be read that a key was deleted",
    "min.compaction.lag.ms": "compact: what is younger stays, and removes nothing older",
}

#: Settings of the system alone, and those that every stream may have for itself.
SYSTEM_KEYS = frozenset(_OF_SYSTEMS)
STREAM_KEYS = frozenset(_OF_STREAMS)

_FSYNC = ("flush", "batch", "never")
_POLICIES = ("delete", "compact")


class Settings(Struct, frozen=True, kw_only=True):
    """The settings in force for one system, or (``for_stream``) for one of its streams.

    ``fsync``: when appended data is forced to the disk: at ``flush`` (of a producer, hence with every commit), after each ``batch``, or
    ``never``. ``linger_ms``, ``batch_messages`` and ``batch_bytes``: how long, how many messages and how many bytes a producer
    keeps back to write them as one batch. ``max_message_bytes`` counts key, value and headers of one message.
    ``segment_bytes``: a segment at least this large is sealed. ``retention_ms`` and ``retention_bytes``: what is older, or more than
    this per partition, is deleted by whole sealed segments; negative: kept for ever. ``cleanup_policy`` ``compact`` keeps the last
    value of every key instead, and its tombstone for ``delete_retention_ms``; what is younger than ``min_compaction_lag_ms`` stays, and
    removes nothing older.
    """

    fsync: str = "flush"
    linger_ms: int = 250
    batch_messages: int = 10_000
    batch_bytes: int = 4 << 20
    max_message_bytes: int = 16 << 20
    segment_bytes: int = 128 << 20
    retention_ms: int = -1
    retention_bytes: int = -1
    cleanup_policy: str = "delete"
    delete_retention_ms: int = 86_400_000
    min_compaction_lag_ms: int = 0

    @classmethod
    def from_config(cls, system: str, config: Config) -> Settings:
        """What the configuration says of the system. Raises ConfigError that names the key."""
        prefix = f"systems.{system}."
        known = sorted((SYSTEM_KEYS | STREAM_KEYS) - {"path"})
        return cls().with_values({key: config[prefix + key] for key in known if config.text(prefix + key) is not None}, prefix, config)

    def with_values(self, values: Mapping[str, Any], prefix: str = "", config: Config | None = None) -> Settings:
        """A copy with other values, named as in a configuration (``retention.ms``). Raises ConfigError that names the key, and its place in
        ``config``, where that is given."""
        error = _error if config is None else config.error
        changed: dict[str, Any] = {}
        for key, value in values.items():
            name = key.replace(".", "_")
            if name not in self.__struct_fields__:
                near = difflib.get_close_matches(key, sorted(STREAM_KEYS), n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ConfigError(f"{prefix}{key} is no setting of a log{hint}", key=prefix + key)
            if isinstance(getattr(self, name), int):
                changed[name] = _whole_number(value, prefix + key, error)
            else:
                changed[name] = _one_of(value, _FSYNC if name == "fsync" else _POLICIES, prefix + key, error)
        return msgspec.structs.replace(self, **changed)


def _key(name: str, meaning: str) -> Key:
    default = getattr(Settings(), name.replace(".", "_"), None)
    kind: Literal["path", "text", "integer"] = "path" if default is None else "integer" if isinstance(default, int) else "text"
    values = {"fsync": _FSYNC, "cleanup.policy": _POLICIES}.get(name, ())
    return Key(f"systems.<s>.{name}", kind, None if default is None else str(default), f"of a log system: {meaning}", values)


_KEYS = tuple(_key(name, meaning) for name, meaning in (_OF_SYSTEMS | _OF_STREAMS).items())

KEYS = (
    *_KEYS,
    *(
        each._replace(pattern=each.pattern.replace("<s>", "<s>.streams.<t>"), default=None, meaning="as for the log system")
        for each in _KEYS
        if each.pattern.removeprefix("systems.<s>.") in STREAM_KEYS
    ),
)
"""All settings, for people."""


def configured_streams(system: str, config: Config) -> dict[str, dict[str, str]]:
    """What the configuration says of single streams (``systems.<s>.streams.<t>.retention.ms``), by stream. Raises ConfigError."""
    prefix = f"systems.{system}.streams."
    found: dict[str, dict[str, str]] = {}
    for rest, value in config.below(prefix).items():
        key = next((key for key in STREAM_KEYS if rest.endswith("." + key)), None)
        if key is not None:
            if value.strip():
                found.setdefault(rest[: -len(key) - 1], {})[key] = value
        elif config_keys.find(prefix + rest) is None and ".samza." not in rest:
            near = difflib.get_close_matches(rest.partition(".")[2], sorted(STREAM_KEYS), n=1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(STREAM_KEYS))}"
            raise ConfigError(f"{prefix}{rest} is no setting of a stream of a log; {known}", key=prefix + rest)
    for stream, values in found.items():
        Settings().with_values(values, f"{prefix}{stream}.", config)
    return found


def stream_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The settings that a stream is created with, checked and under their names in a configuration. Raises ConfigError."""
    found = {key.replace("_", "."): value for key, value in values.items() if value is not None}
    for key in found:
        if key not in STREAM_KEYS:
            near = difflib.get_close_matches(key, sorted(STREAM_KEYS), n=1)
            known = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(STREAM_KEYS))}"
            raise ConfigError(f"{key} is no setting of a stream of a log; {known}", key=key)
    checked = Settings().with_values(found)
    return {key: getattr(checked, key.replace(".", "_")) for key in sorted(found)}


_Error = Callable[[str, str], ConfigError]


def _error(key: str, what: str) -> ConfigError:
    return ConfigError(f"{key}: {what}", key=key)


def _whole_number(value: Any, key: str, error: _Error) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        raise error(key, f"'{value}' is not a whole number") from None


def _one_of(value: Any, allowed: tuple[str, ...], key: str, error: _Error) -> str:
    text = str(value).strip().lower()
    if text not in allowed:
        raise error(key, f"'{value}' is not one of {', '.join(allowed)}")
    return text
