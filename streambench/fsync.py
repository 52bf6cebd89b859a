"""Files and directory entries that outlive a loss of power."""

from __future__ import annotations

import os
from collections.abc import Callable
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


def write_durably(path: Path, data: bytes, check: Callable[[], object] | None = None) -> None:
    """Put a file in place in one step, by way of a temporary one: a reader finds the old one or the new one,
    whole.

    ``check`` is called when the temporary one is there; if it raises, nothing has happened. An OSError names
    the file itself."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        write_file(temporary, data, force=True)
        if check is not None:
            check()
        os.replace(temporary, path)
    except OSError as error:
        if str(error.filename) == str(temporary):
            error.filename = str(path)
        raise
    finally:
        temporary.unlink(missing_ok=True)
    fsync_directory(path.parent)
