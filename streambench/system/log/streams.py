"""The log itself: a directory of streams, each with a ``stream.json`` that says how many partitions it has and its settings.

By ``stream.json`` a stream is told from a later one of the same name, so that file never changes; once partitions were added, how many
there are now stands in ``partitions.json``.
"""

from __future__ import annotations

import difflib
import os
import re
import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
from filelock import FileLock
from msgspec import Struct

from streambench.durable import make_durable
from streambench.errors import CorruptDataError, StreamExistsError, StreamSystemError, UnknownStreamError, no_partition
from streambench.system.log.appender import Place
from streambench.system.log.handles import Handles, create_durably, write_durably
from streambench.system.log.partition import Partition
from streambench.system.log.settings import Settings, stream_settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_FORMAT = 1
_GROWN = "partitions.json"
_REMEDY = 'bring the file back from a backup, or write {"partitions": N} into it, with the number of partitions that the stream had'


class _About(Struct):
    """What stands in ``stream.json``."""

    partitions: int
    settings: dict[str, Any] = {}
    created_ms: int = 0
    format: int = _FORMAT


class _Grown(Struct):
    """What stands in ``partitions.json``."""

    partitions: int


class LogStream:
    """One stream of a log: its partitions, by number."""

    def __init__(self, log: Log, name: str, about: _About, settings: Settings, identity: tuple[int, int]) -> None:
        self.name = name
        self.partitions = about.partitions
        self.created_ms = about.created_ms
        self.settings = settings
        self.grown: tuple[int, int] | None = None
        self._log = log
        self._identity = identity
        self._made: dict[int, Partition] = {}

    def partition(self, number: int) -> Partition:
        """A partition, the same object at each call. Raises UnknownStreamError where the stream has none of that number."""
        made = self._made.get(number)
        if made is None:
            if not 0 <= number < self.partitions:
                raise no_partition(f"{self._log.name}.{self.name}", number, self.partitions)
            name = f"{self._log.name}.{self.name}.{number}"
            place = Place(name, self.name, number, self._log.path / self.name / str(number), self._identity)
            made = self._made[number] = Partition(place, self._log.handles, self.settings)
        return made


class Log:
    """A log in a directory. ``name`` is that of its system, for errors; ``streams_settings`` go before what a stream was created with.

    Not to be shared among threads: open one for each. Several processes may have the same directory open."""

    def __init__(
        self,
        path: Path,
        name: str = "log",
        settings: Settings | None = None,
        streams_settings: Mapping[str, Mapping[str, Any]] | None = None,
    ) -> None:
        self.path = path
        self.name = name
        self.settings = settings or Settings()
        self.handles = Handles()
        self.streams_settings = streams_settings or {}
        self._open: dict[str, tuple[tuple[int, int], LogStream]] = {}

    def stream(self, name: str) -> LogStream:
        """A stream that is there. Raises UnknownStreamError, with names that are near."""
        file = self.path / name / "stream.json"
        try:
            if not _NAME.fullmatch(name):
                raise FileNotFoundError
            stat = os.stat(file)
        except (FileNotFoundError, NotADirectoryError):
            raise self._unknown(name) from None
        stamp = (stat.st_ino, stat.st_mtime_ns)
        known = self._open.get(name)
        if known is None or known[0] != stamp:
            about = _read(file)
            settings = self.settings.with_values(about.settings)
            settings = settings.with_values(self.streams_settings.get(name, {}), f"systems.{self.name}.streams.{name}.")
            known = self._open[name] = stamp, LogStream(self, name, about, settings, stamp)
        stream = known[1]
        grown = _stamp(self.path / name / _GROWN)
        if grown != stream.grown:
            stream.partitions, stream.grown = _grown(self.path / name), grown
        return stream

    def partition(self, stream: str, number: int) -> Partition:
        """A partition of a stream that is there. Raises UnknownStreamError."""
        return self.stream(stream).partition(number)

    def streams(self) -> list[str]:
        """The names of all streams, sorted."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        return sorted(name for name in names if _NAME.fullmatch(name) and (self.path / name / "stream.json").is_file())

    def create(self, name: str, partitions: int = 1, **settings: Any) -> bool:
        """Create a stream, durably; False where it is there with as many partitions, StreamExistsError where with others.

        ``settings`` are those of a stream (``**{"retention.ms": 1000}``, or ``retention_ms=1000``); they stay with it."""
        if not _NAME.fullmatch(name):
            raise StreamSystemError(
                f"{self.name}.{name}: a stream of a log is named with letters, digits, '.', '_' and '-', at most 200 of them, "
                "and begins with a letter or a digit"
            )
        if partitions < 1:
            raise StreamSystemError(f"{self.name}.{name}: a stream needs at least one partition, not {partitions}")
        kept = {**stream_settings(self.streams_settings.get(name, {})), **stream_settings(settings)}
        about = _About(partitions, kept, time.time_ns() // 1_000_000)
        directory = self.path / name
        for _ in range(3):
            _make_directory(directory)
            try:
                if create_durably(directory / "stream.json", msgspec.json.format(msgspec.json.encode(about), indent=2)):
                    return True
                present = max(_read(directory / "stream.json").partitions, _grown(directory))
            except FileNotFoundError:
                continue  # somebody deleted the stream between the two steps
            if present != partitions:
                raise StreamExistsError(f"{self.name}.{name} is there already, with {present} partitions and not {partitions}")
            return False
        raise StreamSystemError(f"{self.name}.{name} could not be created: it was deleted again and again meanwhile")

    def grow(self, name: str, partitions: int) -> None:
        """Give a stream so many partitions, durably; nothing happens where it has as many or more. Raises UnknownStreamError."""
        directory = self.path / name
        if self.stream(name).partitions >= partitions:
            return
        with FileLock(directory / ".partitions.lock"):
            if self.stream(name).partitions < partitions:
                write_durably(directory / _GROWN, msgspec.json.encode(_Grown(partitions)))

    def delete(self, name: str) -> None:
        """Delete a stream with all it holds. Raises UnknownStreamError."""
        self.stream(name)
        doomed = self.path / f".deleted-{os.getpid()}-{os.urandom(4).hex()}"
        try:
            os.rename(self.path / name, doomed)
        except FileNotFoundError:
            raise self._unknown(name) from None
        make_durable(self.path)
        self._open.pop(name, None)
        self.handles.close_below(self.path / name)
        shutil.rmtree(doomed)

    def close(self) -> None:
        """Let go of all files. What was not flushed is not forced to the disk."""
        self.handles.close_all()
        self._open.clear()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _unknown(self, name: str) -> UnknownStreamError:
        present = self.streams()
        near = difflib.get_close_matches(name, present, n=3)
        if near:
            hint = f"did you mean {', '.join(f'{self.name}.{each}' for each in near)}?"
        elif present:
            hint = f"there are {', '.join(f'{self.name}.{each}' for each in present[:10])}{', ...' if len(present) > 10 else ''}"
        else:
            hint = "there are none at all"
        return UnknownStreamError(f"there is no stream {self.name}.{name} in {self.path}; {hint}")


def open_log(path: str | Path, **settings: Any) -> Log:
    """The log in a directory (which need not exist), for use without a job; ``settings`` as in a configuration (``segment_bytes=...``)."""
    return Log(Path(path), settings=Settings().with_values(settings))


def _read(file: Path) -> _About:
    try:
        about = msgspec.json.decode(file.read_bytes(), type=_About)
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"{file}: what the stream is like cannot be read ({error}); {_REMEDY}") from None
    if about.format != _FORMAT:
        raise CorruptDataError(f"{file}: the stream has format {about.format}; this version reads {_FORMAT}. Use a newer streambench")
    return about


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(file)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _grown(directory: Path) -> int:
    """How many partitions a stream has grown to; 0 where none were added."""
    file = directory / _GROWN
    try:
        return msgspec.json.decode(file.read_bytes(), type=_Grown).partitions
    except FileNotFoundError:
        return 0
    except msgspec.DecodeError as error:
        raise CorruptDataError(f"{file}: how many partitions the stream has cannot be read ({error}); {_REMEDY}") from None


def _make_directory(directory: Path) -> None:
    """Make a directory and those above it, durably."""
    if not directory.is_dir():
        if directory.parent != directory:
            _make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        make_durable(directory.parent)
