"""Files that are written beside their places, and put there when all of them are whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from streambench.errors import StreambenchError
from streambench.fsync import fsync_directory, temporary_beside


class StagedFiles:
    """Files of one command. Unless ``put_in_place`` is reached, none of them is changed; a reader finds the
    old file or the new one, whole. A context manager that removes what is left over."""

    def __init__(self) -> None:
        self._staged: dict[Path, Path] = {}
        self._temporary = ExitStack()

    def add(self, path: Path) -> Path:
        """The file to be written now in place of ``path``, whose directory is created. Raises
        StreambenchError."""
        with _writable(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        self._staged[path] = self._temporary.enter_context(temporary_beside(path))
        return self._staged[path]

    def write(self, path: Path, data: bytes) -> None:
        """Stage these bytes. Raises StreambenchError."""
        staged = self.add(path)
        with _writable(path):
            staged.write_bytes(data)

    def put_in_place(self) -> None:
        """Force all of them to the disk, then rename them to their places. Raises StreambenchError."""
        for path, staged in self._staged.items():
            with _writable(path), open(staged, "rb") as file:
                os.fsync(file.fileno())
        for path, staged in self._staged.items():
            with _writable(path):
                os.replace(staged, path)
                fsync_directory(path.parent)

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, *error: object) -> None:
        self._temporary.close()


@contextmanager
def _writable(path: Path) -> Iterator[None]:
    """Raise StreambenchError where the system refuses to write a file meanwhile."""
    try:
        yield
    except OSError as error:
        raise cannot_be_written(path, error) from None


def cannot_be_written(path: Path, error: OSError) -> StreambenchError:
    """The error of a file that the system refuses."""
    return StreambenchError(f"{path} cannot be written: {error.strerror or error}")
