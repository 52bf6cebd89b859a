"""Files that are written beside their places, and put there when all of them are whole."""

from __future__ import annotations

import os
from pathlib import Path

from streambench.errors import StreambenchError
from streambench.fsync import fsync_directory


class StagedFiles:
    """Files of one command. Unless ``put_in_place`` is reached, none of them is changed; a reader finds the
    old file or the new one, whole. A context manager that removes what is left over."""

    def __init__(self) -> None:
        self._staged: dict[Path, Path] = {}

    def add(self, path: Path) -> Path:
        """The file to be written now in place of ``path``, whose directory is created. Raises
        StreambenchError."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise cannot_be_written(path, error) from None
        self._staged[path] = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
        return self._staged[path]

    def write(self, path: Path, data: bytes) -> None:
        """Stage these bytes. Raises StreambenchError."""
        staged = self.add(path)
        try:
            staged.write_bytes(data)
        except OSError as error:
            raise cannot_be_written(path, error) from None

    def put_in_place(self) -> None:
        """Force all of them to the disk, then rename them to their places. Raises StreambenchError."""
        for path, staged in self._staged.items():
            try:
                with open(staged, "rb") as file:
                    os.fsync(file.fileno())
            except OSError as error:
                raise cannot_be_written(path, error) from None
        for path, staged in self._staged.items():
            try:
                os.replace(staged, path)
                fsync_directory(path.parent)
            except OSError as error:
                raise cannot_be_written(path, error) from None
        self._staged.clear()

    def __enter__(self) -> StagedFiles:
        return self

    def __exit__(self, *error: object) -> None:
        for staged in self._staged.values():
            staged.unlink(missing_ok=True)


def cannot_be_written(path: Path, error: OSError) -> StreambenchError:
    """The error of a file that the system refuses."""
    return StreambenchError(f"{path} cannot be written: {error.strerror or error}")
