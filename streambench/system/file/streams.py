"""The files that a stream is made of, and their formats."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from msgspec import Struct

from streambench.config import Config
from streambench.errors import ConfigError, StreamSystemError, UnknownStreamError
from streambench.suggestions import suggest
from streambench.system.settings import SettingsTable, SystemSettings, setting

PATH = "a file, or the directory with the files of all streams"

Format = Literal["jsonl", "csv", "text"]


@dataclass(frozen=True, kw_only=True)
class FileSettings(SystemSettings):
    """The settings of a file system, which each of its streams may have for itself."""

    path: Path | None = setting(None, PATH)
    format: Format | None = setting(None, "what messages are. Default: by the file name")
    follow: bool = setting(False, "read what is appended as it comes; false: end where the file ended")
    key_field: str | None = setting(
        None, "the field of jsonl or csv that is the key. Default: there are no keys"
    )


SETTINGS = SettingsTable("file", both=(FileSettings,))

FORMATS: dict[str, Format] = {
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".csv": "csv",
    ".txt": "text",
    ".log": "text",
}
ENDINGS = tuple(ending + zipped for ending in FORMATS for zipped in ("", ".gz"))


class PartitionFile(Struct, frozen=True):
    """One partition: its file, and how to read it. ``name`` is for errors."""

    name: str
    path: Path
    format: Format
    follow: bool
    key_field: str | None

    @property
    def compressed(self) -> bool:
        return self.path.suffix == ".gz"


class FileStreams:
    """The streams of one file system, as they are on the disk at the moment of asking. Raises ConfigError for
    settings that are wrong."""

    def __init__(self, system: str, config: Config) -> None:
        self.system = system
        self._config = config
        list(SETTINGS.of_streams(config, system))

    def partitions(self, stream: str) -> list[PartitionFile]:
        """The files of a stream, in the order of its partitions. Raises UnknownStreamError that names the
        path."""
        path = self.path(stream)
        if path is None or not path.exists():
            raise self._unknown(stream, path)
        files = _numbered(path) if path.is_dir() else [path]
        if not files:
            raise UnknownStreamError(
                f"there is no stream {self.system}.{stream}: {path} holds no partitions (0.jsonl, 1.jsonl, "
                "...)"
            )
        return [self._partition_file(stream, number, file) for number, file in enumerate(files)]

    def path(self, stream: str) -> Path | None:
        """The file of a stream, or the directory of its partitions; None where nothing like it is there."""
        own = self._own_path(stream)
        if own is not None:
            return own
        root = self._root()
        if _is_file(root):
            return root if stream == _stem(root.name) else None
        if not _is_name(stream):
            return None
        # A directory of partitions has the name of the stream; a file also has an ending.
        there = [
            path
            for path in (root / stream, *(root / (stream + ending) for ending in ENDINGS))
            if path.exists()
        ]
        there = [path for path in there if path.name != stream or path.is_dir()]
        if len(there) > 1:
            raise StreamSystemError(
                f"{self.system}.{stream} could be any of {', '.join(path.name for path in there)} in {root}: "
                f"say which with systems.{self.system}.streams.{stream}.path=..."
            )
        return there[0] if there else None

    def new_path(self, stream: str, partitions: int) -> Path:
        """The path to create a stream at: a file, or a directory for several partitions."""
        own = self._own_path(stream)
        if own is None and _is_file(self._root()):
            if stream != _stem(self._root().name):
                raise self._unknown(stream, None)
            own = self._root()
        if own is not None:
            if partitions > 1 and _is_file(own):
                raise StreamSystemError(
                    f"{self.system}.{stream}: {own} is one file, and can only be one partition, not "
                    f"{partitions}"
                )
            return own
        if not _is_name(stream):
            raise StreamSystemError(
                f"{self.system}.{stream}: a stream of files is named without '/', and does not begin with '.'"
            )
        return self._root() / (stream if partitions > 1 else stream + self.ending(stream))

    def new_file(self, stream: str) -> PartitionFile:
        """The first partition of a stream that is to be created. Raises ConfigError, StreamSystemError."""
        return self._partition_file(stream, 0, self.new_path(stream, 1))

    def ending(self, stream: str) -> str:
        """The suffix of the files of a new stream."""
        found = FileSettings.read(self._config, self.system, stream)
        return ".txt" if found.format == "text" else ".jsonl"

    def names(self) -> list[str]:
        """The names of all streams, sorted."""
        prefix = f"systems.{self.system}.streams."
        names = {rest.removesuffix(".path") for rest in self._config.below(prefix) if rest.endswith(".path")}
        if self._config.text(f"systems.{self.system}.path") is not None:
            root = self._root()
            if _is_file(root):
                names |= {_stem(root.name)} if root.exists() else set()
            elif root.is_dir():
                for entry in os.scandir(root):
                    if _is_name(entry.name) and (
                        _numbered(Path(entry.path)) if entry.is_dir() else entry.name.endswith(ENDINGS)
                    ):
                        names.add(entry.name if entry.is_dir() else _stem(entry.name))
        return sorted(names)

    def _root(self) -> Path:
        key = f"systems.{self.system}.path"
        return self._no_pattern(
            key, self._config.path(key, f"{PATH}, such as systems.{self.system}.path=data")
        )

    def _own_path(self, stream: str) -> Path | None:
        key = f"systems.{self.system}.streams.{stream}.path"
        return self._no_pattern(key, self._config.path(key)) if self._config.text(key) is not None else None

    def _no_pattern(self, key: str, path: Path) -> Path:
        """The path. Raises ConfigError where it is a pattern, which only a shell would fill in."""
        there = next((each for each in path.parents if each.exists()), path)
        if not path.exists() and set(str(path.relative_to(there))) & set("*?["):
            raise self._config.error(
                key,
                f"{path} is a pattern, and not the path of a file or directory: write the directory, "
                f"{there}; each file in it is a stream by its name, and a directory in it whose files are "
                "0.jsonl, 1.jsonl, ... is one of several partitions",
            )
        return path

    def _partition_file(self, stream: str, number: int, path: Path) -> PartitionFile:
        config, found = self._config, FileSettings.read(self._config, self.system, stream)
        if found.follow and path.suffix == ".gz":
            raise config.error(
                config.stream_key(self.system, stream, "follow"),
                f"{path} is compressed, and what is appended to such a file cannot be followed",
            )
        form = found.format or FORMATS.get(Path(path.name.removesuffix(".gz")).suffix)
        if form is None:
            raise config.error(
                config.stream_key(self.system, stream, "format"),
                f"is missing: the name of {path} does not show whether it is jsonl, csv or text",
            )
        if form == "text" and found.key_field is not None:
            raise config.error(
                config.stream_key(self.system, stream, "key.field"),
                f"{path} is read as text, and lines of text have no fields; set format=jsonl or format=csv",
            )
        return PartitionFile(f"{self.system}.{stream}.{number}", path, form, found.follow, found.key_field)

    def _unknown(self, stream: str, path: Path | None) -> UnknownStreamError:
        name = f"{self.system}.{stream}"
        if path is not None:
            return UnknownStreamError(f"there is no stream {name}: there is no file {path}")
        try:
            root, known = self._root(), self.names()
        except ConfigError as error:
            return UnknownStreamError(f"there is no stream {name}: {error}")
        if _is_file(root):
            return UnknownStreamError(
                f"there is no stream {name}: {root} is one file, and its stream is "
                f"{self.system}.{_stem(root.name)}"
            )
        others = ", ".join(f"{self.system}.{each}" for each in known) or "none at all"
        hint = suggest(stream, known, f"there are: {others}", prefix=f"{self.system}.")
        return UnknownStreamError(
            f"there is no stream {name}: no file {root / stream}.jsonl (or .csv, .txt, .log, also with .gz, "
            f"or a directory); {hint}"
        )


def _is_name(name: str) -> bool:
    return not name.startswith(".") and "/" not in name and os.sep not in name and "\0" not in name


def _is_file(path: Path) -> bool:
    return path.is_file() or (not path.is_dir() and path.name.endswith(ENDINGS))


def _stem(name: str) -> str:
    """The name of the stream in a file of this name."""
    return next(
        (
            name.removesuffix(ending)
            for ending in sorted(ENDINGS, key=len, reverse=True)
            if name.endswith(ending)
        ),
        name,
    )


def _numbered(directory: Path) -> list[Path]:
    """The partitions in a directory: 0.jsonl, 1.jsonl, ... Empty where it has none; raises StreamSystemError
    where one is missing."""
    found: dict[int, Path] = {}
    for path in directory.iterdir():
        if path.name.endswith(ENDINGS) and _stem(path.name).isdecimal():
            other = found.setdefault(int(_stem(path.name)), path)
            if other != path:
                raise StreamSystemError(
                    f"{directory}: {other.name} and {path.name} are both partition {_stem(path.name)}"
                )
    missing = next((number for number in range(len(found)) if number not in found), None)
    if missing is not None:
        raise StreamSystemError(
            f"{directory}: there is no file of partition {missing}; the files are numbered from 0 on, "
            "without a gap"
        )
    return [found[number] for number in sorted(found)]
