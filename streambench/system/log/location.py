"""The location of a partition's files, and the errors that name it."""

from __future__ import annotations

import os
from pathlib import Path

from msgspec import Struct

from streambench.errors import CorruptDataError, UnknownStreamError
from streambench.fsync import fsync_directory
from streambench.system.log.notes import RECOVERY_POINT


class PartitionLocation(Struct, frozen=True):
    """A partition's name (``name``: system.stream.partition, for errors) and the location of its files."""

    name: str
    stream: str
    partition: int
    directory: Path
    identity: tuple[int, int]

    @property
    def stream_file(self) -> Path:
        return self.directory.parent / "stream.json"

    @property
    def remedy(self) -> str:
        """The remedy for damage, for the end of a sentence."""
        stream = self.name.rpartition(".")[0]
        return (
            "restore the file from a copy, or give up what is lost: "
            f"streambench streams repair {stream} --partition {self.partition} -c JOB.properties (with "
            "--dry-run it only says what that is)"
        )

    def make(self, *, durable: bool) -> None:
        """Make the directory, if it is not there. Raises UnknownStreamError."""
        if not self.directory.exists():
            self.check()
            self.directory.mkdir(exist_ok=True)
            if durable:
                fsync_directory(self.directory.parent)

    def check(self) -> None:
        """Raises UnknownStreamError where the stream has been deleted since this was made (and perhaps
        created again)."""
        try:
            stat = os.stat(self.stream_file)
        except FileNotFoundError:
            raise UnknownStreamError(
                f"{self.name}: the stream has been deleted ({self.stream_file} is gone)"
            ) from None
        if (stat.st_ino, stat.st_mtime_ns) != self.identity:
            raise UnknownStreamError(
                f"{self.name}: the stream has been deleted and created again; begin again with the new one"
            )


def ends_early(location: PartitionLocation, path: Path, upcoming: int, committed: int) -> CorruptDataError:
    """The error for a log that has lost messages at its end which were committed."""
    there = (
        "is missing"
        if not path.exists()
        else f"ends before offset {upcoming}, or cannot be read from there on"
    )
    return CorruptDataError(
        f"{path} {there}, but everything before offset {committed} was committed "
        f"({location.directory / RECOVERY_POINT}): at most the messages "
        f"{upcoming} to {committed - 1} of {location.name} are lost; {location.remedy}"
    )
