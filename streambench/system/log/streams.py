"""The log itself: a directory of streams, each with a ``stream.json`` that says how many partitions it has
and its settings.

By ``stream.json`` a stream is distinguished from a later one of the same name, so that file never changes.
Once partitions were added, how many there are now stands in ``partitions.json``."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from crc32c import crc32c
from msgspec import Struct

from streambench.errors import (
    CorruptDataError,
    StreamExistsError,
    StreamSystemError,
    UnknownStreamError,
    no_partition,
)
from streambench.fsync import (
    create_durably,
    fsync_directory,
    remove_temporary,
    write_durably,
)
from streambench.locks import LeasedLock
from streambench.suggestions import suggest
from streambench.system.log.handles import Handles, unusable
from streambench.system.log.location import PartitionLocation
from streambench.system.log.partition import Partition
from streambench.system.log.segment import segments
from streambench.system.log.settings import Settings, stream_settings

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}")
_FORMAT = 1
#: A stream with more partitions than any machine has files for could not even be listed.
_MOST_PARTITIONS = 100_000
_GROWN = "partitions.json"
_REMEDY = (
    'bring the file back from a backup, or write {"partitions": N} into it, with the number of '
    "partitions that the stream had"
)


class _About(Struct):
    """The content of ``stream.json``."""

    partitions: int
    settings: dict[str, Any] = {}
    created_ms: int = 0
    format: int = _FORMAT
    crc32c: str = ""


class _Grown(Struct):
    """The content of ``partitions.json``."""

    partitions: int
    crc32c: str = ""


A = TypeVar("A", _About, _Grown)


class LogStream:
    """One stream of a log: its partitions, by number."""

    def __init__(
        self, log: Log, name: str, about: _About, settings: Settings, identity: tuple[int, int]
    ) -> None:
        self.name = name
        self.partitions = about.partitions
        self.created_ms = about.created_ms
        self.settings = settings
        self.grown: tuple[int, int] | None = None
        self.checked = 0
        self._log = log
        self._identity = identity
        self._made: dict[int, Partition] = {}

    def partition(self, number: int) -> Partition:
        """A partition, the same object at each call. Raises UnknownStreamError where the stream has none of
        that number."""
        made = self._made.get(number)
        if made is None:
            if not 0 <= number < self.partitions:
                raise no_partition(f"{self._log.name}.{self.name}", number, self.partitions)
            name = f"{self._log.name}.{self.name}.{number}"
            location = PartitionLocation(
                name, self.name, number, self._log.path / self.name / str(number), self._identity
            )
            made = self._made[number] = Partition(location, self._log.handles, self.settings)
        return made


class Log:
    """A log in a directory. ``streams_settings`` go before what a stream was created with. For errors:
    ``name``, that of its system, and ``path_key``, the key that names the directory.

    Not to be shared among threads: open one for each. Several processes may have the same directory open."""

    def __init__(
        self,
        path: Path,
        name: str = "log",
        settings: Settings | None = None,
        streams_settings: Mapping[str, Mapping[str, Any]] | None = None,
        path_key: str = "",
    ) -> None:
        self.path = path
        self._by_key = f", which {path_key} names" if path_key else ""
        self.name = name
        self.settings = settings or Settings()
        self.handles = Handles()
        self.streams_settings = streams_settings or {}
        self._open: dict[str, tuple[tuple[int, int], LogStream]] = {}

    def stream(self, name: str) -> LogStream:
        """A stream that is there. Raises UnknownStreamError, with names that are near."""
        with self._located(name):
            return self._stream(name)

    @contextmanager
    def _located(self, name: str = "") -> Iterator[None]:
        """Turn errors of the operating system into a StreamSystemError that names the file."""
        try:
            yield
        except OSError as error:
            raise unusable(f"{self.name}.{name}" if name else self.name, self.path / name, error) from error

    def _stream(self, name: str) -> LogStream:
        file = self.path / name / "stream.json"
        try:
            if not _NAME.fullmatch(name):
                raise FileNotFoundError
            stat = os.stat(file)
        except (FileNotFoundError, NotADirectoryError):
            if _NAME.fullmatch(name):
                self._check_described(name)
            raise self._unknown(name) from None
        stamp = (stat.st_ino, stat.st_mtime_ns)
        known = self._open.get(name)
        if known is None or known[0] != stamp:
            about = _read(file)
            settings = self.settings.with_values(about.settings)
            settings = settings.with_values(
                self.streams_settings.get(name, {}), f"systems.{self.name}.streams.{name}."
            )
            known = self._open[name] = stamp, LogStream(self, name, about, settings, stamp)
        stream = known[1]
        grown = _stamp(self.path / name / _GROWN)
        if grown != stream.grown:
            stream.partitions, stream.grown = _grown(self.path / name), grown
        if stream.partitions != stream.checked:
            there = _numbered(self.path / name)
            if there and there[-1] >= stream.partitions:
                if _stamp(self.path / name / _GROWN) != grown:
                    return self.stream(name)  # it has grown since
                raise CorruptDataError(
                    f"{self.path / name / _GROWN} is missing, or {file} is damaged: the stream is to have "
                    f"{stream.partitions} partitions, "
                    f"but there is a partition {there[-1]}; {_REMEDY}"
                )
            stream.checked = stream.partitions
        return stream

    def _check_described(self, name: str) -> None:
        """Raises CorruptDataError where there are partitions of a stream, but nothing that says what it is
        like."""
        file, there = self.path / name / "stream.json", _numbered(self.path / name)
        if there and not file.exists() and any(segments(self.path / name / str(number)) for number in there):
            raise CorruptDataError(
                f"{file} is missing, but there are partitions of {self.name}.{name} (up to {there[-1]}); "
                f"{_REMEDY}, or move "
                f"{file.parent} away"
            )

    def partition(self, stream: str, number: int) -> Partition:
        """A partition of a stream that is there. Raises UnknownStreamError."""
        return self.stream(stream).partition(number)

    def streams(self) -> list[str]:
        """The names of all streams, sorted."""
        try:
            names = os.listdir(self.path)
        except FileNotFoundError:
            return []
        except OSError as error:
            raise unusable(self.name, self.path, error) from error
        return sorted(name for name in names if _NAME.fullmatch(name) and self._is_stream(self.path / name))

    @staticmethod
    def _is_stream(directory: Path) -> bool:
        """One whose ``stream.json`` is missing is a stream, too: using it is an error that says so."""
        return (directory / "stream.json").is_file() or any(
            segments(directory / str(number)) for number in _numbered(directory)
        )

    def create(self, name: str, partitions: int = 1, **settings: Any) -> bool:
        """Create a stream, durably; False where it is there with as many partitions, StreamExistsError where
        with others.

        ``settings`` are those of a stream (``**{"retention.ms": 1000}``, or ``retention_ms=1000``); they stay
        with it."""
        if not _NAME.fullmatch(name):
            raise StreamSystemError(
                f"{self.name}.{name}: a stream of a log is named with letters, digits, '.', '_' and '-', at "
                "most 200 of them, "
                "and begins with a letter or a digit"
            )
        if partitions < 1:
            raise StreamSystemError(
                f"{self.name}.{name}: a stream needs at least one partition, not {partitions}"
            )
        self._check_partitions(name, partitions)
        kept = {**stream_settings(self.streams_settings.get(name, {})), **stream_settings(settings)}
        with self._located(name):
            return self._create(name, _About(partitions, kept, time.time_ns() // 1_000_000))

    def _create(self, name: str, about: _About) -> bool:
        directory, partitions = self.path / name, about.partitions
        for _ in range(3):
            self._make_directory(directory)
            try:
                self._check_described(name)
                if create_durably(
                    directory / "stream.json", msgspec.json.format(_with_check(about), indent=2)
                ):
                    return True
                present = max(_read(directory / "stream.json").partitions, _grown(directory))
            except FileNotFoundError:
                continue  # another process deleted the stream between the two steps
            if present != partitions:
                raise StreamExistsError(
                    f"{self.name}.{name} is there already, with {present} partitions and not {partitions}"
                )
            return False
        raise StreamSystemError(
            f"{self.name}.{name} could not be created: it was deleted again and again meanwhile"
        )

    def _make_directory(self, directory: Path) -> None:
        try:
            _make_directory(directory)
        except OSError as error:
            raise StreamSystemError(
                f"{self.name}.{directory.name}: the directory {error.filename or directory} cannot be made"
                f"{self._by_key}: {error.strerror or error}"
            ) from error

    def grow(self, name: str, partitions: int) -> None:
        """Give a stream so many partitions, durably; nothing happens where it has as many or more. Raises
        UnknownStreamError, and StreamSystemError for more than 100,000."""
        directory = self.path / name
        if self.stream(name).partitions >= partitions:
            return
        self._check_partitions(name, partitions)
        lease_s = self.settings.lock_lease_ms / 1000
        path = directory / ".partitions.lock"
        lock = LeasedLock(path, f"{self.name}.{name}", lease_s, lambda: remove_temporary(directory, _GROWN))
        with self._located(name), lock:
            if self.stream(name).partitions < partitions:
                write_durably(directory / _GROWN, _with_check(_Grown(partitions)), lock.check)
                # By the last partition's directory it is noticed where that file is missing one day.
                (directory / str(partitions - 1)).mkdir(exist_ok=True)
                fsync_directory(directory)

    def _check_partitions(self, name: str, partitions: int) -> None:
        if partitions > _MOST_PARTITIONS:
            raise StreamSystemError(
                f"{self.name}.{name}: a stream has at most {_MOST_PARTITIONS:,} partitions, not "
                f"{partitions:,}"
            )

    def delete(self, name: str) -> None:
        """Delete a stream with all it holds. Raises UnknownStreamError."""
        self.stream(name)
        doomed = self.path / f".deleted-{os.getpid()}-{os.urandom(4).hex()}"
        with self._located(name):
            try:
                os.rename(self.path / name, doomed)
            except FileNotFoundError:
                raise self._unknown(name) from None
            fsync_directory(self.path)
            self._open.pop(name, None)
            self.handles.close_below(self.path / name)
            shutil.rmtree(doomed)

    def close(self) -> None:
        """Close all files. What was not flushed is not forced to the disk."""
        self.handles.close_all()
        self._open.clear()

    def __enter__(self) -> Log:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _unknown(self, name: str) -> UnknownStreamError:
        present = self.streams()
        some = [f"{self.name}.{each}" for each in present[:10]] + ["..."] * (len(present) > 10)
        there = f"there are {', '.join(some)}" if present else "there are none at all"
        stream, _, number = name.rpartition(".")
        hint = suggest(name, present, there, prefix=f"{self.name}.")
        if number.isdecimal() and stream in present:
            hint = f"did you mean {self.name}.{stream} with --partition {number}?"
        where = (
            f" in {self.path}" if self.path.is_dir() else f": there is no directory {self.path}{self._by_key}"
        )
        return UnknownStreamError(f"there is no stream {self.name}.{name}{where}; {hint}")


def open_log(path: str | Path, **settings: Any) -> Log:
    """The log in a directory (which need not exist), for use without a job; ``settings`` as in a
    configuration (``segment_bytes=...``)."""
    return Log(Path(path), settings=Settings().with_values(settings))


def _with_check(about: _About | _Grown) -> bytes:
    return msgspec.json.encode(msgspec.structs.replace(about, crc32c=_check_of(about)))


def _check_of(about: _About | _Grown) -> str:
    return (
        f"{crc32c(msgspec.json.encode(msgspec.structs.replace(about, crc32c=''), order='deterministic')):08x}"
    )


def _decoded(file: Path, kind: type[A], what: str) -> A:
    """The content of a file; one that was written by hand need not have a checksum. Raises CorruptDataError
    and OSError."""
    data = file.read_bytes()
    try:
        about = msgspec.json.decode(data, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CorruptDataError(f"{file}: {what} cannot be read ({error}); {_REMEDY}") from None
    return about


def _check(file: Path, about: _About | _Grown, what: str) -> None:
    if about.crc32c not in ("", _check_of(about)):
        raise CorruptDataError(
            f"{file}: {what} does not match its checksum; {_REMEDY} (without crc32c, where you change it by "
            "hand)"
        )


def _read(file: Path) -> _About:
    about = _decoded(file, _About, "what the stream is like")
    if about.format != _FORMAT:
        raise CorruptDataError(
            f"{file}: the stream has format {about.format}; this version reads {_FORMAT}. Use a newer "
            "streambench"
        )
    _check(file, about, "what the stream is like")
    return about


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        stat = os.stat(file)
    except FileNotFoundError:
        return None
    return stat.st_ino, stat.st_mtime_ns


def _grown(directory: Path) -> int:
    """The number of partitions a stream has grown to; 0 where none were added."""
    what = "how many partitions the stream has"
    try:
        grown = _decoded(directory / _GROWN, _Grown, what)
    except FileNotFoundError:
        return 0
    _check(directory / _GROWN, grown, what)
    return grown.partitions


def _numbered(directory: Path) -> list[int]:
    """The partitions of which there is a directory."""
    try:
        with os.scandir(directory) as entries:
            return sorted(int(each.name) for each in entries if each.name.isdecimal() and each.is_dir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def _make_directory(directory: Path) -> None:
    """Make a directory and those above it, durably."""
    if not directory.is_dir():
        if directory.parent != directory:
            _make_directory(directory.parent)
        directory.mkdir(exist_ok=True)
        fsync_directory(directory.parent)
