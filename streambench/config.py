"""Config: Samza-style properties with typed access, and errors that name the key.

Values are text, as in a properties file; what type a key has, and its default, stands in
``streambench.config_keys``.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import TYPE_CHECKING, Any

from streambench import config_keys, redaction, references
from streambench.config_keys import Key
from streambench.errors import ConfigError
from streambench.masking import is_secret, masked, remember_clear
from streambench.wording import command

if TYPE_CHECKING:
    import javaproperties

log = logging.getLogger(__name__)

# Places and names, which errors have to show even where they come from the environment.
_PLACE_END = re.compile(r"(^|\.)(bootstrap\.servers|host|port|path|class|factory)$")
# Spark has references of its own in its settings, and is given them as command-line arguments.
_UNRESOLVED = "spark."
_SEPARATED = re.compile(r"(\\.|[^\\=:\s])+\s*[=:]")
_RESET = ".samza.reset.offset"
_LANDING = re.compile(r"systems\.[^.]+\.samza\.landing")
_LANDING_LOG = {"systems.log.samza.factory": "log", "systems.log.path": "landed"}
_TRUE_FALSE = {"true": True, "false": False}


_LONGEST_NAME = 255


class Config(Mapping[str, str]):
    """An immutable mapping of configuration keys to text.

    ``Config(mapping)`` turns values of other types to text: True to ``true``, a list to names with commas
    between. A class or function becomes the name that it can be imported by, None nothing at all. Equal
    contents are equal configs. The repr masks what looks like a secret.

    A value may hold references: ``${env:NAME}``, ``${file:PATH}``, ``${file:PATH:KEY}``; ``$${`` stands for
    ``${`` itself. The mapping keeps them as text: ``config[key]``, ``items()``, equality, hash, pickle and
    repr never hold what they stand for. Typed access (``text``, ``integer``, ``below``, ...) resolves them
    where and when it reads, and raises ConfigError where that fails. Plug-ins read by typed access. Keys
    below ``spark.`` are not resolved: Spark resolves ``${env:NAME}`` in its settings itself.
    """

    __slots__ = ("_directory", "_lines", "_origin", "_values")

    def __init__(self, values: Mapping[str, Any] | None = None) -> None:
        self._values = {
            str(key).strip(): _text(value) for key, value in (values or {}).items() if value is not None
        }
        source = values if isinstance(values, Config) else None
        self._lines: dict[str, int] = source._lines if source is not None else {}
        self._origin: str = source._origin if source is not None else ""
        self._directory: Path = source._directory if source is not None else Path.cwd()
        self._imply()

    @classmethod
    def from_text(cls, text: str, *, origin: str = "", directory: Path | None = None) -> Config:
        """Read properties text (``key=value`` lines, ``#`` comments, ``\\`` continues a line).

        ``origin``: what to call it in errors. ``directory``: what relative paths in it are relative to.
        Raises ConfigError with the line where it cannot be read, or where a key stands twice with different
        values.
        """
        # It brings in XML and HTTP: a fifth of the start of a container, whose configuration is read already.
        import javaproperties

        config = cls()
        config._origin = origin
        if directory is not None:
            config._directory = directory
        line = 1
        try:
            for element in javaproperties.parse(io.StringIO(text)):
                if isinstance(element, javaproperties.KeyValue):
                    config._add(element, line)
                line += element.source.count("\n")
        except javaproperties.InvalidUEscapeError as error:
            raise ConfigError(f"{origin or 'the configuration'}, line {line}: {error}") from None
        config._imply()
        return config

    @classmethod
    def from_file(cls, path: str | Path) -> Config:
        """Read a properties file (UTF-8). Raises ConfigError where it cannot be read."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8-sig")  # some editors begin a file with a byte order mark
        except OSError as error:
            raise ConfigError(f"cannot read the configuration {path}: {error.strerror or error}") from None
        except UnicodeDecodeError as error:
            line = error.object.count(b"\n", 0, error.start) + 1
            raise ConfigError(
                f"cannot read the configuration {path}, line {line}: it is not UTF-8 ({error})"
            ) from None
        return cls.from_text(text, origin=path.name, directory=path.resolve().parent)

    @classmethod
    def of(cls, given: Config | Mapping[str, Any] | str | Path) -> Config:
        """Return the Config that a caller means: a Config as it is, a mapping, or the path of a properties
        file. Raises ConfigError where it is none of these, or cannot be read."""
        if isinstance(given, Config):
            return given
        if isinstance(given, str) and "\n" in given:
            raise ConfigError(
                "the configuration is text, not the path of a file: make one of it with "
                "Config.from_text(text)"
            )
        if isinstance(given, str | Path):
            return cls.from_file(given)
        if isinstance(given, Mapping):
            return cls(given)
        raise ConfigError(
            f"{given!r:.80} is no configuration: give a mapping, the path of a properties file, or what "
            "Config.from_file(path) returns"
        )

    def _add(self, element: javaproperties.KeyValue, line: int) -> None:
        key, value = element.key.strip(), element.value.strip()
        source = element.source.strip()
        if not re.search(r"[=:\s]", source):
            raise ConfigError(
                f"{self._origin or 'the configuration'}, line {line}: '{key}' has no value: write {key}=...",
                key=key,
            )
        # A blank may stand for the =, but words in a row are hardly meant so.
        if "." not in key and not _SEPARATED.match(source):
            raise ConfigError(
                f"{self._origin or 'the configuration'}, line {line}: '{source}' is no setting: write "
                "key=value",
                key=key,
            )
        if self._values.get(key, value) != value:
            first = self._lines[key]
            raise ConfigError(
                f"{self._origin or 'the configuration'}, line {line}: {key} is already set in line {first}",
                key=key,
            )
        self._values[key] = value
        self._lines[key] = line

    def _imply(self) -> None:
        """Add what is implied: a system landed in an undefined ``log`` has one in the directory
        ``landed``."""
        if any(_LANDING.fullmatch(key) and value.strip() == "log" for key, value in self._values.items()):
            for key, value in _LANDING_LOG.items():
                self._values.setdefault(key, value)

    def __getitem__(self, key: str) -> str:
        return self._values[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def __hash__(self) -> int:
        return hash(frozenset(self._values.items()))

    def __repr__(self) -> str:
        return f"Config({ {key: masked(key, value) for key, value in self._values.items()} })"

    @property
    def directory(self) -> Path:
        """The base of relative paths: the directory of the file, else the working directory."""
        return self._directory

    @property
    def origin(self) -> str:
        """The name of the file that this was read from; empty for other sources."""
        return self._origin

    def command(self, words: str) -> str:
        """A command of streambench for the job of this configuration, as a remedy names it to the caller.

        ``words``: the command and its options, ``checkpoints --rewind oldest``."""
        return command(words, self._origin or "JOB.properties")

    def with_values(self, values: Mapping[str, Any]) -> Config:
        """A copy in which ``values`` are set; a value of None removes its key."""
        merged: dict[str, Any] = {**self._values, **values}
        copy = Config(self)
        copy._values = {key: _text(value) for key, value in merged.items() if value is not None}
        copy._lines = {key: line for key, line in self._lines.items() if key not in values}
        copy._imply()
        return copy

    def below(self, prefix: str) -> dict[str, str]:
        """All that stands under ``prefix`` (which ends in a dot), without it. Raises ConfigError where a
        reference cannot be resolved."""
        return {
            key[len(prefix) :]: self._resolved(key, value)
            for key, value in self._values.items()
            if key.startswith(prefix)
        }

    def names_below(self, prefix: str) -> list[str]:
        """The names that follow ``prefix`` (which ends in a dot) up to the next dot, sorted: the systems, the
        stores."""
        return sorted({key[len(prefix) :].split(".")[0] for key in self._values if key.startswith(prefix)})

    def text(self, key: str, known: Key | None = None) -> str | None:
        """The value of a key, else its default; an empty value counts as none. Raises ConfigError where it is
        not an allowed one, or holds a reference that cannot be resolved.

        ``known``, here and below: what only a plug-in knows of its key."""
        known = known or config_keys.find(key)
        value = self._resolved(key, self._values.get(key, "").strip()) or (known.default if known else None)
        if value is not None and known and known.values:
            value = value.lower()
            if value not in known.values:
                raise self.error(key, f"'{self._values[key]}' is not one of {', '.join(known.values)}")
        return value

    def required(self, key: str, meaning: str = "", known: Key | None = None) -> str:
        """The value of a key. Raises ConfigError where it is missing, which says what it means (``meaning``:
        of a key of a plug-in)."""
        known = known or config_keys.find(key)
        value = self.text(key, known)
        if value is None:
            what = meaning or (known.meaning if known else "")
            raise self.error(key, f"is missing ({what})" if what else "is missing")
        return value

    def integer(self, key: str, known: Key | None = None) -> int:
        """The value of a key as an int. Raises ConfigError where it is missing, none, or smaller than the key
        allows."""
        known = known or config_keys.find(key)
        value = self.required(key, known=known)
        try:
            number = int(value)
        except ValueError:
            raise self.error(key, f"'{value}' is not a whole number") from None
        if known and known.least is not None and number < known.least:
            raise self.error(key, f"{number} is too small: give {known.least} or more")
        return number

    def boolean(self, key: str, known: Key | None = None) -> bool:
        """The value of a key as a bool: ``true`` or ``false``. Raises ConfigError where it is missing or
        neither."""
        value = self.required(key, known=known).lower()
        if value not in _TRUE_FALSE:
            raise self.error(key, f"'{value}' is neither true nor false")
        return _TRUE_FALSE[value]

    def names(self, key: str) -> list[str]:
        """The value of a key as a list, split at commas; empty where it is missing."""
        return [name.strip() for name in (self.text(key) or "").split(",") if name.strip()]

    def path(self, key: str, meaning: str = "") -> Path:
        """The value of a key as a path, relative ones taken from the directory of the file. Raises
        ConfigError where it is missing, or can be no path."""
        return self.directory / self.relative_path(key, self.required(key, meaning))

    def relative_path(self, key: str, text: str) -> Path:
        """A path that stands in the value of a key. Raises ConfigError where it can be none."""
        path = Path(text)
        try:
            longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
        except UnicodeEncodeError:
            raise self.error(key, f"'{text}' holds a lone surrogate, which no path can") from None
        if "\0" in text:
            raise self.error(key, f"'{text}' holds a null byte, which no path can")
        if longest > _LONGEST_NAME:
            raise self.error(
                key,
                f"'{text[:80]}...' holds a name of {longest} bytes: a file has one of {_LONGEST_NAME} at "
                "most",
            )
        if not text.startswith("~"):
            return path
        try:
            return path.expanduser()
        except RuntimeError:
            raise self.error(
                key, f"there is no home directory for {path.parts[0]}: write the path from / on"
            ) from None

    def directory_at(self, key: str, meaning: str = "") -> Path:
        """As ``path``, of a directory that need not be there. Raises ConfigError where a file is in its
        place, or above it."""
        path = self.path(key, meaning)
        there = next((each for each in (path, *path.parents) if os.path.exists(each)), path)
        if there.is_file():
            raise self.error(
                key, f"{there} is a file, and this takes a directory: name another one, it will be made"
            )
        return path

    def secret(self, key: str) -> str | None:
        """A password, a token: the value of ``key``. Else the content of the environment variable that
        ``<key>.env`` names, or of the file that ``<key>.file`` names; None where there is neither. Raises
        ConfigError where it cannot be had; the error never shows it."""
        given = [each for each in (key, f"{key}.env", f"{key}.file") if self.text(each) is not None]
        if len(given) > 1:
            raise self.error(given[1], f"{given[0]} is set as well: give one of them")
        if not given:
            return None
        if given == [key]:
            return self.required(key)
        (source,) = given
        found = self._from_environment(source) if source.endswith(".env") else self._from_file(source)
        redaction.remember(found)
        return found

    def _from_environment(self, key: str) -> str:
        """The content of the environment variable that a key names."""
        name = self.required(key)
        found = os.environ.get(name, "").strip()
        if not found:
            raise self.error(key, f"there is no environment variable {name}, or nothing in it")
        return found

    def _from_file(self, key: str) -> str:
        """The content of the file that a key names."""
        path = self.path(key)
        try:
            found = path.read_text(encoding="utf-8-sig").strip()
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is no text"
            raise self.error(key, f"cannot read {path}: {why}") from None
        if not found:
            raise self.error(key, f"there is nothing in {path}")
        return found

    def _resolved(self, key: str, value: str) -> str:
        """The value with its references resolved; secrets are registered, so that errors and logs do not show
        them. Raises ConfigError."""
        if not references.has_references(value) or key.startswith(_UNRESOLVED):
            remember_clear(key, value)
            return value
        try:
            found, fragments = references.resolved(value, self._directory)
        except references.UnresolvedError as error:
            raise ConfigError(f"{self.placed(key)}: {error}", key=key) from None
        for each in fragments:
            if is_secret(key) or not (
                config_keys.find(key) or _PLACE_END.search(key) or each.value.isdecimal()
            ):
                redaction.remember(each.value)
        remember_clear(key, found)
        return found

    def _as_written(self, key: str, text: str) -> str:
        """An error's text with the references of a key in place of what they stand for."""
        value = self._values.get(key, "")
        if references.has_references(value) and not key.startswith(_UNRESOLVED):
            with contextlib.suppress(references.UnresolvedError):
                for each in references.resolved(value, self._directory)[1]:
                    written = each.reference.replace("\\", r"\\")
                    text = re.sub(rf"(?<!\w){re.escape(each.value)}(?!\w)", written, text)
        return text

    def stream_key(self, system: str, stream: str, name: str) -> str:
        """The key that sets ``name`` (``samza.msg.serde``, say) for a stream: its own, else that of its
        system."""
        own = f"systems.{system}.streams.{stream}.{name}"
        return own if own in self._values else f"systems.{system}.{name}"

    def error(self, key: str, what: str) -> ConfigError:
        """A ConfigError that names the key and, where known, its place in the file."""
        return ConfigError(f"{self.placed(key)}: {self._as_written(key, what)}", key=key)

    def placed(self, key: str) -> str:
        """The key and, where known, its place in the file."""
        line = self._lines.get(key)
        return f"{key} ({self._origin or 'line'}{':' if self._origin else ' '}{line})" if line else key

    def warn(self, key: str, what: str) -> None:
        """Log a warning that names the key and, where known, its place in the file."""
        log.warning("%s", self.error(key, what))

    def refuse_java(self, key: str, value: str) -> None:
        """Raise ConfigError where ``value``, of ``key``, names a Java class of Samza; the error names
        ours."""
        if "org.apache.samza" in value:
            raise self.error(key, f"{value} is a Java class of Samza; {_instead_of_java(key, value)}")

    def validate(self) -> None:
        """Raise ConfigError at the first key that is wrong by itself; log a warning where a key or its value
        does nothing here."""
        for key, value in self._values.items():
            known = config_keys.find(key)
            # Half a character can be in no file, stream name or checkpoint.
            if not _is_encodable(key) or not _is_encodable(value):
                raise self.error(key, f"{value!r} is no text: it holds a lone surrogate")
            self._resolved(key, value)
            self.refuse_java(key, value)
            if known is not None:
                self._check_kind(known, key)
            elif config_keys.is_without_meaning(key):
                log.warning("%s is a setting of Samza that has no meaning in streambench; it is ignored", key)
            elif not config_keys.is_open(key):
                suggestion = config_keys.closest_key(key)
                raise self.error(
                    key, "is not a known key" + (f"; did you mean {suggestion}?" if suggestion else "")
                )
            elif (prefix := config_keys.respelled_prefix(key)) and self.below(prefix):
                raise self.error(
                    key, f"is not a known key; did you mean one that begins with {prefix} instead?"
                )

    def _check_kind(self, known: config_keys.Key, key: str) -> None:
        if not self._values[key].strip():
            return
        if known.kind == "integer":
            self.integer(key)
        elif known.kind == "boolean":
            self.boolean(key)
        elif key.endswith(_RESET) and self._values[key].strip().lower() not in _TRUE_FALSE:
            # As in Samza: a word that is not understood must not make a job read everything again.
            log.warning(
                "%s: '%s' is neither true nor false; it counts as false, the checkpoint is used",
                key,
                self._values[key],
            )
        else:
            self.text(key)


def _text(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (list, tuple)):
        return ",".join(map(_text, value))
    if isinstance(value, (type, FunctionType)):
        return f"{value.__module__}:{value.__qualname__}"
    return str(value)


def _instead_of_java(key: str, value: str) -> str:
    name = value.rpartition(".")[2]
    ours = {
        "KafkaSystemFactory": "kafka",
        "InMemorySystemFactory": "memory",
        "RocksDbKeyValueStorageEngineFactory": "rocksdb",
        "InMemoryKeyValueStorageEngineFactory": "memory",
        "StringSerdeFactory": "string",
        "JsonSerdeFactory": "json",
        "IntegerSerdeFactory": "integer",
        "LongSerdeFactory": "long",
        "DoubleSerdeFactory": "double",
        "ByteSerdeFactory": "bytes",
        "MetricsSnapshotReporterFactory": "snapshot",
        "LoggingMetricsReporterFactory": "log",
        "RoundRobinChooserFactory": "round-robin",
        "GroupByPartitionFactory": "partition",
        "GroupBySystemStreamPartitionFactory": "ssp",
    }.get(name)
    return f"write {key}={ours}" if ours else f"{key} takes a Python class here (package.module.Class)"


def _is_encodable(text: str) -> bool:
    """True where UTF-8 can hold the text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
