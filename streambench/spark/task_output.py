"""The output of tasks where Spark keeps none: a file of each container, for its last round."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

log = logging.getLogger(__name__)

_STDOUT, _STDERR = 1, 2
_APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC


def output_file(directory: str, number: int) -> Path:
    """The file of a container."""
    return Path(directory, f"container-{number}.log")


@contextmanager
def kept_output(directory: str, number: int) -> Iterator[None]:
    """Append to its file what the container prints, subprocesses and C code included.

    A Python worker of Spark has one container at a time. ``directory``: where the files are. Where it is
    empty or cannot be written to, the output goes where it went."""
    try:
        file = os.open(output_file(directory, number), _APPENDING, 0o600) if directory else None
    except OSError:
        file = None
    if file is None:
        yield
        return
    former = [(at, os.dup(at)) for at in (_STDOUT, _STDERR)]
    _flush()
    try:
        for at, _ in former:
            os.dup2(file, at)
        yield
    finally:
        _flush()
        for at, other in former:
            os.dup2(other, at)
            os.close(other)
        os.close(file)


def begin(directory: Path | None) -> str:
    """The directory of the files, without those of the round before; empty where it cannot be made.
    ``directory``: the job's, if it has one."""
    if directory is None:
        return ""
    own = directory / "output"
    try:
        own.mkdir(parents=True, exist_ok=True)
        for each in own.glob("container-*.log"):
            each.unlink()
    except OSError as error:
        log.warning("what tasks print is not kept: %s: %s", own, error.strerror)
        return ""
    return str(own)


def log_of(directory: str, number: int) -> str:
    """The path of the file of a container that has printed something, else empty."""
    file = output_file(directory, number)
    with suppress(OSError):
        return str(file) if directory and file.stat().st_size else ""
    return ""


def _flush() -> None:
    for each in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):
            each.flush()
