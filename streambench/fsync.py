"""Files and directory entries that outlive a loss of power."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path


def fsync_directory(directory: Path) -> None:
    """Force a directory to the disk: the names of files that were created or renamed in it."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_file(path: Path, data: bytes, *, force: bool) -> None:
    """Write a file that is not there yet; with ``force``, durably. Raises OSError."""
    with open(path, "xb") as file:
        file.write(data)
        if force:
            file.flush()
            os.fsync(file.fileno())


@contextmanager
def temporary_beside(path: Path) -> Iterator[Path]:
    """A name beside a file for what is put in its place. Nothing is left under it in the end."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def write_durably(path: Path, data: bytes, check: Callable[[], object] | None = None) -> None:
    """Put a file in place in one step, by way of a temporary one: a reader finds the old one or the new one,
    whole.

    ``check`` is called when the temporary one is there; if it raises, nothing has happened. An OSError names
    the file itself."""
    with temporary_beside(path) as temporary:
        try:
            write_file(temporary, data, force=True)
            if check is not None:
                check()
            os.replace(temporary, path)
        except OSError as error:
            if str(error.filename) == str(temporary):
                error.filename = str(path)
            raise
    fsync_directory(path.parent)


def create_durably(
    path: Path, data: bytes, *, force: bool = True, check: Callable[[], object] | None = None
) -> bool:
    """Put a file in place in one step, unless there is one: False then. Of several writers, one wins.

    Without ``force`` it is not durable, though as whole as with it. ``check``: as for ``write_durably``."""
    with temporary_beside(path) as temporary:
        try:
            write_file(temporary, data, force=force)
            if check is not None:
                check()
            os.link(temporary, path)
        except FileExistsError:
            return False
    if force:
        fsync_directory(path.parent)
    return True


def remove_temporary(directory: Path, prefix: str) -> None:
    """Remove the temporary files for names that begin so. A writer that was about to rename one of them
    cannot do so any more. ``prefix`` is a regular expression."""
    pattern = re.compile(rf"\.{prefix}.*\.\d+\.[0-9a-f]{{8}}")
    for name in os.listdir(directory):
        if pattern.fullmatch(name):
            (directory / name).unlink(missing_ok=True)
