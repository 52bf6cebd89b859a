"""The options of ``format("streambench")``: names, values, and the configuration that they name."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import javaproperties
from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError
from streambench.model import SystemStream
from streambench.suggestions import suggest_or_list

METADATA = ("key", "message", "partition", "offset", "timestamp", "headers")
"""The columns that every message has."""

_STREAM, _STORE, _CONFIG, _PROPERTIES, _DIRECTORY = "stream", "store", "config", "properties", "directory"
_START, _END, _COLUMNS = "start", "end", "columns"
_PARTITIONS, _PUSHDOWN = "partitions", "pushdown"
_MIN_PARTITIONS, _MAX_MESSAGES, _WRITE_ID = "minPartitions", "maxMessagesPerTrigger", "writeId"
_GUARANTEE = "guarantee"
_GUARANTEES = ("exactly-once", "at-least-once")
_KNOWN = (
    *(_STREAM, _STORE, _CONFIG, _PROPERTIES, _DIRECTORY, _START, _END),
    *(_COLUMNS, _PARTITIONS, _PUSHDOWN, _MIN_PARTITIONS, _MAX_MESSAGES, _WRITE_ID, _GUARANTEE),
)
_ANYWHERE = (_STREAM, _CONFIG, _PROPERTIES, _DIRECTORY, _COLUMNS)
_TAKEN = {
    "read": (*_ANYWHERE, _START, _END, _PARTITIONS, _PUSHDOWN, _MIN_PARTITIONS),
    "read of a store": (_STORE, _CONFIG, _PROPERTIES, _DIRECTORY),
    "readStream": (*_ANYWHERE, _START, _PARTITIONS, _MIN_PARTITIONS, _MAX_MESSAGES),
    "write": (*_ANYWHERE, _WRITE_ID, _GUARANTEE),
    "writeStream": (*_ANYWHERE, _GUARANTEE),
}
"""The options that have a meaning, by the use of the format."""
_PATH = "path"
"""The option that Spark makes of ``load(NAME)`` and ``save(NAME)``."""
_OF_SPARK = ("checkpointlocation", "queryname")
"""Options of Spark's own, which it hands over as well."""

Bounds = Mapping[int | None, str]
"""Start points by partition; that of the key None is for all others."""


class StreamOptions(Struct, frozen=True):
    """The checked options. ``columns``: the names of a schema that are no fields of the message; None where
    the option is not given. ``partitions``: those that are read; None for all. ``pushdown``: conditions of
    the query on partitions and offsets are pushed down, which the query must be the only one of its frame
    for. ``guarantee``: that of a write; None: the best that the system has. ``given``: the names of those
    that are given."""

    config: Config
    stream: SystemStream | None = None
    store: str | None = None
    start: Bounds = {}
    end: Bounds = {}
    columns: tuple[str, ...] | None = None
    partitions: tuple[int, ...] | None = None
    pushdown: bool = False
    min_partitions: int = 1
    max_messages: int | None = None
    write_id: str | None = None
    guarantee: str | None = None
    given: frozenset[str] = frozenset()

    def check_use(self, use: str) -> None:
        """Raise ConfigError for an option that has no meaning in this use of the format."""
        taken = _TAKEN[use]
        for name in sorted(self.given.difference(taken)):
            raise _error(name, f"a {use} does nothing with it, and takes {', '.join(taken)}: leave it out")

    def required_stream(self) -> SystemStream:
        """The stream. Raises ConfigError where the option is missing."""
        if self.stream is None:
            raise _error(_STREAM, "name the stream, SYSTEM.STREAM")
        return self.stream

    def required_store(self) -> str:
        """The store. Raises ConfigError where the option is missing."""
        if self.store is None:
            raise _error(_STORE, "name the store")
        return self.store


def parse(given: Mapping[str, str]) -> StreamOptions:
    """Read options as Spark hands them over. Raises ConfigError that names the option."""
    options = {name.lower(): value for name, value in given.items() if "." not in name}
    keys = {name: value for name, value in given.items() if "." in name}
    known = {name.lower(): name for name in _KNOWN}
    path = options.pop(_PATH, None)
    for name in _OF_SPARK:
        options.pop(name, None)
    if unknown := sorted(options.keys() - known):
        raise ConfigError(
            f"{unknown[0]} is no option of streambench; {suggest_or_list(unknown[0], _KNOWN)}", key=unknown[0]
        )
    found = {known[name]: value.strip() for name, value in options.items()}
    stream = _stream(found.get(_STREAM) or (None if _STORE in found else path))
    return StreamOptions(
        _config(found, {_with_case(key, stream): value for key, value in keys.items()}),
        stream,
        found.get(_STORE),
        _bounds(found, _START),
        _bounds(found, _END),
        _columns(found),
        _partitions(found),
        _boolean(found, _PUSHDOWN),
        _number(found, _MIN_PARTITIONS) or 1,
        _number(found, _MAX_MESSAGES),
        found.get(_WRITE_ID),
        _guarantee(found),
        frozenset(found),
    )


def as_options(config: Config) -> dict[str, str]:
    """The options that stand for a configuration, references and all: nothing is resolved in them."""
    return {
        _PROPERTIES: javaproperties.dumps(dict(config), timestamp=None),
        _DIRECTORY: str(config.directory),
    }


def _error(option: str, what: str) -> ConfigError:
    return ConfigError(f"option {option}: {what}", key=option)


def _config(found: Mapping[str, str], keys: Mapping[str, str]) -> Config:
    if _CONFIG in found and _PROPERTIES in found:
        raise _error(_PROPERTIES, f"{_CONFIG} is given as well; give one")
    directory = Path(found[_DIRECTORY]) if _DIRECTORY in found else None
    if _CONFIG in found:
        config = Config.from_file(found[_CONFIG])
    else:
        config = Config.from_text(found.get(_PROPERTIES, ""), origin="the options", directory=directory)
    config = config.with_values(keys) if keys else config
    if not config:
        raise _error(_CONFIG, "name the properties file of the job, or give its keys as options")
    return config


def _with_case(key: str, stream: SystemStream | None) -> str:
    """The key with its system and stream as they are written: Spark turns the names of options to lower
    case."""
    if stream is None:
        return key
    for prefix in (f"systems.{stream.system}.streams.{stream.stream}.", f"systems.{stream.system}."):
        if key.startswith(prefix.lower()):
            return prefix + key[len(prefix) :]
    return key


def _stream(named: str | None) -> SystemStream | None:
    if named is None:
        return None
    try:
        return SystemStream.parse(named)
    except ConfigError as error:
        raise _error(_STREAM, str(error)) from None


def _bounds(found: Mapping[str, str], option: str) -> Bounds:
    text = found.get(option)
    if text is None:
        return {}
    if not text.startswith("{"):
        return {None: text}
    try:
        each = json.loads(text)
        return {int(partition): str(where) for partition, where in each.items()}
    except (ValueError, AttributeError):
        example = '{"0": "15", "1": "oldest"}'
        raise _error(option, f"{text} is no JSON object of partitions, such as {example}") from None


def _columns(found: Mapping[str, str]) -> tuple[str, ...] | None:
    if _COLUMNS not in found:
        return None
    names = tuple(name.strip() for name in found[_COLUMNS].split(",") if name.strip())
    wrong = next((name for name in names if name not in METADATA), None)
    if wrong is not None:
        known = suggest_or_list(wrong, METADATA)
        raise _error(
            _COLUMNS, f"there is no column '{wrong}'; {known}. Fields of the message are named by a schema"
        )
    return names


def _partitions(found: Mapping[str, str]) -> tuple[int, ...] | None:
    if _PARTITIONS not in found:
        return None
    text = found[_PARTITIONS]
    names = [name.strip() for name in text.split(",")]
    if not all(name.isdecimal() for name in names):
        raise _error(_PARTITIONS, f"'{text}' is no list of partitions, such as 0,2")
    return tuple(sorted({int(name) for name in names}))


def _guarantee(found: Mapping[str, str]) -> str | None:
    text = found.get(_GUARANTEE)
    if text is not None and text not in _GUARANTEES:
        raise _error(_GUARANTEE, f"'{text}' is none; {suggest_or_list(text, _GUARANTEES)}")
    return text


def _boolean(found: Mapping[str, str], option: str) -> bool:
    text = found.get(option, "false").lower()
    if text not in ("true", "false"):
        raise _error(option, f"'{text}' is neither true nor false")
    return text == "true"


def _number(found: Mapping[str, str], option: str) -> int | None:
    text = found.get(option)
    if text is None:
        return None
    if not text.isdecimal() or int(text) < 1:
        raise _error(option, f"'{text}' is no whole number from 1 on")
    return int(text)
