"""Directories that driver and executors share: proved by a token that one side writes and the other reads.

A path that exists on two machines may be two directories. A log in such a directory would be written on each
executor separately. A deployment that has lost its outputs would look as if it had succeeded.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from msgspec import Struct

from streambench.config import Config
from streambench.errors import StreambenchError
from streambench.fsync import write_file
from streambench.system.systems import Systems, abilities_of

log = logging.getLogger(__name__)

_PREFIX, _SUFFIX = ".streambench-", ".token"
_LEFT_BEHIND_S = 24 * 3600
_READ_ONLY = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
_REMEDY = "on a network file system, or streams and checkpoints must be in Kafka"


class SharedDirectory(Struct, frozen=True):
    """A directory, and the file in it that holds ``token``. Both are empty where the driver may not write
    there: then only the existence of the directory is checked."""

    path: str
    file: str = ""
    token: str = ""


@contextmanager
def tokens(config: Config) -> Iterator[dict[str, SharedDirectory]]:
    """Per configuration key, the directory of the job's streams or checkpoints, with a token in it meanwhile.
    Those that a run would create are created. Raises ConfigError where one cannot be, and StreambenchError
    where one is full, or fails otherwise. One that is only read gets no token, with a warning."""
    written: dict[str, SharedDirectory] = {}
    try:
        for key, directory in _directories(config).items():
            written[key] = _written(key, directory)
        yield written
    finally:
        for each in written.values():
            with contextlib.suppress(OSError):
                os.unlink(each.file)


def check_shared(directories: Mapping[str, SharedDirectory], host: str) -> None:
    """Raise StreambenchError where this process does not see the directories of the driver."""
    for key, each in directories.items():
        if not Path(each.path).is_dir():
            raise StreambenchError(
                f"{key}: the executor on {host} does not see {each.path}; executors and driver must share "
                f"that directory, {_REMEDY}"
            )
        if not each.file:
            continue
        try:
            found = Path(each.file).read_text()
        except OSError:
            found = ""
        if found != each.token:
            raise StreambenchError(
                f"{key}: {each.path} on the executor {host} is another directory than on the driver; nothing "
                f"was read or written. Executors and driver must share it, {_REMEDY}"
            )


def _directories(config: Config) -> dict[str, Path]:
    """Per key, a directory that exists."""
    found: dict[str, Path] = {}
    for system in Systems(config).names():
        names = [name for name in config.below(f"systems.{system}.") if _is_path(name)]
        for key in (f"systems.{system}.{name}" for name in names):
            found[key] = config.path(key)
            if abilities_of(config, system).creates_path:
                _create(config, key, found[key])
    if config.text("task.checkpoint.system") == "file":
        found["task.checkpoint.path"] = config.directory_at("task.checkpoint.path")
        _create(config, "task.checkpoint.path", found["task.checkpoint.path"])
    # Of a file, the directory that it lies in.
    near = {key: path if path.is_dir() else path.parent for key, path in found.items()}
    return {key: path for key, path in near.items() if path.is_dir()}


@cache
def _warn_unproved(key: str, directory: Path) -> None:
    log.warning(
        "%s: this process may not write to %s: it is not proved that executors see the same directory",
        key,
        directory,
    )


def _create(config: Config, key: str, path: Path) -> None:
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise config.error(
            key, f"the directory {path} cannot be created: {error.strerror}; make it, or name another one"
        ) from error


def _is_path(name: str) -> bool:
    return name == "path" or (name.startswith("streams.") and name.endswith(".path"))


def _written(key: str, directory: Path) -> SharedDirectory:
    file, token = directory / f"{_PREFIX}{secrets.token_hex(8)}{_SUFFIX}", secrets.token_hex(16)
    try:
        write_file(file, token.encode(), force=True)
    except OSError as error:
        with contextlib.suppress(OSError):
            file.unlink()
        if error.errno not in _READ_ONLY:
            raise StreambenchError(
                f"{key}: nothing can be written to {directory}: {error.strerror or error}; without that it "
                "is not known if executors see the same directory"
            ) from error
        _warn_unproved(key, directory)
        return SharedDirectory(str(directory))
    # A driver that was killed has left its own.
    now = file.stat().st_mtime
    for other in directory.glob(f"{_PREFIX}*{_SUFFIX}"):
        with contextlib.suppress(OSError):
            if now - other.stat().st_mtime > _LEFT_BEHIND_S:
                other.unlink()
    return SharedDirectory(str(directory), str(file), token)
