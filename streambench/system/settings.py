"""The settings of a kind of system, declared once: a dataclass whose fields are its keys.

The field ``post_retry_ms`` is the key ``post.retry.ms`` below ``systems.<s>.``, or below
``systems.<s>.streams.<t>.``. Its type says what may be written, its ``setting`` the default, the description
and the smallest number. A ``SettingsTable`` joins the declarations of one kind of system; ``streambench
keys`` and the reference page are printed from it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, dataclass, field, replace
from pathlib import Path
from types import NoneType
from typing import Any, Literal, NamedTuple, Self, get_args, get_origin, get_type_hints

from msgspec import Struct

from streambench import config_keys
from streambench.config import Config
from streambench.config_keys import Key, Kind
from streambench.suggestions import suggest_or_list


class Secret(Struct, frozen=True):
    """A password or token, and the key that it belongs to. The repr does not show it.

    A field of this type declares three keys: ``x``, ``x.env`` and ``x.file``."""

    key: str
    value: str

    def __repr__(self) -> str:
        return f"Secret({self.key!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("key", self.key)]


def setting(default: Any, description: str, *, least: int | None = None) -> Any:
    """Declare a field. ``default``: its value where there is none; ``least``: the smallest number that may
    be written."""
    metadata = {"description": description, "least": least}
    if isinstance(default, dict):
        return field(default_factory=default.copy, metadata=metadata)
    return field(default=default, metadata=metadata)


def required(description: str) -> Any:
    """Declare a field without a default: to leave it out is an error."""
    return field(metadata={"description": description, "least": None})


class _Field(NamedTuple):
    """A field of a declaration. ``type``: the class of its values, apart from None; ``key``: relative to
    ``systems.<s>.``; ``is_required``: it has neither a default nor None."""

    name: str
    type: type
    key: Key
    is_required: bool


@dataclass(frozen=True, kw_only=True)
class SystemSettings:
    """Base of declarations: derive a dataclass from it, with one field per key."""

    @classmethod
    def read(cls, config: Config, system: str, stream: str | None = None) -> Self:
        """Read the settings of a system, or of one of its streams: the stream's own come first.

        Raises ConfigError that names the key."""
        return cls(**{each.name: _value(config, each, system, stream) for each in fields(cls).values()})

    def with_texts(self, texts: Mapping[str, Any], prefix: str, config: Config | None) -> Self:
        """Return a copy with other values, named as in a configuration (``retention.ms``).

        ``prefix`` stands before their keys in ``config``, where that is given. Raises ConfigError that names
        the key."""
        known = fields(type(self))
        source = config or Config({prefix + name: value for name, value in texts.items()})
        named = {name: name.replace(".", "_") for name in texts}
        return replace(self, **{own: _at(source, known[own], prefix + name) for name, own in named.items()})


class SettingsTable:
    """All settings of a kind of system.

    ``system``: declarations of keys below ``systems.<s>.``; ``streams``: of those below
    ``systems.<s>.streams.<t>.``; ``both``: of keys that may stand in either place."""

    def __init__(
        self,
        kind: str,
        *,
        system: Iterable[type[SystemSettings]] = (),
        both: Iterable[type[SystemSettings]] = (),
        streams: Iterable[type[SystemSettings]] = (),
    ) -> None:
        self.kind = kind
        shared = list(_keys(both))
        names = {each.pattern for each in shared}
        of_system = [each for each in _keys(system) if each.pattern not in names] + shared
        of_streams = list(_keys(streams))
        self.system_names = frozenset(each.pattern for each in of_system)
        self.stream_names = frozenset(each.pattern for each in (*shared, *of_streams))
        self.keys = (
            *(self._documented(each, "systems.<s>.") for each in of_system),
            *(self._documented(each, "systems.<s>.streams.<t>.") for each in of_streams),
            *(
                each._replace(
                    pattern=f"systems.<s>.streams.<t>.{each.pattern}",
                    default=None,
                    meaning=f"as for the {kind} system",
                )
                for each in shared
            ),
        )
        """As ``streambench keys`` lists them."""

    def _documented(self, key: Key, prefix: str) -> Key:
        return key._replace(pattern=prefix + key.pattern, meaning=f"{self.kind}: {key.meaning}")

    def check(self, config: Config, system: str) -> None:
        """Raise ConfigError at the first key of the system or of its streams that is no setting."""
        self.check_system(config, system)
        list(self.of_streams(config, system))

    def check_system(self, config: Config, system: str) -> None:
        """Raise ConfigError at the first key of the system itself that is no setting."""
        prefix = f"systems.{system}."
        for name in config.below(prefix):
            if not name.startswith(("samza.", "streams.")) and not _is_one_of(name, self.system_names):
                hint = suggest_or_list(name, self.system_names)
                raise config.error(prefix + name, f"is no setting of {self.kind} systems; {hint}")

    def of_streams(self, config: Config, system: str) -> Iterator[tuple[str, str, str]]:
        """Yield each key below ``systems.<s>.streams.`` as the stream, the setting, and the whole key.

        Settings that all systems have are among them. Raises ConfigError where there is no such setting."""
        prefix = f"systems.{system}.streams."
        longest_first = sorted(self.stream_names, key=len, reverse=True)
        for rest in config.below(prefix):
            key = prefix + rest
            setting = next((each for each in longest_first if _split(rest, each)), "")
            if setting:
                yield _split(rest, setting) or "", setting, key
            elif ".samza." in rest:
                stream, _, setting = rest.partition(".samza.")
                yield stream, f"samza.{setting}", key
            elif config_keys.find(key) is not None:
                stream, _, setting = rest.rpartition(".")
                yield stream, setting, key
            else:
                hint = suggest_or_list(rest.partition(".")[2], self.stream_names)
                raise config.error(key, f"is no setting of the streams of {self.kind} systems; {hint}")


_fields: dict[type[SystemSettings], dict[str, _Field]] = {}


def fields(declaration: type[SystemSettings]) -> dict[str, _Field]:
    """Return the fields of a declaration by name."""
    if declaration not in _fields:
        types = get_type_hints(declaration)
        _fields[declaration] = {
            each.name: _field(each, types[each.name]) for each in dataclasses.fields(declaration)
        }
    return _fields[declaration]


_KINDS: dict[type, Kind] = {int: "integer", bool: "boolean", tuple: "names", Path: "path"}


def _field(declared: dataclasses.Field[Any], type_: Any) -> _Field:
    types = [each for each in get_args(type_) if each is not NoneType]
    is_optional = NoneType in get_args(type_)
    type_ = types[0] if is_optional else type_
    values = get_args(type_) if get_origin(type_) is Literal else ()
    kind = str if values else get_origin(type_) or type_
    is_required = declared.default is MISSING
    default = None if is_required or declared.default == () else _written(declared.default)
    name = declared.name.replace("_", ".") + (".<n>" if kind is dict else "")
    description, least = declared.metadata["description"], declared.metadata["least"]
    key = Key(name, _KINDS.get(kind, "text"), default, description, values, least)
    return _Field(declared.name, kind, key, is_required and kind is not dict)


def _written(default: Any) -> str | None:
    """Return a default as it would stand in a configuration."""
    if default is None:
        return None
    return str(default).lower() if isinstance(default, bool) else str(default)


def _keys(declarations: Iterable[type[SystemSettings]]) -> Iterator[Key]:
    for declaration in declarations:
        for each in fields(declaration).values():
            yield each.key
            if each.type is Secret:
                name, noun = each.key.pattern, each.key.pattern.rpartition(".")[2]
                yield Key(f"{name}.env", "text", None, f"the environment variable that holds the {noun}")
                yield Key(f"{name}.file", "path", None, f"the file that holds the {noun}")


def _value(config: Config, field: _Field, system: str, stream: str | None) -> Any:
    name = field.key.pattern
    own = f"systems.{system}.{'' if stream is None else f'streams.{stream}.'}{name}"
    if field.type is dict:
        return config.below(own.removesuffix("<n>"))
    if field.type is Secret:
        for key in dict.fromkeys((own, f"systems.{system}.{name}")):
            found = config.secret(key)
            if found is not None:
                return Secret(key, found)
        return None
    return _at(config, field, own if stream is None else config.stream_key(system, stream, name))


def _at(config: Config, field: _Field, key: str) -> Any:
    """Read the value of a field from a key."""
    known = field.key
    if field.type is tuple:
        return tuple(config.names(key))
    text = config.text(key, known)
    if text is None and not field.is_required:
        return None
    if field.type is int:
        return config.integer(key, known)
    if field.type is bool:
        return config.boolean(key, known)
    if field.type is Path:
        return config.path(key, known.meaning)
    return config.required(key, known.meaning, known)


def _is_one_of(name: str, patterns: Iterable[str]) -> bool:
    return any(name == each or ("<" in each and name.startswith(each.partition("<")[0])) for each in patterns)


def _split(rest: str, setting: str) -> str | None:
    """Return the stream of ``STREAM.setting``; None where it is another setting."""
    mark, is_open, _ = setting.partition("<")
    if is_open:
        stream, found, _ = rest.partition(f".{mark}")
        return stream if found else None
    return rest.removesuffix(f".{setting}") if rest.endswith(f".{setting}") else None
